// SPDX-License-Identifier: GPL-2.0

//! What a socket has not been told yet: keys of it that were revoked.
//!
//! Telling allocates nothing, since keys are revoked when memory is short: the
//! list is linked through the keys.

use super::key::Key;
use crate::kern::sock::Waker;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::sync::SpinLock;

struct List {
    head: Option<Arc<Key>>,
    /// Whom to wake; `None` while the socket does not exist (yet, or any more).
    waker: Option<Waker>,
}

/// The revoked keys of one socket. Must be closed: keys and news hold each other.
#[pin_data]
pub(crate) struct News {
    #[pin]
    list: SpinLock<List>,
}

impl News {
    /// No news.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let list = List {
            head: None,
            waker: None,
        };
        Arc::pin_init(
            pin_init!(Self { list <- new_spinlock!(list, "News::list") }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// There is a socket to read them.
    pub(crate) fn open(&self, waker: Waker) {
        self.list.lock().waker = Some(waker);
    }

    /// Nobody reads them any more.
    pub(crate) fn close(&self) {
        // Dropped after the lock.
        let waker = self.list.lock().waker.take();
        drop(waker);
        while self.pop().is_some() {}
    }

    /// Add a key, and wake those who poll. Never sleeps.
    pub(crate) fn push(this: &Arc<Self>, key: Arc<Key>) {
        let mut list = this.list.lock();
        if list.waker.is_none() {
            drop(list);
            return;
        }
        key.link_news(list.head.take());
        list.head = Some(key);
        if let Some(waker) = &list.waker {
            waker.wake();
        }
    }

    fn pop(&self) -> Option<Arc<Key>> {
        let mut list = self.list.lock();
        let key = list.head.take()?;
        list.head = key.link_news(None);
        Some(key)
    }

    /// Take one key with news. Those that were freed meanwhile have none.
    pub(crate) fn take<T>(&self, read: impl Fn(&Key) -> Option<T>) -> Option<(Arc<Key>, T)> {
        loop {
            let key = self.pop()?;
            if let Some(news) = read(&key) {
                return Some((key, news));
            }
        }
    }

    /// Whether there are any.
    pub(crate) fn is_empty(&self) -> bool {
        loop {
            let head = self.list.lock().head.clone();
            match head {
                None => return true,
                Some(key) if key.is_news() => return false,
                // Freed, or read by somebody else: not at the head any more, if so.
                Some(stale) => self.remove_head(&stale),
            }
        }
    }

    fn remove_head(&self, stale: &Arc<Key>) {
        let mut list = self.list.lock();
        if list
            .head
            .as_ref()
            .is_some_and(|head| Arc::ptr_eq(head, stale))
        {
            list.head = stale.link_news(None);
        }
    }
}
