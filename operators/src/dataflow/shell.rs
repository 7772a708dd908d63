//! The shell of an operator: collects the batches of a step, runs the operator on the pool once every input's frontier has passed that
//! step, and sends out what it returns. A step is held open by its capability until the operator has answered, and a timely worker never
//! waits for it.

use crate::dataflow::batch::Batch;
use crate::dataflow::pool::Pool;
use crate::operator::{Inputs, NodeContext, Operator, OperatorError, Outputs, PortTables, Schedule};
use arrow::array::RecordBatch;
use cosplay_datasets::{TableName, sort_batch};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use timely::container::NoopBuilder;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::{Scope, Stream};

/// What went wrong, where.
#[derive(Debug)]
pub struct Failure {
    /// Node that failed.
    pub node: String,
    /// Step in which it failed.
    pub step: u64,
    /// Cause.
    pub error: OperatorError,
}

/// Is told of the first failure; ends the run.
pub type OnFailure = Arc<dyn Fn(Failure) + Send + Sync>;

/// How the batches of a stream are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Tables of one step.
    Step,
    /// Tables that stay valid for the whole run.
    Constant,
}

/// One stream that feeds a port.
pub struct PortStream<'s> {
    /// Name of the port.
    pub port: String,
    /// How its batches are meant.
    pub lane: Lane,
    /// True for the `then` of a feedback wire.
    pub feedback: bool,
    /// The batches, already routed.
    pub stream: Stream<'s, u64, Batch>,
}

/// Tables by port, as batches that have not been put together.
type Gathered = BTreeMap<String, BTreeMap<TableName, Vec<RecordBatch>>>;

/// What a resumed run hands to an operator before its first step.
#[derive(Debug, Default)]
pub struct Preload {
    /// Outputs of operators that run once.
    pub constants: BTreeMap<String, PortTables>,
    /// Feedback: what the step before the first one has left.
    pub first: BTreeMap<String, PortTables>,
    /// Earlier steps for [`Operator::restore`].
    pub history: Vec<(u64, Inputs)>,
}

/// An operator with all that its shell needs.
pub struct Shell {
    /// Where it runs.
    pub context: NodeContext,
    /// When it runs.
    pub schedule: Schedule,
    /// The operator.
    pub operator: Box<dyn Operator>,
    /// First step of this session: 0, or where a resumed run goes on.
    pub first_step: u64,
    /// What a resumed run hands over.
    pub preload: Preload,
    /// Threads for the work.
    pub pool: Arc<Pool>,
    /// Told of a failure.
    pub on_failure: OnFailure,
}

/// An operator with what it is to work on.
type Work = (Box<dyn Operator>, Inputs, Vec<(u64, Inputs)>);

/// A step's capability with its batches.
type Output = (Capability<u64>, Vec<(TableName, RecordBatch)>);

struct Answer {
    operator: Box<dyn Operator>,
    step: u64,
    outputs: Result<Vec<(TableName, RecordBatch)>, OperatorError>,
}

struct State {
    context: NodeContext,
    schedule: Schedule,
    first_step: u64,
    operator: Option<Box<dyn Operator>>,
    constants: BTreeMap<String, PortTables>,
    new_constants: Gathered,
    first: BTreeMap<String, PortTables>,
    history: Vec<(u64, Inputs)>,
    pending: BTreeMap<u64, Gathered>,
    feedback: BTreeSet<String>,
    capabilities: BTreeMap<u64, Capability<u64>>,
    failed: bool,
}

/// Puts an operator on a stream. `clock` ticks once a step on every worker.
pub fn attach<'s>(
    scope: Scope<'s, u64>,
    shell: Shell,
    clock: Stream<'s, u64, Batch>,
    ports: Vec<PortStream<'s>>,
) -> Stream<'s, u64, Batch> {
    let mut builder = OperatorBuilder::new(shell.context.node.clone(), scope);
    let wake = scope.worker().sync_activator_for(builder.operator_info().address.to_vec());
    let mut clock = builder.new_input(clock, Pipeline);
    let feedback = ports.iter().filter(|port| port.feedback).map(|port| port.port.clone()).collect();
    let mut inputs: Vec<_> = ports.into_iter().map(|port| (port.port, port.lane, builder.new_input(port.stream, Pipeline))).collect();
    let (output, stream) = builder.new_output::<Batch>();
    let mut output = OutputBuilder::<u64, NoopBuilder<Batch>>::from(output);
    let Shell { context, schedule, operator, first_step, preload, pool, on_failure } = shell;
    builder.build(move |capabilities| {
        // Else the first step would never end.
        drop(capabilities);
        let (sender, receiver): (Sender<Answer>, Receiver<Answer>) = channel();
        let mut state = State {
            context,
            schedule,
            first_step,
            operator: Some(operator),
            constants: preload.constants,
            new_constants: Gathered::new(),
            first: preload.first,
            history: preload.history,
            pending: BTreeMap::new(),
            feedback,
            capabilities: BTreeMap::new(),
            failed: false,
        };
        move |frontiers| {
            clock.for_each(|capability, _tick| {
                if let (Some(&step), Some(kept)) = (capability.least(), capability.retain_least(0)) {
                    state.tick(step, kept);
                }
            });
            for (port, lane, input) in &mut inputs {
                input.for_each(|capability, batch| {
                    if let Some(&step) = capability.least() {
                        state.take(port, *lane, step, std::mem::take(batch));
                    }
                });
            }
            let mut output = output.activate();
            while let Ok(answer) = receiver.try_recv() {
                match state.answer(answer) {
                    Ok((capability, batches)) => {
                        for (table, rows) in batches {
                            let mut batch = Batch::new(table, rows);
                            output.session_with_builder(&capability).give_container(&mut batch);
                        }
                    }
                    Err(Some(failure)) => on_failure(*failure),
                    Err(None) => {}
                }
            }
            if let Some(step) = state.ready(|step| frontiers.iter().any(|frontier| frontier.less_equal(&step))) {
                match state.prepare(step) {
                    Ok((operator, inputs, history)) => {
                        let (sender, wake) = (sender.clone(), wake.clone());
                        pool.spawn(move || {
                            let _ = sender.send(run(operator, step, &inputs, history));
                            let _ = wake.activate();
                        });
                    }
                    Err(failure) => on_failure(*failure),
                }
            }
        }
    });
    stream
}

/// Runs one step, on a thread of the pool.
fn run(mut operator: Box<dyn Operator>, step: u64, inputs: &Inputs, history: Vec<(u64, Inputs)>) -> Answer {
    let outputs = catch_unwind(AssertUnwindSafe(|| {
        for (earlier, inputs) in &history {
            operator.restore(*earlier, inputs)?;
        }
        operator.step(step, inputs).and_then(Outputs::into_batches)
    }))
    .unwrap_or_else(|payload| Err(OperatorError::Other(format!("panicked: {}", panic_message(payload.as_ref())))));
    Answer { operator, step, outputs }
}

/// Text of a panic's payload.
pub fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}

impl State {
    fn tick(&mut self, step: u64, capability: Capability<u64>) {
        // An operator that runs once lets all later steps pass.
        if self.schedule == Schedule::EveryStep || step == 0 {
            self.capabilities.insert(step, capability);
        }
    }

    fn take(&mut self, port: &str, lane: Lane, step: u64, batch: Batch) {
        let (Some(table), Some(rows)) = (batch.table(), batch.record_batch()) else { return };
        let gathered = match lane {
            Lane::Constant => &mut self.new_constants,
            Lane::Step => self.pending.entry(step.max(self.first_step)).or_default(),
        };
        gathered.entry(port.to_owned()).or_default().entry(table).or_default().push(rows.clone());
    }

    /// The next step, if all its inputs are complete and the operator is free.
    fn ready(&self, open: impl Fn(u64) -> bool) -> Option<u64> {
        let step = *self.capabilities.keys().next()?;
        (!self.failed && self.operator.is_some() && !open(step)).then_some(step)
    }

    fn prepare(&mut self, step: u64) -> Result<Work, Box<Failure>> {
        let inputs = self.inputs(step).map_err(|error| self.failure(step, error))?;
        match self.operator.take() {
            Some(operator) => Ok((operator, inputs, std::mem::take(&mut self.history))),
            None => Err(self.failure(step, OperatorError::Other("the operator is still busy".into()))),
        }
    }

    fn inputs(&mut self, step: u64) -> Result<Inputs, OperatorError> {
        for (port, tables) in std::mem::take(&mut self.new_constants) {
            self.constants.insert(port, put_together(tables)?);
        }
        let mut ports = std::mem::take(&mut self.first);
        for (port, tables) in self.pending.remove(&step).unwrap_or_default() {
            ports.insert(port, put_together(tables)?);
        }
        let replaced = if step == 0 { BTreeSet::new() } else { self.feedback.clone() };
        Ok(Inputs::new(ports, self.constants.clone()).with_replaced(replaced))
    }

    /// The step's capability and its output; the failure, if it is news.
    fn answer(&mut self, answer: Answer) -> Result<Output, Option<Box<Failure>>> {
        self.operator = Some(answer.operator);
        match answer.outputs {
            Ok(batches) => self.capabilities.remove(&answer.step).map(|capability| (capability, batches)).ok_or(None),
            Err(error) => Err(Some(self.failure(answer.step, error))),
        }
    }

    /// Notes a failure; the step's capability is kept, so that the step can never be committed.
    fn failure(&mut self, step: u64, error: OperatorError) -> Box<Failure> {
        self.failed = true;
        Box::new(Failure { node: self.context.node.clone(), step, error })
    }
}

/// Concatenates and sorts the batches of each table.
fn put_together(tables: BTreeMap<TableName, Vec<RecordBatch>>) -> Result<PortTables, OperatorError> {
    let mut sorted = BTreeMap::new();
    for (table, batches) in tables {
        sorted.insert(table, sort_batch(table, &batches)?);
    }
    Ok(PortTables::new(sorted))
}
