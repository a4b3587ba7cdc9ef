// SPDX-License-Identifier: GPL-2.0

//! The module itself: its parameters and its references.

use crate::sys::bindings as raw;
use kernel::bindings;
use kernel::prelude::*;
use kernel::str::BStr;

/// Parameters as given at load time. They never change (mode 0444).
pub(crate) fn params() -> &'static raw::rds_mr_params {
    // SAFETY: `rds_mr_params` is written by the module loader before `init`
    // runs, and by nobody after.
    unsafe { &*core::ptr::addr_of!(raw::rds_mr_params) }
}

/// The text of the parameter `proof`, to print.
pub(crate) fn proof_text() -> &'static BStr {
    BStr::from_bytes(proof_param())
}

/// The text of the parameter `proof`.
pub(crate) fn proof_param() -> &'static [u8] {
    // SAFETY: A charp parameter is a C string that lives as long as the module.
    unsafe { CStr::from_char_ptr(params().proof) }.to_bytes()
}

/// A reference that keeps the module loaded. Neither taking nor dropping it sleeps.
pub(crate) struct ModuleRef(());

impl ModuleRef {
    /// Take one. The caller runs in the module, so it is loaded.
    pub(crate) fn get() -> Self {
        // SAFETY: `this_module` is this module, which is live: its code runs,
        // and every path here holds a socket, a device registration or a work
        // item, each of which ends before the module can.
        unsafe { bindings::__module_get(this_module_ptr()) };
        Self(())
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: Gives back the reference taken in `get`.
        unsafe { bindings::module_put(this_module_ptr()) };
    }
}

/// `THIS_MODULE`.
pub(crate) const fn this_module_ptr() -> *mut bindings::module {
    kernel::module::this_module::<crate::LocalModule>().as_ptr()
}

/// Refuse to run with bindings that do not fit the kernel.
pub(crate) fn check_layout() -> Result {
    match crate::sys::layout::mismatch() {
        None => Ok(()),
        Some((index, kernel, bindings)) => {
            pr_err!(
                "struct layout {}: the kernel has {}, the bindings {}; build against the tree of the running kernel\n",
                index,
                kernel,
                bindings
            );
            Err(EINVAL)
        }
    }
}
