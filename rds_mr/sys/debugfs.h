/* SPDX-License-Identifier: GPL-2.0 */
#ifndef RDS_MR_DEBUGFS_H
#define RDS_MR_DEBUGFS_H

struct dentry;
struct seq_file;

typedef int rds_mr_debugfs_fn(struct seq_file *m);

void rds_mr_debugfs_file(struct dentry *dir, const char *name, rds_mr_debugfs_fn *show);

#endif /* RDS_MR_DEBUGFS_H */
