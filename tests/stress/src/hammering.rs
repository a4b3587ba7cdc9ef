// SPDX-License-Identifier: GPL-2.0
//! A key of one's own, ended while a peer writes to it.

use crate::ledger::Global;
use crate::model::{self, Flaw};
use crate::socks::Sock;
use crate::worker::{describe_result, errno, wrong, Done, Outcome, Thread};
use rdsmr::abi::RDS_RDMA_READWRITE;
use rdsmr::{Hammer, Mapping};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const BYTES: u64 = 32 << 10;
const CHUNK: u32 = 8 << 10;
/// After the end, look so often, with such a pause.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(2);

impl Thread<'_> {
    /// From the moment on at which FREE_MR is back, not one byte changes.
    pub fn hammer(&self, sock: &Sock) -> Outcome {
        if !Hammer::is_there() || !sock.facts.bound {
            return Ok(Done::No);
        }
        let map = match errno(Mapping::shared(BYTES)) {
            Ok(map) => map,
            result => return wrong("memory for a hammer", "success", describe_result(&result)),
        };
        let before = self.before(sock);
        self.ledger().count(Global::Calls);
        let got = errno(sock.socket.get_mr(map.at(0), BYTES, RDS_RDMA_READWRITE));
        let right = model::get_mr(Flaw::None, self.situation(sock, before));
        let outcome = self.right("GET_MR for a hammer", &right, got.map(drop))?;
        let Ok(cookie) = got else { return Ok(outcome) };
        // It does not start if the device has gone, or a verb fails.
        let hammer = Hammer::open().and_then(|hammer| {
            hammer.start(cookie, BYTES, CHUNK)?;
            Ok(hammer)
        });
        let freed = errno(sock.socket.free_mr(cookie, 0));
        let after = map.snapshot();
        let right = model::free_mr(self.situation(sock, before));
        let outcome = self.right("FREE_MR under a hammer", &right, freed)?;
        if outcome != Done::Yes || hammer.is_err() {
            return Ok(Done::No);
        }
        for _ in 0..LOOKS {
            if let Some(offset) = map.changed_since(&after) {
                let got = format!("byte {offset} changed");
                return wrong(
                    "memory after FREE_MR under a hammer",
                    "not one byte changes",
                    got,
                );
            }
            std::thread::sleep(PAUSE);
        }
        self.ledger()
            .global(Global::HammeredFree)
            .fetch_add(1, SeqCst);
        Ok(Done::Yes)
    }
}
