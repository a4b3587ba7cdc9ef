// SPDX-License-Identifier: GPL-2.0
/*
 * Module parameters. The module! macro knows neither strings nor arrays nor
 * units, so they are declared here and checked in Rust when the module loads.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "params.h"

struct rds_mr_params rds_mr_params = {
	.max_keys_per_socket = 16384,
	.max_pages_per_socket = 1UL << 20,
	.max_keys_per_user = 65536,
	.max_pages_per_user = 1UL << 22,
	.mr_classes = { 2, 17, 257 },
	.nr_mr_classes = 3,
	.mr_pool = 64,
	.revoke_timeout_ms = 5000,
	.proof = "auto",
	.strict_access = true,
};

#define RDS_PARAM(name, type, text) \
	module_param_named(name, rds_mr_params.name, type, 0444); \
	MODULE_PARM_DESC(name, text)

RDS_PARAM(max_keys_per_socket, uint,
	  "keys one socket may hold: default and ceiling of its quota (16384)");
RDS_PARAM(max_pages_per_socket, ulong,
	  "pages (4 KiB) the keys of one socket may pin: default and ceiling (1048576 = 4 GiB)");
RDS_PARAM(max_keys_per_user, uint, "keys all sockets of one user may hold together (65536)");
RDS_PARAM(max_pages_per_user, ulong,
	  "pages (4 KiB) the keys of one user may pin together (4194304 = 16 GiB)");
RDS_PARAM(max_keys_per_device, uint,
	  "keys one HCA may hold; 0 = three quarters of what it offers, the rest is for others (0)");
RDS_PARAM(max_pages_per_device, ulong,
	  "pages (4 KiB) the keys of one HCA may pin; 0 = no ceiling (0)");
RDS_PARAM(mr_pool, uint, "idle MRs kept ready per HCA and size class (64)");
RDS_PARAM(revoke_timeout_ms, uint,
	  "milliseconds one revocation (free, close, exit, unplug) may take, 100 to 600000 (5000)");
RDS_PARAM(proof, charp,
	  "proof that the HCA has let go: auto = by driver, inv = LOCAL_INV, dereg = ib_dereg_mr (auto)");
RDS_PARAM(strict_access, bool,
	  "0 lets peers write through every key, as in-tree RDS does, for migration (1)");
module_param_array_named(mr_classes, rds_mr_params.mr_classes, uint,
			 &rds_mr_params.nr_mr_classes, 0444);
MODULE_PARM_DESC(mr_classes,
		 "sizes, in pages (4 KiB), in which MRs are allocated ahead of need (2,17,257)");
MODULE_VERSION("0.1.0");
