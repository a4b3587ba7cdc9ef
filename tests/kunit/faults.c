// SPDX-License-Identifier: GPL-2.0
/* See faults.h. */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/workqueue.h>

#include "faults.h"

static struct {
	atomic_t left;
	atomic_t struck;
	u32 arg;
} faults[RDS_MR_FAULTS];

/* Let the next @times uses fail; 0 for no more. */
int rds_mr_test_fault(u32 fault, u32 times, u32 arg)
{
	if (fault >= RDS_MR_FAULTS)
		return -EINVAL;
	faults[fault].arg = arg;
	atomic_set(&faults[fault].struck, 0);
	atomic_set(&faults[fault].left, times);
	return 0;
}

/* How often it has since then. */
int rds_mr_test_fault_struck(u32 fault, u32 *struck)
{
	if (fault >= RDS_MR_FAULTS)
		return -EINVAL;
	*struck = atomic_read(&faults[fault].struck);
	return 0;
}

static bool strikes(enum rds_mr_test_fault fault)
{
	if (atomic_dec_if_positive(&faults[fault].left) < 0)
		return false;
	atomic_inc(&faults[fault].struck);
	return true;
}

static int post_cut(struct ib_qp *qp, const struct ib_send_wr *wr, u32 first,
		    const struct ib_send_wr **bad)
{
	/* The chain is the caller's, who wrote it for this one post. */
	struct ib_send_wr *last = (struct ib_send_wr *)wr;
	int ret;

	*bad = wr;
	if (!first)
		return -ENOMEM;
	while (--first && last->next)
		last = (struct ib_send_wr *)last->next;
	*bad = last->next;
	last->next = NULL;
	ret = ib_post_send(qp, wr, NULL);
	if (ret)
		*bad = wr;
	return *bad ? -ENOMEM : 0;
}

static void inv_wrong(const struct ib_send_wr *wr, u32 n)
{
	/* The chain is the caller's, who wrote it for this one post. */
	struct ib_send_wr *at = (struct ib_send_wr *)wr;

	while (n-- && at->next)
		at = (struct ib_send_wr *)at->next;
	if (at->opcode == IB_WR_LOCAL_INV)
		at->ex.invalidate_rkey = ~at->ex.invalidate_rkey;
}

static void reg_wrong(const struct ib_send_wr *wr)
{
	/* As above. An index is in the upper 24 bits of a key. */
	struct ib_reg_wr *reg = container_of((struct ib_send_wr *)wr, struct ib_reg_wr, wr);

	reg->key ^= 0x100;
}

int rds_mr_test_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			  const struct ib_send_wr **bad)
{
	if (strikes(RDS_MR_FAULT_POST_SLOW))
		msleep(faults[RDS_MR_FAULT_POST_SLOW].arg);
	if (strikes(RDS_MR_FAULT_POST_LOST))
		return 0;
	if (strikes(RDS_MR_FAULT_POST_CUT))
		return post_cut(qp, wr, faults[RDS_MR_FAULT_POST_CUT].arg, bad);
	if (wr->opcode == IB_WR_LOCAL_INV && strikes(RDS_MR_FAULT_INV_WRONG))
		inv_wrong(wr, faults[RDS_MR_FAULT_INV_WRONG].arg);
	if (wr->opcode == IB_WR_REG_MR && strikes(RDS_MR_FAULT_REG_WRONG))
		reg_wrong(wr);
	return ib_post_send(qp, wr, bad);
}

int rds_mr_test_process_cq_direct(struct ib_cq *cq, int budget)
{
	if (strikes(RDS_MR_FAULT_POLL_BLIND))
		return 0;
	return ib_process_cq_direct(cq, budget);
}

struct ib_mr *rds_mr_test_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 max_num_sg)
{
	if (strikes(RDS_MR_FAULT_ALLOC_MR))
		return ERR_PTR(-ENOMEM);
	return ib_alloc_mr(pd, type, max_num_sg);
}

static void break_device(struct ib_device *dev)
{
	struct ib_event event = { .device = dev, .event = IB_EVENT_DEVICE_FATAL };

	ib_dispatch_event(&event);
	flush_workqueue(ib_wq);
}

int rds_mr_test_dereg_mr(struct ib_mr *mr)
{
	if (strikes(RDS_MR_FAULT_DEREG_FATAL))
		break_device(mr->device);
	if (strikes(RDS_MR_FAULT_DEREG))
		return -EBUSY;
	if (strikes(RDS_MR_FAULT_DEREG_SLOW))
		msleep(faults[RDS_MR_FAULT_DEREG_SLOW].arg);
	return ib_dereg_mr(mr);
}

int rds_mr_test_map_mr_sg(struct ib_mr *mr, struct scatterlist *sg, int nents,
			  unsigned int *offset, unsigned int page_size)
{
	if (strikes(RDS_MR_FAULT_MAP_SHORT))
		nents--;
	return nents ? ib_map_mr_sg(mr, sg, nents, offset, page_size) : 0;
}

void rds_mr_test_update_fast_reg_key(struct ib_mr *mr, u8 byte)
{
	if (strikes(RDS_MR_FAULT_KEY_BYTE))
		byte = faults[RDS_MR_FAULT_KEY_BYTE].arg;
	ib_update_fast_reg_key(mr, byte);
}

int rds_mr_test_dma_map_sgtable(struct ib_device *dev, struct sg_table *sgt,
				enum dma_data_direction direction, unsigned long attrs)
{
	if (strikes(RDS_MR_FAULT_DMA_MAP))
		return -EIO;
	return ib_dma_map_sgtable_attrs(dev, sgt, direction, attrs);
}
