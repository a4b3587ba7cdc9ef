// SPDX-License-Identifier: GPL-2.0
/*
 * A 32-bit program that gets, asks after and frees a key: the layouts are the
 * same, but the kernel takes other entries (compat_ioctl, socketcall). It has no
 * libc, so that it builds where only a 64-bit one is installed.
 *
 * Usage: rds-mr-compat32 IPV4-ADDRESS; prints TAP.
 */
#include <asm/unistd.h>
#include <linux/errno.h>
#include <linux/in.h>
#include <linux/net.h>
#include <linux/rds_mr.h>

_Static_assert(sizeof(void *) == 4, "build it with -m32");
_Static_assert(sizeof(struct rds_get_mr_args) == 32, "rds_get_mr_args");
_Static_assert(sizeof(struct rds_free_mr_args) == 16, "rds_free_mr_args");
_Static_assert(sizeof(struct rds_mr_quota) == 16, "rds_mr_quota");
_Static_assert(sizeof(struct rds_mr_probe) == 24, "rds_mr_probe");

#define TESTS		18
#define SOCK_SEQPACKET	5
#define PF_RDS		21
#define AF_INET		2
#define NOWHERE		((void *)8)
#define BYTES		5000

static unsigned char buffer[16384] __attribute__((aligned(4096)));
static int number, failed;

static long call(long nr, long a, long b, long c, long d, long e)
{
	long result;

	asm volatile("int $0x80"
		     : "=a"(result)
		     : "a"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
		     : "memory");
	return result;
}

static void print(const char *text)
{
	int len = 0;

	while (text[len])
		len++;
	call(__NR_write, 1, (long)text, len, 0, 0);
}

static void print_number(long value)
{
	char digits[12], *p = digits + sizeof(digits) - 1;
	unsigned long rest = value < 0 ? -value : value;

	*p = 0;
	do {
		*--p = '0' + rest % 10;
		rest /= 10;
	} while (rest);
	if (value < 0)
		*--p = '-';
	print(p);
}

static void expect(const char *what, long expected, long got)
{
	print(expected == got ? "ok " : "not ok ");
	print_number(++number);
	print(" - ");
	print(what);
	if (expected != got) {
		failed = 1;
		print("\n# expected: ");
		print_number(expected);
		print("\n# got: ");
		print_number(got);
	}
	print("\n");
}

static long set(int fd, int name, const void *value, int len)
{
	return call(__NR_setsockopt, fd, SOL_RDS, name, (long)value, len);
}

static long ioctl(int fd, unsigned int command, void *argument)
{
	return call(__NR_ioctl, fd, command, (long)argument, 0, 0);
}

static long probe(int fd, __u64 cookie, __u64 offset)
{
	struct rds_mr_probe probe = { .cookie = cookie, .offset = offset, .result = 77 };
	long error = ioctl(fd, SIOCRDSMRPROBE, &probe);

	return error ? error : (long)probe.result;
}

static __u32 address(const char *text)
{
	__u32 result = 0, part = 0;

	for (; *text; text++) {
		if (*text == '.') {
			result = result << 8 | part;
			part = 0;
		} else {
			part = part * 10 + (*text - '0');
		}
	}
	return __builtin_bswap32(result << 8 | part);
}

static void quota(int fd)
{
	struct rds_mr_quota quota = { .max_keys = 2, .max_pages = 0x200000001ULL };
	struct rds_mr_quota got = { 0 };
	int len = sizeof(got);

	/* More than 32 bits hold, and above the ceiling: root may. */
	expect("SIOCRDSMRSQUOTA", 0, ioctl(fd, SIOCRDSMRSQUOTA, &quota));
	expect("SIOCRDSMRGQUOTA", 0, ioctl(fd, SIOCRDSMRGQUOTA, &got));
	expect("its keys and pages", 1, got.max_keys == 2 && got.max_pages == quota.max_pages);
	got.max_pages = 0;
	expect("getsockopt(RDS_MR_QUOTA)", 0,
	       call(__NR_getsockopt, fd, SOL_RDS, RDS_MR_QUOTA, (long)&got, (long)&len));
	expect("its pages", 1, got.max_pages == quota.max_pages && len == sizeof(got));
}

static void keys(int fd)
{
	__u64 cookie = 0;
	struct rds_get_mr_args get = {
		.vec = { .addr = (unsigned long)buffer + 1, .bytes = BYTES },
		.cookie_addr = (unsigned long)&cookie,
	};
	struct rds_free_mr_args release = { 0 };
	/* As a libc of the time before the direct system calls would do it. */
	unsigned long old_way[5] = { fd, SOL_RDS, RDS_FREE_MR, (unsigned long)&release,
				     sizeof(release) };

	expect("GET_MR from nowhere", -EFAULT, set(fd, RDS_GET_MR, NOWHERE, sizeof(get)));
	expect("GET_MR", 0, set(fd, RDS_GET_MR, &get, sizeof(get)));
	expect("offset in the cookie", 1, (long)(cookie >> 32));
	expect("probe of the last byte", RDS_MR_ALIVE, probe(fd, cookie, BYTES - 1));
	expect("probe behind it", RDS_MR_ACCESS_ERROR, probe(fd, cookie, BYTES));
	expect("probe at nowhere", -EFAULT, ioctl(fd, SIOCRDSMRPROBE, NOWHERE));
	release.cookie = cookie;
	expect("FREE_MR by socketcall", 0, call(__NR_socketcall, SYS_SETSOCKOPT, (long)old_way, 0, 0, 0));
	expect("probe of the freed key", RDS_MR_ACCESS_ERROR, probe(fd, cookie, 0));
}

static void tos(int fd)
{
	unsigned char tos = 5, got = 0;

	expect("SIOCRDSSETTOS", 0, ioctl(fd, SIOCRDSSETTOS, &tos));
	expect("SIOCRDSGETTOS", 5, ioctl(fd, SIOCRDSGETTOS, &got) ?: got);
	expect("an unknown ioctl", -ENOTTY, ioctl(fd, SIOCPROTOPRIVATE + 15, buffer));
}

__attribute__((used)) static void start(int argc, char **argv)
{
	struct sockaddr_in name = { .sin_family = AF_INET };
	int fd = call(__NR_socket, PF_RDS, SOCK_SEQPACKET, 0, 0, 0);

	print("TAP version 13\n1..");
	print_number(TESTS);
	print("\n");
	expect("socket", 1, fd >= 0);
	name.sin_addr.s_addr = argc > 1 ? address(argv[1]) : 0;
	expect("bind", 0, call(__NR_bind, fd, (long)&name, sizeof(name), 0, 0));
	quota(fd);
	keys(fd);
	tos(fd);
	call(__NR_exit, failed || number != TESTS, 0, 0, 0, 0);
}

/* The kernel leaves argc and argv on the stack. */
asm(".globl _start\n"
    "_start:\n"
    "	mov (%esp), %eax\n"
    "	lea 4(%esp), %edx\n"
    "	and $-16, %esp\n"
    "	sub $8, %esp\n"
    "	push %edx\n"
    "	push %eax\n"
    "	call start\n");
