/* SPDX-License-Identifier: GPL-2.0 */
#ifndef RDS_MR_TEST_SLOW_COPY_H
#define RDS_MR_TEST_SLOW_COPY_H

#include <linux/types.h>

#define RDS_MR_SLOW_COPY_MAX 100000

int rds_mr_test_slow_copy(u32 microseconds);

#endif /* RDS_MR_TEST_SLOW_COPY_H */
