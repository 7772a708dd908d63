//! `cosplay rebuild`: makes banks again from stored rollouts, with the bank side of a spec and no model call.

use crate::error::Ending;
use crate::run::progress::tell;
use crate::run::{RunRequest, execute, load_kept};
use crate::spec::Resolved;
use cosplay_datasets::{RunDir, TableName};
use cosplay_operators::graph::{Node, Wire};
use cosplay_operators::registry;
use cosplay_operators::stored_rollouts::{self, Rollouts};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Tables that must come out equal.
const BANK_TABLES: [TableName; 6] =
    [TableName::Cuts, TableName::Segments, TableName::Contracts, TableName::Skills, TableName::BankEvents, TableName::Relabels];

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct RebuildRequest {
    /// Run, or glob over stored experiences.
    pub rollouts: String,
    /// Episodes that are left out.
    pub without: Vec<u64>,
    /// Last step that is rebuilt.
    pub at: Option<u64>,
    /// Output.
    pub out: PathBuf,
    /// Session.
    pub request: RunRequest,
}

/// Turns a spec into one that reads stored rollouts: what the bank is made of stays, what plays is replaced, all else goes.
///
/// # Errors
/// If the spec has no bank, or nothing that plays episodes for it.
pub fn from_stored(spec: &Resolved, rollouts: &str, without: &[u64], steps: u64) -> Result<Resolved, Ending> {
    let keep = ancestors_of_banks(spec);
    if keep.is_empty() {
        return Err(Ending::wrong("the spec has no `maintain_bank` node, so there is no bank to rebuild"));
    }
    let info = registry::operator("stored_rollouts").ok_or_else(|| Ending::failed("operator `stored_rollouts` is missing"))?;
    let nodes: Vec<Node> = spec
        .nodes
        .iter()
        .filter(|node| keep.contains(&node.name))
        .map(|node| {
            if !node.info.plays {
                return Ok(node.clone());
            }
            let split = node.config.get("split").cloned().unwrap_or_else(|| json!("train"));
            let config = json!({"path": rollouts, "node": node.name, "without": without, "split": split});
            let config = (info.resolve)(&config).map_err(Ending::failed)?;
            Ok(Node { name: node.name.clone(), info, config, wires: Default::default() })
        })
        .collect::<Result<_, Ending>>()?;
    if !nodes.iter().any(|node| node.info.plays) {
        return Err(Ending::wrong("nothing in the spec plays episodes for its bank"));
    }
    let place = |name: &str| nodes.iter().position(|node| node.name == name);
    let order = spec.order.iter().filter_map(|&index| place(&spec.nodes[index].name)).collect();
    let mut settings = spec.settings.clone();
    settings.name = format!("{}-rebuilt", settings.name);
    settings.steps = steps;
    Ok(Resolved { settings, nodes, order, origins: Default::default() })
}

/// Names of all bank nodes and of all that they take input from, up to what plays.
fn ancestors_of_banks(spec: &Resolved) -> BTreeSet<String> {
    let mut open: Vec<&Node> = spec.nodes.iter().filter(|node| node.info.name == "maintain_bank").collect();
    let mut keep = BTreeSet::new();
    while let Some(node) = open.pop() {
        if !keep.insert(node.name.clone()) || node.info.plays {
            continue;
        }
        for wire in node.wires.values() {
            let names = match wire {
                Wire::Plain(name) => vec![name],
                Wire::Feedback { initial, then } => initial.iter().chain([then]).collect(),
            };
            open.extend(names.into_iter().filter_map(|name| spec.node(name)));
        }
    }
    keep
}

/// How a rebuilt bank relates to the live one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// There is no live bank of the same episodes.
    None,
    /// The spec makes banks in another way than the live run did.
    OtherSpec,
    /// Steps and tables that differ; none if all are equal.
    Differences(Vec<(u64, TableName)>),
}

/// What `cosplay rebuild` did.
#[derive(Clone, Debug)]
pub struct Rebuilt {
    /// Comparison with the live bank.
    pub comparison: Comparison,
    /// The runs that were read together, if there are several: the place in the list is the ordinal in ids of episodes.
    pub sources: Vec<PathBuf>,
}

/// `cosplay rebuild`.
///
/// # Errors
/// As [`crate::run::run`].
pub fn rebuild(spec: &Resolved, request: &RebuildRequest) -> Result<Rebuilt, Ending> {
    let live = Path::new(&request.rollouts);
    let live = if RunDir::exists(live) { Some(RunDir::open(live)?) } else { None };
    let stored = cosplay_datasets::stored::select(&request.rollouts, TableName::Experiences)?;
    let last = stored.last().map_or(0, |step| step.step);
    let at = request.at.unwrap_or(last);
    if at > last {
        return Err(Ending::wrong(format!("there is no step {at}; the last stored step is {last}")));
    }
    if let Some(run) =
        stored.iter().flat_map(|step| &step.files).map(|file| &file.source).find(|run| RunDir::exists(run) && inside(&request.out, run))
    {
        return Err(Ending::wrong(format!("{} lies in {}, which is read", request.out.display(), run.display()))
            .hint("write elsewhere with --out DIR"));
    }
    let path = absolute(&request.rollouts);
    let plan = from_stored(spec, &path, &request.without, at + 1)?;
    for set in ineffective(&request.request.sets, &plan) {
        tell(&format!("note: --set {set} has no effect here: a rebuild only makes banks, from episodes that are stored"));
    }
    let mut sources = BTreeSet::new();
    let mut known = Vec::new();
    for node in plan.nodes.iter().filter(|node| node.info.name == "stored_rollouts") {
        let config: stored_rollouts::Config = registry::configuration("stored_rollouts", &node.config)?;
        config.look(at + 1).map_err(|problem| Ending::wrong(problem.message))?;
        let rollouts = Rollouts::open(config)?;
        sources.extend(rollouts.sources().to_vec());
        known.push(rollouts);
    }
    known_episodes(request, &known, at)?;
    let comparison = match &live {
        Some(_) if !request.without.is_empty() => Comparison::None,
        Some(live) if other_bank(live.path(), &plan, &path, at)? => Comparison::OtherSpec,
        Some(_) => Comparison::Differences(Vec::new()),
        None => Comparison::None,
    };
    execute(plan, &request.out, &request.request)?;
    let comparison = match (comparison, live) {
        (Comparison::Differences(_), Some(live)) => Comparison::Differences(differences(&live, &RunDir::open(&request.out)?, at)?),
        (comparison, _) => comparison,
    };
    Ok(Rebuilt { comparison, sources: if sources.len() > 1 { sources.into_iter().collect() } else { Vec::new() } })
}

/// Changes of the spec that concern nodes which a rebuild does not run.
fn ineffective<'s>(sets: &'s [String], plan: &Resolved) -> Vec<&'s str> {
    let runs = |name: &str| plan.node(name).is_some_and(|node| node.info.name != "stored_rollouts");
    let node = |set: &str| set.split('=').next().and_then(|key| key.strip_prefix("graph.")?.split('.').next()).map(str::to_owned);
    sets.iter().map(String::as_str).filter(|set| node(set).is_some_and(|node| !runs(&node))).collect()
}

/// Whether `path` lies in the folder `run`, or is it.
fn inside(path: &Path, run: &Path) -> bool {
    let (path, run) = (std::path::absolute(path), std::path::absolute(run));
    matches!((path, run), (Ok(path), Ok(run)) if path.starts_with(&run))
}

/// Whether the live run made its bank in another way than `plan` does.
fn other_bank(live: &Path, plan: &Resolved, path: &str, at: u64) -> Result<bool, Ending> {
    let kept = from_stored(&load_kept(live, &[])?, path, &[], at + 1);
    Ok(kept.map_or(true, |kept| kept.first_difference(plan).is_some_and(|what| !what.contains("`name`"))))
}

/// Checks that the episodes to leave out are there: a mistyped one would leave out nothing, without a word.
fn known_episodes(request: &RebuildRequest, rollouts: &[Rollouts], last: u64) -> Result<(), Ending> {
    let mut unknown: BTreeSet<u64> = request.without.iter().copied().collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let mut example = None;
    for rollouts in rollouts {
        for step in 0..=last {
            for row in rollouts.episodes(step)? {
                unknown.remove(&row.episode.0);
                example = example.or(Some(row.episode));
            }
        }
    }
    let Some(episode) = unknown.first() else { return Ok(()) };
    let ending = Ending::wrong(format!("--without {episode}: the bank rests on no such episode up to step {last} of {}", request.rollouts));
    Err(match example {
        Some(example) => ending.hint(format!("the first one is {example}; the table `episodes` of a rebuilt run lists all")),
        None => ending,
    })
}

fn absolute(path: &str) -> String {
    std::path::absolute(path).map_or_else(|_| path.to_owned(), |path| path.display().to_string())
}

/// Steps and tables in which two runs' banks differ.
///
/// # Errors
/// If a table cannot be read.
pub fn differences(live: &RunDir, rebuilt: &RunDir, last: u64) -> Result<Vec<(u64, TableName)>, Ending> {
    let mut differences = Vec::new();
    for step in 0..=last {
        for table in BANK_TABLES {
            if live.read_batch(table, step, None)? != rebuilt.read_batch(table, step, None)? {
                differences.push((step, table));
            }
        }
    }
    Ok(differences)
}
