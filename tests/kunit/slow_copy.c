// SPDX-License-Identifier: GPL-2.0
/*
 * Make the window wide in which rxe has looked a key up and not yet copied the
 * packet: what a write hammer needs to hit a proof that proves nothing.
 */
#include <linux/delay.h>
#include <linux/kprobes.h>
#include <linux/mutex.h>

#include "slow_copy.h"

static DEFINE_MUTEX(lock);
static struct kprobe probe;
static u32 delay_us; /* of the probe, 0 if there is none */

/* Held back with the processor held, as a busy or a virtual one would be. */
static int before_copy(struct kprobe *p, struct pt_regs *regs)
{
	u32 us = READ_ONCE(delay_us);

	mdelay(us / 1000);
	udelay(us % 1000);
	return 0;
}

/* Delay every copy of rxe by that long; 0 ends it. */
int rds_mr_test_slow_copy(u32 microseconds)
{
	int ret = 0;

	if (microseconds > RDS_MR_SLOW_COPY_MAX)
		return -EINVAL;
	mutex_lock(&lock);
	if (delay_us && !microseconds) {
		unregister_kprobe(&probe);
	} else if (!delay_us && microseconds) {
		probe = (struct kprobe){
			.symbol_name = "rxe_mr_copy",
			.pre_handler = before_copy,
		};
		ret = register_kprobe(&probe);
	}
	if (!ret)
		WRITE_ONCE(delay_us, microseconds);
	mutex_unlock(&lock);
	return ret;
}
