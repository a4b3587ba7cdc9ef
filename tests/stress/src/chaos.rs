// SPDX-License-Identifier: GPL-2.0
//! What is done to the machine: verbs that fail, groups with limits.

use crate::events::POINTS;
use crate::plan::Device;
use crate::socks::address;
use rdsmr::attribute::{write, write_all};
use rdsmr::errno::ENOMEM;
use rdsmr::{inject, Mapping, Socket, PAGE};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const FAIL_SLAB: &str = "/sys/kernel/debug/failslab";
const CGROUPS: &str = "/sys/fs/cgroup";

/// Verbs and allocations that fail, if this kernel can do that.
pub struct Faults {
    pub verbs: bool,
    pub slab: bool,
}

impl Faults {
    /// Allocations fail only for threads that say so at the moment.
    pub fn prepare() -> io::Result<Self> {
        let faults = Faults {
            verbs: inject::is_there(),
            slab: Path::new(FAIL_SLAB).is_dir(),
        };
        if faults.slab {
            inject::say_starving()?;
            write_all(
                FAIL_SLAB,
                &[
                    ("task-filter", "Y"),
                    // Those that may sleep are most of ours.
                    ("ignore-gfp-wait", "N"),
                    ("interval", "1"),
                    ("times", "-1"),
                    ("verbose", "0"),
                    ("probability", "10"),
                ],
            )?;
        }
        Ok(faults)
    }

    pub fn arm(&self, point: usize, percent: u64) -> io::Result<()> {
        inject::fail(POINTS[point], -i64::from(ENOMEM), percent)
    }

    pub fn lift(&self) -> io::Result<()> {
        inject::stop()
    }

    pub fn end(&self) -> io::Result<()> {
        if self.slab {
            write(Path::new(FAIL_SLAB).join("probability"), "0")?;
            inject::say_fed()?;
        }
        self.lift()
    }
}

/// A socket for questions, on a device that works.
pub fn prober(device: Device) -> io::Result<Socket> {
    let socket = Socket::bound(address(device))?;
    let map = Mapping::anonymous(PAGE)?;
    let cookie = socket.get_mr(map.at(0), PAGE, 0)?;
    socket.probe(cookie, 0)?;
    socket.free_mr(cookie, 0)?;
    Ok(socket)
}

/// Two control groups, if there are any.
pub struct Groups {
    dirs: Vec<PathBuf>,
}

impl Groups {
    pub fn make() -> Self {
        let root = Path::new(CGROUPS);
        let dirs = || -> io::Result<Vec<PathBuf>> {
            write(root.join("cgroup.subtree_control"), "+rdma")?;
            let dirs = ["stress0", "stress1"].map(|name| root.join(name));
            dirs.iter().try_for_each(|dir| {
                if dir.is_dir() {
                    Ok(())
                } else {
                    fs::create_dir(dir)
                }
            })?;
            Ok(dirs.into())
        };
        Groups {
            dirs: dirs().unwrap_or_default(),
        }
    }

    pub fn are_there(&self) -> bool {
        !self.dirs.is_empty()
    }

    pub fn enter(&self, group: u64, pid: i32) -> io::Result<()> {
        write(
            self.dirs[group as usize].join("cgroup.procs"),
            &pid.to_string(),
        )
    }

    /// A device that is away has no limit, and that is fine.
    pub fn limit(&self, group: u64, objects: u64) {
        let objects = if objects == 0 {
            "max".to_string()
        } else {
            objects.to_string()
        };
        for ibdev in ["RDS_MR_IBDEV", "RDS_MR_PEER_IBDEV"] {
            let name = std::env::var(ibdev).unwrap_or_default();
            let _ = write(
                self.dirs[group as usize].join("rdma.max"),
                &format!("{name} hca_object={objects}"),
            );
        }
    }

    pub fn remove(&self) {
        self.dirs.iter().for_each(|dir| drop(fs::remove_dir(dir)));
    }
}
