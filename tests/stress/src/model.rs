// SPDX-License-Identifier: GPL-2.0
//! What must be so: pure rules, which know no kernel and no clock.
//!
//! *When is "refused" binding?* An rkey can be issued again once its key is
//! dead, and then the HCA answers for somebody else's key. rxe takes the upper
//! 24 bits of an rkey from a counter over [`INDICES`] numbers that goes around
//! before it gives one out again, and the module never repeats the lower 8 bits
//! within the life of one MR. So the same rkey cannot come again at the same
//! device before the counter has gone around: whoever ends a key notes how many
//! GET_MRs had begun by then, and believes an answer "alive" only if too few
//! have begun since. A device that is plugged in again starts to count anew:
//! answers of another incarnation of the device say nothing, and since a socket
//! stays with its incarnation, nobody gets such an answer through the socket of
//! the key; others compare the number of the incarnation.
//!
//! *When is "alive" binding?* While nobody may end the key. Whoever wants to end
//! one says so in the ledger before, and who asks looks at it before and after.

use rdsmr::errno::*;
use rdsmr::Access;

/// `RXE_MAX_MR_INDEX - RXE_MIN_MR_INDEX`.
const INDICES: u64 = (1 << 19) - 1;
/// A GET_MR makes up to three MRs, and what the pools hold was made before.
const MRS_PER_CALL: u64 = 3;
const MRS_IN_STOCK: u64 = 4 * 4096;

/// What the asker knows about the time of the question.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions {
    /// GET_MRs that have begun since the key was ended, as far as it was.
    pub calls_since: u64,
    /// The device of the key may have been unplugged since it was registered.
    pub unplugged: bool,
    /// Verbs were made to fail, at some time during the operation.
    pub faults: bool,
    /// Somebody else may have ended the key, or (of a dead one) may hold it.
    pub contended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Must {
    Alive,
    Dead,
    /// Who ended it was told that it is dead: no failing verb excuses it.
    ProvenDead,
}

/// What a question to the HCA brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    /// The answer says nothing under these conditions.
    Void,
    Broken,
}

pub fn judge(must: Must, answer: Result<Access, i32>, at: Conditions) -> Verdict {
    let access = match answer {
        Ok(access) => access,
        Err(errno) if probe_errnos(at).contains(&errno) => return Verdict::Void,
        Err(_) => return Verdict::Broken,
    };
    match (must, access) {
        (Must::Dead | Must::ProvenDead, Access::Refused) | (Must::Alive, Access::Alive) => {
            Verdict::Holds
        }
        _ if at.contended => Verdict::Void,
        (Must::Dead, Access::Alive) if at.faults => Verdict::Void,
        (_, Access::Alive) if reissued(at.calls_since) => Verdict::Void,
        (Must::Alive, Access::Refused) if at.unplugged => Verdict::Void,
        _ => Verdict::Broken,
    }
}

/// Can the rkey have come again by now?
fn reissued(calls: u64) -> bool {
    calls
        .saturating_mul(MRS_PER_CALL)
        .saturating_add(MRS_IN_STOCK)
        >= INDICES
}

fn probe_errnos(at: Conditions) -> Vec<i32> {
    let mut all = Vec::new();
    if at.unplugged {
        all.push(ENODEV);
    }
    if at.faults {
        all.extend([EIO, ENOMEM]);
    }
    all
}

/// The state of things in which a call on a socket is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Situation {
    pub unplugged: bool,
    /// Unplugged for sure, before the call began.
    pub surely_unplugged: bool,
    pub faults: bool,
    /// Allocations of the calling thread fail.
    pub no_memory: bool,
    /// A quota or a group may be at its limit.
    pub limited: bool,
    /// Another thread has put an unbound socket in its place.
    pub snatched: bool,
    pub unbound: bool,
}

/// What is right for a call: success, or one of some errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    pub success: bool,
    pub errnos: Vec<i32>,
}

impl Right {
    fn only(errno: i32) -> Self {
        Right {
            success: false,
            errnos: vec![errno],
        }
    }

    pub fn allows(&self, result: Result<(), i32>) -> bool {
        result.map_or_else(|errno| self.errnos.contains(&errno), |()| self.success)
    }
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let success = self.success.then(|| "success".to_string());
        let all: Vec<String> = success
            .into_iter()
            .chain(self.errnos.iter().map(|e| name(*e)))
            .collect();
        f.write_str(&all.join(" or "))
    }
}

/// Flaws of the arguments of a GET_MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// Pages that may not be there.
    MayFault,
    NoBytes,
    TooLong,
    /// The cookie cannot be written.
    BadCookie,
}

/// docs/errno.md, RDS_GET_MR: what may come, by flaw and situation.
pub fn get_mr(flaw: Flaw, at: Situation) -> Right {
    if at.unbound {
        return Right::only(ENOTCONN);
    }
    let (mut success, mut errnos) = match flaw {
        Flaw::None => (true, vec![]),
        Flaw::MayFault => (true, vec![EFAULT]),
        Flaw::BadCookie => (false, vec![EFAULT]),
        Flaw::NoBytes => (false, vec![EINVAL]),
        Flaw::TooLong => (false, vec![EMSGSIZE]),
    };
    let refused_early = matches!(flaw, Flaw::NoBytes | Flaw::TooLong);
    if at.snatched {
        errnos.push(ENOTCONN);
    }
    if !refused_early {
        if at.limited {
            errnos.push(EAGAIN);
        }
        if at.unplugged {
            errnos.push(ENODEV);
        }
        if at.faults {
            errnos.extend([EIO, ENOMEM]);
        }
        if at.no_memory {
            errnos.push(ENOMEM);
        }
        success &= !at.surely_unplugged;
    }
    Right { success, errnos }
}

/// RDS_FREE_MR of a key that the caller alone may end, and that is there.
pub fn free_mr(at: Situation) -> Right {
    let mut errnos = Vec::new();
    if at.faults {
        errnos.push(EIO);
    }
    if at.snatched {
        // The socket in its place has no key and no transport.
        errnos.push(EINVAL);
    }
    Right {
        success: true,
        errnos,
    }
}

pub fn bind(at: Situation) -> Right {
    let mut errnos = Vec::new();
    if at.unplugged {
        errnos.push(EADDRNOTAVAIL);
    }
    if at.no_memory {
        errnos.extend([ENOMEM, EADDRNOTAVAIL]);
    }
    Right {
        success: true,
        errnos,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Conditions = Conditions {
        calls_since: 0,
        unplugged: false,
        faults: false,
        contended: false,
    };

    #[test]
    fn a_module_that_lies_is_caught() {
        // It said that the key is dead, and the HCA lets peers in.
        assert_eq!(judge(Must::Dead, Ok(Access::Alive), CALM), Verdict::Broken);
        // It said that the key is alive, and the HCA refuses.
        assert_eq!(
            judge(Must::Alive, Ok(Access::Refused), CALM),
            Verdict::Broken
        );
        // No verdict, and no reason for that.
        assert_eq!(judge(Must::Dead, Err(EIO), CALM), Verdict::Broken);
        assert_eq!(judge(Must::Alive, Err(ENODEV), CALM), Verdict::Broken);
    }

    #[test]
    fn a_module_that_tells_the_truth_is_not() {
        assert_eq!(judge(Must::Dead, Ok(Access::Refused), CALM), Verdict::Holds);
        assert_eq!(judge(Must::Alive, Ok(Access::Alive), CALM), Verdict::Holds);
    }

    #[test]
    fn what_others_may_have_done_is_no_lie() {
        let contended = Conditions {
            contended: true,
            ..CALM
        };
        assert_eq!(
            judge(Must::Alive, Ok(Access::Refused), contended),
            Verdict::Void
        );
        assert_eq!(
            judge(Must::Dead, Ok(Access::Alive), contended),
            Verdict::Void
        );
        let unplugged = Conditions {
            unplugged: true,
            ..CALM
        };
        assert_eq!(judge(Must::Alive, Err(ENODEV), unplugged), Verdict::Void);
        assert_eq!(
            judge(Must::Alive, Ok(Access::Refused), unplugged),
            Verdict::Void
        );
        // An unplug makes no key live longer.
        assert_eq!(
            judge(Must::Dead, Ok(Access::Alive), unplugged),
            Verdict::Broken
        );
        let faults = Conditions {
            faults: true,
            ..CALM
        };
        assert_eq!(judge(Must::Dead, Ok(Access::Alive), faults), Verdict::Void);
        // FREE_MR has said 0.
        assert_eq!(
            judge(Must::ProvenDead, Ok(Access::Alive), faults),
            Verdict::Broken
        );
        // No failing verb kills a key that lives.
        assert_eq!(
            judge(Must::Alive, Ok(Access::Refused), faults),
            Verdict::Broken
        );
    }

    #[test]
    fn a_number_that_may_have_come_again_is_not_held_against_anybody() {
        let after = |calls_since| Conditions {
            calls_since,
            ..CALM
        };
        assert_eq!(
            judge(Must::Dead, Ok(Access::Alive), after(100_000)),
            Verdict::Broken
        );
        assert_eq!(
            judge(Must::Dead, Ok(Access::Alive), after(175_000)),
            Verdict::Void
        );
        assert_eq!(
            judge(Must::Dead, Ok(Access::Alive), after(u64::MAX)),
            Verdict::Void
        );
    }

    #[test]
    fn errors_need_a_reason() {
        let calm = Situation::default();
        assert!(get_mr(Flaw::None, calm).allows(Ok(())));
        for errno in [EAGAIN, EFAULT, EIO, EINVAL, ENODEV, ENOMEM, ENOTCONN, EINTR] {
            assert!(!get_mr(Flaw::None, calm).allows(Err(errno)));
        }
        assert!(!get_mr(Flaw::BadCookie, calm).allows(Ok(())));
        let gone = Situation {
            unplugged: true,
            surely_unplugged: true,
            ..calm
        };
        assert!(!get_mr(Flaw::None, gone).allows(Ok(())));
        assert!(get_mr(Flaw::None, gone).allows(Err(ENODEV)));
        // Checked before the device is looked for.
        assert_eq!(get_mr(Flaw::TooLong, gone), Right::only(EMSGSIZE));
        assert_eq!(
            get_mr(
                Flaw::None,
                Situation {
                    unbound: true,
                    ..calm
                }
            ),
            Right::only(ENOTCONN)
        );
        assert!(!free_mr(calm).allows(Err(EIO)));
        assert!(!free_mr(Situation {
            faults: true,
            ..calm
        })
        .allows(Err(EINVAL)));
    }
}
