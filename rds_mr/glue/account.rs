// SPDX-License-Identifier: GPL-2.0

//! Charging a key to everybody who has a limit, or to nobody.

use super::globals::CHARGING;
use super::globals::USERS;
use super::params;
use super::users::Reservation;
use crate::kern::mm::Memlock;
use crate::kern::rights;
use crate::policy::quota;
use crate::policy::quota::Ledger;
use crate::policy::quota::Limits;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::sync::SpinLock;

/// The ledger of a socket or of a device.
#[pin_data]
pub(crate) struct Account {
    #[pin]
    ledger: SpinLock<Ledger>,
}

impl Account {
    /// For a socket, with the administrator's default.
    pub(crate) fn of_socket() -> Result<Arc<Self>> {
        let ledger = Ledger::new(params::socket_limits());
        Arc::pin_init(
            pin_init!(Self { ledger <- new_spinlock!(ledger, "Account::ledger of a socket") }),
            GFP_KERNEL,
        )
    }

    /// For a device that offers `max_mr` MRs.
    ///
    /// A second place that makes the lock: it nests in that of a socket.
    pub(crate) fn of_device(max_mr: u32) -> Result<Arc<Self>> {
        let ledger = Ledger::new(params::device_limits(max_mr));
        Arc::pin_init(
            pin_init!(Self { ledger <- new_spinlock!(ledger, "Account::ledger of a device") }),
            GFP_KERNEL,
        )
    }

    /// The limits in force.
    pub(crate) fn limits(&self) -> Limits {
        self.ledger.lock().limits()
    }

    /// Change them to what `new(those in force)` says; keys that exist stay.
    /// `new` runs under a spinlock.
    pub(crate) fn change_limits(&self, new: impl FnOnce(Limits) -> Result<Limits>) -> Result {
        let mut ledger = self.ledger.lock();
        let limits = new(ledger.limits())?;
        ledger.set_limits(limits);
        Ok(())
    }
}

/// One key in the quota of a socket. Drop gives it back, and does not sleep.
pub(crate) struct Place {
    socket: Arc<Account>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let sound = self
            .socket
            .ledger
            .lock()
            .refund(Limits { keys: 1, pages: 0 });
        kernel::warn_on!(!sound);
    }
}

/// The pages of one key, charged to a socket, and with the key itself to a user,
/// a device and the memory of the process. Drop gives all back, and may sleep.
pub(crate) struct Charge {
    pages: u64,
    uid: u32,
    socket: Arc<Account>,
    device: Arc<Account>,
    _memlock: Memlock,
}

impl Charge {
    /// Charge the current process's next key, and with it what `also` charges.
    ///
    /// In two parts, since of a key that was revoked only the place remains.
    /// Nobody else can charge anything until all have agreed: a request that one
    /// of them refuses is not seen by the others. `EAGAIN`: quota or ceiling.
    /// `ENOMEM`: RLIMIT_MEMLOCK, or no memory. Or what `also` says. Sleeps.
    pub(crate) fn take<T>(
        socket: &Arc<Account>,
        device: &Arc<Account>,
        pages: u64,
        also: impl FnOnce() -> Result<T>,
    ) -> Result<(Self, Place, T)> {
        let reservation = Reservation::new()?;
        let _charging = CHARGING.lock();
        // Given back, if `also` refuses, before the next one may charge.
        let (charge, place) = Self::levels(socket, device, pages, reservation)?;
        Ok((charge, place, also()?))
    }

    /// All levels under all locks, or none.
    fn levels(
        socket: &Arc<Account>,
        device: &Arc<Account>,
        pages: u64,
        reservation: Reservation,
    ) -> Result<(Self, Place)> {
        let uid = rights::kuid();
        let mut of_socket = socket.ledger.lock();
        let mut users = USERS.lock();
        let mut of_device = device.ledger.lock();
        let memlock = {
            let of_user = users.ledger(uid, reservation).ok_or(ENOMEM)?;
            let ledgers = &mut [&mut *of_socket, of_user, &mut *of_device];
            quota::charge_all(ledgers, pages)
                .map_err(Error::from)
                .and_then(|()| {
                    Self::memlock(pages).inspect_err(|_| {
                        kernel::warn_on!(!quota::refund_all(ledgers, pages));
                    })
                })
        };
        users.tidy(uid);
        let charge = Self {
            pages,
            uid,
            socket: socket.clone(),
            device: device.clone(),
            _memlock: memlock?,
        };
        let place = Place {
            socket: socket.clone(),
        };
        Ok((charge, place))
    }

    fn memlock(pages: u64) -> Result<Memlock> {
        let limit = rights::memlock_limit();
        // The right is asked for only when it is needed: asking leaves traces.
        Memlock::charge(pages, |pinned| {
            quota::memlock_fits(pinned, pages, limit)
                || (rights::ipc_lock() && quota::memlock_fits(pinned, pages, u64::MAX))
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut of_socket = self.socket.ledger.lock();
        let mut users = USERS.lock();
        let mut of_device = self.device.ledger.lock();
        let pages = Limits {
            keys: 0,
            pages: self.pages,
        };
        // All three, whatever the first one says.
        let sound = of_socket.refund(pages)
            & match users.existing(self.uid) {
                Some(of_user) => quota::refund_all(&mut [of_user, &mut *of_device], self.pages),
                None => false,
            };
        kernel::warn_on!(!sound);
        users.tidy(self.uid);
    }
}
