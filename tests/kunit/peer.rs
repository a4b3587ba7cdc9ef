// SPDX-License-Identifier: GPL-2.0

//! A remote peer: what the HCA does when somebody uses a key.

use crate::kern::ib::qp::Remote;
use crate::kern::ib::IbDevice;
use crate::kern::ib::Outcome;
use crate::kern::ib::Pd;
use crate::kern::ib::SendQueue;
use crate::kern::ib::Wr;
use crate::raw;
use crate::support::soon_ns;
use crate::support::Site;
use kernel::alloc::KVec;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

/// `IB_WC_REM_ACCESS_ERR`: the key does not let this peer in.
pub(crate) const REFUSED: Outcome = Outcome::Failed(10);
/// `IB_WC_REM_INV_REQ_ERR`: the QP does not take requests of this kind.
pub(crate) const NO_SUCH_REQUEST: Outcome = Outcome::Failed(9);

/// Packets of this size make a page several of them.
pub(crate) const MTU: u32 = 1024;

/// A remote byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) rkey: u32,
    pub(crate) addr: u64,
}

impl At {
    /// The byte that is `by` further; wraps around as addresses do.
    pub(crate) fn plus(self, by: i64) -> Self {
        Self {
            addr: self.addr.wrapping_add_signed(by),
            ..self
        }
    }
}

impl From<crate::policy::key::Cookie> for At {
    fn from(cookie: crate::policy::key::Cookie) -> Self {
        Self {
            rkey: cookie.rkey(),
            addr: u64::from(cookie.offset()),
        }
    }
}

/// A contiguous buffer that is mapped for DMA. The device must be registered
/// until it is dropped.
///
/// # Invariants
///
/// `data` is mapped at `dma` and never reallocated.
pub(crate) struct Buffer {
    data: KVec<u8>,
    dma: u64,
    device: ARef<IbDevice>,
}

impl Buffer {
    pub(crate) fn new(device: &IbDevice, bytes: usize) -> Result<Self> {
        let mut data = KVec::from_elem(0, bytes, GFP_KERNEL)?;
        // SAFETY: Unmapped by drop, before `data` goes.
        let dma = unsafe { raw::dma_map(device, data.as_mut_ptr(), bytes)? };
        // INVARIANT: Mapped above.
        Ok(Self {
            data,
            dma,
            device: device.to_ref(),
        })
    }

    /// The bytes; no WR may be using them.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// An RDMA of the first `bytes` of the buffer. The buffer must outlive it.
    pub(crate) fn rdma(&self, pd: &Pd, write: bool, bytes: usize, at: At) -> Result<Wr> {
        if bytes > self.data.len() {
            return Err(EINVAL);
        }
        Ok(Wr::Rdma {
            write,
            local: self.dma,
            lkey: pd.local_dma_lkey(),
            bytes: u32::try_from(bytes)?,
            remote: at.addr,
            rkey: at.rkey,
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: Mapped by `new` (type invariant), and unmapped only here.
        unsafe { raw::dma_unmap(&self.device, self.dma, self.data.len()) };
    }
}

/// A peer that may read and write, as far as the keys allow it.
pub(crate) struct Peer {
    // A pair and then the buffer: dropped in this order, since the QPs use it.
    pair: Option<(Arc<SendQueue>, Arc<SendQueue>)>,
    buffer: Buffer,
    pd: Arc<Pd>,
    remote: Remote,
}

impl Peer {
    /// A peer in `pd` that moves up to `bytes` at a time.
    pub(crate) fn new(pd: &Arc<Pd>, bytes: usize) -> Result<Self> {
        Self::with_rights(pd, bytes, Remote::ReadWrite)
    }

    /// A peer of the keys of `site`.
    pub(crate) fn of(site: &Site, bytes: usize) -> Result<Self> {
        let device = site.device();
        Self::new(&device.pd(&device.enter()?)?, bytes)
    }

    /// As [`Self::new`], but its QP lets it do no more than `remote`.
    pub(crate) fn with_rights(pd: &Arc<Pd>, bytes: usize, remote: Remote) -> Result<Self> {
        Ok(Self {
            pair: None,
            buffer: Buffer::new(pd.device(), bytes)?,
            pd: pd.clone(),
            remote,
        })
    }

    /// RDMA WRITE of `bytes`.
    pub(crate) fn write(&mut self, at: At, bytes: &[u8]) -> Result<Outcome> {
        let to = self.buffer.bytes().get_mut(..bytes.len()).ok_or(EINVAL)?;
        to.copy_from_slice(bytes);
        self.run(true, bytes.len(), at)
    }

    /// RDMA READ of `len` bytes, which are then in [`Self::received`].
    pub(crate) fn read(&mut self, at: At, len: usize) -> Result<Outcome> {
        self.buffer.bytes().fill(0xee);
        self.run(false, len, at)
    }

    /// What the last [`Self::read`] put at the start of the buffer.
    pub(crate) fn received(&mut self, len: usize) -> Result<&[u8]> {
        self.buffer.bytes().get(..len).ok_or(EINVAL)
    }

    /// A failure ends a pair of QPs, so the next use makes a new one.
    fn run(&mut self, write: bool, bytes: usize, at: At) -> Result<Outcome> {
        if self.pair.is_none() {
            self.pair = Some(SendQueue::pair(&self.pd, self.remote, MTU)?);
        }
        let (requester, _) = self.pair.as_ref().ok_or(EINVAL)?;
        let wr = [self.buffer.rdma(&self.pd, write, bytes, at)?];
        // SAFETY: The buffer is dropped after the pair.
        let batch = unsafe { requester.post(&wr, soon_ns()) }?;
        batch.wait(soon_ns());
        let outcome = batch.outcome(0);
        drop(batch);
        if outcome != Outcome::Success {
            self.pair = None;
        }
        Ok(outcome)
    }
}
