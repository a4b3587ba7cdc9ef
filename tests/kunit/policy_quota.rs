// SPDX-License-Identifier: GPL-2.0

//! Quotas and ledgers, inside the kernel.

use crate::policy::{
    error::Error,
    quota::{
        charge_all,
        memlock_fits,
        refund_all,
        resolve_quota,
        Ledger,
        Limits, //
    },
};
use kernel::prelude::*;

#[kunit_tests(rds_mr_policy_quota)]
mod tests {
    use super::*;

    const UNLIMITED: Limits = limits(u64::MAX, u64::MAX);

    const fn limits(keys: u64, pages: u64) -> Limits {
        Limits { keys, pages }
    }

    #[test]
    fn exact_to_the_key() {
        let mut ledger = Ledger::new(limits(2, 1000));
        assert_eq!(charge_all(&mut [&mut ledger], 1), Ok(()));
        assert_eq!(charge_all(&mut [&mut ledger], 1), Ok(()));
        assert_eq!(charge_all(&mut [&mut ledger], 1), Err(Error::Again));
        assert!(refund_all(&mut [&mut ledger], 1));
        assert_eq!(charge_all(&mut [&mut ledger], 1), Ok(()));
    }

    #[test]
    fn exact_to_the_page() {
        let mut ledger = Ledger::new(limits(1000, 10));
        assert_eq!(charge_all(&mut [&mut ledger], 11), Err(Error::Again));
        assert_eq!(charge_all(&mut [&mut ledger], 10), Ok(()));
        assert_eq!(charge_all(&mut [&mut ledger], 1), Err(Error::Again));
        assert_eq!(ledger.used(), limits(1, 10));
    }

    #[test]
    fn all_ledgers_or_none() {
        let mut socket = Ledger::new(UNLIMITED);
        let mut user = Ledger::new(UNLIMITED);
        let mut device = Ledger::new(limits(1, 4));
        assert_eq!(
            charge_all(&mut [&mut socket, &mut user, &mut device], 5),
            Err(Error::Again)
        );
        assert!(socket.is_empty() && user.is_empty() && device.is_empty());
        assert_eq!(
            charge_all(&mut [&mut socket, &mut user, &mut device], 4),
            Ok(())
        );
        assert_eq!(socket.used(), limits(1, 4));
        assert_eq!(user.used(), limits(1, 4));
        assert_eq!(device.used(), limits(1, 4));
        assert!(refund_all(&mut [&mut socket, &mut user, &mut device], 4));
        assert!(socket.is_empty() && user.is_empty() && device.is_empty());
    }

    #[test]
    fn lowering_takes_nothing_away() {
        let mut ledger = Ledger::new(UNLIMITED);
        assert_eq!(charge_all(&mut [&mut ledger], 8), Ok(()));
        ledger.set_limits(limits(0, 0));
        assert_eq!(ledger.limits(), limits(0, 0));
        assert_eq!(ledger.used(), limits(1, 8));
        assert_eq!(charge_all(&mut [&mut ledger], 0), Err(Error::Again));
        assert!(refund_all(&mut [&mut ledger], 8));
    }

    #[test]
    fn a_refund_too_many_is_reported() {
        let mut ledger = Ledger::new(UNLIMITED);
        assert_eq!(charge_all(&mut [&mut ledger], 3), Ok(()));
        assert!(!refund_all(&mut [&mut ledger], 4));
        assert!(ledger.is_empty());
        assert!(!refund_all(&mut [&mut ledger], 0));
        assert!(ledger.is_empty());
    }

    #[test]
    fn sums_do_not_wrap() {
        let mut ledger = Ledger::new(UNLIMITED);
        assert_eq!(charge_all(&mut [&mut ledger], u64::MAX), Ok(()));
        assert_eq!(charge_all(&mut [&mut ledger], 1), Err(Error::Again));
        assert_eq!(charge_all(&mut [&mut ledger], 0), Ok(()));
    }

    #[test]
    fn quotas_are_resolved() {
        let ceiling = limits(10, 100);
        for (keys, flags, pages, privileged, expected) in [
            (0, 0, 0, false, Ok(ceiling)),
            (5, 0, 0, false, Ok(limits(5, 100))),
            (0, 0, 50, false, Ok(limits(10, 50))),
            (10, 0, 100, false, Ok(ceiling)),
            (11, 0, 0, false, Err(Error::Perm)),
            (0, 0, 101, false, Err(Error::Perm)),
            (11, 0, 101, true, Ok(limits(11, 101))),
            (11, 1, 0, false, Err(Error::Invalid)),
            (0, 1 << 31, 0, true, Err(Error::Invalid)),
        ] {
            assert_eq!(
                resolve_quota(keys, flags, pages, limits(0, 0), ceiling, privileged),
                expected
            );
        }
    }

    #[test]
    fn memlock_is_exact() {
        assert!(memlock_fits(0, 2, 8192));
        assert!(memlock_fits(1, 1, 8192 + 4095));
        assert!(!memlock_fits(1, 2, 8192 + 4095));
        assert!(!memlock_fits(0, 1, 4095));
        assert!(memlock_fits(1 << 40, 1 << 20, u64::MAX));
        assert!(!memlock_fits(u64::MAX, 1, u64::MAX));
    }
}
