// SPDX-License-Identifier: GPL-2.0

//! An RDS socket.

use super::account::Account;
use super::bind;
use super::bind::Bound;
use super::device::Device;
use super::key::Key;
use super::news::News;
use super::opts;
use super::owner::OwnerRef;
use super::params;
use super::revoke;
use super::table::Entry;
use super::table::KeyTable;
use crate::kern::sock;
use crate::kern::sock::OptIn;
use crate::kern::sock::OptOut;
use crate::kern::sock::MAX_ADDR;
use crate::kern::time;
use crate::kern::uapi::AF_RDS;
use crate::kern::uapi::SOCK_SEQPACKET;
use crate::policy::addr;
use crate::policy::addr::Addr;
use crate::policy::cause::Cause;
use kernel::new_mutex;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::sync::Mutex;
use kernel::sync::SpinLock;
use kernel::uaccess::UserPtr;

/// What calls on the socket have set.
pub(crate) struct State {
    pub(crate) bound: Option<Bound>,
    pub(crate) peer: Option<Addr>,
    /// A transport is attached: by bind, or by SO_RDS_TRANSPORT.
    pub(crate) transport: bool,
    pub(crate) recverr: bool,
    pub(crate) tos: u8,
}

/// A socket. Its keys are ended by [`sock::Socket::release`], not by its drop.
#[pin_data]
pub(crate) struct Socket {
    init_net: bool,
    account: Arc<Account>,
    #[pin]
    state: Mutex<State>,
    #[pin]
    keys: KeyTable,
    news: Arc<News>,
    /// The owner that last registered something, so that a process that gets and
    /// frees one key at a time is not watched anew each time.
    #[pin]
    owner: SpinLock<Option<Arc<OwnerRef>>>,
}

impl Socket {
    pub(crate) fn in_init_net(&self) -> bool {
        self.init_net
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(crate) fn state(&self) -> &Mutex<State> {
        &self.state
    }

    /// Its keys, by rkey.
    pub(crate) fn keys(&self) -> &KeyTable {
        &self.keys
    }

    /// What it has not been told yet.
    pub(crate) fn news(&self) -> &Arc<News> {
        &self.news
    }

    /// Add a key, which the application can free from now on. `EEXIST` if it
    /// has a key of the same number.
    pub(crate) fn list(&self, entry: Entry, key: &Arc<Key>) -> Result {
        key.set_listed();
        self.keys
            .insert(entry, u64::from(key.rkey()), key.clone())
            .inspect_err(|_| key.set_unlisted())
    }

    /// Take a key out. True if it was there.
    pub(crate) fn unlist(&self, key: &Key) -> bool {
        let removed = self.keys.remove(u64::from(key.rkey()), key);
        if removed {
            key.set_unlisted();
        }
        removed
    }

    /// The owner of the memory that the caller registers. Sleeps; hold nothing.
    pub(crate) fn current_owner(&self) -> Result<Arc<OwnerRef>> {
        let last = {
            let owner = self.owner.lock();
            owner.clone().filter(|owner| owner.is_current())
        };
        if let Some(owner) = last {
            return Ok(owner);
        }
        let owner = OwnerRef::of_current()?;
        // Dropped after the lock.
        let old = core::mem::replace(&mut *self.owner.lock(), Some(owner.clone()));
        drop(old);
        Ok(owner)
    }

    /// The device it is bound to. `ENOTCONN` if it is not bound.
    pub(crate) fn device(&self) -> Result<Arc<Device>> {
        let state = self.state.lock();
        let bound = state.bound.as_ref().ok_or(ENOTCONN)?;
        Ok(bound.device().clone())
    }

    /// Whether a transport is attached.
    pub(crate) fn has_transport(&self) -> bool {
        self.state.lock().transport
    }

    /// Whether it is bound.
    pub(crate) fn is_bound(&self) -> bool {
        self.state.lock().bound.is_some()
    }
}

impl sock::Socket for Socket {
    const FAMILY: i32 = AF_RDS;

    fn check_type(kind: i32, protocol: i32) -> Result {
        if kind != SOCK_SEQPACKET || protocol != 0 {
            return Err(ESOCKTNOSUPPORT);
        }
        Ok(())
    }

    fn create(init_net: bool) -> Result<Arc<Self>> {
        let account = Account::of_socket()?;
        let news = News::new()?;
        let state = State {
            bound: None,
            peer: None,
            transport: false,
            recverr: false,
            tos: 0,
        };
        Arc::pin_init(
            pin_init!(Self {
                init_net,
                account,
                state <- new_mutex!(state, "Socket::state"),
                keys <- KeyTable::new(),
                news,
                owner <- new_spinlock!(None, "Socket::owner"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    fn attached(&self, waker: sock::Waker) {
        self.news.open(waker);
    }

    fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    fn release(this: Arc<Self>) {
        this.news.close();
        let unproven = revoke::all(&this.keys, Cause::Closed, params::deadline());
        if unproven != 0 && time::may_log() {
            pr_err!(
                "a socket closed with {} keys whose end is not proven; their pages stay pinned\n",
                unproven
            );
        }
    }

    fn bind(&self, addr: &[u8]) -> Result {
        bind::bind(self, addr)
    }

    fn connect(&self, raw: &[u8]) -> Result {
        let peer = addr::parse_connect(raw)?;
        let mut state = self.state.lock();
        if let Some(bound) = &state.bound {
            if !peer.is_on_link_of(&bound.addr()) {
                return Err(EINVAL);
            }
        }
        state.peer = Some(peer);
        Ok(())
    }

    fn getname(&self, peer: bool, out: &mut [u8; MAX_ADDR]) -> Result<usize> {
        let state = self.state.lock();
        if peer {
            return Ok(state.peer.ok_or(ENOTCONN)?.encode(out));
        }
        Ok(match (&state.bound, state.peer) {
            (Some(bound), _) => bound.addr().encode(out),
            (None, Some(peer)) => peer.encode_any_of(out),
            (None, None) => addr::encode_unspec(out),
        })
    }

    fn setsockopt(&self, level: i32, name: i32, value: OptIn) -> Result {
        opts::set(self, level, name, value)
    }

    fn getsockopt(&self, level: i32, name: i32, value: &mut OptOut<'_>) -> Result {
        opts::get(self, level, name, value)
    }

    fn ioctl(&self, cmd: u32, arg: UserPtr) -> Option<Result> {
        opts::ioctl(self, cmd, arg)
    }

    /// There are no messages yet.
    fn sendmsg(&self) -> Result {
        Err(if self.is_bound() {
            EOPNOTSUPP
        } else {
            ENOTCONN
        })
    }
}
