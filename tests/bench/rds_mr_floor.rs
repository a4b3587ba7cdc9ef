// SPDX-License-Identifier: GPL-2.0

//! The floor: what the bare operations cost on this device, inside of the
//! kernel, with the same abstractions as the module. `rds-mr-bench` reads the
//! figures and compares in the same boot.
//!
//! Measures when it is loaded, on the device of 10.77.0.1 (the guest's rxe0),
//! and leaves lines of `name p50_ns p99_ns` in debugfs, rds_mr/floor.

#[path = "../../rds_mr/kern/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the benchmark uses a part of it")]
mod kern;
#[path = "../../rds_mr/sys/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the benchmark uses a part of it")]
mod sys;

use core::fmt;
use kern::ib;
use kern::ib::Access;
use kern::ib::DeregOutcome;
use kern::ib::DmaPages;
use kern::ib::IbDevice;
use kern::ib::Mr;
use kern::ib::Pd;
use kern::ib::RegOutcome;
use kern::ib::Registration;
use kern::ib::SendQueue;
use kern::ib::CHAIN;
use kern::mm::PinnedPages;
use kern::time::now_ns;
use kernel::alloc::KVec;
use kernel::bindings;
use kernel::debugfs;
use kernel::prelude::*;
use kernel::sync::Arc;

module! {
    type: FloorModule,
    name: "rds_mr_floor",
    authors: ["The rds_mr developers"],
    description: "What RDMA key operations cost on this device at the least",
    license: "GPL",
}

/// Address of the device, as a `sockaddr_in`.
const ADDRESS: [u8; 8] = [2, 0, 0, 0, 10, 77, 0, 1];
/// Samples of each operation.
const SAMPLES: usize = 400;
/// Keys that end together, and how often that is repeated.
const MANY: usize = 512;
const ROUNDS: usize = 8;
const PAGE: usize = kernel::page::PAGE_SIZE;

/// Durations of one operation, in nanoseconds.
struct Samples(KVec<u64>);

impl Samples {
    fn new() -> Result<Self> {
        Ok(Self(KVec::with_capacity(SAMPLES, GFP_KERNEL)?))
    }

    /// Run `what`, and remember how long it took, divided by `count`.
    fn time<T>(&mut self, count: usize, what: impl FnOnce() -> T) -> Result<T> {
        let start = now_ns();
        let result = what();
        let each = now_ns().saturating_sub(start).checked_div(count as u64);
        self.0.push(each.unwrap_or(0), GFP_KERNEL)?;
        Ok(result)
    }

    /// The value that `percent` of the samples do not exceed.
    fn percentile(&self, percent: usize) -> u64 {
        let index = self.0.len().saturating_mul(percent) / 100;
        self.0.get(index).or(self.0.last()).copied().unwrap_or(0)
    }
}

/// The figures by name.
struct Floor(KVec<(&'static str, u64, u64)>);

impl Floor {
    fn add(&mut self, name: &'static str, mut samples: Samples) -> Result {
        samples.0.sort_unstable();
        let row = (name, samples.percentile(50), samples.percentile(99));
        Ok(self.0.push(row, GFP_KERNEL)?)
    }
}

impl fmt::Debug for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(name, p50, p99)| writeln!(f, "{name} {p50} {p99}"))
    }
}

/// Memory of the process that loads the module.
struct UserMemory(usize, usize);

impl UserMemory {
    fn new(len: usize) -> Result<Self> {
        // PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE (mman-common.h).
        let (prot, flags) = (1 | 2, 0x20 | 0x02);
        // SAFETY: insmod has user memory, and anonymous memory needs no file.
        let addr = unsafe { bindings::vm_mmap(core::ptr::null_mut(), 0, len, prot, flags, 0) };
        // A length that is no address of user space is an error.
        if addr == 0 || addr > usize::MAX / 2 {
            return Err(ENOMEM);
        }
        Ok(Self(addr, len))
    }
}

impl Drop for UserMemory {
    fn drop(&mut self) {
        // SAFETY: Mapped by `new` in this process.
        unsafe { bindings::vm_munmap(self.0, self.1) };
    }
}

/// What everything is measured with.
struct Bench<'a> {
    ib: &'a IbDevice,
    pd: Arc<Pd>,
    queue: Arc<SendQueue>,
    memory: UserMemory,
}

impl Bench<'_> {
    fn deadline() -> u64 {
        now_ns().saturating_add(5_000_000_000)
    }

    /// A key for the first `bytes` bytes; its parts are timed.
    fn key(&self, bytes: usize, pin: &mut Samples, reg: &mut Samples) -> Result<Registration> {
        let pages = pin.time(1, || {
            PinnedPages::pin(self.memory.0, bytes.div_ceil(PAGE), true)
        })??;
        let dma = DmaPages::map(self.ib, pages, 0, u32::try_from(bytes)?)?;
        let mapped = Mr::alloc(&self.pd, 257)?.map(dma, 1)?;
        let deadline = Self::deadline();
        let outcome = reg.time(1, || {
            mapped.register(&self.queue, Access::ReadWrite, deadline)
        })?;
        match outcome {
            RegOutcome::Live(registration) => Ok(registration),
            RegOutcome::NotPosted => Err(EIO),
            RegOutcome::Failed(registration, _) | RegOutcome::Silent(registration) => {
                registration.leak();
                Err(EIO)
            }
        }
    }

    fn dereg(registration: Registration) -> Result {
        match registration.quiesce_by_dereg(|_| true) {
            DeregOutcome::Proven(quiesced) => {
                drop(quiesced);
                Ok(())
            }
            DeregOutcome::Refused(registration, error) => {
                registration.leak();
                Err(error)
            }
            DeregOutcome::Unproven => Err(EIO),
        }
    }

    fn singles(&self, floor: &mut Floor, names: [&'static str; 2], bytes: usize) -> Result {
        let (mut pin, mut reg) = (Samples::new()?, Samples::new()?);
        for _ in 0..SAMPLES {
            Self::dereg(self.key(bytes, &mut pin, &mut reg)?)?;
        }
        let [pin_name, reg_name] = names;
        floor.add(pin_name, pin)?;
        floor.add(reg_name, reg)
    }

    /// MRs made for the smallest and for the largest key.
    fn allocs(&self, floor: &mut Floor) -> Result {
        for (name, pages) in [("alloc_2", 2), ("alloc_257", 257)] {
            let mut alloc = Samples::new()?;
            for _ in 0..SAMPLES {
                drop(alloc.time(1, || Mr::alloc(&self.pd, pages))??);
            }
            floor.add(name, alloc)?;
        }
        Ok(())
    }

    /// One key ended in either way.
    fn ends(&self, floor: &mut Floor) -> Result {
        let mut ignored = (Samples::new()?, Samples::new()?);
        let (mut inv, mut dereg) = (Samples::new()?, Samples::new()?);
        for _ in 0..SAMPLES {
            let key = self.key(PAGE, &mut ignored.0, &mut ignored.1)?;
            let rkey = [key.rkey()];
            inv.time(1, || {
                self.queue.invalidate(&rkey, Self::deadline(), |_, _| {})
            })?;
            // Unmapping and unpinning are no part of the floor.
            let start = now_ns();
            let outcome = key.quiesce_by_dereg(|_| true);
            dereg.0.push(now_ns().saturating_sub(start), GFP_KERNEL)?;
            match outcome {
                DeregOutcome::Proven(quiesced) => drop(quiesced),
                DeregOutcome::Refused(registration, _) => registration.leak(),
                DeregOutcome::Unproven => {}
            }
        }
        floor.add("local_inv", inv)?;
        floor.add("dereg", dereg)
    }

    /// Many keys ended together, per key.
    fn many(&self, floor: &mut Floor) -> Result {
        let mut ignored = (Samples::new()?, Samples::new()?);
        let (mut inv, mut dereg) = (Samples::new()?, Samples::new()?);
        for _ in 0..ROUNDS {
            let mut keys = KVec::with_capacity(MANY, GFP_KERNEL)?;
            let mut rkeys = KVec::with_capacity(MANY, GFP_KERNEL)?;
            for _ in 0..MANY {
                let key = self.key(PAGE, &mut ignored.0, &mut ignored.1)?;
                rkeys.push(key.rkey(), GFP_KERNEL)?;
                keys.push(key, GFP_KERNEL)?;
            }
            inv.time(MANY, || {
                for chunk in rkeys.chunks(CHAIN) {
                    self.queue.invalidate(chunk, Self::deadline(), |_, _| {});
                }
            })?;
            let mut outcomes = KVec::with_capacity(MANY, GFP_KERNEL)?;
            dereg.time(MANY, || {
                for key in keys.drain_all() {
                    let _ = outcomes.push_within_capacity(key.quiesce_by_dereg(|_| true));
                }
            })?;
            for outcome in outcomes.drain_all() {
                if let DeregOutcome::Refused(registration, _) = outcome {
                    registration.leak();
                }
            }
        }
        floor.add("local_inv_512", inv)?;
        floor.add("dereg_512", dereg)
    }
}

fn measure(ib: &IbDevice) -> Result<Floor> {
    let pd = Pd::alloc(ib)?;
    let bench = Bench {
        ib,
        queue: SendQueue::to_self(&pd)?,
        pd,
        memory: UserMemory::new(1 << 20)?,
    };
    let mut floor = Floor(KVec::new());
    bench.singles(&mut floor, ["pin_4k", "reg_mr_4k"], PAGE)?;
    bench.singles(&mut floor, ["pin_1m", "reg_mr_1m"], 1 << 20)?;
    bench.allocs(&mut floor)?;
    bench.ends(&mut floor)?;
    bench.many(&mut floor)?;
    Ok(floor)
}

/// The loaded module; the figures vanish with it.
#[pin_data]
struct FloorModule {
    _dir: debugfs::Dir,
    #[pin]
    _file: debugfs::File<Floor>,
}

impl kernel::InPlaceModule for FloorModule {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        let mut sockaddr = [0; 28];
        for (to, from) in sockaddr.iter_mut().zip(ADDRESS) {
            *to = from;
        }
        let dir = debugfs::Dir::new(c"rds_mr");
        try_pin_init!(Self {
            _file <- dir.read_only_file(c"floor", ib::device_of_address(&sockaddr, measure)?),
            _dir: dir.clone(),
        }? Error)
    }
}
