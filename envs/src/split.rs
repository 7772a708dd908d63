//! Which share of the data an episode belongs to, written into its seed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The share of the data that an episode belongs to.
///
/// Every episode seed carries its split in its top two bits, so episodes of two splits can never start from the same seed,
/// and a stored seed alone tells where it may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Episodes that policies and banks learn from.
    Train,
    /// Episodes by which checkpoints and temperatures are chosen.
    Validation,
    /// Episodes that results are reported on, and nothing else.
    Test,
}

/// The low 62 bits, below the two that name the split.
const BODY: u64 = (1 << 62) - 1;

impl Split {
    /// All splits, in order.
    pub const ALL: [Split; 3] = [Split::Train, Split::Validation, Split::Test];

    /// Lower-case name: `train`, `validation` or `test`.
    pub fn as_str(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Validation => "validation",
            Split::Test => "test",
        }
    }

    /// The seed of the episode `index` of this split in a run.
    ///
    /// For one run and split, two indices below 2^62 never give the same seed (the map of the low 62 bits is one-to-one), and
    /// seeds of two splits differ in their top two bits.
    pub fn seed(self, run_seed: u64, index: u64) -> u64 {
        let key = mix(run_seed) ^ mix(mix(self.code() + 4 * (run_seed >> 62)));
        (self.code() << 62) | mix(mix(index) ^ mix(key))
    }

    /// The split whose mark the seed carries; `None` for a seed that [`Split::seed`] did not make.
    pub fn of_seed(seed: u64) -> Option<Split> {
        Split::ALL.into_iter().find(|split| split.code() == seed >> 62)
    }

    /// The top two bits of this split's seeds. Zero is left for seeds that carry no mark, such as small hand-written numbers.
    fn code(self) -> u64 {
        match self {
            Split::Train => 1,
            Split::Validation => 2,
            Split::Test => 3,
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// A one-to-one scrambling of 62-bit numbers: each step (shifted xor, odd factor modulo 2^62) can be undone.
fn mix(value: u64) -> u64 {
    let mut x = value.wrapping_add(0x9e37_79b9_7f4a_7c15) & BODY;
    x ^= x >> 30;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9) & BODY;
    x ^= x >> 27;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb) & BODY;
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn seeds_carry_their_split_and_never_meet() {
        let mut seen = BTreeSet::new();
        for run in [0, 1, 7, u64::MAX] {
            for split in Split::ALL {
                for index in 0..2_000 {
                    let seed = split.seed(run, index);
                    assert_eq!(Split::of_seed(seed), Some(split));
                    assert!(seen.insert(seed), "seed {seed} of {split} came twice");
                }
            }
        }
        assert_eq!(Split::of_seed(7), None);
    }

    #[test]
    fn run_seeds_that_differ_only_in_their_top_bits_give_other_seeds() {
        assert_ne!(Split::Train.seed(5, 0), Split::Train.seed(5 | (1 << 63), 0));
        assert_ne!(Split::Train.seed(5, 0), Split::Train.seed(5 | (1 << 62), 0));
    }
}
