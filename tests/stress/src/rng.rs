// SPDX-License-Identifier: GPL-2.0
//! Numbers that follow from a seed alone (SplitMix64), today and in a year.

#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// One stream per path: the same seed and path give the same numbers.
    pub fn new(seed: u64, path: &[u64]) -> Self {
        let mut rng = Rng(seed);
        for step in path {
            rng.0 ^= rng.next() ^ step.wrapping_mul(0xd6e8_feb8_6659_fd93);
        }
        rng
    }

    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
