//! What an edge of the graph carries.

use cosplay_datasets::TableName;
use serde::Serialize;
use std::fmt;

/// The kind of an edge: a small bundle of tables that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Played or stored episodes: `episodes`, `experiences`, `decisions`.
    Rollouts,
    /// Weights: `policies`.
    Policy,
    /// Candidate boundaries: `cuts`.
    Cuts,
    /// Labelled segments: `segments`.
    Segments,
    /// Clauses with their evidence: `contracts`.
    Contracts,
    /// The bank: `skills`, `bank_events`, `relabels`.
    Bank,
}

impl Kind {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Kind; 6] = [Kind::Rollouts, Kind::Policy, Kind::Cuts, Kind::Segments, Kind::Contracts, Kind::Bank];

    /// Name as used in messages and in the reference.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Rollouts => "rollouts",
            Kind::Policy => "policy",
            Kind::Cuts => "cuts",
            Kind::Segments => "segments",
            Kind::Contracts => "contracts",
            Kind::Bank => "bank",
        }
    }

    /// Tables that travel on such an edge.
    pub fn tables(self) -> &'static [TableName] {
        match self {
            Kind::Rollouts => &[TableName::Episodes, TableName::Experiences, TableName::Decisions],
            Kind::Policy => &[TableName::Policies],
            Kind::Cuts => &[TableName::Cuts],
            Kind::Segments => &[TableName::Segments],
            Kind::Contracts => &[TableName::Contracts],
            Kind::Bank => &[TableName::Skills, TableName::BankEvents, TableName::Relabels],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
