//! From the resolved graph to a timely dataflow. The timestamp is the step of co-evolution.

pub mod batch;
pub mod evidence;
pub mod pool;
pub mod routing;
pub mod shell;
pub mod sink;

use crate::graph::{Node, Wire};
use crate::kind::Kind;
use crate::operator::{NodeContext, OperatorError, Routing, Schedule};
use batch::Batch;
use pool::Pool;
use routing::route;
use shell::{Lane, OnFailure, PortStream, Preload, Shell};
use sink::Commit;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use timely::container::NoopBuilder;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::operator::source;
use timely::dataflow::operators::{Concat, ConnectLoop, Feedback, Operator as _, Probe};
use timely::dataflow::{InputHandle, ProbeHandle, Scope, Stream};

/// Stored tables that a resumed session starts from.
#[derive(Default)]
pub struct NodePreload {
    /// For the shell of the node.
    pub shell: Preload,
    /// For the streams of a node with a `prepare`, by port.
    pub streams: BTreeMap<String, Vec<Batch>>,
}

/// All that is needed to put a graph on a worker.
pub struct Assembly {
    /// Nodes sorted by name.
    pub nodes: Vec<Node>,
    /// Order in which each node comes after those that feed it in the same step.
    pub order: Vec<usize>,
    /// Context of each node, by index.
    pub contexts: Vec<NodeContext>,
    /// Stored tables for each node, by index.
    pub preloads: Vec<NodePreload>,
    /// First step of this session.
    pub first_step: u64,
    /// Where steps are committed; holds `None` on processes that do not write.
    pub commit: Arc<Mutex<Option<Box<dyn Commit>>>>,
    /// Threads for long work.
    pub pool: Arc<Pool>,
    /// Told of the first failure.
    pub on_failure: OnFailure,
}

/// The clock's handle: one tick a step on every worker.
pub type Clock = InputHandle<u64, NoopBuilder<Batch>>;

/// Builds the dataflow in `scope` and returns the clock and a probe that passes step *u* when *u* is committed.
pub fn assemble(scope: Scope<'_, u64>, assembly: Assembly) -> Result<(Clock, ProbeHandle<u64>), OperatorError> {
    let Assembly { nodes, order, contexts, preloads, first_step, commit, pool, on_failure } = assembly;
    let workers = contexts.first().map_or(1, |context| context.workers);
    let mut clock = Clock::new_with_builder();
    let ticks = clock.to_stream(scope);
    let mut loops = BTreeMap::new();
    let mut cycles = BTreeMap::new();
    for then in nodes.iter().flat_map(|node| node.wires.values()).filter_map(Wire::then) {
        if !loops.contains_key(then) {
            let (handle, stream) = scope.feedback::<Batch>(1);
            loops.insert(then.to_owned(), handle);
            cycles.insert(then.to_owned(), stream);
        }
    }
    let plan = Plan { nodes: &nodes, order: &order, contexts: &contexts, cycles: &cycles, ticks: &ticks, first_step };
    let mut outputs = BTreeMap::new();
    let built = attach_nodes(scope, &plan, preloads, &pool, &on_failure, &mut outputs);
    // Also when an operator could not be built: timely panics over a loop that stays open.
    for (then, handle) in loops {
        let stream = outputs.get(&then).cloned();
        stream.unwrap_or_else(|| stored_batches(scope, Vec::new())).connect_loop(handle);
    }
    built?;
    let sinks = outputs.into_iter().map(|(name, stream)| (name, route(stream, Routing::ToOne, workers))).collect();
    let ticks = route(ticks, Routing::ToOne, workers);
    let (probe, _) = sink::attach(scope, commit, ticks, sinks, workers, pool, on_failure).probe();
    Ok((clock, probe))
}

/// What [`attach_nodes`] needs of the graph.
struct Plan<'a, 's> {
    nodes: &'a [Node],
    order: &'a [usize],
    contexts: &'a [NodeContext],
    cycles: &'a BTreeMap<String, Stream<'s, u64, Batch>>,
    ticks: &'a Stream<'s, u64, Batch>,
    first_step: u64,
}

/// Puts every node on its streams; `outputs` has those that could be built, also after an error.
fn attach_nodes<'s>(
    scope: Scope<'s, u64>,
    plan: &Plan<'_, 's>,
    preloads: Vec<NodePreload>,
    pool: &Arc<Pool>,
    on_failure: &OnFailure,
    outputs: &mut BTreeMap<String, Stream<'s, u64, Batch>>,
) -> Result<(), OperatorError> {
    let by_name: BTreeMap<&str, usize> = plan.nodes.iter().enumerate().map(|(index, node)| (node.name.as_str(), index)).collect();
    let mut preloads: Vec<Option<NodePreload>> = preloads.into_iter().map(Some).collect();
    for &index in plan.order {
        let (node, context) = (&plan.nodes[index], plan.contexts[index].clone());
        let mut preload = preloads[index].take().unwrap_or_default();
        let mut ports = Vec::new();
        for port in node.info.inputs {
            let Some(wire) = node.wires.get(port.name) else { continue };
            for (lane, feedback, stream) in sources(wire, plan.nodes, &by_name, outputs, plan.cycles)? {
                let stream = only(stream, port.kind);
                let stream = route(stream, port.routing, context.workers);
                let stream = match node.info.prepare {
                    Some(prepare) => {
                        let stored = preload.streams.remove(port.name).unwrap_or_default();
                        let stream = stored_batches(scope, stored).concat(stream);
                        prepare(port.name, stream, &context, &node.config)?
                    }
                    None => stream,
                };
                ports.push(PortStream { port: port.name.to_owned(), lane, feedback, stream });
            }
        }
        let operator = (node.info.build)(&node.config, context.clone())?;
        let shell = Shell {
            context,
            schedule: node.info.schedule,
            operator,
            first_step: plan.first_step,
            preload: preload.shell,
            pool: Arc::clone(pool),
            on_failure: Arc::clone(on_failure),
        };
        outputs.insert(node.name.clone(), shell::attach(scope, shell, plan.ticks.clone(), ports));
    }
    Ok(())
}

/// Lane, whether it is a feedback edge, and the stream.
type Source<'s> = (Lane, bool, Stream<'s, u64, Batch>);

/// The streams that a wire stands for.
fn sources<'s>(
    wire: &Wire,
    nodes: &[Node],
    by_name: &BTreeMap<&str, usize>,
    outputs: &BTreeMap<String, Stream<'s, u64, Batch>>,
    cycles: &BTreeMap<String, Stream<'s, u64, Batch>>,
) -> Result<Vec<Source<'s>>, OperatorError> {
    let find = |name: &str| {
        let lane = match by_name.get(name).map(|&index| nodes[index].info.schedule) {
            Some(Schedule::Once) => Lane::Constant,
            _ => Lane::Step,
        };
        outputs.get(name).map(|stream| (lane, false, stream.clone())).ok_or_else(|| missing(name))
    };
    match wire {
        Wire::Plain(name) => Ok(vec![find(name)?]),
        Wire::Feedback { initial, then } => {
            let mut streams = Vec::new();
            if let Some(initial) = initial {
                streams.push(find(initial)?);
            }
            streams.push((Lane::Step, true, cycles.get(then).cloned().ok_or_else(|| missing(then))?));
            Ok(streams)
        }
    }
}

fn missing(name: &str) -> OperatorError {
    OperatorError::Other(format!("node `{name}` is not there yet: the graph is not in order"))
}

/// Lets through what belongs to an edge of that kind; operators also emit tables for the record alone.
fn only<'s>(stream: Stream<'s, u64, Batch>, kind: Kind) -> Stream<'s, u64, Batch> {
    stream.unary::<NoopBuilder<Batch>, _, _, _>(Pipeline, "Only", move |_, _| {
        move |input, output| {
            input.for_each(|capability, batch| {
                if batch.table().is_some_and(|table| kind.tables().contains(&table)) {
                    output.session_with_builder(&capability).give_container(batch);
                }
            });
        }
    })
}

/// A stream of batches that were stored before this session began.
fn stored_batches<'s>(scope: Scope<'s, u64>, batches: Vec<Batch>) -> Stream<'s, u64, Batch> {
    source::<_, NoopBuilder<Batch>, _, _>(scope, "Stored", move |capability, _| {
        let mut stored = Some((capability, batches));
        move |output| {
            if let Some((capability, batches)) = stored.take() {
                for mut batch in batches {
                    output.session_with_builder(&capability).give_container(&mut batch);
                }
            }
        }
    })
}
