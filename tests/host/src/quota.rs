// SPDX-License-Identifier: GPL-2.0

//! Ledgers against a list of who holds what; quotas and locked memory at their edges.

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
use proptest::prelude::*;

const SOCKETS: usize = 3;
const USERS: usize = 2;
/// Three ledgers of sockets, two of users, one of the device.
const LEDGERS: usize = SOCKETS + USERS + 1;

const NOTHING: Limits = Limits { keys: 0, pages: 0 };
const UNLIMITED: Limits = Limits {
    keys: u64::MAX,
    pages: u64::MAX,
};

#[derive(Clone, Debug)]
enum Op {
    Charge { socket: usize, pages: u64 },
    Refund { which: prop::sample::Index },
    Limit { ledger: usize, limits: Limits },
}

/// The ledgers that a key of `socket` is charged to.
fn of(socket: usize) -> [usize; 3] {
    [socket, SOCKETS + socket % USERS, SOCKETS + USERS]
}

/// The naive model: every key that is held, and sums made anew each time.
struct Model {
    held: Vec<(usize, u64)>,
    limits: [Limits; LEDGERS],
}

impl Model {
    fn used(&self, ledger: usize) -> (u128, u128) {
        let mine = || {
            self.held
                .iter()
                .filter(|(socket, _)| of(*socket).contains(&ledger))
        };
        (
            mine().count() as u128,
            mine().map(|(_, pages)| u128::from(*pages)).sum(),
        )
    }

    fn fits(&self, socket: usize, pages: u64) -> bool {
        of(socket).into_iter().all(|ledger| {
            let (keys, sum) = self.used(ledger);
            keys < u128::from(self.limits[ledger].keys)
                && sum + u128::from(pages) <= u128::from(self.limits[ledger].pages)
        })
    }
}

fn limits() -> impl Strategy<Value = Limits> {
    let keys = prop_oneof![4 => 0..6_u64, 1 => Just(u64::MAX)];
    let pages = prop_oneof![4 => 0..60_u64, 1 => Just(u64::MAX)];
    (keys, pages).prop_map(|(keys, pages)| Limits { keys, pages })
}

fn op() -> impl Strategy<Value = Op> {
    let pages = prop_oneof![20 => 0..20_u64, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 30)];
    prop_oneof![
        5 => (0..SOCKETS, pages).prop_map(|(socket, pages)| Op::Charge { socket, pages }),
        3 => any::<prop::sample::Index>().prop_map(|which| Op::Refund { which }),
        1 => (0..LEDGERS, limits()).prop_map(|(ledger, limits)| Op::Limit { ledger, limits }),
    ]
}

/// Lends out the three ledgers of a socket.
fn lend(ledgers: &mut [Ledger], socket: usize) -> Vec<&mut Ledger> {
    let mine = of(socket);
    let numbered = ledgers.iter_mut().enumerate();
    numbered
        .filter_map(|(i, ledger)| mine.contains(&i).then_some(ledger))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn ledgers_agree_with_a_list_of_holders(
        start in prop::array::uniform6(limits()),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut ledgers = start.map(Ledger::new);
        let mut model = Model { held: Vec::new(), limits: start };
        for op in ops {
            match op {
                Op::Charge { socket, pages } => {
                    let fits = model.fits(socket, pages);
                    let charged = charge_all(&mut lend(&mut ledgers, socket), pages);
                    prop_assert_eq!(charged, if fits { Ok(()) } else { Err(Error::Again) });
                    if fits {
                        model.held.push((socket, pages));
                    }
                }
                Op::Refund { which } if !model.held.is_empty() => {
                    let (socket, pages) = model.held.swap_remove(which.index(model.held.len()));
                    prop_assert!(refund_all(&mut lend(&mut ledgers, socket), pages));
                }
                Op::Refund { .. } => {}
                Op::Limit { ledger, limits } => {
                    ledgers[ledger].set_limits(limits);
                    model.limits[ledger] = limits;
                }
            }
            for (i, ledger) in ledgers.iter().enumerate() {
                let used = ledger.used();
                prop_assert_eq!((u128::from(used.keys), u128::from(used.pages)), model.used(i));
                prop_assert_eq!(ledger.limits(), model.limits[i]);
                prop_assert_eq!(ledger.is_empty(), model.used(i) == (0, 0));
            }
        }
        // Whatever happened, giving everything back leaves nothing.
        for (socket, pages) in model.held.drain(..) {
            prop_assert!(refund_all(&mut lend(&mut ledgers, socket), pages));
        }
        prop_assert!(ledgers.iter().all(Ledger::is_empty));
    }

    #[test]
    fn memlock_agrees_with_wide_arithmetic(
        pinned in prop_oneof![0..1000_u64, any::<u64>()],
        pages in prop_oneof![0..300_u64, any::<u64>()],
        limit in prop_oneof![0..2_000_000_u64, any::<u64>(), Just(u64::MAX)],
    ) {
        let sum = u128::from(pinned) + u128::from(pages);
        let limit_pages = if limit == u64::MAX { u64::MAX } else { limit / 4096 };
        prop_assert_eq!(memlock_fits(pinned, pages, limit), sum <= u128::from(limit_pages));
    }

    #[test]
    fn a_quota_is_resolved_number_by_number(
        keys in prop_oneof![Just(0), 0..40_u32, any::<u32>()],
        pages in prop_oneof![Just(0), 0..40_u64, any::<u64>()],
        flags in prop_oneof![9 => Just(0), 1 => any::<u32>()],
        ceiling in (0..40_u64, 0..40_u64).prop_map(|(keys, pages)| Limits { keys, pages }),
        privileged in any::<bool>(),
    ) {
        let keys_asked = if keys == 0 { None } else { Some(u64::from(keys)) };
        let pages_asked = if pages == 0 { None } else { Some(pages) };
        let over = keys_asked.is_some_and(|keys| keys > ceiling.keys)
            || pages_asked.is_some_and(|pages| pages > ceiling.pages);
        let expected = if flags != 0 {
            Err(Error::Invalid)
        } else if over && !privileged {
            Err(Error::Perm)
        } else {
            Ok(Limits {
                keys: keys_asked.unwrap_or(ceiling.keys),
                pages: pages_asked.unwrap_or(ceiling.pages),
            })
        };
        prop_assert_eq!(resolve_quota(keys, flags, pages, NOTHING, ceiling, privileged), expected);
    }
}

#[test]
fn the_last_key_and_page_fit_and_not_one_more() {
    let mut ledger = Ledger::new(Limits { keys: 2, pages: 10 });
    assert_eq!(charge_all(&mut [&mut ledger], 11), Err(Error::Again));
    assert_eq!(charge_all(&mut [&mut ledger], 9), Ok(()));
    assert_eq!(charge_all(&mut [&mut ledger], 2), Err(Error::Again));
    assert_eq!(charge_all(&mut [&mut ledger], 1), Ok(()));
    assert_eq!(charge_all(&mut [&mut ledger], 0), Err(Error::Again));
    assert_eq!(ledger.used(), Limits { keys: 2, pages: 10 });
}

#[test]
fn a_refused_charge_touches_no_ledger() {
    for tight in 0..3 {
        let mut ledgers = [UNLIMITED; 3].map(Ledger::new);
        ledgers[tight].set_limits(NOTHING);
        let [a, b, c] = &mut ledgers;
        assert_eq!(charge_all(&mut [a, b, c], 5), Err(Error::Again));
        assert!(ledgers.iter().all(Ledger::is_empty), "tight one: {tight}");
    }
}

#[test]
fn a_lowered_limit_refuses_only_what_is_new() {
    let mut ledger = Ledger::new(UNLIMITED);
    assert_eq!(charge_all(&mut [&mut ledger], 5), Ok(()));
    ledger.set_limits(Limits { keys: 0, pages: 1 });
    assert_eq!(ledger.used(), Limits { keys: 1, pages: 5 });
    assert_eq!(charge_all(&mut [&mut ledger], 0), Err(Error::Again));
    assert!(refund_all(&mut [&mut ledger], 5));
    assert!(ledger.is_empty());
}

#[test]
fn a_refund_too_many_is_reported_and_stops_at_zero() {
    // Whichever of the three it is.
    for short in 0..3 {
        let mut ledgers = [UNLIMITED; 3].map(Ledger::new);
        for (i, ledger) in ledgers.iter_mut().enumerate() {
            let pages = if i == short { 4 } else { 5 };
            assert_eq!(charge_all(&mut [ledger], pages), Ok(()));
        }
        let [a, b, c] = &mut ledgers;
        assert!(!refund_all(&mut [a, b, c], 5), "short one: {short}");
        assert!(ledgers.iter().all(Ledger::is_empty));
    }
    let mut empty = Ledger::new(UNLIMITED);
    assert!(!refund_all(&mut [&mut empty], 0));
    assert!(empty.is_empty());
}

#[test]
fn every_flag_is_refused() {
    for bit in 0..32 {
        for privileged in [false, true] {
            let resolved = resolve_quota(0, 1 << bit, 0, NOTHING, UNLIMITED, privileged);
            assert_eq!(resolved, Err(Error::Invalid), "bit {bit}");
        }
    }
}

#[test]
fn what_was_raised_may_be_kept_or_lowered() {
    let (raised, ceiling) = (Limits { keys: 9, pages: 90 }, Limits { keys: 5, pages: 50 });
    let ask = |keys, pages| resolve_quota(keys, 0, pages, raised, ceiling, false);
    assert_eq!(ask(9, 90), Ok(raised));
    assert_eq!(ask(8, 60), Ok(Limits { keys: 8, pages: 60 }));
    assert_eq!(ask(0, 0), Ok(ceiling));
    assert_eq!(ask(10, 90), Err(Error::Perm));
    assert_eq!(ask(9, 91), Err(Error::Perm));
}

#[test]
fn memlock_rounds_the_limit_down_to_pages() {
    assert!(memlock_fits(0, 2, 8192));
    assert!(memlock_fits(1, 1, 8192 + 4095));
    assert!(!memlock_fits(1, 2, 8192 + 4095));
    assert!(!memlock_fits(0, 1, 4095));
    assert!(memlock_fits(0, 0, 0));
    assert!(memlock_fits(u64::MAX - 1, 1, u64::MAX));
    assert!(!memlock_fits(u64::MAX, 1, u64::MAX));
}
