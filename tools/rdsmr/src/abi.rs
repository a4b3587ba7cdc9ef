// SPDX-License-Identifier: GPL-2.0
//! The numbers and layouts of `<linux/rds.h>` and `<linux/rds_mr.h>`, as far as
//! keys need them.

pub const AF_RDS: i32 = 21;
pub const SOL_RDS: i32 = 276;

pub const RDS_CANCEL_SENT_TO: i32 = 1;
pub const RDS_GET_MR: i32 = 2;
pub const RDS_FREE_MR: i32 = 3;
pub const RDS_RECVERR: i32 = 5;
pub const RDS_CONG_MONITOR: i32 = 6;
pub const RDS_GET_MR_FOR_DEST: i32 = 7;
pub const SO_RDS_TRANSPORT: i32 = 8;
pub const SO_RDS_MSG_RXPATH_LATENCY: i32 = 10;
/// RDS takes the time stamp options at its own level, too.
pub const SO_TIMESTAMP_OLD: i32 = 29;
pub const SO_TIMESTAMP_NEW: i32 = 63;
pub const RDS_INFO_FIRST: i32 = 10000;
pub const RDS_INFO_LAST: i32 = 10017;
pub const RDS_MR_QUOTA: i32 = 20000;

pub const RDS_TRANS_IB: i32 = 0;
pub const RDS_TRANS_GAP: i32 = 1;
pub const RDS_TRANS_TCP: i32 = 2;
pub const RDS_TRANS_COUNT: i32 = 3;
pub const RDS_TRANS_NONE: i32 = -1;

pub const RDS_RDMA_READWRITE: u64 = 0x01;
pub const RDS_RDMA_FENCE: u64 = 0x02;
pub const RDS_RDMA_INVALIDATE: u64 = 0x04;
pub const RDS_RDMA_USE_ONCE: u64 = 0x08;
pub const RDS_RDMA_DONTWAIT: u64 = 0x10;
pub const RDS_RDMA_NOTIFY_ME: u64 = 0x20;
pub const RDS_RDMA_SILENT: u64 = 0x40;

const SIOCPROTOPRIVATE: u32 = 0x89E0;
pub const SIOCRDSSETTOS: u32 = SIOCPROTOPRIVATE;
pub const SIOCRDSGETTOS: u32 = SIOCPROTOPRIVATE + 1;
pub const SIOCRDSMRGQUOTA: u32 = SIOCPROTOPRIVATE + 8;
pub const SIOCRDSMRSQUOTA: u32 = SIOCPROTOPRIVATE + 9;
pub const SIOCRDSMRPROBE: u32 = SIOCPROTOPRIVATE + 10;
pub const SIOCRDSMRREVOKED: u32 = SIOCPROTOPRIVATE + 11;

pub const RDS_MR_REVOKED_OWNER: u32 = 1;
pub const RDS_MR_REVOKED_DEVICE: u32 = 2;
pub const RDS_MR_REVOKED_UNPROVEN: u32 = 1;

/// The largest buffer that every alignment allows.
pub const MAX_BYTES: u64 = 1 << 20;
/// One page more than that, for a buffer that does not start on a page.
pub const MAX_PAGES: u64 = 257;

/// A key as programs see it: low half the HCA's key, high half where the buffer
/// starts within its first page.
pub fn cookie_offset(cookie: u64) -> u64 {
    cookie >> 32
}

/// Types whose every byte is theirs, so that they can cross to the kernel as
/// bytes.
///
/// # Safety
/// `#[repr(C)]`, no padding, every bit pattern valid.
pub unsafe trait Plain: Copy {
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: no padding by the trait's contract, and &self keeps it alive.
        unsafe { std::slice::from_raw_parts((self as *const Self).cast(), size_of::<Self>()) }
    }

    fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and any bytes make a valid value.
        unsafe { std::slice::from_raw_parts_mut((self as *mut Self).cast(), size_of::<Self>()) }
    }
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        // SAFETY: integers only and no padding; the test below adds the sizes up.
        unsafe impl Plain for $type {}
    )*};
}

plain!(u8, i32, u32, u64);
plain!(
    GetMrArgs,
    GetMrForDestArgs,
    FreeMrArgs,
    RxTraceSo,
    Quota,
    Probe,
    Revoked
);

/// `struct rds_get_mr_args`, with its `struct rds_iovec` unfolded.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GetMrArgs {
    pub addr: u64,
    pub bytes: u64,
    pub cookie_addr: u64,
    pub flags: u64,
}

/// `struct rds_get_mr_for_dest_args`; the destination is a `sockaddr_storage`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GetMrForDestArgs {
    pub dest: [u8; 128],
    pub mr: GetMrArgs,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FreeMrArgs {
    pub cookie: u64,
    pub flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RxTraceSo {
    pub rx_traces: u8,
    pub rx_trace_pos: [u8; 3],
}

/// `struct rds_mr_quota`. Set a field to 0 to get the administrator's default.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub max_keys: u32,
    pub flags: u32,
    pub max_pages: u64,
}

/// `struct rds_mr_probe`. The offset counts from the start of the buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    pub cookie: u64,
    pub offset: u64,
    pub result: u32,
    pub flags: u32,
}

/// `struct rds_mr_revoked`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    pub cookie: u64,
    pub reason: u32,
    pub flags: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn layouts_are_those_of_the_headers() {
        assert_eq!(size_of::<GetMrArgs>(), 32);
        assert_eq!(offset_of!(GetMrArgs, addr), 0);
        assert_eq!(offset_of!(GetMrArgs, bytes), 8);
        assert_eq!(offset_of!(GetMrArgs, cookie_addr), 16);
        assert_eq!(offset_of!(GetMrArgs, flags), 24);
        assert_eq!(size_of::<GetMrForDestArgs>(), 160);
        assert_eq!(offset_of!(GetMrForDestArgs, mr), 128);
        assert_eq!(size_of::<FreeMrArgs>(), 16);
        assert_eq!(offset_of!(FreeMrArgs, flags), 8);
        assert_eq!(size_of::<RxTraceSo>(), 4);
        assert_eq!(size_of::<Quota>(), 16);
        assert_eq!(offset_of!(Quota, flags), 4);
        assert_eq!(offset_of!(Quota, max_pages), 8);
        assert_eq!(size_of::<Probe>(), 24);
        assert_eq!(offset_of!(Probe, offset), 8);
        assert_eq!(offset_of!(Probe, result), 16);
        assert_eq!(offset_of!(Probe, flags), 20);
        assert_eq!(size_of::<Revoked>(), 16);
        assert_eq!(offset_of!(Revoked, reason), 8);
        assert_eq!(offset_of!(Revoked, flags), 12);
    }

    #[test]
    fn bytes_are_the_fields_in_order() {
        let args = FreeMrArgs {
            cookie: 0x0102_0304_0506_0708,
            flags: 4,
        };
        let mut copy = FreeMrArgs::default();
        copy.as_bytes_mut().copy_from_slice(args.as_bytes());
        assert_eq!(
            args.as_bytes()[..8],
            0x0102_0304_0506_0708_u64.to_ne_bytes()
        );
        assert_eq!((copy.cookie, copy.flags), (args.cookie, 4));
    }
}
