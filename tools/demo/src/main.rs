// SPDX-License-Identifier: GPL-2.0
//! rds-mr-demo: the life and death of RDMA keys, told for somebody who sees them
//! for the first time, and confirmed by the HCA at every step.
//!
//! Needs root, a loaded rds_mr.ko and an RDMA device at RDS_MR_ADDR.

mod claims;
mod script;

use claims::Claims;
use rdsmr::abi::RDS_RDMA_READWRITE;
use rdsmr::errno::describe;
use rdsmr::{spawn, stat, Access, Child, Link, Mapping, Socket, Status, PAGE};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

type Result<T> = std::result::Result<T, String>;

/// Names the step that failed and what the kernel said.
trait Step<T> {
    fn step(self, what: impl Display) -> Result<T>;
}

impl<T> Step<T> for std::io::Result<T> {
    fn step(self, what: impl Display) -> Result<T> {
        self.map_err(|error| format!("{what}: {}", describe(&error)))
    }
}

const CLOSED: u64 = 16;
const KILLED: u64 = 64;

/// What the first act registers: name, offset in its first page, bytes.
const BUFFERS: [(&str, u64, u64); 4] = [
    ("one page", 0, PAGE),
    ("a single byte at the end of a page", 4095, 1),
    ("4097 bytes that start at byte 1", 1, 4097),
    ("1 MiB that starts at byte 4095", 4095, 1 << 20),
];

fn pages(offset: u64, bytes: u64) -> u64 {
    (offset + bytes - 1) / PAGE + 1
}

struct Stage {
    home: SocketAddr,
    /// A socket of a bystander: it asks about the keys of others.
    prober: Socket,
    claims: Claims,
}

impl Stage {
    fn new() -> Result<Self> {
        let text = std::env::var("RDS_MR_ADDR").unwrap_or_else(|_| "10.77.0.1".to_string());
        let ip: IpAddr = text
            .parse()
            .map_err(|_| format!("RDS_MR_ADDR=\"{text}\" is no address"))?;
        let home = SocketAddr::new(ip, 0);
        let prober = Socket::new().step("cannot make an AF_RDS socket; is rds_mr.ko loaded?")?;
        let hint = "is there an RDMA device with this address?";
        prober
            .bind(home)
            .step(format!("cannot bind a socket to {ip}; {hint}"))?;
        Ok(Stage {
            home,
            prober,
            claims: Claims::default(),
        })
    }

    fn ask(&self, cookie: u64, offset: u64) -> Result<Access> {
        self.prober
            .probe(cookie, offset)
            .step("the probe gave no verdict (it needs root)")
    }

    /// One claim about many keys: the HCA says `wanted` to byte 0 of all of them.
    fn claim_all(&mut self, text: &str, cookies: &[u64], wanted: Access) -> Result<()> {
        let mut agreed = 0;
        for cookie in cookies {
            agreed += usize::from(self.ask(*cookie, 0)? == wanted);
        }
        let answer = format!("{agreed} of {}: {}", cookies.len(), word(wanted));
        self.claims
            .add(text, answer, agreed == cookies.len() && agreed > 0);
        Ok(())
    }

    fn claim_pins(&mut self, text: &str, wanted: i64) -> Result<()> {
        let pins = pins()?;
        let answer = format!("{} pages still pinned", pins - wanted);
        self.claims.add(text, answer, pins == wanted);
        Ok(())
    }
}

fn word(access: Access) -> &'static str {
    match access {
        Access::Alive => "alive",
        Access::Refused => "access error",
    }
}

fn pins() -> Result<i64> {
    stat::pins().step("cannot read the kernel's pin counters")
}

fn vm_pin() -> Result<u64> {
    stat::own_vm_pin_kib().step("cannot read VmPin")
}

/// Keys of one page each, by turns readable and writable.
fn register(home: SocketAddr, map: &Mapping, keys: u64) -> Result<(Socket, Vec<u64>)> {
    let socket = Socket::bound(home).step("cannot bind")?;
    let get = |n| {
        let flags = n % 2 * RDS_RDMA_READWRITE;
        socket
            .get_mr(map.at(n * PAGE), PAGE, flags)
            .step(format!("GET_MR of key {n}"))
    };
    let cookies = (0..keys).map(get).collect::<Result<Vec<_>>>()?;
    Ok((socket, cookies))
}

/// What the process of the first two acts holds.
struct Held {
    socket: Socket,
    cookies: Vec<u64>,
    pins_before: i64,
    _map: Mapping,
}

fn birth(stage: &mut Stage) -> Result<Held> {
    println!("{}", script::BIRTH);
    let map = Mapping::anonymous((1 << 20) + 2 * PAGE).step("mmap")?;
    let socket = Socket::bound(stage.home).step("cannot bind")?;
    let pins_before = pins()?;
    let mut cookies = Vec::new();
    let (mut inside, mut outside, mut total) = (0, 0, 0);
    for (name, offset, bytes) in BUFFERS {
        let got = socket.get_mr(map.at(offset), bytes, 0);
        let cookie = got.step(format!("GET_MR of {name}"))?;
        let pages = pages(offset, bytes);
        println!("     {name}: key {:#010x}, pages: {pages}", cookie as u32);
        let edge = |at, wanted| Ok::<_, String>(u32::from(stage.ask(cookie, at)? == wanted));
        inside += edge(0, Access::Alive)? + edge(bytes - 1, Access::Alive)?;
        outside += edge(bytes, Access::Refused)?;
        total += pages;
        cookies.push(cookie);
    }
    let claims = &mut stage.claims;
    let answer = format!("{inside} of 8: {}", word(Access::Alive));
    claims.add(
        "GET_MR: first and last bytes can be reached",
        answer,
        inside == 8,
    );
    let answer = format!("{outside} of 4: {}", word(Access::Refused));
    claims.add(
        "GET_MR: the byte behind each buffer cannot",
        answer,
        outside == 4,
    );
    let kib = vm_pin()?;
    let answer = format!("{kib} kB for {total} pages (VmPin)");
    claims.add(
        "GET_MR: the process is charged for its pages",
        answer,
        kib == total * 4,
    );
    Ok(Held {
        socket,
        cookies,
        pins_before,
        _map: map,
    })
}

fn free(stage: &mut Stage, held: &Held) -> Result<()> {
    println!("{}", script::FREE);
    let before = vm_pin()?;
    let (freed, kept) = held.cookies.split_last().ok_or("no key to free")?;
    held.socket.free_mr(*freed, 0).step("FREE_MR")?;
    stage.claim_all(
        "FREE_MR: the key is dead when it returns",
        &[*freed],
        Access::Refused,
    )?;
    stage.claim_all("FREE_MR: the other keys live", kept, Access::Alive)?;
    let after = vm_pin()?;
    let (_, offset, bytes) = BUFFERS[BUFFERS.len() - 1];
    let answer = format!("{before} kB became {after} kB (VmPin)");
    let right = before == after + pages(offset, bytes) * 4;
    stage
        .claims
        .add("FREE_MR: its pages are charged no more", answer, right);
    Ok(())
}

fn close(stage: &mut Stage, held: Held) -> Result<()> {
    println!("{}", script::CLOSE);
    let Held {
        socket,
        cookies,
        pins_before,
        _map,
    } = held;
    drop(socket);
    stage.claim_pins("close: the first socket's pages are back", pins_before)?;
    stage.claim_all(
        "close: the first socket's keys are dead",
        &cookies,
        Access::Refused,
    )?;

    println!("     the same again with {CLOSED} keys:");
    let map = Mapping::anonymous(CLOSED * PAGE).step("mmap")?;
    let (socket, cookies) = register(stage.home, &map, CLOSED)?;
    stage.claim_all("close: before it the keys work", &cookies, Access::Alive)?;
    drop(socket);
    stage.claim_pins("close: all pages are back when it returns", pins_before)?;
    stage.claim_all(
        "close: all keys are dead when it returns",
        &cookies,
        Access::Refused,
    )
}

fn victim(home: SocketAddr, link: &Link) -> Result<()> {
    let map = Mapping::anonymous(KILLED * PAGE).step("mmap")?;
    let (_socket, cookies) = register(home, &map, KILLED)?;
    link.tell(&cookies).step("telling the parent")?;
    link.hear().step("waiting to be killed").map(drop)
}

fn start_victim(home: SocketAddr) -> Result<Child> {
    spawn(move |link| match victim(home, link) {
        Ok(()) => 0,
        Err(text) => {
            println!("     the process says: {text}");
            1
        }
    })
    .step("fork")
}

fn kill(stage: &mut Stage) -> Result<()> {
    println!("{}", script::KILL);
    let before = pins()?;
    let mut child = start_victim(stage.home)?;
    let cookies = child
        .link()
        .hear()
        .step("the process has not told its keys")?;
    println!("     process {} holds {} keys", child.pid(), cookies.len());
    stage.claim_all("kill -9: before it the keys work", &cookies, Access::Alive)?;
    let status = child.kill().step("kill -9")?;
    // First what a moment's delay could hide.
    stage.claim_pins("kill -9: all pages are back when wait() returns", before)?;
    stage.claim_all(
        "kill -9: all keys are dead when wait() returns",
        &cookies,
        Access::Refused,
    )?;
    let killed = status == Status::Signal(9);
    stage.claims.add(
        "kill -9: it was that what ended it",
        format!("{status:?} (wait)"),
        killed,
    );
    Ok(())
}

fn play() -> Result<bool> {
    println!("{}", script::INTRODUCTION);
    let mut stage = Stage::new()?;
    let held = birth(&mut stage)?;
    free(&mut stage, &held)?;
    close(&mut stage, held)?;
    kill(&mut stage)?;
    println!("\n{}", stage.claims.table());
    Ok(stage.claims.all_held())
}

fn main() -> ExitCode {
    match play() {
        Ok(true) => {
            println!("Every claim held.");
            ExitCode::SUCCESS
        }
        Ok(false) => {
            println!("At least one claim did NOT hold: look for FAILED above.");
            ExitCode::FAILURE
        }
        Err(text) => {
            println!("\nrds-mr-demo: stopped: {text}");
            ExitCode::FAILURE
        }
    }
}
