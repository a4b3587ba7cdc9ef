// SPDX-License-Identifier: GPL-2.0

//! Do gcc, which compiled the kernel, and libclang, which made the bindings,
//! see the same structs? Checked when the module loads.

use super::bindings::*;
use core::mem::offset_of;
use core::mem::size_of;

/// As libclang has it: the list of `rds_mr_layout` in helpers.c, in its order.
const OURS: [usize; 39] = [
    size_of::<ib_send_wr>(),
    offset_of!(ib_send_wr, __bindgen_anon_1),
    offset_of!(ib_send_wr, sg_list),
    offset_of!(ib_send_wr, opcode),
    offset_of!(ib_send_wr, send_flags),
    offset_of!(ib_send_wr, ex),
    size_of::<ib_reg_wr>(),
    offset_of!(ib_reg_wr, mr),
    offset_of!(ib_reg_wr, key),
    offset_of!(ib_reg_wr, access),
    size_of::<ib_rdma_wr>(),
    offset_of!(ib_rdma_wr, remote_addr),
    offset_of!(ib_rdma_wr, rkey),
    size_of::<ib_wc>(),
    offset_of!(ib_wc, status),
    offset_of!(ib_wc, qp),
    size_of::<ib_sge>(),
    size_of::<ib_cqe>(),
    size_of::<ib_qp_init_attr>(),
    offset_of!(ib_qp_init_attr, send_cq),
    offset_of!(ib_qp_init_attr, cap),
    offset_of!(ib_qp_init_attr, qp_type),
    size_of::<ib_qp_attr>(),
    offset_of!(ib_qp_attr, ah_attr),
    offset_of!(ib_qp_attr, port_num),
    size_of::<ib_client>(),
    offset_of!(ib_client, remove),
    size_of::<ib_event_handler>(),
    size_of::<ib_port_attr>(),
    offset_of!(ib_port_attr, state),
    offset_of!(ib_port_attr, active_mtu),
    offset_of!(ib_port_attr, lid),
    size_of::<rds_mr_params>(),
    offset_of!(rds_mr_params, max_pages_per_socket),
    offset_of!(rds_mr_params, max_pages_per_device),
    offset_of!(rds_mr_params, mr_classes),
    offset_of!(rds_mr_params, revoke_timeout_ms),
    offset_of!(rds_mr_params, proof),
    offset_of!(rds_mr_params, strict_access),
];

/// The first entry that differs: its index, gcc's number and ours.
pub(crate) fn mismatch() -> Option<(usize, u32, usize)> {
    // SAFETY: A constant array of C.
    let theirs = unsafe { &*core::ptr::addr_of!(rds_mr_layout) };
    difference(&OURS, theirs)
}

/// [`mismatch`] of any two lists; what C has at the end is zero.
pub(crate) fn difference(ours: &[usize], theirs: &[u32]) -> Option<(usize, u32, usize)> {
    let ours = ours.iter().chain(core::iter::repeat(&0));
    theirs
        .iter()
        .zip(ours)
        .enumerate()
        .find(|(_, (theirs, ours))| **theirs as usize != **ours)
        .map(|(index, (theirs, ours))| (index, *theirs, *ours))
}
