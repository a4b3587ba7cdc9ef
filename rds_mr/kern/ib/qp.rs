// SPDX-License-Identifier: GPL-2.0

//! Completion queues that are polled by those who wait, and RC queue pairs.

use super::of_driver;
use super::IbDevice;
use super::Pd;
use super::Route;
use crate::kern::module::ModuleRef;
use crate::kern::random::random_u32;
use crate::kern::time;
use crate::sys::bindings as raw;
use core::mem::ManuallyDrop;
use kernel::error::from_err_ptr;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

/// What a remote peer may do to memory of the PD through a QP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remote {
    /// Nothing at all.
    Nothing,
    /// RDMA READ.
    Read,
    /// RDMA READ and WRITE.
    #[allow(dead_code, reason = "the peer in tests/kunit is built on it")]
    ReadWrite,
}

impl Remote {
    fn flags(self) -> i32 {
        let flags = match self {
            Self::Nothing => 0,
            Self::Read => raw::ib_access_flags_IB_ACCESS_REMOTE_READ,
            Self::ReadWrite => {
                raw::ib_access_flags_IB_ACCESS_REMOTE_READ
                    | raw::ib_access_flags_IB_ACCESS_REMOTE_WRITE
            }
        };
        // CAST: Small bits.
        flags as i32
    }
}

/// Nanoseconds after which the success of destroying a QP proves nothing.
const DESTROY_NS: u64 = 45_000_000_000;

/// A random packet sequence number (24 bits). RoCE responders know their peer
/// by little else.
pub(super) fn random_psn() -> u32 {
    random_u32() & 0x00ff_ffff
}

/// A CQ without interrupt (IB_POLL_DIRECT).
///
/// # Invariants
///
/// `raw` is a CQ that this object alone frees.
struct Cq {
    raw: core::ptr::NonNull<raw::ib_cq>,
}

impl Cq {
    fn alloc(device: &IbDevice, cqes: u32) -> Result<Self> {
        // SAFETY: A registered device (rule of `IbDevice`).
        let cq = from_err_ptr(unsafe {
            raw::rds_mr_helper_alloc_cq(device.as_raw(), i32::try_from(cqes)?)
        })
        .map_err(of_driver)?;
        // INVARIANT: Just allocated.
        Ok(Self {
            raw: core::ptr::NonNull::new(cq).ok_or(ENOMEM)?,
        })
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; its QPs are gone by the field order of `Qp`.
        unsafe { raw::ib_free_cq(self.raw.as_ptr()) };
    }
}

/// An RC queue pair with a CQ of its own. Drop sleeps (commands to the HCA).
///
/// # Invariants
///
/// `raw` is a QP of `pd` that uses `cq` and that this object alone destroys. The
/// other fields are valid until [`Self::end`].
pub(crate) struct Qp {
    raw: core::ptr::NonNull<raw::ib_qp>,
    cq: ManuallyDrop<Cq>,
    pd: ManuallyDrop<Arc<Pd>>,
    failed: ManuallyDrop<Arc<Atomic<bool>>>,
    ended: bool,
}

/// An asynchronous event of a QP. The queues here see none in good health, so
/// each of them (fatal errors of QP, path, device) means: replace it. A CQ
/// without interrupt has no other way to say so.
///
/// # Safety
///
/// `context` is the flag that [`Qp::create`] registered; the core calls this
/// only until the QP is destroyed.
unsafe extern "C" fn qp_event(_event: *mut raw::ib_event, context: *mut kernel::ffi::c_void) {
    // SAFETY: The QP's owner keeps the flag until after the QP is destroyed.
    unsafe { &*context.cast::<Atomic<bool>>() }.store(true, Relaxed);
}

// SAFETY: Verbs may come from any task.
unsafe impl Send for Qp {}
// SAFETY: And lock internally; polling the CQ is unsafe to call for that reason.
unsafe impl Sync for Qp {}

impl Qp {
    /// Make a QP whose send queue holds `depth` WRs, in state RESET. `failed` is
    /// set when the HCA says that something is wrong with it.
    pub(super) fn create(pd: &Arc<Pd>, depth: u32, failed: Arc<Atomic<bool>>) -> Result<Self> {
        // One more than can be sent: on overflow drivers stop reporting.
        let cq = Cq::alloc(pd.device(), depth.saturating_add(2))?;
        let mut attr = raw::ib_qp_init_attr {
            event_handler: Some(qp_event),
            qp_context: Arc::as_ptr(&failed).cast_mut().cast(),
            send_cq: cq.raw.as_ptr(),
            recv_cq: cq.raw.as_ptr(),
            sq_sig_type: raw::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: raw::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        attr.cap.max_send_wr = depth;
        attr.cap.max_send_sge = 1;
        attr.cap.max_recv_wr = 1;
        attr.cap.max_recv_sge = 1;
        // SAFETY: PD and CQ are live, and `attr` is complete for an RC QP.
        let qp = from_err_ptr(unsafe { raw::rds_mr_helper_create_qp(pd.as_raw(), &mut attr) })
            .map_err(of_driver)?;
        // INVARIANT: Just created.
        Ok(Self {
            raw: core::ptr::NonNull::new(qp).ok_or(ENOMEM)?,
            cq: ManuallyDrop::new(cq),
            pd: ManuallyDrop::new(pd.clone()),
            failed: ManuallyDrop::new(failed),
            ended: false,
        })
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: A live QP by the type invariant.
        unsafe { raw::rds_mr_helper_qp_num(self.raw.as_ptr()) }
    }

    /// The C pointer; valid while `self` is.
    pub(crate) fn as_raw(&self) -> *mut raw::ib_qp {
        self.raw.as_ptr()
    }

    fn modify(&self, attr: &mut raw::ib_qp_attr, mask: u32) -> Result {
        // CAST: A mask of low bits.
        // SAFETY: A live QP, and `attr` holds what `mask` names.
        to_result(unsafe { raw::ib_modify_qp(self.as_raw(), attr, mask as i32) }).map_err(of_driver)
    }

    /// Bring it to RTS, connected to QP number `peer` of the same port.
    ///
    /// A pair crosses its PSNs; a QP may be its own peer.
    pub(crate) fn connect(
        &self,
        route: &Route,
        peer: u32,
        sq_psn: u32,
        rq_psn: u32,
        remote: Remote,
    ) -> Result {
        let mut attr = raw::ib_qp_attr {
            qp_state: raw::ib_qp_state_IB_QPS_INIT,
            port_num: route.port(),
            qp_access_flags: remote.flags(),
            ..Default::default()
        };
        self.modify(
            &mut attr,
            raw::ib_qp_attr_mask_IB_QP_STATE
                | raw::ib_qp_attr_mask_IB_QP_PKEY_INDEX
                | raw::ib_qp_attr_mask_IB_QP_PORT
                | raw::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS,
        )?;

        let reads = u8::from(remote != Remote::Nothing);
        let mut attr = raw::ib_qp_attr {
            qp_state: raw::ib_qp_state_IB_QPS_RTR,
            path_mtu: route.mtu(),
            dest_qp_num: peer,
            rq_psn,
            max_dest_rd_atomic: reads,
            min_rnr_timer: 12,
            ..Default::default()
        };
        route.fill(self.pd.device(), &mut attr.ah_attr);
        self.modify(
            &mut attr,
            raw::ib_qp_attr_mask_IB_QP_STATE
                | raw::ib_qp_attr_mask_IB_QP_AV
                | raw::ib_qp_attr_mask_IB_QP_PATH_MTU
                | raw::ib_qp_attr_mask_IB_QP_DEST_QPN
                | raw::ib_qp_attr_mask_IB_QP_RQ_PSN
                | raw::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC
                | raw::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER,
        )?;

        let mut attr = raw::ib_qp_attr {
            qp_state: raw::ib_qp_state_IB_QPS_RTS,
            sq_psn,
            max_rd_atomic: 1,
            // 4.096 us * 2^17 = 0.5 s, seven times: within the default deadline,
            // and long for a busy software HCA, which a retry only burdens more.
            timeout: 17,
            retry_cnt: 7,
            rnr_retry: 7,
            ..Default::default()
        };
        self.modify(
            &mut attr,
            raw::ib_qp_attr_mask_IB_QP_STATE
                | raw::ib_qp_attr_mask_IB_QP_SQ_PSN
                | raw::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC
                | raw::ib_qp_attr_mask_IB_QP_TIMEOUT
                | raw::ib_qp_attr_mask_IB_QP_RETRY_CNT
                | raw::ib_qp_attr_mask_IB_QP_RNR_RETRY,
        )
    }

    /// Bring it to ERR: what is queued reports, flushed if it did not run.
    pub(crate) fn fail(&self) -> Result {
        let mut attr = raw::ib_qp_attr {
            qp_state: raw::ib_qp_state_IB_QPS_ERR,
            ..Default::default()
        };
        self.modify(&mut attr, raw::ib_qp_attr_mask_IB_QP_STATE)
    }

    /// Run the `done` callbacks of what has completed, up to `budget`.
    ///
    /// # Safety
    ///
    /// Only one caller at a time, and every WR that was posted on this QP had a
    /// `wr_cqe` that is still valid.
    pub(super) unsafe fn poll(&self, budget: i32) {
        // SAFETY: A live CQ of kind IB_POLL_DIRECT; the rest as promised.
        unsafe { raw::rds_mr_helper_poll(self.cq.raw.as_ptr(), budget) };
    }
}

impl Qp {
    /// Destroy it. Sleeps for as long as the driver takes.
    ///
    /// An error means that the HCA may still use it: everything that it refers
    /// to is leaked then. So does a success after a long time: rxe gives up
    /// after 50 s and says 0 (rxe_pool.c, __rxe_cleanup).
    pub(crate) fn destroy(mut self) -> Result {
        self.end()
    }

    /// As [`Self::destroy`], once. The fields are not to be used after it.
    fn end(&mut self) -> Result {
        if core::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let start = time::now_ns();
        // SAFETY: By the type invariant nobody else destroys it, and `ended` says
        // that it is not done twice.
        let ret = unsafe { raw::ib_destroy_qp_user(self.as_raw(), core::ptr::null_mut()) };
        if ret == 0 && time::now_ns().saturating_sub(start) <= DESTROY_NS {
            // SAFETY: Destroyed, so nothing refers to these any more; `ended` says
            // that each is dropped once, and no caller uses `self` after this.
            unsafe {
                ManuallyDrop::drop(&mut self.cq);
                ManuallyDrop::drop(&mut self.pd);
                ManuallyDrop::drop(&mut self.failed);
            }
            return Ok(());
        }
        if ret != 0 {
            // Its events call us: the module stays, unless it is on its way out.
            core::mem::forget(ModuleRef::get());
            // SAFETY: A live QP, as it was not destroyed.
            unsafe { raw::rds_mr_helper_qp_mute(self.as_raw()) };
        }
        pr_err!(
            "{:?}: QP not destroyed for certain (error {}); its memory is leaked\n",
            self.pd.device().name(),
            ret
        );
        Err(EIO)
    }
}

impl Drop for Qp {
    /// Of a QP that was never used: it failed to connect, or is dropped with the
    /// queue that never came to be.
    fn drop(&mut self) {
        let _ = self.end();
    }
}
