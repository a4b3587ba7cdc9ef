// SPDX-License-Identifier: GPL-2.0

//! The sizes in which memory regions are allocated ahead of need.

use super::{
    error::Error,
    range::MAX_MR_PAGES, //
};

/// The most classes there can be (module parameter `mr_classes`).
pub(crate) const MAX_CLASSES: usize = 4;

/// The largest class in pages. Some devices report absurd limits (hfi1: 2^32 - 1), which would
/// only waste memory: no key needs more than [`MAX_MR_PAGES`].
const MAX_CLASS_PAGES: u32 = 512;

/// The size classes of one device, ascending and all different.
///
/// # Invariants
///
/// `1 <= len <= MAX_CLASSES`; the first `len` entries of `pages` ascend strictly from at least 1,
/// and the last of them is at least [`MAX_MR_PAGES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Classes {
    pages: [u32; MAX_CLASSES],
    len: usize,
}

impl Classes {
    /// Makes the classes that the administrator requested fit the device.
    ///
    /// Zeros are dropped, what the device cannot do is cut down to what it can, and a class for
    /// the largest key is added if there is none. Of more than [`MAX_CLASSES`] the smallest
    /// count; if the largest key needs the last place, it takes it.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] if the device cannot register the largest key at all.
    pub(crate) fn new(requested: &[u32], device_max_pages: u32) -> Result<Self, Error> {
        let limit = device_max_pages.min(MAX_CLASS_PAGES);
        if limit < MAX_MR_PAGES {
            return Err(Error::NotSupported);
        }
        let serves_all = requested.iter().any(|&pages| pages >= MAX_MR_PAGES);
        let added = (!serves_all).then_some(&MAX_MR_PAGES);
        let sizes = requested.iter().chain(added).map(|&pages| pages.min(limit));

        let mut classes = [0; MAX_CLASSES];
        let mut len: usize = 0;
        let mut largest = 0;
        for slot in &mut classes {
            let Some(next) = sizes.clone().filter(|&pages| pages > largest).min() else {
                break;
            };
            *slot = next;
            largest = next;
            len = len.saturating_add(1);
        }
        if len == MAX_CLASSES {
            let [.., last] = &mut classes;
            *last = MAX_MR_PAGES.max(*last);
        }
        // INVARIANT: Each class was chosen larger than the one before; `sizes` holds one that
        // serves the largest key, and where it did not fit the last class was raised to it.
        Ok(Self {
            pages: classes,
            len,
        })
    }

    /// Returns the number of the smallest class that holds `pages` pages, if there is one.
    pub(crate) fn class_for(&self, pages: u32) -> Option<usize> {
        self.sizes().position(|size| size >= pages)
    }

    /// Returns the pages that a region of this class can hold.
    pub(crate) fn pages_of(&self, class: usize) -> Option<u32> {
        self.sizes().nth(class)
    }

    /// Returns the number of classes; they count from 0.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn sizes(&self) -> impl Iterator<Item = u32> + '_ {
        self.pages.iter().take(self.len).copied()
    }
}
