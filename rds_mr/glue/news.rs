// SPDX-License-Identifier: GPL-2.0

//! What a socket has not been told yet: keys of it that were revoked.
//!
//! Telling allocates nothing, since keys are revoked when memory is short: the
//! list is linked through the keys.

use super::key::Key;
use super::key::Neighbours;
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

impl List {
    /// Take `key` out, if it is in here. Its references in the list are not the
    /// last ones: the caller has one. Nor are those to its neighbours.
    fn unlink(&mut self, key: &Key) {
        let Neighbours { before, after } = key.in_news(core::mem::take);
        if let Some(after) = &after {
            after.in_news(|place| place.before = before.clone());
        }
        match before {
            Some(before) => {
                drop(before.in_news(|place| core::mem::replace(&mut place.after, after)))
            }
            None if after.is_some() || self.is_head(key) => self.head = after,
            None => {}
        }
    }

    fn is_head(&self, key: &Key) -> bool {
        self.head
            .as_ref()
            .is_some_and(|head| core::ptr::eq(&raw const **head, key))
    }
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

    /// Add a key that has news, and wake those who poll. Never sleeps.
    pub(crate) fn push(this: &Arc<Self>, key: Arc<Key>) {
        let mut list = this.list.lock();
        // Freed meanwhile: `forget` has been here, or waits for the lock.
        if list.waker.is_none() || !key.is_news() {
            drop(list);
            return;
        }
        if let Some(first) = list.head.take() {
            first.in_news(|place| place.before = Some(key.clone()));
            key.in_news(|place| place.after = Some(first));
        }
        list.head = Some(key);
        if let Some(waker) = &list.waker {
            waker.wake();
        }
    }

    fn pop(&self) -> Option<Arc<Key>> {
        let mut list = self.list.lock();
        let key = list.head.take()?;
        list.unlink(&key);
        Some(key)
    }

    /// Take one key and what `read` makes of its news.
    pub(crate) fn take<T>(&self, read: impl Fn(&Key) -> Option<T>) -> Option<(Arc<Key>, T)> {
        loop {
            let key = self.pop()?;
            // One that is being freed has none any more.
            if let Some(news) = read(&key) {
                return Some((key, news));
            }
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.lock().head.is_none()
    }

    /// `gone` has been freed, and has no news any more: take it out.
    pub(crate) fn forget(&self, gone: &Key) {
        self.list.lock().unlink(gone);
    }
}
