// SPDX-License-Identifier: GPL-2.0
//! setsockopt() and getsockopt(), option by option. Those about keys and quotas
//! have files of their own.

use crate::check::{same, Check, End, Outcome};
use crate::runner::Test;
use crate::site;
use rdsmr::abi::*;
use rdsmr::errno::*;
use rdsmr::Socket;

pub const TESTS: &[Test] = &[
    Test::new("opts.cancel_sent_to", cancel_sent_to),
    Test::new("opts.recverr", recverr),
    Test::new("opts.cong_monitor", cong_monitor),
    Test::new("opts.transport_checks", transport_checks),
    Test::new("opts.transport_once", transport_once),
    Test::new("opts.rxpath_latency", rxpath_latency),
    Test::new("opts.timestamps", timestamps),
    Test::new("opts.set_unknown", set_unknown),
    Test::new("opts.get_known", get_known),
    Test::new("opts.get_unknown", get_unknown),
    Test::new("opts.other_levels", other_levels),
];

/// Nothing is ever mapped there.
const NOWHERE: u64 = 8;

fn set(socket: &Socket, name: i32, value: &[u8]) -> std::io::Result<()> {
    socket.setsockopt(SOL_RDS, name, value)
}

fn set_at(socket: &Socket, name: i32, addr: u64, len: i32) -> std::io::Result<()> {
    socket.setsockopt_at(SOL_RDS, name, addr, len)
}

fn cancel_sent_to() -> Outcome {
    let unbound = site::fresh()?;
    for len in [0, 15, 16, 28] {
        let result = set_at(&unbound, RDS_CANCEL_SENT_TO, NOWHERE, len);
        result.must_fail(
            ENOTCONN,
            format!("cancel, unbound, {len} bytes from nowhere"),
        )?;
    }
    let bound = site::bound()?;
    for len in [0, 2, 15] {
        let result = set_at(&bound, RDS_CANCEL_SENT_TO, NOWHERE, len);
        result.must_fail(EINVAL, format!("cancel, {len} bytes from nowhere"))?;
    }
    for len in [16, 27, 28, 128] {
        let result = set_at(&bound, RDS_CANCEL_SENT_TO, NOWHERE, len);
        result.must_fail(EFAULT, format!("cancel, {len} bytes from nowhere"))?;
        // The family field is not looked at; all zero or all ones is as good.
        for byte in [0, 0xff] {
            let value = vec![byte; len as usize];
            set(&bound, RDS_CANCEL_SENT_TO, &value).must(format!("cancel, {len} x {byte}"))?;
        }
    }
    Ok(())
}

/// Booleans: at least an int, of which only the int is read.
fn boolean(socket: &Socket, name: i32) -> Outcome {
    for len in [0, 1, 3] {
        let result = set_at(socket, name, NOWHERE, len);
        result.must_fail(EINVAL, format!("option {name}, {len} bytes from nowhere"))?;
    }
    for len in [4, 8] {
        let result = set_at(socket, name, NOWHERE, len);
        result.must_fail(EFAULT, format!("option {name}, {len} bytes from nowhere"))?;
    }
    set(socket, name, &[0; 8]).must(format!("option {name}, 8 bytes"))?;
    for value in [1, 0, 7, -1, i32::MIN, 0] {
        socket
            .set_int(SOL_RDS, name, value)
            .must(format!("option {name} = {value}"))?;
    }
    Ok(())
}

fn recverr() -> Outcome {
    for socket in [site::fresh()?, site::bound()?] {
        same(
            "RECVERR at first",
            0,
            socket.get_int(SOL_RDS, RDS_RECVERR).must("RECVERR")?,
        )?;
        boolean(&socket, RDS_RECVERR)?;
        for (value, stored) in [
            (1, 1),
            (0, 0),
            (7, 1),
            (-1, 1),
            (256, 1),
            (i32::MIN, 1),
            (0, 0),
        ] {
            socket
                .set_int(SOL_RDS, RDS_RECVERR, value)
                .must("RECVERR")?;
            let got = socket.get_int(SOL_RDS, RDS_RECVERR).must("RECVERR")?;
            same(format!("RECVERR after {value}"), stored, got)?;
        }
    }
    Ok(())
}

fn cong_monitor() -> Outcome {
    for socket in [site::fresh()?, site::bound()?] {
        boolean(&socket, RDS_CONG_MONITOR)?;
    }
    Ok(())
}

fn transport_of(socket: &Socket) -> Result<i32, End> {
    socket
        .get_int(SOL_RDS, SO_RDS_TRANSPORT)
        .must("getsockopt(SO_RDS_TRANSPORT)")
}

fn transport_checks() -> Outcome {
    let socket = site::fresh()?;
    for len in [0, 3, 5, 8] {
        let result = set_at(&socket, SO_RDS_TRANSPORT, NOWHERE, len);
        result.must_fail(EINVAL, format!("transport, {len} bytes from nowhere"))?;
    }
    let result = set_at(&socket, SO_RDS_TRANSPORT, NOWHERE, 4);
    result.must_fail(EFAULT, "transport from nowhere")?;
    for (value, errno) in [
        (-1, EINVAL),
        (RDS_TRANS_COUNT, EINVAL),
        (99, EINVAL),
        (i32::MAX, EINVAL),
        (i32::MIN, EINVAL),
        (RDS_TRANS_GAP, ENOPROTOOPT),
        (RDS_TRANS_TCP, ENOPROTOOPT),
    ] {
        let result = socket.set_int(SOL_RDS, SO_RDS_TRANSPORT, value);
        result.must_fail(errno, format!("transport {value}"))?;
        let what = format!("transport after {value} was refused");
        same(what, RDS_TRANS_NONE, transport_of(&socket)?)?;
    }
    Ok(())
}

fn transport_once() -> Outcome {
    let chosen = site::fresh()?;
    chosen
        .set_int(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_IB)
        .must("choosing IB")?;
    for (socket, how) in [(chosen, "chosen"), (site::bound()?, "bound")] {
        same(
            format!("transport, {how}"),
            RDS_TRANS_IB,
            transport_of(&socket)?,
        )?;
        for value in [RDS_TRANS_IB, RDS_TRANS_TCP, 99, -1] {
            let result = socket.set_int(SOL_RDS, SO_RDS_TRANSPORT, value);
            result.must_fail(EOPNOTSUPP, format!("transport {value}, {how}"))?;
        }
        for len in [0, 3, 4, 8] {
            let result = set_at(&socket, SO_RDS_TRANSPORT, NOWHERE, len);
            result.must_fail(EOPNOTSUPP, format!("{len} bytes from nowhere, {how}"))?;
        }
        same(
            format!("transport, {how}, at the end"),
            RDS_TRANS_IB,
            transport_of(&socket)?,
        )?;
    }
    Ok(())
}

fn rxpath_latency() -> Outcome {
    let socket = site::fresh()?;
    let trace = |rx_traces, rx_trace_pos| RxTraceSo {
        rx_traces,
        rx_trace_pos,
    };
    for len in [0, 3, 5, 32] {
        let result = set(&socket, SO_RDS_MSG_RXPATH_LATENCY, &vec![0; len]);
        result.must_fail(EFAULT, format!("{len} bytes"))?;
    }
    let result = set_at(&socket, SO_RDS_MSG_RXPATH_LATENCY, NOWHERE, 4);
    result.must_fail(EFAULT, "from nowhere")?;
    let bad = [
        trace(4, [0, 0, 0]),
        trace(255, [0, 0, 0]),
        trace(1, [3, 0, 0]),
        trace(3, [0, 1, 3]),
        trace(2, [0, 255, 0]),
    ];
    for value in bad {
        let result = set(&socket, SO_RDS_MSG_RXPATH_LATENCY, value.as_bytes());
        result.must_fail(EFAULT, format!("{value:?}"))?;
    }
    // Points beyond the count do not matter.
    let good = [
        trace(0, [9, 9, 9]),
        trace(1, [2, 9, 9]),
        trace(3, [0, 1, 2]),
        trace(3, [2, 2, 2]),
    ];
    for value in good {
        let result = set(&socket, SO_RDS_MSG_RXPATH_LATENCY, value.as_bytes());
        result.must(format!("{value:?}"))?;
    }
    Ok(())
}

fn timestamps() -> Outcome {
    let socket = site::fresh()?;
    for name in [SO_TIMESTAMP_OLD, SO_TIMESTAMP_NEW] {
        for len in [0, 3, 5, 8] {
            let result = set(&socket, name, &vec![0; len]);
            result.must_fail(EFAULT, format!("option {name}, {len} bytes"))?;
        }
        let result = set_at(&socket, name, NOWHERE, 4);
        result.must_fail(EFAULT, format!("option {name} from nowhere"))?;
        for value in [1, 0, -1] {
            socket
                .set_int(SOL_RDS, name, value)
                .must(format!("option {name} = {value}"))?;
        }
    }
    Ok(())
}

/// Numbers that mean nothing here, next to those that do, and some that mean
/// something in other versions of RDS.
const UNKNOWN: [i32; 15] = [
    0, 4, 9, 11, 12, 13, 28, 30, 62, 64, 65, 9999, 10018, 19999, 20001,
];

fn set_unknown() -> Outcome {
    for socket in [site::fresh()?, site::bound()?] {
        for name in UNKNOWN
            .into_iter()
            .chain([-1, i32::MAX, RDS_INFO_FIRST, RDS_INFO_LAST])
        {
            let result = socket.set_int(SOL_RDS, name, 1);
            result.must_fail(ENOPROTOOPT, format!("setsockopt {name}"))?;
            let result = set_at(&socket, name, NOWHERE, 4);
            result.must_fail(ENOPROTOOPT, format!("setsockopt {name} from nowhere"))?;
        }
    }
    Ok(())
}

fn get_known() -> Outcome {
    let socket = site::bound()?;
    let map = site::memory(4096)?;
    for name in [RDS_RECVERR, SO_RDS_TRANSPORT] {
        for len in [0, 3] {
            let mut value = vec![0; len];
            let result = socket.getsockopt(SOL_RDS, name, &mut value);
            result.must_fail(EINVAL, format!("getsockopt {name}, {len} bytes"))?;
        }
        for len in [4, 5, 64] {
            let mut value = vec![0xaa; len];
            let got = socket.getsockopt(SOL_RDS, name, &mut value);
            same(
                format!("length that getsockopt {name} gives"),
                4,
                got.must("getsockopt")?,
            )?;
            let rest = value[4..].iter().all(|byte| *byte == 0xaa);
            same(
                format!("option {name}: bytes after the int are untouched"),
                true,
                rest,
            )?;
        }
        let len_at = map.at(0);
        map.bytes()[0].store(4, std::sync::atomic::Ordering::Relaxed);
        let result = socket.getsockopt_at(SOL_RDS, name, NOWHERE, len_at);
        result.must_fail(EFAULT, format!("getsockopt {name} to nowhere"))?;
        let result = socket.getsockopt_at(SOL_RDS, name, map.at(64), NOWHERE);
        result.must_fail(EFAULT, format!("getsockopt {name}, length nowhere"))?;
        map.bytes()[0].store(3, std::sync::atomic::Ordering::Relaxed);
        let result = socket.getsockopt_at(SOL_RDS, name, NOWHERE, len_at);
        result.must_fail(EINVAL, format!("getsockopt {name}, short and to nowhere"))?;
    }
    Ok(())
}

fn get_unknown() -> Outcome {
    let write_only = [
        RDS_CANCEL_SENT_TO,
        RDS_GET_MR,
        RDS_FREE_MR,
        RDS_CONG_MONITOR,
        RDS_GET_MR_FOR_DEST,
        SO_RDS_MSG_RXPATH_LATENCY,
        SO_TIMESTAMP_OLD,
        SO_TIMESTAMP_NEW,
    ];
    for socket in [site::fresh()?, site::bound()?] {
        let names = write_only
            .into_iter()
            .chain(UNKNOWN)
            .chain(RDS_INFO_FIRST..=RDS_INFO_LAST);
        for name in names {
            for len in [0, 4, 128] {
                let mut value = vec![0; len];
                let result = socket.getsockopt(SOL_RDS, name, &mut value);
                result.must_fail(ENOPROTOOPT, format!("getsockopt {name}, {len} bytes"))?;
            }
        }
    }
    Ok(())
}

const SOL_SOCKET: i32 = 1;
const SO_REUSEADDR: i32 = 2;
const SO_TYPE: i32 = 3;
const SO_SNDBUF: i32 = 7;
const SO_RCVBUF: i32 = 8;
const SO_PROTOCOL: i32 = 38;
const SO_DOMAIN: i32 = 39;

fn other_levels() -> Outcome {
    let socket = site::bound()?;
    for level in [0, 6, 17, 41, 275, 277, -1] {
        for name in [1, RDS_GET_MR, RDS_FREE_MR, RDS_RECVERR, RDS_MR_QUOTA] {
            let what = format!("level {level}, option {name}");
            socket
                .set_int(level, name, 1)
                .must_fail(ENOPROTOOPT, format!("set {what}"))?;
            let result = socket.setsockopt_at(level, name, NOWHERE, 4);
            result.must_fail(ENOPROTOOPT, format!("set {what} from nowhere"))?;
            let result = socket.get_int(level, name);
            result.must_fail(ENOPROTOOPT, format!("get {what}"))?;
        }
    }
    // The socket layer's own level works as everywhere.
    for (name, value) in [(SO_DOMAIN, AF_RDS), (SO_TYPE, 5), (SO_PROTOCOL, 0)] {
        let got = socket.get_int(SOL_SOCKET, name).must("SOL_SOCKET")?;
        same(format!("SOL_SOCKET {name}"), value, got)?;
    }
    for name in [SO_REUSEADDR, SO_SNDBUF, SO_RCVBUF] {
        socket
            .set_int(SOL_SOCKET, name, 65536)
            .must(format!("SOL_SOCKET {name}"))?;
    }
    Ok(())
}
