/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Verbs that fail on demand. shared.c puts these in front of the real ones, so
 * that the production source is what meets the failure.
 */
#ifndef RDS_MR_TEST_FAULTS_H
#define RDS_MR_TEST_FAULTS_H

#include <rdma/ib_verbs.h>

enum rds_mr_test_fault {
	/* Post only the first @arg WRs of a chain, and refuse the rest. */
	RDS_MR_FAULT_POST_CUT,
	/* Say that a chain was posted, and do not post it. */
	RDS_MR_FAULT_POST_LOST,
	/* Refuse to deregister. */
	RDS_MR_FAULT_DEREG,
	/* Take @arg milliseconds for it. */
	RDS_MR_FAULT_DEREG_SLOW,
	/* Map one page less than was asked for. */
	RDS_MR_FAULT_MAP_SHORT,
	/* Refuse to map for DMA. */
	RDS_MR_FAULT_DMA_MAP,
	/* Take @arg milliseconds before a chain is posted. */
	RDS_MR_FAULT_POST_SLOW,
	/* Allocate no MR. */
	RDS_MR_FAULT_ALLOC_MR,
	/* Let the @arg-th LOCAL_INV of a chain name a key that does not exist: it
	 * completes with an error, and what follows is flushed.
	 */
	RDS_MR_FAULT_INV_WRONG,
	/* Poll, and see no completion. */
	RDS_MR_FAULT_POLL_BLIND,
	/* Give every MR the key byte @arg, whatever was asked for. */
	RDS_MR_FAULT_KEY_BYTE,
	/* Say that the device is broken, and deregister. Waits until everybody has
	 * been told: for RDS_FREE_MR, not for a worker.
	 */
	RDS_MR_FAULT_DEREG_FATAL,
	/* Let REG_MR name a key of another MR: it completes with an error. */
	RDS_MR_FAULT_REG_WRONG,
	RDS_MR_FAULTS,
};

int rds_mr_test_fault(u32 fault, u32 times, u32 arg);
int rds_mr_test_fault_struck(u32 fault, u32 *struck);

int rds_mr_test_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			  const struct ib_send_wr **bad);
int rds_mr_test_process_cq_direct(struct ib_cq *cq, int budget);
struct ib_mr *rds_mr_test_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 max_num_sg);
int rds_mr_test_dereg_mr(struct ib_mr *mr);
int rds_mr_test_map_mr_sg(struct ib_mr *mr, struct scatterlist *sg, int nents,
			  unsigned int *offset, unsigned int page_size);
void rds_mr_test_update_fast_reg_key(struct ib_mr *mr, u8 byte);
int rds_mr_test_dma_map_sgtable(struct ib_device *dev, struct sg_table *sgt,
				enum dma_data_direction direction, unsigned long attrs);

#endif /* RDS_MR_TEST_FAULTS_H */
