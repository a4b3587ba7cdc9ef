// SPDX-License-Identifier: GPL-2.0

//! A key and its socket: what the application can free, and is told.

use super::super::news::News;
use super::super::slot::Slot;
use super::Key;
use super::Neighbours;
use crate::policy::cause::Cause;
use crate::policy::mr_state::State;
use kernel::sync::Arc;

impl Key {
    /// The application can free it from now on.
    pub(crate) fn set_listed(&self) {
        self.inner.lock().listed = true;
    }

    /// The application has freed it, or will never learn of it.
    pub(crate) fn set_unlisted(&self) {
        let mut inner = self.inner.lock();
        inner.listed = false;
        let untold = core::mem::take(&mut inner.news);
        let news = inner.slot.as_ref().filter(|_| untold).map(Slot::news);
        let slot = if inner.state == State::Dead {
            inner.slot.take()
        } else {
            None
        };
        drop(inner);
        if let Some(news) = news {
            news.forget(self);
        }
        // It locks the ledger of the socket.
        drop(slot);
    }

    /// If the socket has not read yet that it was revoked: why, and whether its
    /// end is proven. Whoever asks has read it.
    pub(crate) fn take_news(&self) -> Option<(Cause, bool)> {
        let mut inner = self.inner.lock();
        if !core::mem::take(&mut inner.news) {
            return None;
        }
        Some((inner.cause?, inner.state == State::Dead))
    }

    pub(crate) fn is_news(&self) -> bool {
        self.inner.lock().news
    }

    /// Put it back into the news: they could not be delivered.
    pub(crate) fn renew_news(self: &Arc<Self>) {
        self.inner.lock().told = false;
        self.tell();
    }

    /// Tell the socket that it was revoked, if it was, and once.
    pub(super) fn tell(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        if inner.told || !inner.listed || !inner.cause.is_some_and(Cause::is_revocation) {
            return;
        }
        let Some(news) = inner.slot.as_ref().map(Slot::news) else {
            return;
        };
        (inner.told, inner.news) = (true, true);
        drop(inner);
        News::push(&news, self.clone());
    }

    /// Its place in the news, to be read and changed under the lock of those.
    pub(crate) fn in_news<T>(&self, change: impl FnOnce(&mut Neighbours) -> T) -> T {
        change(&mut self.inner.lock().in_news)
    }
}
