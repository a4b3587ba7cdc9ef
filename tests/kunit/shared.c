// SPDX-License-Identifier: GPL-2.0
/*
 * The C files of rds_mr once more: an object that two modules share would have
 * the name of one of them. The verbs that faults.c can make fail go through it.
 */
#include <rdma/ib_verbs.h>

#include "faults.h"

#include "../../rds_mr/sys/debugfs.c"
#include "../../rds_mr/sys/params.c"
#include "../../rds_mr/sys/sock_shim.c"

#define ib_post_send rds_mr_test_post_send
#define ib_process_cq_direct rds_mr_test_process_cq_direct
#define ib_alloc_mr rds_mr_test_alloc_mr
#define ib_dereg_mr rds_mr_test_dereg_mr
#define ib_update_fast_reg_key rds_mr_test_update_fast_reg_key
#define ib_map_mr_sg rds_mr_test_map_mr_sg
#define ib_dma_map_sgtable_attrs rds_mr_test_dma_map_sgtable

#include "../../rds_mr/sys/helpers.c"
