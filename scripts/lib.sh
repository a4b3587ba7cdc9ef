# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What every script here shares: where things are, how to speak to people, and
# how to run a command inside the toolchain root. Source it, do not run it.

set -euo pipefail

# The checkout, however the script was called.
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Everything that takes long to make lives outside the checkout, so that a
# fresh clone rebuilds nothing.
CACHE=${RDS_MR_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rds_mr}
# The one place that names the supported kernel series (see docs/compat.md).
# shellcheck disable=SC2034  # for those who source this
SERIES=$(cat "$TOP/scripts/supported-series")
# shellcheck disable=SC2034  # for those who source this
JOBS=${RDS_MR_JOBS:-$(nproc)}

SELF=$(basename "$0")

# say TEXT: one line of progress, on stderr, so that stdout stays usable.
say() { printf '== %s: %s\n' "$SELF" "$*" >&2; }

# die TEXT: what is wrong, with what, and what to do; nothing after it.
die() {
	printf '%s: error: %s\n' "$SELF" "$*" >&2
	exit 1
}

need_root() {
	[ "$(id -u)" = 0 ] || die "must run as root (it mounts and changes root); try: sudo $0"
}

# key FILE_OR_TEXT...: a short name for the inputs something was made from.
key() {
	local x
	for x in "$@"; do
		if [ -f "$x" ]; then cat "$x"; else printf '%s\n' "$x"; fi
	done | sha256sum | cut -c1-12
}

# logged LOG TEXT CMD...: run CMD with its output in LOG; on failure show the
# end of LOG. Long work prints a dot now and then, so that it is seen to live.
logged() {
	local log=$1 what=$2 pid start rc=0
	shift 2
	say "$what (log: $log)"
	start=$SECONDS
	"$@" </dev/null >"$log" 2>&1 &
	pid=$!
	while kill -0 "$pid" 2>/dev/null; do
		sleep 0.2
		if (((SECONDS - start) % 30 == 29)); then
			printf '   ... %ds\n' $((SECONDS - start)) >&2
			sleep 1
		fi
	done
	wait "$pid" || rc=$?
	if [ "$rc" != 0 ]; then
		tail -n 30 "$log" >&2
		die "$what failed with status $rc; the whole log is $log"
	fi
	say "$what: done in $((SECONDS - start))s"
}

# once LOCK CMD...: hold a lock, so that two runs do not build the same thing.
once() {
	local lock=$CACHE/$1.lock
	shift
	mkdir -p "$CACHE"
	exec 9>"$lock"
	flock -n 9 || { say "waiting for another run that holds $lock"; flock 9; }
	"$@" 9>&-
	exec 9>&-
}

# in_root ROOT CMD...: run CMD inside ROOT with the checkout and the cache
# mounted under their own names. The mounts live in a mount namespace of their
# own and vanish with it.
in_root() {
	local root=$1
	shift
	[ -x "$root/usr/bin/env" ] || die "no toolchain root at $root; run scripts/toolchain"
	# shellcheck disable=SC2016  # the inner shell expands it
	unshare --mount --propagation private -- bash -euc '
		root=$1 top=$2 cache=$3 cwd=$4; shift 4
		bind() { mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; }
		bind /dev; bind /sys; mount -t proc proc "$root/proc"
		mount -t tmpfs tmpfs "$root/tmp"; chmod 1777 "$root/tmp"
		bind "$cache"; case $top/ in "$cache"/*) ;; *) bind "$top" ;; esac
		[ -d "$root$cwd" ] || cwd=$top
		exec chroot "$root" /usr/bin/env -i HOME=/root TERM="${TERM:-dumb}" \
			PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
			KBUILD_BUILD_USER=rds_mr KBUILD_BUILD_HOST=build \
			sh -c "cd \"\$1\"; shift; exec \"\$@\"" sh "$cwd" "$@"
	' bash "$root" "$TOP" "$CACHE" "$PWD" "$@"
}
