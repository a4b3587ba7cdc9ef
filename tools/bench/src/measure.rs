// SPDX-License-Identifier: GPL-2.0
//! What is measured, once for rds_mr and once for user verbs.

use crate::sample::Sample;
use crate::verbs::{Region, Session};
use rdsmr::abi::RDS_RDMA_READWRITE;
use rdsmr::{spawn, Link, Mapping, Socket};
use std::io;
use std::net::SocketAddr;

/// Runs whose time does not count: caches, pools and page tables fill up.
const WARM_UP: usize = 20;

/// Someone who registers memory.
pub trait Registrar: Sized {
    type Key;
    fn get(&self, addr: u64, bytes: u64) -> io::Result<Self::Key>;
    fn free(&self, key: Self::Key) -> io::Result<()>;
    /// With all the keys that are left.
    fn close(self) -> io::Result<()>;
}

impl Registrar for Socket {
    type Key = u64;

    fn get(&self, addr: u64, bytes: u64) -> io::Result<u64> {
        self.get_mr(addr, bytes, RDS_RDMA_READWRITE)
    }

    fn free(&self, key: u64) -> io::Result<()> {
        self.free_mr(key, 0)
    }

    fn close(self) -> io::Result<()> {
        drop(self);
        Ok(())
    }
}

impl Registrar for Session {
    type Key = Region;

    fn get(&self, addr: u64, bytes: u64) -> io::Result<Region> {
        self.register(addr, bytes)
    }

    fn free(&self, key: Region) -> io::Result<()> {
        self.deregister(key)
    }

    fn close(self) -> io::Result<()> {
        Session::close(self)
    }
}

/// Makes fresh registrars of one kind.
#[derive(Clone)]
pub struct Maker<R> {
    make: std::rc::Rc<dyn Fn() -> io::Result<R>>,
}

pub fn sockets(home: SocketAddr) -> Maker<Socket> {
    Maker {
        make: std::rc::Rc::new(move || Socket::bound(home)),
    }
}

pub fn sessions(ibdev: String) -> Maker<Session> {
    Maker {
        make: std::rc::Rc::new(move || Session::open(&ibdev)),
    }
}

impl<R: Registrar> Maker<R> {
    pub fn make(&self) -> io::Result<R> {
        (self.make)()
    }

    /// Get and free of `bytes`, while `live` other keys exist.
    pub fn pairs(&self, bytes: u64, live: u64, runs: usize) -> io::Result<(Sample, Sample)> {
        let registrar = self.make()?;
        let map = Mapping::anonymous(bytes)?;
        map.fill(1);
        let others = (0..live).map(|_| registrar.get(map.at(0), bytes.min(4096)));
        let _others = others.collect::<io::Result<Vec<_>>>()?;
        let (mut get, mut free) = (Sample::default(), Sample::default());
        for run in 0..WARM_UP + runs {
            if run == WARM_UP {
                (get, free) = Default::default();
            }
            let key = get.time(|| registrar.get(map.at(0), bytes))?;
            free.time(|| registrar.free(key))?;
        }
        registrar.close()?;
        Ok((get, free))
    }

    fn holding(&self, map: &Mapping, keys: u64) -> io::Result<R> {
        let registrar = self.make()?;
        for _ in 0..keys {
            registrar.get(map.at(0), 4096)?;
        }
        Ok(registrar)
    }

    /// The close of one that has `keys` keys of 4 KiB.
    pub fn close(&self, keys: u64, runs: usize) -> io::Result<Sample> {
        let map = Mapping::anonymous(4096)?;
        let mut sample = Sample::default();
        for _ in 0..runs {
            let registrar = self.holding(&map, keys)?;
            sample.time(|| registrar.close())?;
        }
        Ok(sample)
    }

    /// From kill -9 of a process that has `keys` keys to the return of wait().
    pub fn kill(&self, keys: u64, runs: usize) -> io::Result<Sample> {
        let mut sample = Sample::default();
        for _ in 0..runs {
            let mut child = spawn(|link| self.hold(link, keys).map_or(1, |()| 0))?;
            child.link().hear()?;
            sample.time(|| child.kill())?;
        }
        Ok(sample)
    }

    fn hold(&self, link: &Link, keys: u64) -> io::Result<()> {
        let map = Mapping::anonymous(4096)?;
        let _registrar = self.holding(&map, keys)?;
        link.tell(&[])?;
        link.hear().map(drop)
    }
}
