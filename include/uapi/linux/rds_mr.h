/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * What rds_mr adds to the RDS socket interface of <linux/rds.h>: a quota of
 * RDMA keys per socket, a probe that asks the HCA whether a key is alive, and
 * news of keys that were revoked.
 * Everything else (RDS_GET_MR, RDS_FREE_MR, ...) is as <linux/rds.h> has it.
 */
#ifndef _UAPI_LINUX_RDS_MR_H
#define _UAPI_LINUX_RDS_MR_H

#include <linux/types.h>
#include <linux/sockios.h>
#include <linux/rds.h>

/*
 * setsockopt/getsockopt, level SOL_RDS: how many keys this socket may hold and
 * how many pages they may pin together. Outside the numbers of mainline, of
 * RDS_INFO_* (10000..10017) and of SO_TIMESTAMP*.
 */
#define RDS_MR_QUOTA		20000

/**
 * struct rds_mr_quota - limits of one socket
 * @max_keys: keys that may exist at a time; 0 asks for the administrator's default
 * @flags: must be 0
 * @max_pages: pages that these keys may pin together; 0 asks for the default
 *
 * Reading returns the limits in force. Lowering is free, also below what is in
 * use: only new keys are refused then (EAGAIN). Raising above the
 * administrator's ceiling needs CAP_NET_ADMIN (EPERM).
 */
struct rds_mr_quota {
	__u32 max_keys;
	__u32 flags;
	__u64 max_pages;
};

/**
 * struct rds_mr_probe - ask the HCA about a key
 * @cookie: what RDS_GET_MR returned, to this or to any other socket of the device
 * @offset: byte to try, counted from the start of the registered buffer
 * @result: out: RDS_MR_ALIVE or RDS_MR_ACCESS_ERROR
 * @flags: must be 0
 *
 * The HCA reads one byte through the key over a queue pair made for this call;
 * the byte itself is never returned. Needs CAP_NET_ADMIN and a bound socket.
 * EIO means: no verdict.
 */
struct rds_mr_probe {
	__u64 cookie;
	__u64 offset;
	__u32 result;
	__u32 flags;
};

#define RDS_MR_ALIVE		0
#define RDS_MR_ACCESS_ERROR	1

/**
 * struct rds_mr_revoked - a key that ended without its socket having asked for it
 * @cookie: what RDS_GET_MR returned
 * @reason: RDS_MR_REVOKED_*
 * @flags: in: must be 0; out: RDS_MR_REVOKED_UNPROVEN or 0
 *
 * Each revoked key of the socket is told once, in no particular order; EAGAIN
 * if there is none to tell. poll() says POLLPRI while there is one. The key
 * keeps its number and its place in the socket's quota of keys until
 * RDS_FREE_MR, which also takes back what was not told yet.
 */
struct rds_mr_revoked {
	__u64 cookie;
	__u32 reason;
	__u32 flags;
};

#define RDS_MR_REVOKED_OWNER	1	/* the process that registered it ended, or called exec */
#define RDS_MR_REVOKED_DEVICE	2	/* its HCA was removed */

/* The HCA has not confirmed the end: the pages stay pinned, RDS_FREE_MR says EIO. */
#define RDS_MR_REVOKED_UNPROVEN	1

/* ioctls on an RDS socket; the same quota as the socket option */
#define SIOCRDSMRGQUOTA		(SIOCPROTOPRIVATE + 8)
#define SIOCRDSMRSQUOTA		(SIOCPROTOPRIVATE + 9)
#define SIOCRDSMRPROBE		(SIOCPROTOPRIVATE + 10)
#define SIOCRDSMRREVOKED	(SIOCPROTOPRIVATE + 11)

#endif /* _UAPI_LINUX_RDS_MR_H */
