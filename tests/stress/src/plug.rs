// SPDX-License-Identifier: GPL-2.0
//! The peer device goes away and comes back, while everything else goes on.

use crate::chaos::prober;
use crate::ledger::{Global, Ledger};
use crate::plan::Device;
use rdsmr::Socket;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A limit for what must come to an end; no measure of anything.
const PATIENCE: Duration = Duration::from_secs(180);

enum State {
    /// With a socket for questions.
    In(Socket),
    Going(Running, Duration),
    Out(Instant),
    Coming(Running),
    /// It is there, and must work some time.
    Settling(Instant),
}

/// The device, and its incarnation in the ledger: odd while it is not `In`.
pub struct Plug {
    ibdev: String,
    netdev: String,
    state: State,
}

impl Plug {
    pub fn new() -> io::Result<Self> {
        let setting =
            |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_string());
        Ok(Plug {
            ibdev: setting("RDS_MR_PEER_IBDEV", "rxe1"),
            netdev: setting("RDS_MR_PEER_NETDEV", "veth1"),
            state: State::In(prober(Device::Peer)?),
        })
    }

    /// A socket on the device, if it is there.
    pub fn prober(&self) -> Option<&Socket> {
        match &self.state {
            State::In(socket) => Some(socket),
            _ => None,
        }
    }

    pub fn pull(&mut self, ledger: &Ledger, gone: Duration) -> io::Result<()> {
        ledger.count(Global::Peer);
        self.state = State::Going(Running::rdma(&["link", "delete", &self.ibdev])?, gone);
        Ok(())
    }

    /// Go on with what has begun. Waits for nothing but single calls.
    pub fn step(&mut self, ledger: &Ledger) -> io::Result<()> {
        let done = match &mut self.state {
            State::Going(rdma, _) | State::Coming(rdma) => rdma.is_done()?,
            _ => false,
        };
        let next = match &self.state {
            State::Going(_, gone) if done => State::Out(Instant::now() + *gone),
            State::Out(until) if Instant::now() > *until => {
                let args = [
                    "link",
                    "add",
                    &self.ibdev,
                    "type",
                    "rxe",
                    "netdev",
                    &self.netdev,
                ];
                State::Coming(Running::rdma(&args)?)
            }
            State::Coming(_) if done => State::Settling(Instant::now() + PATIENCE),
            State::Settling(end) => match prober(Device::Peer) {
                Ok(socket) => {
                    ledger.count(Global::Peer);
                    State::In(socket)
                }
                Err(_) if Instant::now() < *end => return Ok(()),
                Err(error) => {
                    let text = format!("{} is back and does not work: {error}", self.ibdev);
                    return Err(io::Error::other(text));
                }
            },
            _ => return Ok(()),
        };
        self.state = next;
        Ok(())
    }
}

/// A program that must come to an end, and to a good one.
struct Running {
    what: String,
    child: Child,
    end: Instant,
}

impl Running {
    fn rdma(args: &[&str]) -> io::Result<Self> {
        let what = format!("rdma {}", args.join(" "));
        let child = Command::new("rdma")
            .args(args)
            .stdout(Stdio::null())
            .spawn();
        let child = child.map_err(|error| io::Error::other(format!("{what}: {error}")))?;
        Ok(Running {
            what,
            child,
            end: Instant::now() + PATIENCE,
        })
    }

    fn is_done(&mut self) -> io::Result<bool> {
        let what = &self.what;
        match self.child.try_wait()? {
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(io::Error::other(format!("{what}: {status}"))),
            None if Instant::now() < self.end => Ok(false),
            None => Err(io::Error::other(format!(
                "{what}: not back after {PATIENCE:?}"
            ))),
        }
    }
}
