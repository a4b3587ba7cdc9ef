// SPDX-License-Identifier: GPL-2.0
/* The C half of the module, for one more module. */
#include "../../rds_mr/sys/debugfs.c"
#include "../../rds_mr/sys/helpers.c"
#include "../../rds_mr/sys/params.c"
#include "../../rds_mr/sys/sock_shim.c"
