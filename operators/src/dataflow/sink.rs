//! The sink: takes the output of every node to the first worker and commits a step once all of it is there.

use crate::dataflow::batch::Batch;
use crate::dataflow::pool::Pool;
use crate::dataflow::shell::{Failure, OnFailure, panic_message};
use crate::operator::OperatorError;
use arrow::array::RecordBatch;
use cosplay_datasets::{Metric, Table, TableName, sort_batch};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use timely::container::NoopBuilder;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::{Scope, Stream};

/// All tables of a step, by table and by the node that made them, sorted by key.
pub type StepTables = BTreeMap<(TableName, String), RecordBatch>;

/// Takes the tables of complete steps, in order.
pub trait Commit: Send {
    /// Makes `step` durable, or says why that failed. Nothing of the step may be visible before.
    fn commit(&mut self, step: u64, tables: StepTables) -> Result<(), OperatorError>;
}

/// Name under which the sink's failures are reported.
const NODE: &str = "sink";

type Pending = BTreeMap<u64, BTreeMap<(TableName, String), Vec<RecordBatch>>>;

/// Puts the sink on the streams of all nodes (already routed to the first worker). `workers` ticks of the clock must have come for a step
/// to be complete: a worker that was told to stop does not tick, and what the others have begun is then abandoned.
pub fn attach<'s>(
    scope: Scope<'s, u64>,
    commit: Arc<Mutex<Option<Box<dyn Commit>>>>,
    clock: Stream<'s, u64, Batch>,
    nodes: Vec<(String, Stream<'s, u64, Batch>)>,
    workers: usize,
    pool: Arc<Pool>,
    on_failure: OnFailure,
) -> Stream<'s, u64, Batch> {
    let mut builder = OperatorBuilder::new(NODE.to_owned(), scope);
    let wake = scope.worker().sync_activator_for(builder.operator_info().address.to_vec());
    let mut clock = builder.new_input(clock, Pipeline);
    let mut inputs: Vec<_> = nodes.into_iter().map(|(node, stream)| (node, builder.new_input(stream, Pipeline))).collect();
    let (output, stream) = builder.new_output::<Batch>();
    let _output = OutputBuilder::<u64, NoopBuilder<Batch>>::from(output);
    builder.build(move |capabilities| {
        drop(capabilities);
        let (sender, receiver) = channel::<(u64, Result<(), OperatorError>)>();
        let mut ticks: BTreeMap<u64, (usize, Capability<u64>)> = BTreeMap::new();
        let mut pending = Pending::new();
        let mut busy = false;
        move |frontiers| {
            clock.for_each(|capability, _tick| {
                if let (Some(&step), Some(kept)) = (capability.least(), capability.retain_least(0)) {
                    ticks.entry(step).and_modify(|(count, _)| *count += 1).or_insert((1, kept));
                }
            });
            for (node, input) in &mut inputs {
                input.for_each(|capability, batch| {
                    if let (Some(&step), Some(table), Some(rows)) = (capability.least(), batch.table(), batch.record_batch()) {
                        pending.entry(step).or_default().entry((table, node.clone())).or_default().push(rows.clone());
                    }
                });
            }
            while let Ok((step, result)) = receiver.try_recv() {
                busy = false;
                match result {
                    Ok(()) => drop(ticks.remove(&step)),
                    // The capability stays, so that no later step is begun.
                    Err(error) => {
                        busy = true;
                        on_failure(Failure { node: NODE.to_owned(), step, error });
                    }
                }
            }
            let Some((&step, (count, _))) = ticks.first_key_value() else { return };
            if busy || *count < workers || frontiers.iter().any(|frontier| frontier.less_equal(&step)) {
                return;
            }
            busy = true;
            let tables = pending.remove(&step).unwrap_or_default();
            let (sender, wake, commit) = (sender.clone(), wake.clone(), Arc::clone(&commit));
            pool.spawn(move || {
                let result = catch_unwind(AssertUnwindSafe(|| commit_step(&commit, step, tables)))
                    .unwrap_or_else(|payload| Err(OperatorError::Other(format!("panicked: {}", panic_message(payload.as_ref())))));
                let _ = sender.send((step, result));
                let _ = wake.activate();
            });
        }
    });
    stream
}

fn commit_step(
    commit: &Mutex<Option<Box<dyn Commit>>>,
    step: u64,
    tables: BTreeMap<(TableName, String), Vec<RecordBatch>>,
) -> Result<(), OperatorError> {
    let mut sorted = StepTables::new();
    for ((table, node), batches) in tables {
        let rows = if table.as_str() == Metric::NAME { add_up(&batches)? } else { sort_batch(table, &batches)? };
        sorted.insert((table, node), rows);
    }
    match commit.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        Some(commit) => commit.commit(step, sorted),
        None => Err(OperatorError::Other("this process has no run directory to commit to".into())),
    }
}

/// Adds up the metrics that several workers have reported under one name. They are whole numbers then, so that the order does not matter.
fn add_up(batches: &[RecordBatch]) -> Result<RecordBatch, OperatorError> {
    let mut sums: BTreeMap<(String, String), f64> = BTreeMap::new();
    for batch in batches {
        for metric in Metric::from_batch(batch)? {
            *sums.entry((metric.node, metric.name)).or_insert(0.0) += metric.value;
        }
    }
    let rows: Vec<Metric> = sums.into_iter().map(|((node, name), value)| Metric { node, name, value }).collect();
    Ok(Metric::to_batch(&rows)?)
}
