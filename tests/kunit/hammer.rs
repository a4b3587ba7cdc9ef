// SPDX-License-Identifier: GPL-2.0

//! A write hammer: a peer that streams RDMA WRITEs into a key until the HCA
//! makes it stop. Every write fills its part of the key with another byte than
//! the time before, in packets smaller than the write, and there is always one
//! under way: whoever lets go of the memory too early sees it change.

use crate::glue::device::Device;
use crate::glue::globals::DEVICES;
use crate::kern::ib::qp::Remote;
use crate::kern::ib::Outcome;
use crate::kern::ib::SendQueue;
use crate::kern::time::Completion;
use crate::kern::wq::OwnedQueue;
use crate::peer::At;
use crate::peer::Buffer;
use crate::peer::MTU;
use crate::policy::key::Cookie;
use crate::support::soon_ns;
use crate::sys::bindings as raw;
use kernel::prelude::*;
use kernel::sync::atomic::Acquire;
use kernel::sync::atomic::Atomic;
use kernel::sync::atomic::Relaxed;
use kernel::sync::atomic::Release;
use kernel::sync::Arc;

/// Largest write: what can be had as one contiguous buffer.
const MAX_CHUNK: usize = 64 << 10;

/// What to write to.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    first: At,
    bytes: u64,
    chunk: usize,
}

impl Target {
    /// The first `bytes` bytes behind `cookie`, `chunk` bytes at a time.
    pub(crate) fn new(cookie: u64, bytes: u64, chunk: u32) -> Result<Self> {
        let chunk = usize::try_from(chunk)?;
        if chunk == 0 || chunk > MAX_CHUNK || chunk as u64 > bytes {
            return Err(EINVAL);
        }
        Ok(Self {
            first: Cookie::from_raw(cookie).into(),
            bytes,
            chunk,
        })
    }

    /// The device that has the key. `ENOENT` if none of ours has.
    fn device(&self) -> Result<Arc<Device>> {
        let devices = DEVICES.lock();
        let mut having = devices.0.iter().filter(|device| {
            device
                .keys()
                .iter()
                .any(|key| key.rkey() == self.first.rkey)
        });
        having.next().cloned().ok_or(ENOENT)
    }

    /// Where the `n`-th write goes, how long it is and what it is filled with.
    fn write(&self, n: u64) -> (At, usize, u8) {
        let per_round = self.bytes.div_ceil(self.chunk as u64);
        let (round, index) = (n / per_round, n % per_round);
        let offset = index.wrapping_mul(self.chunk as u64);
        let left = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(self.chunk);
        (
            self.first.plus(offset as i64),
            left.min(self.chunk),
            // CAST: At each place one more than in the round before.
            round.wrapping_add(index).wrapping_add(1) as u8,
        )
    }
}

/// How far it has come; shared by the hammer and those who ask.
#[pin_data]
pub(crate) struct Progress {
    stop: Atomic<bool>,
    running: Atomic<bool>,
    writes: Atomic<u64>,
    status: Atomic<u32>,
    /// The first write has completed, or there will be none.
    #[pin]
    begun: Completion,
}

impl Progress {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                stop: Atomic::new(false),
                running: Atomic::new(true),
                writes: Atomic::new(0),
                status: Atomic::new(raw::ib_wc_status_IB_WC_SUCCESS),
                begun <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Writes that have completed with success.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Acquire)
    }

    /// Whether it still writes.
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Acquire)
    }

    /// `enum ib_wc_status` of the last completion.
    pub(crate) fn status(&self) -> u32 {
        self.status.load(Acquire)
    }

    /// Wait for the first write. `EIO` if there was none.
    pub(crate) fn begun(&self) -> Result {
        let end = soon_ns().saturating_sub(crate::kern::time::now_ns());
        if self.begun.wait_ns(end) && self.writes() > 0 {
            Ok(())
        } else {
            Err(EIO)
        }
    }

    fn completed(&self, outcome: Outcome) -> bool {
        let status = match outcome {
            Outcome::Success => raw::ib_wc_status_IB_WC_SUCCESS,
            Outcome::Failed(status) => status,
            Outcome::Silent => raw::ib_wc_status_IB_WC_RESP_TIMEOUT_ERR,
            Outcome::NotPosted => raw::ib_wc_status_IB_WC_GENERAL_ERR,
        };
        self.status.store(status, Release);
        let success = outcome == Outcome::Success;
        if success {
            self.writes.fetch_add(1, Relaxed);
            self.begun.complete_all();
        }
        success
    }
}

/// A running hammer. Drop stops it and waits for its end.
pub(crate) struct Hammer {
    progress: Arc<Progress>,
    // Dropped after `stop` is set; its drop joins the worker.
    _worker: OwnedQueue,
}

impl Hammer {
    /// Start writing. `ENOENT`: no such key.
    pub(crate) fn start(target: Target) -> Result<Self> {
        let device = target.device()?;
        let progress = Progress::new()?;
        let worker = OwnedQueue::new(c"rds_mr_hammer", 1)?;
        let shared = progress.clone();
        worker.queue().try_spawn(GFP_KERNEL, move || {
            if let Err(error) = stream(&device, target, &shared) {
                pr_err!("{:?}: hammer ended: {:?}\n", device.name(), error);
                shared.completed(Outcome::NotPosted);
            }
            shared.running.store(false, Release);
            shared.begun.complete_all();
        })?;
        Ok(Self {
            progress,
            _worker: worker,
        })
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }
}

impl Drop for Hammer {
    fn drop(&mut self) {
        self.progress.stop.store(true, Release);
    }
}

/// Write until told to stop, or the first write that fails.
fn stream(device: &Device, target: Target, progress: &Progress) -> Result {
    let mut pass = device.enter()?;
    let pd = device.pd(&pass)?;
    let mut buffers = [
        Buffer::new(device.ib(), target.chunk)?,
        Buffer::new(device.ib(), target.chunk)?,
    ];
    let (requester, responder) = SendQueue::pair(&pd, Remote::ReadWrite, MTU)?;
    let mut post = |n| {
        let (at, len, byte) = target.write(n);
        // CAST: 0 or 1.
        let buffer = buffers.get_mut((n % 2) as usize).ok_or(EINVAL)?;
        buffer.bytes().fill(byte);
        let wr = [buffer.rdma(&pd, true, len, at)?];
        // SAFETY: The buffers are dropped after the queue.
        unsafe { requester.post(&wr, soon_ns()) }
    };
    let mut flights = [post(0)?, post(1)?];
    for n in 2_u64.. {
        // CAST: 0 or 1.
        let flight = flights.get_mut((n % 2) as usize).ok_or(EINVAL)?;
        flight.wait(soon_ns());
        if !progress.completed(flight.outcome(0)) {
            break;
        }
        // To hold the same pass for ever would keep the device from going.
        match device.enter() {
            Ok(next) if !progress.stop.load(Acquire) => pass = next,
            _ => break,
        }
        *flight = post(n)?;
    }
    // As without these lines, but for the reader: what uses the device goes
    // before the pass does, and the buffers go after the queues.
    drop(flights);
    drop((requester, responder));
    drop(buffers);
    drop(pd);
    drop(pass);
    Ok(())
}
