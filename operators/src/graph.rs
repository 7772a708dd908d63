//! The resolved graph of a spec.

use crate::registry::OperatorInfo;
use serde_json::Value;
use std::collections::BTreeMap;

/// How a port is fed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wire {
    /// By another node, in the same step.
    Plain(String),
    /// By `initial` in step 0 and by what `then` produced one step earlier afterwards.
    Feedback {
        /// Node whose output is used first; `None` is `empty`.
        initial: Option<String>,
        /// Node of the feedback edge.
        then: String,
    },
}

impl Wire {
    /// Node of the feedback edge, if it is one.
    pub fn then(&self) -> Option<&str> {
        match self {
            Wire::Plain(_) => None,
            Wire::Feedback { then, .. } => Some(then),
        }
    }
}

/// One node.
#[derive(Clone)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Its operator.
    pub info: &'static OperatorInfo,
    /// Resolved configuration.
    pub config: Value,
    /// Wires by port.
    pub wires: BTreeMap<String, Wire>,
}
