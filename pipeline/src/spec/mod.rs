//! Specs: from a YAML file to a checked graph with all defaults filled in.
//!
//! [`load`] reads a file and what it extends into a tree in which every key and value knows its place (`read`, `tree`), lays files and
//! `--set` arguments over each other (`compose`), checks the result against the JSON schemas by which settings and operators describe
//! themselves (`view`, `conform`, `nodes`) and against the rules of a graph (`edges`), and gives either a [`Resolved`] spec or all faults at once
//! ([`SpecErrors`]). The operators are passed in; nothing here knows one by name.
//!
//! For readers there are [`plan`] (the resolved graph as text or diagram), [`schema`] (a JSON schema for editors) and [`mod@reference`] (what
//! operators and environments exist).

mod compose;
mod conform;
mod diagnostics;
mod edges;
mod nodes;
mod read;
mod resolved;
mod tree;
mod view;
mod written;

pub mod plan;
pub mod reference;
pub mod schema;

pub use cosplay_operators::graph::{Node, Wire};
pub use diagnostics::{SpecError, SpecErrors};
pub use resolved::{Resolved, load};
