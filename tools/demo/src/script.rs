// SPDX-License-Identifier: GPL-2.0
//! What is told between the acts.

pub const INTRODUCTION: &str = "\
rds_mr demo: RDMA keys, from birth to death

An RDMA key lets another computer read or write a piece of this one's memory, past
the processor, straight through the network adapter (the HCA). What matters is when
it ends: memory that is given back while a key to it lives is memory that strangers
can read and change. rds_mr.ko owns every key, and ends it before that.

Nobody has to believe the module. For the claims below the HCA itself is asked: it
tries to read one byte through the key, as a remote peer would, and says either
\"alive\" or \"access error\". The numbers of pinned pages are the kernel's own.";

pub const BIRTH: &str = "
1. A process gets keys (RDS_GET_MR).
   It registers four buffers of different size and alignment. The module pins their
   pages, so that they stay where they are, charges the process for them, and has the
   HCA make a key for each. A key must open exactly its buffer, and not what else lies
   in the same page.";

pub const FREE: &str = "
2. The process frees one of them (RDS_FREE_MR).
   When the call returns, the HCA must refuse that key, and the others must not be
   affected.";

pub const CLOSE: &str = "
3. A socket is closed while it has keys.
   Programs forget to free what they have. The close must do it for them, and return
   only when the HCA has let go of every key.";

pub const KILL: &str = "
4. A process with keys is killed (kill -9).
   It has no chance to clean up, and in a moment its memory will be somebody else's.
   So its keys must be dead before anybody can see that it is: when wait() returns.";
