// SPDX-License-Identifier: GPL-2.0

//! A key's place in its socket, which it keeps until the application frees it,
//! also when it was revoked: so a stale cookie never means another key.

use super::account::Place;
use super::news::News;
use kernel::sync::Arc;

/// The place counts against the socket's quota of keys. Drop gives it back.
pub(crate) struct Slot {
    news: Arc<News>,
    _place: Place,
}

impl Slot {
    pub(crate) fn new(news: Arc<News>, place: Place) -> Self {
        Self {
            news,
            _place: place,
        }
    }

    /// Where the socket reads what happened to its keys.
    pub(crate) fn news(&self) -> Arc<News> {
        self.news.clone()
    }
}
