// SPDX-License-Identifier: GPL-2.0

//! Socket options with a fixed order of checks.

use crate::policy::{
    error::Error,
    opts::{
        rx_trace_ok,
        transport_request,
        TransportError, //
    },
};

const IB: i32 = 0;
const GAP: i32 = 1;
const TCP: i32 = 2;

/// Each row passes all checks before the one that refuses it and fails all that come after,
/// as far as they can fail together.
#[test]
fn the_transport_is_checked_in_the_order_of_rds() {
    let refused = |error| Err(TransportError::Refused(error));
    for (attached, len, value, init_net, expected) in [
        (true, 0, None, false, refused(Error::NotSupported)),
        (true, 4, Some(IB), true, refused(Error::NotSupported)),
        (false, 0, None, false, refused(Error::Invalid)),
        (false, 3, Some(IB), true, refused(Error::Invalid)),
        (false, 8, Some(IB), true, refused(Error::Invalid)),
        (false, 4, None, false, Err(TransportError::Fault)),
        (false, 4, Some(-1), false, refused(Error::Invalid)),
        (false, 4, Some(3), false, refused(Error::Invalid)),
        (false, 4, Some(i32::MIN), true, refused(Error::Invalid)),
        (false, 4, Some(i32::MAX), true, refused(Error::Invalid)),
        (false, 4, Some(IB), false, refused(Error::ProtoType)),
        (false, 4, Some(GAP), false, refused(Error::ProtoType)),
        (false, 4, Some(TCP), false, refused(Error::NoProtoOpt)),
        (false, 4, Some(GAP), true, refused(Error::NoProtoOpt)),
        (false, 4, Some(TCP), true, refused(Error::NoProtoOpt)),
        (false, 4, Some(IB), true, Ok(())),
    ] {
        assert_eq!(
            transport_request(attached, len, value, init_net),
            expected,
            "attached {attached}, len {len}, value {value:?}, init_net {init_net}"
        );
    }
}

/// All four bytes near their limits, against the loop of `rds_recv_track_latency()`.
#[test]
fn trace_points_agree_with_the_in_tree_loop() {
    let values = [0, 1, 2, 3, 4, 255];
    let mut accepted = 0;
    for count in values {
        for a in values {
            for b in values {
                for c in values {
                    let mut expected = count <= 3;
                    for (i, point) in [a, b, c].into_iter().enumerate() {
                        if i < usize::from(count) && point >= 3 {
                            expected = false;
                        }
                    }
                    assert_eq!(
                        rx_trace_ok([count, a, b, c]),
                        expected,
                        "{count} {a} {b} {c}"
                    );
                    accepted += usize::from(expected);
                }
            }
        }
    }
    // 216 with no point, 3 x 36, 9 x 6, 27 with all three.
    assert_eq!(accepted, 216 + 108 + 54 + 27);
}
