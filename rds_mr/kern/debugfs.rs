// SPDX-License-Identifier: GPL-2.0

//! Files in debugfs. The kernel crate's do not hold the module while they are
//! open, and an open file calls back when it is closed.

use crate::sys::bindings as raw;
use kernel::bindings;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;

/// What is in a file.
pub(crate) trait Show {
    /// Its name.
    const NAME: &'static CStr;

    /// Write it all. Process context, may sleep.
    fn show(out: &SeqFile);
}

/// A directory at the root of debugfs. Drop removes it with its files, and waits
/// for those who read one.
///
/// # Invariants
///
/// `dir` is what `debugfs_create_dir` returned, an error included.
pub(crate) struct Dir {
    dir: *mut bindings::dentry,
}

// SAFETY: debugfs locks internally.
unsafe impl Send for Dir {}
// SAFETY: As above.
unsafe impl Sync for Dir {}

impl Dir {
    /// Make it. That debugfs is not there is no error, as everywhere.
    pub(crate) fn new(name: &'static CStr) -> Self {
        // INVARIANT: Just made.
        Self {
            // SAFETY: A C string; no parent is the root.
            dir: unsafe { bindings::debugfs_create_dir(name.as_char_ptr(), core::ptr::null_mut()) },
        }
    }

    /// Put a file into it, for root to read.
    pub(crate) fn file<T: Show>(self) -> Self {
        // SAFETY: A directory, or an error, which is taken as well; the function
        // lives as long as the module, which open files hold.
        unsafe {
            raw::rds_mr_debugfs_file(self.dir, T::NAME.as_char_ptr(), Some(show::<T>));
        }
        self
    }
}

/// # Safety
///
/// `out` is a file that is being read.
unsafe extern "C" fn show<T: Show>(out: *mut bindings::seq_file) -> c_int {
    // SAFETY: As promised.
    T::show(unsafe { SeqFile::from_raw(out) });
    0
}

impl Drop for Dir {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; an error is ignored.
        unsafe { bindings::debugfs_remove(self.dir) }
    }
}
