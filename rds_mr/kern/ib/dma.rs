// SPDX-License-Identifier: GPL-2.0

//! Pages mapped for DMA by one device.

use super::of_driver;
use super::IbDevice;
use crate::kern::mm::PinnedPages;
use crate::sys::bindings as raw;
use kernel::bindings;
use kernel::error::to_result;
use kernel::page::Page;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::aref::ARef;

/// Where mapped pages came from, and so what letting go of them means.
enum Backing {
    /// Unpin them.
    User(PinnedPages),
    /// Free it.
    Own(Page),
}

impl Backing {
    fn is_write(&self) -> bool {
        match self {
            Self::User(pages) => pages.is_write(),
            Self::Own(_) => true,
        }
    }
}

/// Pages that a device could be told about, but that no MR refers to yet.
///
/// Dropping it unmaps, and unpins or frees; it may sleep. Once an MR knows the
/// pages they live in a [`super::Registration`].
///
/// # Invariants
///
/// `sgt` describes `pages` and is mapped on `device`.
pub(crate) struct DmaPages {
    sgt: KBox<bindings::sg_table>,
    pages: Backing,
    device: ARef<IbDevice>,
    bytes: u32,
}

// SAFETY: Nothing in it belongs to a task.
unsafe impl Send for DmaPages {}
// SAFETY: Nothing is changed through a shared reference.
unsafe impl Sync for DmaPages {}

impl DmaPages {
    /// Map `pages` for `device`: `bytes` bytes from `offset` in the first page.
    ///
    /// The offset stands in the first SG entry, not in `sg_offset`, which some
    /// drivers ignore. The mapping is coherent or fails: a bounce buffer would
    /// hide remote writes from the application.
    pub(crate) fn map(
        device: &IbDevice,
        mut pages: PinnedPages,
        offset: u32,
        bytes: u32,
    ) -> Result<Self> {
        let (array, count) = (pages.as_mut_ptr(), u32::try_from(pages.len())?);
        // SAFETY: `array` holds `count` pages, which `pages` keeps.
        unsafe { Self::build(device, array, count, offset, bytes, Backing::User(pages)) }
    }

    /// Allocate a zeroed page of our own and map it for reading and writing.
    pub(crate) fn own(device: &IbDevice) -> Result<Self> {
        let page = Page::alloc_page(GFP_KERNEL | __GFP_ZERO)?;
        let mut array = [page.as_ptr()];
        // CAST: 4096.
        let bytes = PAGE_SIZE as u32;
        // SAFETY: `array` holds one page, which `page` keeps.
        unsafe { Self::build(device, array.as_mut_ptr(), 1, 0, bytes, Backing::Own(page)) }
    }

    /// # Safety
    ///
    /// `array` must hold `count` pages that live as long as `pages`.
    unsafe fn build(
        device: &IbDevice,
        array: *mut *mut bindings::page,
        count: u32,
        offset: u32,
        bytes: u32,
        pages: Backing,
    ) -> Result<Self> {
        let mut sgt = KBox::new(bindings::sg_table::default(), GFP_KERNEL_ACCOUNT)?;
        // SAFETY: `array` as promised; a registered device has a segment limit.
        to_result(unsafe {
            bindings::sg_alloc_table_from_pages_segment(
                &mut *sgt,
                array,
                count,
                offset,
                bytes as usize,
                raw::rds_mr_helper_dma_max_seg_size(device.as_raw()),
                bindings::GFP_KERNEL_ACCOUNT,
            )
        })?;
        // SAFETY: `sgt` was just built over pages that are kept.
        let mapped = to_result(unsafe {
            raw::rds_mr_helper_dma_map(device.as_raw(), &mut *sgt, pages.is_write())
        });
        if let Err(error) = mapped {
            // SAFETY: Built above, and not mapped.
            unsafe { bindings::sg_free_table(&mut *sgt) };
            return Err(of_driver(error));
        }
        // INVARIANT: Built and mapped above.
        Ok(Self {
            sgt,
            pages,
            device: device.to_ref(),
            bytes,
        })
    }

    /// The page, if it is one of our own.
    #[allow(dead_code, reason = "the peer in tests/kunit is built on it")]
    pub(crate) fn page(&self) -> Option<&Page> {
        match &self.pages {
            Backing::User(_) => None,
            Backing::Own(page) => Some(page),
        }
    }

    /// DMA address of the first byte.
    pub(crate) fn addr(&self) -> u64 {
        // SAFETY: By the type invariant the table is mapped and so not empty.
        unsafe { (*self.sgt.sgl).dma_address }
    }

    /// The mapped table. The caller must not change it.
    pub(super) fn sgt(&mut self) -> *mut bindings::sg_table {
        &mut *self.sgt
    }

    /// How many SG entries the device sees.
    pub(super) fn nents(&self) -> u32 {
        self.sgt.nents
    }

    /// Length of the mapped buffer.
    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }
}

impl Drop for DmaPages {
    fn drop(&mut self) {
        // SAFETY: By the type invariant `sgt` is mapped on `device`, which is
        // registered as long as verbs objects of it exist. `pages` is unpinned
        // after this, as a field.
        unsafe {
            raw::rds_mr_helper_dma_unmap(
                self.device.as_raw(),
                &mut *self.sgt,
                self.pages.is_write(),
            );
            bindings::sg_free_table(&mut *self.sgt);
        }
    }
}
