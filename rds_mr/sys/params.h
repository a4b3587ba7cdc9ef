/* SPDX-License-Identifier: GPL-2.0 */
#ifndef RDS_MR_PARAMS_H
#define RDS_MR_PARAMS_H

#include <linux/types.h>

#define RDS_MR_MAX_CLASSES 4

struct rds_mr_params {
	unsigned int max_keys_per_socket;
	unsigned long max_pages_per_socket;
	unsigned int max_keys_per_user;
	unsigned long max_pages_per_user;
	unsigned int max_keys_per_device;
	unsigned long max_pages_per_device;
	unsigned int mr_classes[RDS_MR_MAX_CLASSES];
	unsigned int nr_mr_classes;
	unsigned int mr_pool;
	unsigned int revoke_timeout_ms;
	char *proof;
	bool strict_access;
};

extern struct rds_mr_params rds_mr_params;

#endif /* RDS_MR_PARAMS_H */
