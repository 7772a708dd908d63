//! Checks that need the whole graph: wires to other nodes, kinds, schedules, cycles, and that test episodes reach nothing that learns.

use super::compose::missing_node_help;
use super::diagnostics::{Errors, SpecError, listed, quoted};
use super::nodes::{Reference, WrittenNode, WrittenWire};
use super::tree::{Key, Node};
use super::view::join;
use super::written::EMPTY;
use cosplay_operators::kind::Kind;
use cosplay_operators::operator::{Port, Schedule};
use cosplay_operators::registry::OperatorInfo;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Which end of a wire a reference is.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Plain,
    Initial,
    Then,
}

/// The graph as far as its nodes could be read.
pub(crate) struct Edges<'a, 't> {
    nodes: &'a [WrittenNode<'t>],
    by_name: BTreeMap<&'t str, usize>,
    /// All names, those of nodes that could not be read included.
    names: Vec<&'t str>,
    registry: &'a [&'static OperatorInfo],
    /// Steps of the run, as far as they are known.
    steps: u64,
}

impl<'a, 't> Edges<'a, 't> {
    pub(crate) fn new(graph: &'t [(Key, Node)], nodes: &'a [WrittenNode<'t>], registry: &'a [&'static OperatorInfo], steps: u64) -> Self {
        let by_name = nodes.iter().enumerate().map(|(index, node)| (node.key.text.as_str(), index)).collect();
        Self { nodes, by_name, names: graph.iter().map(|(key, _)| key.text.as_str()).collect(), registry, steps }
    }

    /// Adds all faults of the graph.
    pub(crate) fn check(&self, errors: &mut Errors) {
        for node in self.nodes {
            for port in node.info.inputs {
                match node.wires.get(port.name) {
                    Some(WrittenWire::Plain(from)) => self.check_end(node, port, from, End::Plain, errors),
                    Some(WrittenWire::Feedback { initial, then }) => {
                        if node.info.schedule == Schedule::Once {
                            let message = format!("the operator `{}` runs in step 0 only, so it can take no feedback", node.info.name);
                            errors.push(SpecError::new(then.place, node.port_path(port.name), message));
                        }
                        if let Some(initial) = initial {
                            self.check_end(node, port, initial, End::Initial, errors);
                        }
                        self.check_end(node, port, then, End::Then, errors);
                    }
                    None => {}
                }
            }
        }
        self.check_cycles(errors);
        self.check_splits(errors);
    }

    fn check_end(&self, node: &WrittenNode<'_>, port: &Port, from: &Reference, end: End, errors: &mut Errors) {
        let path = match end {
            End::Plain => node.port_path(port.name),
            End::Initial => join(&node.port_path(port.name), "initial"),
            End::Then => join(&node.port_path(port.name), "then"),
        };
        let Some(&index) = self.by_name.get(from.name.as_str()) else {
            if !self.names.contains(&from.name.as_str()) {
                errors.push(self.missing_node(port, from, &path));
            }
            return;
        };
        let source = &self.nodes[index];
        if source.info.output != port.kind {
            let message =
                format!("the port takes {}, but `{}` (operator `{}`) gives {}", port.kind, from.name, source.info.name, source.info.output);
            errors.push(SpecError::new(from.place, &path, message).help(self.who_gives(port.kind, &node.key.text)));
        }
        let once = source.info.schedule == Schedule::Once;
        let error = match end {
            End::Then if once => {
                let message =
                    format!("`{}` (operator `{}`) runs in step 0 only, so it gives nothing in later steps", from.name, source.info.name);
                SpecError::new(from.place, path, message)
                    .help(format!("write `{}: {}` to use its output in all steps", port.name, from.name))
            }
            End::Initial if !once => {
                let message = format!(
                    "`{}` (operator `{}`) runs in every step, so it can't give what is there before the first",
                    from.name, source.info.name
                );
                let once = self.nodes.iter().filter(|node| node.info.schedule == Schedule::Once && node.info.output == port.kind);
                let mut fitting: Vec<&str> = once.map(|node| node.key.text.as_str()).collect();
                if port.kind == Kind::Bank {
                    fitting.push(EMPTY);
                }
                let help =
                    if fitting.is_empty() { "no node of this graph fits".to_owned() } else { format!("fitting: {}", listed(fitting)) };
                SpecError::new(from.place, path, message).help(help)
            }
            End::Plain if node.info.schedule == Schedule::Once && !once => {
                let message = format!(
                    "the operator `{}` runs in step 0 only, but `{}` (operator `{}`) gives something new in every step",
                    node.info.name, from.name, source.info.name
                );
                SpecError::new(from.place, path, message)
            }
            End::Plain if once && self.steps > 1 && port.kind == Kind::Rollouts && node.info.schedule == Schedule::EveryStep => {
                let message = format!(
                    "`{}` (operator `{}`) plays in step 0 only, so the same episodes would count as new ones in each of {} steps",
                    from.name, source.info.name, self.steps
                );
                SpecError::new(from.place, path, message).help("take the episodes of a node that plays in every step, or set `steps: 1`")
            }
            _ => return,
        };
        errors.push(error);
    }

    fn missing_node(&self, port: &Port, from: &Reference, path: &str) -> SpecError {
        let fitting = self.giving(port.kind, "");
        let error = SpecError::new(from.place, path, format!("the graph has no node {}", quoted(&from.name)));
        let help = missing_node_help(&from.name, &fitting, &self.names);
        error.maybe_help(help).help(self.who_gives(port.kind, ""))
    }

    fn giving(&self, kind: Kind, except: &str) -> Vec<&'t str> {
        let fitting = self.nodes.iter().filter(|node| node.info.output == kind && node.key.text != except);
        fitting.map(|node| node.key.text.as_str()).collect()
    }

    fn who_gives(&self, kind: Kind, except: &str) -> String {
        let fitting = self.giving(kind, except);
        if !fitting.is_empty() {
            return format!("nodes of this graph that give {kind}: {}", listed(fitting));
        }
        let operators = self.registry.iter().filter(|info| info.output == kind).map(|info| info.name);
        format!("no node of this graph gives {kind}; operators that do: {}", listed(operators))
    }

    /// Sources of a node over wires within a step, with the port.
    fn sources(&self, index: usize) -> impl Iterator<Item = (&'static str, usize)> {
        self.nodes[index].wires.iter().filter_map(|(port, wire)| match wire {
            WrittenWire::Plain(from) => self.by_name.get(from.name.as_str()).map(|source| (*port, *source)),
            WrittenWire::Feedback { .. } => None,
        })
    }

    /// Reports cycles that no `then` breaks: one for each set of nodes that all wait for each other.
    fn check_cycles(&self, errors: &mut Errors) {
        let mut done = BTreeSet::new();
        for &start in self.by_name.values() {
            if done.contains(&start) {
                continue;
            }
            if let Some(cycle) = self.cycle_through(start) {
                errors.push(self.cycle_error(cycle));
                let upstream = self.upstream(start);
                done.extend(upstream.into_iter().filter(|index| self.upstream(*index).contains(&start)));
            }
        }
    }

    /// All nodes that a node waits for within a step, over any number of wires.
    fn upstream(&self, index: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open = vec![index];
        while let Some(index) = open.pop() {
            open.extend(self.sources(index).map(|(_, source)| source).filter(|source| found.insert(*source)));
        }
        found
    }

    /// The shortest cycle through a node, against the wires, as nodes.
    fn cycle_through(&self, start: usize) -> Option<Vec<usize>> {
        let mut reached_from: BTreeMap<usize, usize> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(index) = queue.pop_front() {
            for (_, source) in self.sources(index) {
                if source == start {
                    let mut cycle = vec![index];
                    let mut at = index;
                    while at != start {
                        at = *reached_from.get(&at)?;
                        cycle.push(at);
                    }
                    // `cycle` runs from the last node reached back to `start`, which is the way the data flows.
                    cycle.rotate_right(1);
                    return Some(cycle);
                }
                if let std::collections::btree_map::Entry::Vacant(entry) = reached_from.entry(source) {
                    entry.insert(index);
                    queue.push_back(source);
                }
            }
        }
        None
    }

    fn cycle_error(&self, mut cycle: Vec<usize>) -> SpecError {
        // Point at the wire that most likely means the step before: one that carries a bank, else a policy, else any.
        let closing = |at: usize| {
            let source = cycle[(at + cycle.len() - 1) % cycle.len()];
            let ports = self.nodes[cycle[at]].info.inputs.iter();
            let wired = ports.filter(|port| self.sources(cycle[at]).any(|(name, from)| name == port.name && from == source));
            wired.map(|port| (port.kind != Kind::Bank, port.kind != Kind::Policy, port.name)).min()
        };
        let best = (0..cycle.len()).filter_map(|at| Some((closing(at)?, at))).min();
        let ((_, _, port), at) = best.unwrap_or(((true, true, ""), 0));
        cycle.rotate_left(at);
        let name = |index: usize| self.nodes[index].key.text.as_str();
        let names: Vec<&str> = cycle.iter().chain(cycle.first()).map(|&index| name(index)).collect();
        let (first, last) = (cycle.first().copied().unwrap_or(0), cycle.last().copied().unwrap_or(0));
        let node = &self.nodes[first];
        let place = match node.wires.get(port) {
            Some(WrittenWire::Plain(from)) => from.place,
            _ => node.key.place,
        };
        let message = format!("these nodes wait for each other within a step: {}", names.join(" → "));
        SpecError::new(place, node.port_path(port), message)
            .help(format!("break the cycle where the step before is meant: `{port}: {{ initial: …, then: {} }}`", name(last)))
    }

    /// Reports each node that plays test episodes if something that learns lies downstream, over any wires.
    fn check_splits(&self, errors: &mut Errors) {
        let consumers = self.consumers();
        for &start in self.by_name.values() {
            let node = &self.nodes[start];
            let split = node.config.as_ref().and_then(|config| config.get("split")).and_then(Json::as_str);
            if !node.info.plays || split != Some("test") {
                continue;
            }
            if let Some(path) = self.path_to_learner(start, &consumers) {
                let names: Vec<&str> = path.iter().map(|&index| self.nodes[index].key.text.as_str()).collect();
                let last = path.last().map_or(node, |&index| &self.nodes[index]);
                let message = format!(
                    "test episodes would reach `{}` (operator `{}`), which learns: {}",
                    last.key.text,
                    last.info.name,
                    names.join(" → ")
                );
                let error = SpecError::new(node.config_place("split"), join(&node.path(), "split"), message);
                errors.push(error.help("use `split: train`, or take the test episodes to nodes that only measure"));
            }
        }
    }

    fn consumers(&self) -> Vec<BTreeSet<usize>> {
        let mut consumers = vec![BTreeSet::new(); self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for wire in node.wires.values() {
                let ends = match wire {
                    WrittenWire::Plain(from) => vec![from],
                    WrittenWire::Feedback { initial, then } => initial.iter().chain([then]).collect(),
                };
                for source in ends.into_iter().filter_map(|from| self.by_name.get(from.name.as_str())) {
                    consumers[*source].insert(index);
                }
            }
        }
        consumers
    }

    /// The shortest way from a node to one whose operator learns.
    fn path_to_learner(&self, start: usize, consumers: &[BTreeSet<usize>]) -> Option<Vec<usize>> {
        let mut reached_from: BTreeMap<usize, usize> = BTreeMap::from([(start, start)]);
        let mut queue = VecDeque::from([start]);
        while let Some(index) = queue.pop_front() {
            if self.nodes[index].info.learns {
                let mut path = vec![index];
                while let Some(&before) = path.last().and_then(|at| reached_from.get(at)).filter(|_| path.last() != Some(&start)) {
                    path.push(before);
                }
                path.reverse();
                return Some(path);
            }
            for &consumer in &consumers[index] {
                if let std::collections::btree_map::Entry::Vacant(entry) = reached_from.entry(consumer) {
                    entry.insert(index);
                    queue.push_back(consumer);
                }
            }
        }
        None
    }
}
