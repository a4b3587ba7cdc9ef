// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */
#include <kunit/test-bug.h>
#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <rdma/ib_verbs.h>

#include "helpers.h"

/* Mark the running test as skipped; it goes on until it returns. */
void rds_mr_test_skip(const char *reason)
{
	kunit_mark_skipped(kunit_get_current_test(), "%s", reason);
}

/* Memory of the running test, as a process has it; 0 if there is none. */
unsigned long rds_mr_test_user_memory(size_t bytes)
{
	unsigned long addr = kunit_vm_mmap(kunit_get_current_test(), NULL, 0, bytes,
					   PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS, 0);

	return IS_ERR_VALUE(addr) ? 0 : addr;
}

/* Whether somebody has pinned the page at @addr of the current task. */
bool rds_mr_test_pinned(unsigned long addr)
{
	struct page *page;
	bool pinned;

	if (get_user_pages_fast(addr, 1, 0, &page) != 1)
		return false;
	pinned = folio_maybe_dma_pinned(page_folio(page));
	put_page(page);
	return pinned;
}

/* What the HCA has for a QP: state, the next PSN it expects, remote access. */
int rds_mr_test_qp(struct ib_qp *qp, u32 *state, u32 *rq_psn, u32 *access)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;
	int ret = ib_query_qp(qp, &attr, IB_QP_STATE | IB_QP_RQ_PSN | IB_QP_ACCESS_FLAGS, &init);

	if (ret)
		return ret;
	*state = attr.qp_state;
	*rq_psn = attr.rq_psn;
	*access = attr.qp_access_flags;
	return 0;
}

/* 0 means that it failed, as in rds_mr_helper_dma_map_page(). */
u64 rds_mr_test_dma_map(struct ib_device *dev, void *buffer, size_t bytes)
{
	u64 addr = ib_dma_map_single(dev, buffer, bytes, DMA_BIDIRECTIONAL);

	return ib_dma_mapping_error(dev, addr) ? 0 : addr;
}

void rds_mr_test_dma_unmap(struct ib_device *dev, u64 addr, size_t bytes)
{
	ib_dma_unmap_single(dev, addr, bytes, DMA_BIDIRECTIONAL);
}
