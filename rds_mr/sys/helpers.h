/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C glue for what bindgen cannot see: inlines, macros and fields of structs
 * that Rust keeps opaque. One statement a helper, no state, no policy.
 */
#ifndef RDS_MR_HELPERS_H
#define RDS_MR_HELPERS_H

#include <linux/cc_platform.h>
#include <linux/cgroup_rdma.h>
#include <linux/mmu_notifier.h>
#include <linux/sockptr.h>
#include <linux/net.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

/* devices */
u32 rds_mr_helper_max_mr(const struct ib_device *dev);
u32 rds_mr_helper_max_mr_pages(const struct ib_device *dev);
u32 rds_mr_helper_max_wr(const struct ib_device *dev);
const char *rds_mr_helper_device_name(const struct ib_device *dev);
u32 rds_mr_helper_driver_id(const struct ib_device *dev);
bool rds_mr_helper_device_usable(const struct ib_device *dev);
u32 rds_mr_helper_phys_port_cnt(const struct ib_device *dev);
void rds_mr_helper_get_device(struct ib_device *dev);
void rds_mr_helper_put_device(struct ib_device *dev);
bool rds_mr_helper_is_roce(const struct ib_device *dev, u32 port);
u32 rds_mr_helper_gid_tbl_len(const struct ib_device *dev, u32 port);
bool rds_mr_helper_gid_is_roce_v2(const struct ib_gid_attr *attr);
void rds_mr_helper_watch_events(struct ib_event_handler *handler, struct ib_device *dev,
				void (*event)(struct ib_event_handler *handler,
					      struct ib_event *event));
bool rds_mr_helper_is_fatal(const struct ib_event *event);

/* verbs that tests make fail: see ALLOW_ERROR_INJECTION in helpers.c */
int rds_mr_helper_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			    const struct ib_send_wr **bad);
int rds_mr_helper_poll(struct ib_cq *cq, int budget);
struct ib_mr *rds_mr_helper_alloc_mr(struct ib_pd *pd, u32 pages);
int rds_mr_helper_dereg_mr(struct ib_mr *mr);
int rds_mr_helper_map_mr_sg(struct ib_mr *mr, struct sg_table *sgt);
int rds_mr_helper_dma_map(struct ib_device *dev, struct sg_table *sgt, bool write);

/* other verbs */
void rds_mr_helper_dma_unmap(struct ib_device *dev, struct sg_table *sgt, bool write);
unsigned int rds_mr_helper_dma_max_seg_size(struct ib_device *dev);
u64 rds_mr_helper_dma_map_page(struct ib_device *dev, struct page *page);
void rds_mr_helper_dma_unmap_page(struct ib_device *dev, u64 addr);
u32 rds_mr_helper_mr_rkey(const struct ib_mr *mr);
u64 rds_mr_helper_mr_length(const struct ib_mr *mr);
u32 rds_mr_helper_mr_zero_base(struct ib_mr *mr);
void rds_mr_helper_set_rkey(struct ib_mr *mr, u8 byte);
struct ib_cq *rds_mr_helper_alloc_cq(struct ib_device *dev, int nr_cqe);
struct ib_qp *rds_mr_helper_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *attr);
u32 rds_mr_helper_qp_num(const struct ib_qp *qp);
void rds_mr_helper_qp_mute(struct ib_qp *qp);
u32 rds_mr_helper_local_dma_lkey(const struct ib_pd *pd);
struct ib_pd *rds_mr_helper_alloc_pd(struct ib_device *dev);
void rds_mr_helper_ah_loopback(struct rdma_ah_attr *ah, struct ib_device *dev, u32 port,
			       u16 lid, const struct ib_gid_attr *sgid, const u8 *dmac);

/* rdma_cm */
struct rdma_cm_id *rds_mr_helper_create_id(void);
struct ib_device *rds_mr_helper_id_device(const struct rdma_cm_id *id);

/* memory and rights */
bool rds_mr_helper_can_do_mlock(void);
bool rds_mr_helper_capable(int cap);
unsigned long rds_mr_helper_rlimit_memlock(void);
s64 rds_mr_helper_pinned_vm(const struct mm_struct *mm);
bool rds_mr_helper_pinned_vm_cmpxchg(struct mm_struct *mm, s64 *old, s64 new);
void rds_mr_helper_pinned_vm_sub(struct mm_struct *mm, unsigned long pages);
u32 rds_mr_helper_current_kuid(void);

/* the end of a process's memory */
int rds_mr_helper_mm_watch(struct mmu_interval_notifier *sub, struct mm_struct *mm,
			   const struct mmu_interval_notifier_ops *ops);
bool rds_mr_helper_mm_ends(const struct mmu_notifier_range *range);
struct pid *rds_mr_helper_get_tgid(void);
bool rds_mr_helper_is_seen_dead(struct pid *tgid);

/* rdma cgroup */
int rds_mr_helper_cgroup_charge(struct ib_device *dev, struct rdma_cgroup **cg);
void rds_mr_helper_cgroup_uncharge(struct ib_device *dev, struct rdma_cgroup *cg);

/* socket option values */
int rds_mr_helper_copy_from_sockptr(void *dst, sockptr_t src, size_t offset, size_t len);

/* waiting */
unsigned long rds_mr_helper_wait_timeout(struct completion *x, unsigned long jiffies);
void rds_mr_helper_init_completion(struct completion *x);
void rds_mr_helper_reinit_completion(struct completion *x);
void rds_mr_helper_cond_resched(void);
void rds_mr_helper_cpu_relax(void);
u64 rds_mr_helper_ktime_ns(void);
bool rds_mr_helper_ratelimit(void);
void rds_mr_helper_module_get(struct module *m);

/* what gcc thinks of the structs whose fields Rust touches; see layout.rs */
#define RDS_MR_LAYOUT_MAX 40
extern const u32 rds_mr_layout[RDS_MR_LAYOUT_MAX];

#endif /* RDS_MR_HELPERS_H */
