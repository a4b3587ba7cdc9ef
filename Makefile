# SPDX-License-Identifier: GPL-2.0
#
# make help lists what there is.

KDIR ?= /lib/modules/$(shell uname -r)/build
TOP := $(CURDIR)

.PHONY: modules install clean help demo test test-quick stress fuzz bench check headers_install

# Against one prepared kernel tree, with the toolchain of this machine.
modules: need-kdir
	$(MAKE) -C $(KDIR) M=$(TOP) modules

install: modules
	$(MAKE) -C $(KDIR) M=$(TOP) modules_install
	depmod -a

headers_install:
	install -D -m 644 include/uapi/linux/rds_mr.h $(DESTDIR)/usr/include/linux/rds_mr.h

clean: need-kdir
	$(MAKE) -C $(KDIR) M=$(TOP) clean

.PHONY: need-kdir
need-kdir:
	@test -e $(KDIR)/Makefile || { \
	  echo "make: no kernel tree at KDIR=$(KDIR): give one with make KDIR=<prepared tree>;" \
	       "'scripts/kernel stock' makes one for Debian's kernel" >&2; exit 1; }

# In guests of our own, with kernels and tools of our own: needs root, make and
# apt, and nothing else of this machine.
demo test test-quick stress fuzz bench check:
	@bash scripts/$@

help:
	@echo 'For this machine, or for the kernel tree KDIR=<dir>:'
	@echo '  modules          build rds_mr.ko (default)'
	@echo '  install          install it, and depmod'
	@echo '  headers_install  install <linux/rds_mr.h>'
	@echo '  clean            remove what was built'
	@echo
	@echo 'In a virtual machine, with everything fetched and cached (as root):'
	@echo '  demo             watch keys live and die on soft RoCE, on the stock Debian kernel'
	@echo '  test             all checks and tests, on the stock and on the test kernel'
	@echo '  test-quick       the inner loop: build, boot the test kernel, KUnit'
	@echo '  stress           races of all calls, at length: SEED= (random) SECS= (600) MODULE='
	@echo '  bench            measure, next to user verbs and to the floor of the device'
	@echo '  fuzz             fuzz the socket interface: make fuzz SECS=600 SEED=2'
	@echo '  check            formatting, lints, layers'
	@echo
	@echo 'Variables: RDS_MR_CACHE (default ~/.cache/rds_mr), RDS_MR_MIRROR, RDS_MR_JOBS,'
	@echo '           RDS_MR_ACCEL (auto, kvm, tcg). See README.md.'
