//! Contract learning as differential collections: counts of clauses over labelled segments, kept up to date as segments are added,
//! relabelled or withdrawn. The result equals [`learn_contract`](crate::learn_contracts::learn_contract) on the same instances.
//!
//! What a changed segment costs does not grow with what is stored: counts change by one, the first supporting segments are kept in three
//! tiers of buckets, and held-out segments are verified anew only for a skill whose contract has changed.

use crate::contract::{ClauseKind, Contract, Effect, Literal};
use crate::dataflow::batch::Batch;
use crate::learn_contracts::{Config, EVIDENCE, Instance, Learned, LiteralCount, clauses, environment, passes_one, select};
use crate::operator::{NodeContext, OperatorError};
use crate::registry::configuration;
use cosplay_datasets::tables::{Clause, Segment};
use cosplay_datasets::{SegmentId, SkillId};
use cosplay_envs::EnvInfo;
use differential_dataflow::operators::CountTotal;
use differential_dataflow::{AsCollection, VecCollection};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use timely::container::{CapacityContainerBuilder, NoopBuilder};
use timely::dataflow::Stream;
use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::operators::{Capability, Concat as _, Operator as _};

/// Segments per bucket of the first tier: 64 episodes, as a segment's id is its episode's times 1,000.
const FIRST_TIER: u64 = 64_000;
/// Segments per bucket of the second tier: 4,096 episodes.
const SECOND_TIER: u64 = 64 * FIRST_TIER;

/// What is counted of a skill's instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Counted {
    /// Learning instances.
    Instances,
    /// Held-out instances.
    Holdout,
    /// Learning instances in which the literal occurs.
    Support(Literal),
    /// Held-out instances in which the literal occurs.
    HoldoutSupport(Literal),
    /// Held-out instances after which the predicate is true.
    HoldoutEnd(u8),
}

/// A piece of what is known of a skill.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Part {
    /// A count.
    Count(Counted, u32),
    /// A learning instance that belongs to the first ones in which the literal occurs.
    Evidence(Literal, SegmentId),
    /// Held-out instances that pass.
    Passes(u32),
}

type Segments<'s> = VecCollection<'s, u64, (SkillId, Instance), isize>;
type Parts<'s> = VecCollection<'s, u64, (SkillId, Part), isize>;

/// Counts over the labelled segments: (skill, [`Part::Count`]).
pub fn clause_counts<'s>(segments: Segments<'s>) -> Parts<'s> {
    segments
        .flat_map(|(skill, instance)| counted(&instance).into_iter().map(move |counted| (skill, counted)))
        .count_total()
        .map(|((skill, counted), count)| (skill, Part::Count(counted, whole(count))))
}

fn counted(instance: &Instance) -> Vec<Counted> {
    let effect = &instance.effect;
    let mut counted = vec![if instance.holdout { Counted::Holdout } else { Counted::Instances }];
    if instance.holdout {
        counted.extend(effect.occurred().literals().map(Counted::HoldoutSupport));
        counted.extend(effect.end.iter().map(|predicate| Counted::HoldoutEnd(predicate as u8)));
    } else {
        counted.extend(effect.occurred().literals().map(Counted::Support));
    }
    counted
}

/// A multiplicity as a count. Evidence is never withdrawn more often than it was given, so that counts are not negative.
fn whole(count: isize) -> u32 {
    u32::try_from(count).unwrap_or(0)
}

/// The first [`EVIDENCE`] learning instances of each (skill, literal): (skill, [`Part::Evidence`]).
fn first_evidence<'s>(segments: Segments<'s>) -> Parts<'s> {
    let supporting = segments.filter(|(_, instance)| !instance.holdout).flat_map(|(skill, instance)| {
        let segment = instance.segment;
        instance.effect.occurred().literals().collect::<Vec<_>>().into_iter().map(move |literal| ((skill, literal), segment))
    });
    let first = first_of_each_bucket(supporting, FIRST_TIER);
    let second = first_of_each_bucket(first, SECOND_TIER);
    first_of_each_bucket(second, u64::MAX).map(|((skill, literal), segment)| (skill, Part::Evidence(literal, segment)))
}

type Supporting<'s> = VecCollection<'s, u64, ((SkillId, Literal), SegmentId), isize>;

fn first_of_each_bucket<'s>(supporting: Supporting<'s>, size: u64) -> Supporting<'s> {
    supporting
        .map(move |(key, segment)| ((key, segment.0 / size), segment))
        .reduce_named("FirstEvidence", |_, segments, first| {
            // The values come in order.
            first.extend(segments.iter().filter(|(_, count)| *count > 0).take(EVIDENCE).map(|(segment, _)| (**segment, 1)));
        })
        .map(|((key, _), segment)| (key, segment))
}

/// Everything that is known of each skill that has evidence.
pub fn learned<'s>(segments: Segments<'s>, config: &Config) -> VecCollection<'s, u64, (SkillId, Learned), isize> {
    let counts = clause_counts(segments.clone());
    let evidence = first_evidence(segments.clone());
    let rules = config.clone();
    let contracts = counts.clone().reduce_named("Select", move |_, parts, contracts| {
        let contract = select(&assemble(parts.iter().map(|(part, _)| *part)), &rules);
        contracts.push((contract, 1));
    });
    let passes = passing(segments, contracts, config);
    let rules = config.clone();
    counts.concat(evidence).concat(passes).reduce_named("Learned", move |_, parts, skills| {
        let mut learned = assemble(parts.iter().map(|(part, _)| *part));
        learned.contract = select(&learned, &rules);
        skills.push((learned, 1));
    })
}

/// Verifies the contracts: (skill, [`Part::Passes`]), for skills of which some held-out instance passes.
fn passing<'s>(segments: Segments<'s>, contracts: VecCollection<'s, u64, (SkillId, Contract), isize>, config: &Config) -> Parts<'s> {
    let config = config.clone();
    segments
        .filter(|(_, instance)| instance.holdout)
        // Instances that end alike are verified once.
        .map(|(skill, Instance { effect, .. })| (skill, (effect.end, effect.events)))
        .join_map(contracts, move |&skill, &(end, events), contract| {
            let effect = Effect { end, events, ..Effect::default() };
            (skill, passes_one(&effect, contract, &config))
        })
        .filter(|(_, passes)| *passes)
        .count_total()
        .map(|((skill, _), count)| (skill, Part::Passes(whole(count))))
}

/// Puts the parts of a skill together, apart from its contract. Parts come in order, so that evidence does.
fn assemble<'a>(parts: impl Iterator<Item = &'a Part>) -> Learned {
    let mut learned = Learned::default();
    let mut counts: BTreeMap<Literal, LiteralCount> = BTreeMap::new();
    let mut ends: BTreeMap<u8, u32> = BTreeMap::new();
    for part in parts {
        match part {
            Part::Count(Counted::Instances, count) => learned.instances = *count,
            Part::Count(Counted::Holdout, count) => learned.holdout_instances = *count,
            Part::Count(Counted::HoldoutEnd(predicate), count) => {
                ends.insert(*predicate, *count);
            }
            Part::Count(Counted::Support(literal), count) => entry(&mut counts, *literal).support = *count,
            Part::Count(Counted::HoldoutSupport(literal), count) => entry(&mut counts, *literal).holdout_support = *count,
            Part::Evidence(literal, segment) => entry(&mut counts, *literal).evidence.push(*segment),
            Part::Passes(count) => learned.passes = *count,
        }
    }
    learned.counts = counts.into_values().map(|count| verified(count, &ends, learned.holdout_instances)).collect();
    learned
}

fn entry(counts: &mut BTreeMap<Literal, LiteralCount>, literal: Literal) -> &mut LiteralCount {
    counts.entry(literal).or_insert_with(|| LiteralCount::none(literal))
}

/// Adds the number of held-out instances on which the literal holds.
fn verified(count: LiteralCount, ends: &BTreeMap<u8, u32>, holdout_instances: u32) -> LiteralCount {
    let end = ends.get(&count.literal.predicate).copied().unwrap_or(0);
    let holdout_holds = match count.literal.kind {
        ClauseKind::Add => end,
        ClauseKind::Delete => holdout_instances.saturating_sub(end),
        ClauseKind::Event => count.holdout_support,
    };
    LiteralCount { holdout_holds, ..count }
}

type Update = ((SkillId, Instance), u64, isize);

/// Turns the stream of labelled segments into what changes in the clauses of the skills, as batches of the table `contracts` on the first
/// worker. The history of a resumed run may come in one go; what the changes add up to is the same.
///
/// The rows of a change carry the timestamp in front of their `effect`, so that [`changes`] finds the latest one of a skill when several
/// come at once. A batch of segments that cannot be read is passed on as it is: the operator that gets it reports why.
///
/// # Errors
/// [`OperatorError::Config`], or [`OperatorError::Env`] if the environment does not exist.
pub fn prepare<'s>(
    _port: &str,
    stream: Stream<'s, u64, Batch>,
    context: &NodeContext,
    config: &Value,
) -> Result<Stream<'s, u64, Batch>, OperatorError> {
    let config: Config = configuration("learn_contracts", config)?;
    let info = environment(context)?;
    let (updates, unreadable) = labelled(stream, info.clone());
    let changes = emit(learned(updates.as_collection(), &config).inner, config, info);
    Ok(changes.concat(unreadable))
}

/// Reads batches of segments as updates of the collection of labelled segments, and passes on those that cannot be read.
fn labelled<'s>(stream: Stream<'s, u64, Batch>, info: EnvInfo) -> (Stream<'s, u64, Vec<Update>>, Stream<'s, u64, Batch>) {
    let mut builder = OperatorBuilder::new("LabelledSegments".to_owned(), stream.scope());
    let mut input = builder.new_input(stream, Pipeline);
    let (updates, updates_stream) = builder.new_output::<Vec<Update>>();
    let mut updates = OutputBuilder::<u64, CapacityContainerBuilder<Vec<Update>>>::from(updates);
    let (unreadable, unreadable_stream) = builder.new_output::<Batch>();
    let mut unreadable = OutputBuilder::<u64, NoopBuilder<Batch>>::from(unreadable);
    builder.build(move |capabilities| {
        drop(capabilities);
        move |_frontiers| {
            let (mut updates, mut unreadable) = (updates.activate(), unreadable.activate());
            input.for_each(|capability, batch| {
                let Some(&time) = capability.least() else { return };
                match read(batch, time, &info) {
                    Ok(read) => updates.session(&capability).give_iterator(read.into_iter()),
                    Err(_) => unreadable.session_with_builder(&capability).give_container(batch),
                }
            });
        }
    });
    (updates_stream, unreadable_stream)
}

fn read(batch: &Batch, time: u64, info: &EnvInfo) -> Result<Vec<Update>, OperatorError> {
    let mut updates = Vec::new();
    for segment in batch.rows::<Segment>()? {
        updates.extend(segment_updates(&segment, info)?.into_iter().map(|(data, count)| (data, time, count)));
    }
    Ok(updates)
}

/// What a row of the table `segments` changes in the collection of labelled segments: a relabelled one withdraws its earlier label, and a
/// segment without a skill (NEW) is no evidence.
///
/// # Errors
/// As [`Instance::from_segment`].
pub fn segment_updates(segment: &Segment, info: &EnvInfo) -> Result<Vec<Labelling>, OperatorError> {
    let instance = Instance::from_segment(segment, info)?;
    let previous = if segment.relabelled { segment.previous } else { None };
    let withdrawn = previous.map(|skill| ((skill, instance), -1));
    let given = segment.skill.map(|skill| ((skill, instance), 1));
    Ok(withdrawn.into_iter().chain(given).collect())
}

/// A labelled segment that is added to or taken from the collection.
type Labelling = ((SkillId, Instance), isize);

type Change = ((SkillId, Learned), u64, isize);

/// Changes of a timestamp that is still open.
type Pending = (Capability<u64>, BTreeMap<(SkillId, Learned), isize>);

/// Collects the changes of a timestamp on the first worker and, when they are complete, sends them out as one batch.
fn emit<'s>(changes: Stream<'s, u64, Vec<Change>>, config: Config, info: EnvInfo) -> Stream<'s, u64, Batch> {
    let to_first = Exchange::new(|_: &Change| 0);
    changes.unary_frontier::<NoopBuilder<Batch>, _, _, _>(to_first, "ClauseChanges", move |capability, _| {
        drop(capability);
        let mut pending: BTreeMap<u64, Pending> = BTreeMap::new();
        move |(input, frontier), output| {
            input.for_each(|capability, changes| {
                let Some(capability) = capability.retain_least(0) else { return };
                for (data, time, count) in changes.drain(..) {
                    let (_, sums) = pending.entry(time).or_insert_with(|| (capability.delayed(&time), BTreeMap::new()));
                    *sums.entry(data).or_insert(0) += count;
                }
            });
            while let Some(complete) = pending.first_entry().filter(|entry| !frontier.less_equal(entry.key())) {
                let (time, (capability, sums)) = complete.remove_entry();
                let rows = change_rows(time, sums, &config, &info);
                if !rows.is_empty() {
                    output.session_with_builder(&capability).give_container(&mut change_batch(&rows));
                }
            }
        }
    })
}

#[expect(clippy::expect_used, reason = "a few thousand short rows always fit an Arrow batch")]
fn change_batch(rows: &[Clause]) -> Batch {
    Batch::from_rows(rows).expect("rows of clauses as an Arrow batch")
}

/// The rows that tell of changed skills: a header for each, with its number of learning instances, and its clauses.
fn change_rows(time: u64, sums: BTreeMap<(SkillId, Learned), isize>, config: &Config, info: &EnvInfo) -> Vec<Clause> {
    let mut skills: BTreeMap<SkillId, Option<Learned>> = BTreeMap::new();
    for ((skill, learned), count) in sums.into_iter().filter(|(_, count)| *count != 0) {
        let new = skills.entry(skill).or_default();
        if count > 0 {
            *new = Some(learned);
        }
    }
    let mut rows = Vec::new();
    for (skill, learned) in skills {
        let effect = format!("{time}/");
        rows.push(Clause { skill, effect: effect.clone(), accepted: learned.is_some(), ..Clause::default() });
        for clause in learned.iter().flat_map(|learned| clauses(skill, learned, config, info)) {
            rows.push(Clause { effect: format!("{effect}{}", clause.effect), ..clause });
        }
    }
    rows
}

/// Reads the batches of [`prepare`]: the clauses of each changed skill, or none if it has lost all its evidence.
///
/// # Errors
/// [`OperatorError::Other`] if the rows are of another origin.
pub fn changes(rows: Vec<Clause>) -> Result<BTreeMap<SkillId, Option<Vec<Clause>>>, OperatorError> {
    let mut latest: BTreeMap<SkillId, (u64, Option<Vec<Clause>>)> = BTreeMap::new();
    let mut parsed = Vec::with_capacity(rows.len());
    for mut row in rows {
        let stamped = row.effect.split_once('/').and_then(|(time, effect)| Some((time.parse::<u64>().ok()?, effect.to_owned())));
        let Some((time, effect)) = stamped else {
            return Err(OperatorError::Other(format!("a change of skill {} carries no timestamp: `{}`", row.skill, row.effect)));
        };
        row.effect = effect;
        parsed.push((time, row));
    }
    for (time, header) in parsed.iter().filter(|(_, row)| row.effect.is_empty()) {
        if latest.get(&header.skill).is_none_or(|(known, _)| known < time) {
            latest.insert(header.skill, (*time, header.accepted.then(Vec::new)));
        }
    }
    for (time, row) in parsed.into_iter().filter(|(_, row)| !row.effect.is_empty()) {
        if let Some((_, Some(clauses))) = latest.get_mut(&row.skill).filter(|(known, _)| *known == time) {
            clauses.push(row);
        }
    }
    Ok(latest.into_iter().map(|(skill, (_, clauses))| (skill, clauses)).collect())
}

#[cfg(test)]
mod tests;
