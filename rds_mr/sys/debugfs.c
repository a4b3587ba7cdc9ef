// SPDX-License-Identifier: GPL-2.0
/*
 * Files in debugfs that are written by a function. In C, because an open file
 * must hold the module (fops->owner): its release runs in here.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>

#include "debugfs.h"

static int rds_mr_debugfs_show(struct seq_file *m, void *unused)
{
	rds_mr_debugfs_fn *show = m->private;

	return show(m);
}
DEFINE_SHOW_ATTRIBUTE(rds_mr_debugfs);

void rds_mr_debugfs_file(struct dentry *dir, const char *name, rds_mr_debugfs_fn *show)
{
	debugfs_create_file(name, 0400, dir, show, &rds_mr_debugfs_fops);
}
