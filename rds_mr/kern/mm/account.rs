// SPDX-License-Identifier: GPL-2.0

//! `mm->pinned_vm`: what a process has pinned for devices, against
//! RLIMIT_MEMLOCK. The same counter as `ibv_reg_mr` uses (core/umem.c), so that
//! both share one budget and `VmPin` in /proc/PID/status shows it.

use crate::sys::bindings as raw;
use kernel::mm::Mm;
use kernel::prelude::*;
use kernel::sync::aref::ARef;

/// Pages charged to the memory of the task that asked for them. The charge is
/// given back to that memory when this is dropped, also after the process is
/// gone. Drop may sleep (it can free the `mm_struct`).
pub(crate) struct Memlock {
    mm: ARef<Mm>,
    pages: u64,
}

impl Memlock {
    /// Charge `pages` to the current process if `fits(already pinned)` says so.
    ///
    /// A compare-and-swap, so that a request that does not fit never makes one
    /// fail that does. `ENOMEM` over the limit, `EFAULT` in a task without
    /// user memory.
    pub(crate) fn charge(pages: u64, fits: impl Fn(u64) -> bool) -> Result<Self> {
        let mm: ARef<Mm> = ARef::from(&**kernel::current!().mm().ok_or(EFAULT)?);
        // SAFETY: `mm` is a reference to a live `mm_struct`.
        let mut old = unsafe { raw::rds_mr_helper_pinned_vm(mm.as_raw()) };
        loop {
            // A negative count cannot be; treat it as nothing pinned.
            let pinned = u64::try_from(old).unwrap_or(0);
            if !fits(pinned) {
                return Err(ENOMEM);
            }
            let new = i64::try_from(pinned.saturating_add(pages)).map_err(|_| ENOMEM)?;
            // SAFETY: `mm` as above; `old` is a local.
            if unsafe { raw::rds_mr_helper_pinned_vm_cmpxchg(mm.as_raw(), &mut old, new) } {
                return Ok(Self { mm, pages });
            }
        }
    }
}

impl Drop for Memlock {
    fn drop(&mut self) {
        // CAST: usize and u64 are one on 64-bit, the only kind served.
        // SAFETY: `mm` is a reference to a live `mm_struct`, and the pages were
        // added to it by `charge`.
        unsafe { raw::rds_mr_helper_pinned_vm_sub(self.mm.as_raw(), self.pages as usize) };
    }
}
