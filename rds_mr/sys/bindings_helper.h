/* SPDX-License-Identifier: GPL-2.0 */
/* Input of bindgen: see the rule in Kbuild. */
#include <linux/cgroup_rdma.h>
#include <linux/mmu_notifier.h>
#include <net/sock.h>
#include <rdma/ib_verbs.h>
#include <rdma/ib_cache.h>
#include <rdma/rdma_cm.h>
#include <linux/rds.h>
#include <uapi/linux/rds_mr.h>

#include "debugfs.h"
#include "helpers.h"
#include "params.h"
#include "sock_shim.h"
