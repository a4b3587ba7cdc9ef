/* SPDX-License-Identifier: GPL-2.0 */
/* C glue that only tests need; the Rust side is raw.rs. */
#ifndef RDS_MR_TEST_HELPERS_H
#define RDS_MR_TEST_HELPERS_H

#include <linux/types.h>

struct ib_device;
struct ib_qp;

void rds_mr_test_skip(const char *reason);
unsigned long rds_mr_test_user_memory(size_t bytes);
bool rds_mr_test_pinned(unsigned long addr);
int rds_mr_test_qp(struct ib_qp *qp, u32 *state, u32 *rq_psn, u32 *access);
u64 rds_mr_test_dma_map(struct ib_device *dev, void *buffer, size_t bytes);
void rds_mr_test_dma_unmap(struct ib_device *dev, u64 addr, size_t bytes);

#endif /* RDS_MR_TEST_HELPERS_H */
