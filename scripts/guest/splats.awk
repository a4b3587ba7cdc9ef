# SPDX-License-Identifier: GPL-2.0
#
# Print the lines of a kernel log that report a defect. A report is a headline
# and a call trace below it; -v allow=REGEX accepts reports by their headline,
# and the trace with it.

BEGIN {
	headline = "(^|[^A-Za-z_])(WARNING|BUG|UBSAN|KASAN|KFENCE|ODEBUG|DEBUG_LOCKS_WARN_ON)[:( ]" \
		"|kernel BUG at|Oops|general protection fault|Kernel panic|refcount_t:|list_(add|del) corruption" \
		"|possible circular locking|possible recursive locking|inconsistent lock state|bad unlock balance" \
		"|suspicious RCU usage|sleeping function called from invalid context" \
		"|blocked for more than|soft lockup|hard LOCKUP" \
		"|detected stalls|self-detected stall|unregister_netdevice: waiting for" \
		"|Invalid device .* or rdma cgroup"
	# Said by every kernel on some processors, and nothing of ours.
	harmless = "leaves CPU vulnerable"
}

$0 ~ headline && $0 !~ harmless {
	allowed = allow != "" && $0 ~ allow
	if (!allowed) print
	next
}

# What is starved of memory on purpose may complain of it, with a trace.
/rds_mr tests: allocations fail on purpose/ { starved = 1 }
/rds_mr tests: allocations fail no more/ { starved = 0 }
starved && /page allocation failure|vmalloc error|invoked oom-killer/ { allowed = 1 }

/Call Trace:/ && !allowed { print }

# Our own question, who waits where; the answers are no reports.
/rds_mr: the time limit is near/ { allowed = 1 }

# The trace of a report that was allowed excuses no later one.
/---\[ end trace/ { allowed = 0 }
