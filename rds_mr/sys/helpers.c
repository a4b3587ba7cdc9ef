// SPDX-License-Identifier: GPL-2.0
/*
 * See helpers.h. The verbs that can fail in the field are plain functions
 * here, so that a test kernel can make them fail (CONFIG_FUNCTION_ERROR_INJECTION)
 * while the production source is what runs.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/dma-mapping.h>
#include <linux/error-injection.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/ratelimit.h>
#include <linux/sched/signal.h>
#include <linux/uidgid.h>

#include "helpers.h"
#include "params.h"

u32 rds_mr_helper_max_mr(const struct ib_device *dev)
{
	return dev->attrs.max_mr;
}

u32 rds_mr_helper_max_mr_pages(const struct ib_device *dev)
{
	return dev->attrs.max_fast_reg_page_list_len;
}

/* What one queue may hold: a chain needs room in the send queue and the CQ. */
u32 rds_mr_helper_max_wr(const struct ib_device *dev)
{
	return min(dev->attrs.max_qp_wr, dev->attrs.max_cqe - 2);
}

const char *rds_mr_helper_device_name(const struct ib_device *dev)
{
	return dev_name(&dev->dev);
}

u32 rds_mr_helper_driver_id(const struct ib_device *dev)
{
	return dev->ops.driver_id;
}

/* A device that lacks one of these is never served: see docs/guarantee.md. */
bool rds_mr_helper_device_usable(const struct ib_device *dev)
{
	return dev->node_type == RDMA_NODE_IB_CA && !dev->cc_dma_bounce &&
	       (dev->attrs.device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS);
}

u32 rds_mr_helper_phys_port_cnt(const struct ib_device *dev)
{
	return dev->phys_port_cnt;
}

void rds_mr_helper_get_device(struct ib_device *dev)
{
	get_device(&dev->dev);
}

void rds_mr_helper_put_device(struct ib_device *dev)
{
	put_device(&dev->dev);
}

bool rds_mr_helper_is_roce(const struct ib_device *dev, u32 port)
{
	return rdma_protocol_roce(dev, port);
}

u32 rds_mr_helper_gid_tbl_len(const struct ib_device *dev, u32 port)
{
	return dev->port_data[port].immutable.gid_tbl_len;
}

bool rds_mr_helper_gid_is_roce_v2(const struct ib_gid_attr *attr)
{
	return attr->gid_type == IB_GID_TYPE_ROCE_UDP_ENCAP;
}

void rds_mr_helper_watch_events(struct ib_event_handler *handler, struct ib_device *dev,
				void (*event)(struct ib_event_handler *handler,
					      struct ib_event *event))
{
	INIT_IB_EVENT_HANDLER(handler, dev, event);
	ib_register_event_handler(handler);
}

bool rds_mr_helper_is_fatal(const struct ib_event *event)
{
	return event->event == IB_EVENT_DEVICE_FATAL;
}

int rds_mr_helper_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			    const struct ib_send_wr **bad)
{
	return ib_post_send(qp, wr, bad);
}
ALLOW_ERROR_INJECTION(rds_mr_helper_post_send, ERRNO);

int rds_mr_helper_poll(struct ib_cq *cq, int budget)
{
	return ib_process_cq_direct(cq, budget);
}

struct ib_mr *rds_mr_helper_alloc_mr(struct ib_pd *pd, u32 pages)
{
	return ib_alloc_mr(pd, IB_MR_TYPE_MEM_REG, pages);
}
ALLOW_ERROR_INJECTION(rds_mr_helper_alloc_mr, ERRNO_NULL);

int rds_mr_helper_dereg_mr(struct ib_mr *mr)
{
	return ib_dereg_mr(mr);
}
ALLOW_ERROR_INJECTION(rds_mr_helper_dereg_mr, ERRNO);

int rds_mr_helper_map_mr_sg(struct ib_mr *mr, struct sg_table *sgt)
{
	return ib_map_mr_sg(mr, sgt->sgl, sgt->nents, NULL, PAGE_SIZE);
}
ALLOW_ERROR_INJECTION(rds_mr_helper_map_mr_sg, ERRNO);

int rds_mr_helper_dma_map(struct ib_device *dev, struct sg_table *sgt, bool write)
{
	return ib_dma_map_sgtable_attrs(dev, sgt, write ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE,
					DMA_ATTR_REQUIRE_COHERENT);
}
ALLOW_ERROR_INJECTION(rds_mr_helper_dma_map, ERRNO);

void rds_mr_helper_dma_unmap(struct ib_device *dev, struct sg_table *sgt, bool write)
{
	ib_dma_unmap_sgtable_attrs(dev, sgt, write ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE,
				   DMA_ATTR_REQUIRE_COHERENT);
}

unsigned int rds_mr_helper_dma_max_seg_size(struct ib_device *dev)
{
	return ib_dma_max_seg_size(dev);
}

/* 0 means that it failed: no driver hands out bus address 0 for a kernel page. */
u64 rds_mr_helper_dma_map_page(struct ib_device *dev, struct page *page)
{
	u64 addr = ib_dma_map_page(dev, page, 0, PAGE_SIZE, DMA_BIDIRECTIONAL);

	return ib_dma_mapping_error(dev, addr) ? 0 : addr;
}

void rds_mr_helper_dma_unmap_page(struct ib_device *dev, u64 addr)
{
	ib_dma_unmap_page(dev, addr, PAGE_SIZE, DMA_BIDIRECTIONAL);
}

u32 rds_mr_helper_mr_rkey(const struct ib_mr *mr)
{
	return mr->rkey;
}

u64 rds_mr_helper_mr_length(const struct ib_mr *mr)
{
	return mr->length;
}

/*
 * Let remote addresses start at the offset in the first page: that offset is
 * what the cookie carries.
 */
u32 rds_mr_helper_mr_zero_base(struct ib_mr *mr)
{
	return mr->iova &= mr->page_size - 1;
}

void rds_mr_helper_set_rkey(struct ib_mr *mr, u8 byte)
{
	ib_update_fast_reg_key(mr, byte);
}

struct ib_cq *rds_mr_helper_alloc_cq(struct ib_device *dev, int nr_cqe)
{
	return ib_alloc_cq_any(dev, NULL, nr_cqe, IB_POLL_DIRECT);
}

struct ib_qp *rds_mr_helper_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *attr)
{
	return ib_create_qp(pd, attr);
}

u32 rds_mr_helper_qp_num(const struct ib_qp *qp)
{
	return qp->qp_num;
}

/* No event of this QP is passed on any more. */
void rds_mr_helper_qp_mute(struct ib_qp *qp)
{
	WRITE_ONCE(qp->registered_event_handler, NULL);
}

u32 rds_mr_helper_local_dma_lkey(const struct ib_pd *pd)
{
	return pd->local_dma_lkey;
}

struct ib_pd *rds_mr_helper_alloc_pd(struct ib_device *dev)
{
	return ib_alloc_pd(dev, 0);
}

/*
 * An address handle that leads back to the port itself. Kernel users must fill
 * in the destination MAC themselves (core/verbs.c: _ib_modify_qp).
 */
void rds_mr_helper_ah_loopback(struct rdma_ah_attr *ah, struct ib_device *dev, u32 port,
			       u16 lid, const struct ib_gid_attr *sgid, const u8 *dmac)
{
	memset(ah, 0, sizeof(*ah));
	ah->type = rdma_ah_find_type(dev, port);
	rdma_ah_set_port_num(ah, port);
	if (ah->type == RDMA_AH_ATTR_TYPE_ROCE) {
		rdma_ah_set_grh(ah, (union ib_gid *)&sgid->gid, 0, sgid->index, 64, 0);
		memcpy(ah->roce.dmac, dmac, ETH_ALEN);
	} else {
		rdma_ah_set_dlid(ah, lid);
	}
}

static int no_events(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	return 0;
}

struct rdma_cm_id *rds_mr_helper_create_id(void)
{
	return rdma_create_id(&init_net, no_events, NULL, RDMA_PS_TCP, IB_QPT_RC);
}

struct ib_device *rds_mr_helper_id_device(const struct rdma_cm_id *id)
{
	return id->device;
}

bool rds_mr_helper_can_do_mlock(void)
{
	return can_do_mlock();
}

bool rds_mr_helper_capable(int cap)
{
	return capable(cap);
}

unsigned long rds_mr_helper_rlimit_memlock(void)
{
	return rlimit(RLIMIT_MEMLOCK);
}

s64 rds_mr_helper_pinned_vm(const struct mm_struct *mm)
{
	return atomic64_read(&mm->pinned_vm);
}

bool rds_mr_helper_pinned_vm_cmpxchg(struct mm_struct *mm, s64 *old, s64 new)
{
	return atomic64_try_cmpxchg(&mm->pinned_vm, old, new);
}

void rds_mr_helper_pinned_vm_sub(struct mm_struct *mm, unsigned long pages)
{
	atomic64_sub(pages, &mm->pinned_vm);
}

/*
 * Watch the page above all user memory: few events of the address space reach
 * it, and that of its end does. -EINTR if a signal is pending.
 */
int rds_mr_helper_mm_watch(struct mmu_interval_notifier *sub, struct mm_struct *mm,
			   const struct mmu_interval_notifier_ops *ops)
{
	int ret = mmu_interval_notifier_insert(sub, mm, TASK_SIZE_MAX, PAGE_SIZE, ops);

	/* While somebody else invalidates, the insertion is put off: wait for it. */
	if (!ret)
		mmu_interval_read_begin(sub);
	return ret;
}
ALLOW_ERROR_INJECTION(rds_mr_helper_mm_watch, ERRNO);

/* A test that makes this say "no" shows what the watch is good for. */
bool rds_mr_helper_mm_ends(const struct mmu_notifier_range *range)
{
	return range->event == MMU_NOTIFY_RELEASE;
}
ALLOW_ERROR_INJECTION(rds_mr_helper_mm_ends, NULL);

struct pid *rds_mr_helper_get_tgid(void)
{
	return get_pid(task_tgid(current));
}

/* Whether others could tell that the process has ended: it is a zombie, or reaped. */
bool rds_mr_helper_is_seen_dead(struct pid *tgid)
{
	struct task_struct *leader;
	bool dead;

	rcu_read_lock();
	leader = pid_task(tgid, PIDTYPE_TGID);
	dead = !leader || (leader->exit_state && thread_group_empty(leader));
	rcu_read_unlock();
	return dead;
}

#ifdef CONFIG_CGROUP_RDMA
int rds_mr_helper_cgroup_charge(struct ib_device *dev, struct rdma_cgroup **cg)
{
	return rdmacg_try_charge(cg, &dev->cg_device, RDMACG_RESOURCE_HCA_OBJECT);
}

void rds_mr_helper_cgroup_uncharge(struct ib_device *dev, struct rdma_cgroup *cg)
{
	rdmacg_uncharge(cg, &dev->cg_device, RDMACG_RESOURCE_HCA_OBJECT);
}
#else
int rds_mr_helper_cgroup_charge(struct ib_device *dev, struct rdma_cgroup **cg)
{
	*cg = NULL;
	return 0;
}

void rds_mr_helper_cgroup_uncharge(struct ib_device *dev, struct rdma_cgroup *cg)
{
}
#endif

u32 rds_mr_helper_current_kuid(void)
{
	return __kuid_val(current_uid());
}

int rds_mr_helper_copy_from_sockptr(void *dst, sockptr_t src, size_t offset, size_t len)
{
	return copy_from_sockptr_offset(dst, src, offset, len) ? -EFAULT : 0;
}

unsigned long rds_mr_helper_wait_timeout(struct completion *x, unsigned long jiffies)
{
	return wait_for_completion_timeout(x, jiffies);
}

void rds_mr_helper_init_completion(struct completion *x)
{
	init_completion(x);
}

void rds_mr_helper_reinit_completion(struct completion *x)
{
	reinit_completion(x);
}

void rds_mr_helper_cond_resched(void)
{
	cond_resched();
}

void rds_mr_helper_cpu_relax(void)
{
	cpu_relax();
}

u64 rds_mr_helper_ktime_ns(void)
{
	return ktime_get_ns();
}

/* One budget for all messages that something outside the kernel can cause. */
bool rds_mr_helper_ratelimit(void)
{
	static DEFINE_RATELIMIT_STATE(budget, 5 * HZ, 10);

	return __ratelimit(&budget);
}

void rds_mr_helper_module_get(struct module *m)
{
	__module_get(m);
}

#define S(t) sizeof(struct t)
#define O(t, f) offsetof(struct t, f)
/* The same list, in the same order, stands in layout.rs. */
const u32 rds_mr_layout[RDS_MR_LAYOUT_MAX] = {
	S(ib_send_wr), O(ib_send_wr, wr_cqe), O(ib_send_wr, sg_list), O(ib_send_wr, opcode),
	O(ib_send_wr, send_flags), O(ib_send_wr, ex),
	S(ib_reg_wr), O(ib_reg_wr, mr), O(ib_reg_wr, key), O(ib_reg_wr, access),
	S(ib_rdma_wr), O(ib_rdma_wr, remote_addr), O(ib_rdma_wr, rkey),
	S(ib_wc), O(ib_wc, status), O(ib_wc, qp),
	S(ib_sge), S(ib_cqe),
	S(ib_qp_init_attr), O(ib_qp_init_attr, send_cq), O(ib_qp_init_attr, cap),
	O(ib_qp_init_attr, qp_type),
	S(ib_qp_attr), O(ib_qp_attr, ah_attr), O(ib_qp_attr, port_num),
	S(ib_client), O(ib_client, remove), S(ib_event_handler),
	S(ib_port_attr), O(ib_port_attr, state), O(ib_port_attr, active_mtu), O(ib_port_attr, lid),
	S(rds_mr_params), O(rds_mr_params, max_pages_per_socket),
	O(rds_mr_params, max_pages_per_device), O(rds_mr_params, mr_classes),
	O(rds_mr_params, revoke_timeout_ms), O(rds_mr_params, proof),
	O(rds_mr_params, strict_access),
};
