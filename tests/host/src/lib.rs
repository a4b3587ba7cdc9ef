// SPDX-License-Identifier: GPL-2.0

//! The module's `policy` layer, compiled for user space and tested against naive models.
//!
//! A model does the same as the code under test in the most obvious way: it counts pages one by
//! one, keeps a list instead of a sum, asks the standard library. What must hold on every path
//! of the key's state machine is enumerated.

#[path = "../../../rds_mr/policy/mod.rs"]
mod policy;

#[cfg(test)]
mod addr;
#[cfg(test)]
mod driver;
#[cfg(test)]
mod key;
#[cfg(test)]
mod opts;
#[cfg(test)]
mod quota;
#[cfg(test)]
mod range;
#[cfg(test)]
mod sizes;
#[cfg(test)]
mod small;
#[cfg(test)]
mod state;
#[cfg(test)]
mod world;
