//! Typed keys of the tables. They are plain integers on disk, so that Polars, DuckDB or pandas can join on them.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// One episode. In decimal the id reads `SSSSSSNNIIIII`: step of co-evolution, ordinal of the node that played it, index
    /// within the step.
    EpisodeId(u64)
}
id! {
    /// One segment of an episode: the episode's id times 1,000 plus the ordinal of the segment.
    SegmentId(u64)
}
id! {
    /// One skill. Ids grow monotonically in a run and are never used again.
    SkillId(u32)
}

impl EpisodeId {
    /// Episodes that a node can play in one step.
    pub const PER_NODE: u32 = 100_000;

    /// Builds the id of episode `index` (below [`Self::PER_NODE`]) of node number `node` (below 100) in `step`.
    pub fn new(step: u64, node: u32, index: u32) -> Self {
        Self(step * 10_000_000 + u64::from(node % 100) * 100_000 + u64::from(index % Self::PER_NODE))
    }

    /// The step of co-evolution in which the episode was played.
    pub fn step(self) -> u64 {
        self.0 / 10_000_000
    }

    /// The index within its step and node.
    pub fn index(self) -> u32 {
        (self.0 % u64::from(Self::PER_NODE)) as u32
    }
}

impl SegmentId {
    /// Segments that an episode can have.
    pub const PER_EPISODE: u32 = 1_000;

    /// Builds the id of the `ordinal`-th segment (below [`Self::PER_EPISODE`]) of `episode`.
    pub fn new(episode: EpisodeId, ordinal: u32) -> Self {
        Self(episode.0 * 1_000 + u64::from(ordinal % Self::PER_EPISODE))
    }

    /// The episode that the segment belongs to.
    pub fn episode(self) -> EpisodeId {
        EpisodeId(self.0 / 1_000)
    }
}
