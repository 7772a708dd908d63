//! The words of a skill: its name and the five parts of the paper's section 3 (summary, preconditions, plan, success and abort criteria),
//! made from contract, tag and evidence by templates. No model is asked.

use crate::contract::{ClauseKind, Contract, Literal};
use crate::learn_contracts::{passes_one, share};
use crate::maintain_bank::cluster::LiteralCounts;
use crate::maintain_bank::evidence::Record;
use crate::maintain_bank::{Config, Entry};
use cosplay_datasets::tables::Skill;
use cosplay_envs::{EnvInfo, PredicateKind, PredicateSet, Tag};

/// Share of the instances at whose start a precondition holds.
const PRECONDITION_SHARE: f64 = 0.8;
/// A precondition is at least this much more common at the start of the instances than at the start of any segment: what is nearly always
/// true is no condition.
const PRECONDITION_LIFT: f64 = 0.1;
/// Most preconditions and most abort criteria of a skill.
const MOST: usize = 4;
/// A predicate marks failure if it is true at the end of this much larger a share of the failed instances than of the others.
const ABORT_LIFT: f64 = 0.3;
/// Failed instances before anything is read out of them.
const ABORT_INSTANCES: u32 = 3;

/// How common things are among all segments.
pub struct Base {
    segments: u32,
    starts: [u32; 128],
    /// How many segments each effect occurs in.
    pub effects: LiteralCounts,
}

impl Base {
    /// Counts.
    pub fn of<'a>(records: impl Iterator<Item = &'a Record> + Clone) -> Self {
        let (segments, starts) = count(records.clone().map(|record| record.effect.preconditions));
        Self { segments, starts, effects: LiteralCounts::of(records) }
    }
}

/// Number of sets, and number of sets that each predicate is in.
fn count(sets: impl Iterator<Item = PredicateSet>) -> (u32, [u32; 128]) {
    let (mut total, mut counts) = (0, [0; 128]);
    for set in sets {
        total += 1;
        set.iter().for_each(|predicate| counts[predicate] += 1);
    }
    (total, counts)
}

/// A name that no other skill has: tag, what is done and to what, such as `merge-reach-max_ge_128`, after the rarest clause.
pub fn name(contract: &Contract, tag: Option<Tag>, base: &Base, info: &EnvInfo, taken: impl Fn(&str) -> bool) -> String {
    let tag = tag.map_or("skill".to_owned(), |tag| tag.as_str().to_ascii_lowercase());
    let stem = match base.effects.rarest(contract, 0) {
        Some(literal) => format!("{tag}-{}-{}", verb(literal, info), bare(literal.name(info))),
        None => tag,
    };
    let numbered = (2..).map(|number| format!("{stem}-{number}"));
    std::iter::once(stem.clone()).chain(numbered).find(|name| !taken(name)).unwrap_or(stem)
}

fn verb(literal: Literal, info: &EnvInfo) -> &'static str {
    match literal.kind {
        ClauseKind::Event => "do",
        ClauseKind::Delete => "end",
        ClauseKind::Add if kind_of(literal, info) == Some(PredicateKind::Monotone) => "reach",
        ClauseKind::Add => "get",
    }
}

fn kind_of(literal: Literal, info: &EnvInfo) -> Option<PredicateKind> {
    info.predicates.get(usize::from(literal.predicate)).map(|predicate| predicate.kind)
}

/// A predicate's name without its namespace.
fn bare(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, bare)| bare)
}

/// Writes contract, tag and the five parts into a skill's row.
pub fn describe(row: &mut Skill, contract: &Contract, tag: Option<Tag>, records: &[&Record], base: &Base, config: &Config, info: &EnvInfo) {
    row.tag = tag.map_or(String::new(), |tag| tag.as_str().to_owned());
    row.adds = names(contract.adds, info);
    row.deletes = names(contract.deletes, info);
    row.events = names(contract.events, info);
    let conditions = preconditions(records, base);
    row.preconditions = conditions.iter().map(|predicate| predicate_name(*predicate, info)).collect();
    row.summary = summary(contract, tag, info);
    row.plan = plan(contract, tag, &row.preconditions, info);
    row.success = contract.spell(info);
    row.abort = abort(contract, records, &conditions, config, info);
}

/// As [`describe`], for a skill that is already there.
pub fn describe_entry(entry: &mut Entry, records: &[&Record], base: &Base, config: &Config, info: &EnvInfo) {
    let tag = crate::maintain_bank::cluster::commonest_tag(records).or_else(|| Tag::parse(&entry.row.tag));
    describe(&mut entry.row, &entry.contract, tag, records, base, config, info);
}

fn names(set: PredicateSet, info: &EnvInfo) -> Vec<String> {
    info.names(set).into_iter().map(str::to_owned).collect()
}

fn predicate_name(predicate: usize, info: &EnvInfo) -> String {
    info.predicates.get(predicate).map_or(String::new(), |predicate| predicate.name.to_owned())
}

/// Predicates that hold at the start of most instances and clearly more often than at the start of any segment: those with the largest
/// difference, in the order of the predicates.
pub fn preconditions(records: &[&Record], base: &Base) -> Vec<usize> {
    let (total, starts) = count(records.iter().map(|record| record.effect.preconditions));
    let lift = |predicate: usize| share(starts[predicate], total) - share(base.starts[predicate], base.segments);
    let mut found: Vec<usize> = (0..128)
        .filter(|&predicate| share(starts[predicate], total) >= PRECONDITION_SHARE && lift(predicate) >= PRECONDITION_LIFT)
        .collect();
    found.sort_by(|&a, &b| lift(b).total_cmp(&lift(a)));
    found.truncate(MOST);
    found.sort_unstable();
    found
}

fn summary(contract: &Contract, tag: Option<Tag>, info: &EnvInfo) -> String {
    let effects: Vec<String> = contract.literals().map(|literal| in_words(literal, info)).collect();
    format!("{}: {}.", intent(tag), effects.join("; "))
}

/// What a literal says, in words.
fn in_words(literal: Literal, info: &EnvInfo) -> String {
    let about = info.predicates.get(usize::from(literal.predicate)).map_or("", |predicate| predicate.about);
    let about = about.trim().trim_end_matches('.');
    let mut letters = about.chars();
    let about = letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect());
    match literal.kind {
        ClauseKind::Add => format!("{about} afterwards"),
        ClauseKind::Delete => format!("it is no longer so that {about}"),
        ClauseKind::Event => format!("on the way, {about}"),
    }
}

/// What a tag is about and how it is gone about, in words.
fn intent(tag: Option<Tag>) -> &'static str {
    match tag {
        Some(Tag::Setup) => "Arrange things for a later gain",
        Some(Tag::Clear) => "Remove what is in the way",
        Some(Tag::Merge) => "Join pieces",
        Some(Tag::Attack) => "Act against an opponent",
        Some(Tag::Defend) => "Protect what is held",
        Some(Tag::Navigate) => "Move on",
        Some(Tag::Position) => "Bring a piece to its place",
        Some(Tag::Collect) => "Take what lies about",
        Some(Tag::Build) => "Grow a structure",
        Some(Tag::Survive) => "Stay in the game",
        Some(Tag::Optimize) => "Improve the order that stands",
        Some(Tag::Explore) => "Find out something new",
        Some(Tag::Execute) => "Carry out what was prepared",
        None => "Bring about a change",
    }
}

/// The step that a tag begins with.
fn first_step(tag: Option<Tag>) -> &'static str {
    match tag {
        Some(Tag::Setup) => "Choose actions that keep later gains open",
        Some(Tag::Clear) => "Choose actions that remove obstacles",
        Some(Tag::Merge) => "Choose actions that bring equal pieces together",
        Some(Tag::Attack) => "Choose actions that weaken the opponent",
        Some(Tag::Defend) => "Choose actions that keep what is held",
        Some(Tag::Navigate) => "Choose actions that lead towards the goal",
        Some(Tag::Position) => "Choose actions that move the piece to its place",
        Some(Tag::Collect) => "Choose actions that pick something up",
        Some(Tag::Build) => "Choose actions that add to the structure",
        Some(Tag::Survive) => "Choose actions that avoid the end",
        Some(Tag::Optimize) => "Choose actions that tidy up",
        Some(Tag::Explore) => "Choose actions that show something new",
        Some(Tag::Execute) => "Choose actions that cash in",
        None => "Choose actions with the effects below",
    }
}

/// Two to five steps.
fn plan(contract: &Contract, tag: Option<Tag>, preconditions: &[String], info: &EnvInfo) -> Vec<String> {
    let mut steps = Vec::new();
    if !preconditions.is_empty() {
        steps.push(format!("Start when {}", preconditions.join(" and ")));
    }
    steps.push(first_step(tag).to_owned());
    let list = |kind: ClauseKind| -> Vec<&str> {
        contract.literals().filter(|literal| literal.kind == kind).map(|literal| bare(literal.name(info))).collect()
    };
    let (events, adds, deletes) = (list(ClauseKind::Event), list(ClauseKind::Add), list(ClauseKind::Delete));
    if !events.is_empty() {
        steps.push(format!("On the way, bring about {}", events.join(", ")));
    }
    if !adds.is_empty() {
        steps.push(format!("Go on until {}", adds.join(" and ")));
    }
    if !deletes.is_empty() {
        steps.push(format!("See that it ends: {}", deletes.join(", ")));
    }
    steps
}

/// When to give up: predicates that marked failed instances; else a known danger of the game; else the loss of what the skill starts from.
fn abort(contract: &Contract, records: &[&Record], preconditions: &[usize], config: &Config, info: &EnvInfo) -> Vec<String> {
    let mut found = failure_marks(contract, records, config);
    let literal = |kind, predicate: usize| Literal { kind, predicate: predicate as u8 };
    if found.is_empty() {
        let dangers = config.dangers(info).minus(contract.adds);
        found.extend(dangers.iter().take(1).map(|danger| literal(ClauseKind::Add, danger)));
    }
    if found.is_empty() {
        let lost = preconditions.iter().map(|&predicate| literal(ClauseKind::Delete, predicate));
        found.extend(lost.filter(|lost| !contract.contains(*lost)).take(1));
    }
    found.into_iter().map(|literal| literal.spell(info)).collect()
}

fn failure_marks(contract: &Contract, records: &[&Record], config: &Config) -> Vec<Literal> {
    let (passed, failed): (Vec<&Record>, Vec<&Record>) =
        records.iter().copied().partition(|record| passes_one(&record.effect, contract, &config.contract));
    let (failures, failure_ends) = count(failed.iter().map(|record| record.effect.end));
    let (successes, success_ends) = count(passed.iter().map(|record| record.effect.end));
    if failures < ABORT_INSTANCES {
        return Vec::new();
    }
    let lift = |predicate: usize| share(failure_ends[predicate], failures) - share(success_ends[predicate], successes);
    let mut marks: Vec<usize> = (0..128).filter(|&predicate| lift(predicate) >= ABORT_LIFT && !contract.adds.contains(predicate)).collect();
    marks.sort_by(|&a, &b| lift(b).total_cmp(&lift(a)));
    marks.truncate(MOST);
    marks.sort_unstable();
    marks.into_iter().map(|predicate| Literal { kind: ClauseKind::Add, predicate: predicate as u8 }).collect()
}
