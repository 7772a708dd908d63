//! What a resumed run hands to its nodes: outputs of nodes that ran once, what feedback edges held, and the earlier steps of what
//! operators keep.

use crate::error::Ending;
use crate::spec::Resolved;
use cosplay_datasets::{RunDir, TableName};
use cosplay_operators::dataflow::NodePreload;
use cosplay_operators::dataflow::batch::Batch;
use cosplay_operators::graph::{Node, Wire};
use cosplay_operators::operator::{Inputs, PortTables, Routing, Schedule};
use std::collections::BTreeMap;

/// Reads what node `index` needs to go on with `first_step`. `worker` is the worker's index over all processes.
pub(super) fn preload(run: &RunDir, spec: &Resolved, index: usize, first_step: u64, worker: usize) -> Result<NodePreload, Ending> {
    let node = &spec.nodes[index];
    let mut preload = NodePreload::default();
    if first_step == 0 || node.info.schedule == Schedule::Once {
        return Ok(preload);
    }
    for port in node.info.inputs {
        // Rows that only the first worker gets, only the first worker may be handed.
        if port.routing == Routing::ToOne && worker != 0 {
            continue;
        }
        let Some(wire) = node.wires.get(port.name) else { continue };
        let (constant, then) = match wire {
            Wire::Plain(name) => (Some(name), None),
            Wire::Feedback { initial, then } => (initial.as_ref(), Some(then)),
        };
        if let Some(name) = constant.filter(|name| runs_once(spec, name)) {
            preload.shell.constants.insert(port.name.to_owned(), tables(run, spec, name, 0, port.kind.tables())?);
        }
        if let Some(name) = then {
            preload.shell.first.insert(port.name.to_owned(), tables(run, spec, name, first_step - 1, port.kind.tables())?);
        }
    }
    for step in 0..first_step {
        history(run, node, step, worker, &mut preload)?;
    }
    Ok(preload)
}

fn history(run: &RunDir, node: &Node, step: u64, worker: usize, preload: &mut NodePreload) -> Result<(), Ending> {
    let mut ports = BTreeMap::new();
    for &table in node.info.restores {
        let rows = run.read_batch(table, step, None)?;
        if node.info.prepare.is_some() {
            // The stream is exchanged by what follows, so that one worker feeds it.
            if worker == 0 {
                preload.streams.entry(table.as_str().to_owned()).or_default().push(Batch::new(table, rows));
            }
        } else {
            ports.insert(table.as_str().to_owned(), PortTables::new(BTreeMap::from([(table, rows)])));
        }
    }
    if !ports.is_empty() {
        preload.shell.history.push((step, Inputs::new(ports, BTreeMap::new())));
    }
    Ok(())
}

fn runs_once(spec: &Resolved, name: &str) -> bool {
    spec.node(name).is_some_and(|node| node.info.schedule == Schedule::Once)
}

/// Tables that node `name` left in `step`.
fn tables(run: &RunDir, spec: &Resolved, name: &str, step: u64, wanted: &[TableName]) -> Result<PortTables, Ending> {
    let ordinal = spec.nodes.iter().position(|node| node.name == name).unwrap_or_default() as u32;
    let mut tables = BTreeMap::new();
    for &table in wanted {
        if let Some(rows) = run.read_part(table, step, ordinal)? {
            tables.insert(table, rows);
        }
    }
    Ok(PortTables::new(tables))
}
