//! Commits steps to the run directory and tells the display.

use crate::run::progress::Display;
use cosplay_datasets::{Metric, RunDir, Table, TableName};
use cosplay_operators::dataflow::sink::{Commit, StepTables};
use cosplay_operators::operator::OperatorError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Writes each step into the run directory: one part a node, so that a resumed run can hand every node what it left.
pub(super) struct RunCommit {
    pub(super) run: RunDir,
    /// Ordinals of the nodes, by name.
    pub(super) ordinals: BTreeMap<String, u32>,
    pub(super) display: Arc<Display>,
}

impl Commit for RunCommit {
    fn commit(&mut self, step: u64, tables: StepTables) -> Result<(), OperatorError> {
        let mut metrics = Vec::new();
        let mut parts = Vec::new();
        for ((table, node), rows) in tables {
            if table == TableName::Metrics {
                metrics.extend(Metric::from_batch(&rows)?);
            }
            let part = self.ordinals.get(&node).copied().unwrap_or_default();
            parts.push((table, part, rows));
        }
        self.run.commit_parts(step, parts)?;
        self.display.step(step, &metrics);
        Ok(())
    }
}
