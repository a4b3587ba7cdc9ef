// SPDX-License-Identifier: GPL-2.0

//! The structs and numbers of `<linux/rds.h>` and `<linux/rds_mr.h>`.

use crate::sys::bindings as raw;
use kernel::transmute::AsBytes;
use kernel::transmute::FromBytes;

pub(crate) use raw::rds_free_mr_args as FreeMrArgs;
pub(crate) use raw::rds_get_mr_args as GetMrArgs;
pub(crate) use raw::rds_mr_probe as ProbeArgs;
pub(crate) use raw::rds_mr_quota as Quota;
pub(crate) use raw::rds_mr_revoked as RevokedArgs;

/// Address and protocol family.
pub(crate) const AF_RDS: i32 = kernel::bindings::AF_RDS as i32;

/// The only socket type of the family.
// CAST: 5.
pub(crate) const SOCK_SEQPACKET: i32 = kernel::bindings::sock_type_SOCK_SEQPACKET as i32;

/// `struct rds_get_mr_for_dest_args`: the destination is not looked at.
#[repr(C)]
pub(crate) struct GetMrForDestArgs {
    _dest: [u64; 16],
    /// The rest is as for RDS_GET_MR.
    pub(crate) args: GetMrArgs,
}

// SAFETY: Integers only, and no padding: any bytes are a value.
unsafe impl FromBytes for FreeMrArgs {}
// SAFETY: As above.
unsafe impl FromBytes for GetMrArgs {}
// SAFETY: As above.
unsafe impl FromBytes for GetMrForDestArgs {}
// SAFETY: As above.
unsafe impl FromBytes for Quota {}
// SAFETY: As above.
unsafe impl FromBytes for ProbeArgs {}
// SAFETY: As above.
unsafe impl FromBytes for RevokedArgs {}
// SAFETY: Integers only, and no padding: every byte is initialised.
unsafe impl AsBytes for Quota {}
// SAFETY: As above.
unsafe impl AsBytes for ProbeArgs {}
// SAFETY: As above.
unsafe impl AsBytes for RevokedArgs {}

const _: () = {
    // The layouts of the ABI (no padding anywhere).
    assert!(size_of::<GetMrArgs>() == 32);
    assert!(size_of::<GetMrForDestArgs>() == 160);
    assert!(size_of::<FreeMrArgs>() == 16);
    assert!(size_of::<Quota>() == 16);
    assert!(size_of::<ProbeArgs>() == 24);
    assert!(size_of::<RevokedArgs>() == 16);
};

/// Numbers as the callbacks get them.
macro_rules! numbers {
    ($($ty:ty: $($name:ident)*;)*) => {
        $($(
            #[doc = concat!("`", stringify!($name), "`.")]
            // CAST: Small positive numbers.
            pub(crate) const $name: $ty = raw::$name as $ty;
        )*)*
    };
}

numbers! {
    i32: SOL_RDS RDS_CANCEL_SENT_TO RDS_GET_MR RDS_FREE_MR RDS_RECVERR RDS_CONG_MONITOR
        RDS_GET_MR_FOR_DEST SO_RDS_TRANSPORT SO_RDS_MSG_RXPATH_LATENCY RDS_TRANS_IB
        RDS_TRANS_NONE RDS_MR_QUOTA;
    u32: SIOCRDSSETTOS SIOCRDSGETTOS SIOCRDSMRGQUOTA SIOCRDSMRSQUOTA SIOCRDSMRPROBE
        SIOCRDSMRREVOKED RDS_MR_ALIVE RDS_MR_ACCESS_ERROR RDS_MR_REVOKED_OWNER
        RDS_MR_REVOKED_DEVICE RDS_MR_REVOKED_UNPROVEN;
    u64: RDS_RDMA_READWRITE;
}

/// `SO_TIMESTAMP_OLD` at level SOL_RDS.
pub(crate) const SO_TIMESTAMP_OLD: i32 = 29;
/// `SO_TIMESTAMP_NEW` at level SOL_RDS.
pub(crate) const SO_TIMESTAMP_NEW: i32 = 63;
