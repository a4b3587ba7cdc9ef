// SPDX-License-Identifier: GPL-2.0

//! Asking the HCA whether a key lets a peer in.
//!
//! One byte is read through the key over two QPs that exist for this one
//! question. A verdict "access error" counts only between two successful reads
//! of a key that is known to be alive; everything else is no verdict. That new
//! reads fail says nothing about writes that were already running.

use super::qp::Remote;
use super::DmaPages;
use super::Outcome;
use super::Pd;
use super::SendQueue;
use super::Wr;
use crate::sys::bindings as raw;
use core::mem::ManuallyDrop;
use kernel::prelude::*;
use kernel::sync::Arc;

/// What the HCA said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The byte could be read.
    Alive,
    /// IB_WC_REM_ACCESS_ERR.
    AccessError,
}

/// A remote byte.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// Its key.
    pub(crate) rkey: u32,
    /// Its remote address.
    pub(crate) addr: u64,
}

/// Ask about `target`; `control` is a byte behind a key that is alive.
///
/// `EIO`: no verdict. Sleeps, up to the deadline.
pub(crate) fn ask(
    pd: &Arc<Pd>,
    target: Target,
    control: Target,
    deadline_ns: u64,
) -> Result<Verdict> {
    // The first pair reads the control byte and then the target, the second
    // (an access error ends a pair) the control byte again.
    let pair = Pair::new(pd)?;
    pair.read(control, deadline_ns)?;
    match pair.read(target, deadline_ns) {
        Ok(()) => Ok(Verdict::Alive),
        Err(ReadError::Access) => {
            Pair::new(pd)?.read(control, deadline_ns)?;
            Ok(Verdict::AccessError)
        }
        Err(other) => Err(other.into()),
    }
}

enum ReadError {
    Access,
    Other,
}

impl From<ReadError> for Error {
    fn from(_: ReadError) -> Self {
        EIO
    }
}

/// A requester and a responder that lets it read. Drop destroys both QPs, and
/// then the buffer that was read into; it stays if the HCA may still write to it.
struct Pair {
    requester: Arc<SendQueue>,
    responder: Arc<SendQueue>,
    buffer: ManuallyDrop<DmaPages>,
}

impl Pair {
    fn new(pd: &Arc<Pd>) -> Result<Self> {
        // One byte: the smallest packets will do, on every path.
        let (requester, responder) = SendQueue::pair(pd, Remote::Read, 256)?;
        Ok(Self {
            requester,
            responder,
            buffer: ManuallyDrop::new(DmaPages::own(pd.device())?),
        })
    }

    fn read(&self, from: Target, deadline_ns: u64) -> core::result::Result<(), ReadError> {
        let wr = [Wr::Rdma {
            write: false,
            local: self.buffer.addr(),
            lkey: self.requester.pd().local_dma_lkey(),
            bytes: 1,
            remote: from.addr,
            rkey: from.rkey,
        }];
        // SAFETY: The buffer lives as long as the pair, and beyond it unless the
        // queue was destroyed.
        let posted = unsafe { self.requester.post(&wr, deadline_ns) };
        let batch = posted.map_err(|_| ReadError::Other)?;
        batch.wait(deadline_ns);
        match batch.outcome(0) {
            Outcome::Success => Ok(()),
            Outcome::Failed(raw::ib_wc_status_IB_WC_REM_ACCESS_ERR) => Err(ReadError::Access),
            _ => Err(ReadError::Other),
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.requester.destroy();
        self.responder.destroy();
        if self.requester.is_destroyed() {
            // SAFETY: `self` is being dropped: nobody uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.buffer) };
        }
    }
}
