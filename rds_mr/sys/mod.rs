// SPDX-License-Identifier: GPL-2.0

//! Raw bindings of the RDMA verbs and of the C helpers.
//!
//! Only `kern` may use what is in here.

pub(crate) mod layout;

/// Generated from `bindings_helper.h`; see the rule in `Kbuild`.
#[expect(dead_code, reason = "generated")]
#[allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    improper_ctypes,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    reason = "generated; what it triggers depends on the kernel's configuration"
)]
pub(crate) mod bindings {
    include!(concat!(
        env!("RDS_MR_OBJ"),
        "/rds_mr/sys/bindings_generated.rs"
    ));
}
