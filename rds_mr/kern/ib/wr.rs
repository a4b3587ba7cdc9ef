// SPDX-License-Identifier: GPL-2.0

//! Work requests, and the memory that they and their completions live in.

use crate::sys::bindings as raw;
use core::cell::UnsafeCell;
use kernel::container_of;
use kernel::sync::atomic::Acquire;
use kernel::sync::atomic::Atomic;
use kernel::sync::atomic::Relaxed;
use kernel::sync::atomic::Release;

/// Status of a WR that the queue's death kept from running.
pub(crate) const FLUSHED: u32 = raw::ib_wc_status_IB_WC_WR_FLUSH_ERR;

/// One work request.
#[derive(Clone, Copy)]
pub(crate) enum Wr {
    /// Make an MR reachable through its current rkey.
    RegMr {
        /// The MR, which must live until this WR has reported.
        mr: *mut raw::ib_mr,
        /// `enum ib_access_flags`.
        access: i32,
    },
    /// Make `rkey` unreachable.
    LocalInv {
        /// The key to invalidate.
        rkey: u32,
    },
    /// Read or write remote memory, from or into a local buffer that is mapped
    /// for DMA until this WR has reported.
    Rdma {
        /// Write if true, else read.
        write: bool,
        /// DMA address of the local buffer.
        local: u64,
        /// Key for it: [`Pd::local_dma_lkey`].
        lkey: u32,
        /// Its length in bytes.
        bytes: u32,
        /// Remote address.
        remote: u64,
        /// Remote key.
        rkey: u32,
    },
}

/// What became of a WR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Never reached the queue: it has had no effect and will have none.
    NotPosted,
    /// Has not reported: it may still run, until the QP is destroyed.
    Silent,
    /// Executed.
    Success,
    /// Reported an `ib_wc_status` other than success.
    Failed(u32),
}

/// Slot states; a reported status `s` is `REPORTED + s`.
const IDLE: u32 = 0;
const POSTED: u32 = 1;
const REPORTED: u32 = 2;

#[repr(C)]
union RawWr {
    send: core::mem::ManuallyDrop<raw::ib_send_wr>,
    reg: core::mem::ManuallyDrop<raw::ib_reg_wr>,
    rdma: core::mem::ManuallyDrop<raw::ib_rdma_wr>,
}

/// Memory of one WR, used by one batch at a time.
pub(super) struct Slot {
    cqe: UnsafeCell<raw::ib_cqe>,
    status: Atomic<u32>,
    wr: UnsafeCell<RawWr>,
    sge: UnsafeCell<raw::ib_sge>,
}

impl Slot {
    /// A slot that is not in use.
    pub(super) fn new() -> Self {
        Self {
            cqe: UnsafeCell::new(raw::ib_cqe { done: Some(done) }),
            status: Atomic::new(IDLE),
            wr: UnsafeCell::new(RawWr {
                send: core::mem::ManuallyDrop::new(raw::ib_send_wr::default()),
            }),
            sge: UnsafeCell::new(raw::ib_sge::default()),
        }
    }

    /// The WR, as it is posted.
    pub(super) fn send_wr(&self) -> *mut raw::ib_send_wr {
        // Every member starts with its `ib_send_wr` (checked in layout.rs by
        // the offsets of what follows it).
        self.wr.get().cast()
    }

    /// Fill the WR and link it to `next`; it counts as posted from here on.
    ///
    /// # Safety
    ///
    /// Nobody else may use the slot, its WR must not be posted, and an MR that the
    /// WR names must live.
    pub(super) unsafe fn fill(&self, wr: &Wr, next: *mut raw::ib_send_wr) {
        let mut send = raw::ib_send_wr {
            next,
            send_flags: raw::ib_send_flags_IB_SEND_SIGNALED,
            ..Default::default()
        };
        send.__bindgen_anon_1.bindgen_union_field = self.cqe.get() as u64;
        let filled = match *wr {
            Wr::RegMr { mr, access } => {
                send.opcode = raw::ib_wr_opcode_IB_WR_REG_MR;
                RawWr {
                    reg: core::mem::ManuallyDrop::new(raw::ib_reg_wr {
                        wr: send,
                        mr,
                        // SAFETY: As promised.
                        key: unsafe { raw::rds_mr_helper_mr_rkey(mr) },
                        access,
                    }),
                }
            }
            Wr::LocalInv { rkey } => {
                send.opcode = raw::ib_wr_opcode_IB_WR_LOCAL_INV;
                send.ex.bindgen_union_field = rkey;
                RawWr {
                    send: core::mem::ManuallyDrop::new(send),
                }
            }
            Wr::Rdma {
                write,
                local,
                lkey,
                bytes,
                remote,
                rkey,
            } => {
                let sge = self.sge.get();
                send.opcode = if write {
                    raw::ib_wr_opcode_IB_WR_RDMA_WRITE
                } else {
                    raw::ib_wr_opcode_IB_WR_RDMA_READ
                };
                // SAFETY: Nobody else uses the slot.
                unsafe {
                    (*sge).addr = local;
                    (*sge).length = bytes;
                    (*sge).lkey = lkey;
                }
                send.sg_list = sge;
                send.num_sge = 1;
                RawWr {
                    rdma: core::mem::ManuallyDrop::new(raw::ib_rdma_wr {
                        wr: send,
                        remote_addr: remote,
                        rkey,
                    }),
                }
            }
        };
        // SAFETY: Nobody else uses the slot. The WR has no destructor.
        unsafe { *self.wr.get() = filled };
        self.status.store(POSTED, Relaxed);
    }

    /// What the HCA has reported: an `ib_wc_status`, or nothing yet.
    pub(super) fn reported(&self) -> Option<u32> {
        self.status.load(Acquire).checked_sub(REPORTED)
    }
}

/// Called by `ib_process_cq_direct` for each completion.
///
/// # Safety
///
/// `wc` is a completion of a WR that [`Slot::fill`] filled, so its
/// `wr_cqe` points into a slot that lives (see `SendQueue`).
unsafe extern "C" fn done(_cq: *mut raw::ib_cq, wc: *mut raw::ib_wc) {
    // SAFETY: The CQ hands over a valid completion.
    let wc = unsafe { &*wc };
    let cqe = wc.__bindgen_anon_1.bindgen_union_field as *mut UnsafeCell<raw::ib_cqe>;
    // SAFETY: As promised, `cqe` is the field of a live slot.
    let slot = unsafe { &*container_of!(cqe, Slot, cqe) };
    slot.status
        .store(REPORTED.saturating_add(wc.status), Release);
}
