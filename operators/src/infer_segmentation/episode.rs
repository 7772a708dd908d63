//! Segmentation of one episode.

use super::labels::{Labels, Stretch};
use super::{Config, is_held_out};
use crate::contract::Effect;
use crate::operator::OperatorError;
use crate::viterbi::{Path, Piece, Problem, decode};
use cosplay_datasets::tables::{Cut, Experience, Segment};
use cosplay_datasets::{SegmentId, SkillId};
use cosplay_envs::{PredicateSet, Tag};
use std::collections::{BTreeMap, BTreeSet};

/// Number of ids that an episode's segments can have.
const MOST_SEGMENTS: usize = SegmentId::PER_EPISODE as usize;

/// What the candidate boundaries of an episode make of it. Boundaries are positions in the episode's rows; the first is 0, the last the
/// number of rows.
struct Outline {
    boundaries: Vec<u32>,
    /// Plausibility of each boundary, 0 to 1.
    plausibility: Vec<f64>,
    /// Predicates before the experience that follows each boundary.
    before: Vec<PredicateSet>,
    /// Predicates after the experience that precedes each boundary.
    after: Vec<PredicateSet>,
    /// Events between each boundary and the next.
    events: Vec<PredicateSet>,
    /// Number of steps before each boundary by tag.
    tags: Vec<[u32; 13]>,
    /// Whether intentions tell anything.
    intentions: bool,
}

/// Segments of an episode whose rows are sorted by time.
pub(super) fn segment(rows: &[&Experience], cuts: &[&Cut], labels: &Labels, config: &Config) -> Result<Vec<Segment>, OperatorError> {
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let outline = Outline::new(rows, cuts, labels, config);
    let path = best_path(&outline, labels, config)
        .ok_or_else(|| OperatorError::Other(format!("episode {}: no segmentation has a finite score", first.episode)))?;
    if path.pieces.len() > MOST_SEGMENTS {
        let count = path.pieces.len();
        return Err(OperatorError::Other(format!(
            "episode {} of {} steps falls into {count} segments, but has ids for {MOST_SEGMENTS}; raise `shortest_segment`",
            first.episode,
            rows.len()
        )));
    }
    let pieces = path.pieces.iter().enumerate();
    Ok(pieces.filter_map(|(ordinal, piece)| describe(rows, &outline, piece, ordinal as u32, labels, config)).collect())
}

/// Best cuts and labels. Where the limits on lengths leave no way through the cuts, the lower one is given up.
fn best_path(outline: &Outline, labels: &Labels, config: &Config) -> Option<Path> {
    let attempt = |shortest| {
        let problem = Problem { boundaries: &outline.boundaries, labels: labels.len(), shortest, longest: config.longest_segment };
        let local = |start: usize, end: usize, scores: &mut [f64]| outline.score(start, end, labels, config, scores);
        decode(problem, local, |_, _| -config.transition_cost)
    };
    attempt(config.shortest_segment).or_else(|| attempt(1))
}

impl Outline {
    fn new(rows: &[&Experience], cuts: &[&Cut], labels: &Labels, config: &Config) -> Self {
        let (boundaries, plausibility) = boundaries(rows, cuts);
        let mut outline = Self {
            before: boundaries.iter().map(|&at| rows.get(at as usize).map(|row| labels.set(&row.predicates)).unwrap_or_default()).collect(),
            after: boundaries
                .iter()
                .map(|&at| (at as usize).checked_sub(1).and_then(|at| rows.get(at)))
                .map(|row| row.map(|row| labels.set(&row.next_predicates)).unwrap_or_default())
                .collect(),
            events: Vec::new(),
            tags: vec![[0; 13]],
            intentions: false,
            plausibility,
            boundaries,
        };
        let mut counts = [0; 13];
        for pair in outline.boundaries.windows(2) {
            let stretch = &rows[pair[0] as usize..pair[1] as usize];
            outline.events.push(labels.set(stretch.iter().flat_map(|row| &row.events)));
            for tag in stretch.iter().filter_map(|row| Tag::parse(&row.intention_tag)) {
                counts[tag as usize] += 1;
            }
            outline.tags.push(counts);
        }
        let most = counts.into_iter().max().unwrap_or(0);
        outline.intentions = most > 0 && f64::from(most) <= config.uniform_tag * rows.len() as f64;
        outline
    }

    fn score(&self, start: usize, end: usize, labels: &Labels, config: &Config, scores: &mut [f64]) {
        let events = self.events[start..end].iter().fold(PredicateSet::EMPTY, |all, &events| all.union(events));
        let tags: [u32; 13] = std::array::from_fn(|tag| self.tags[end][tag] - self.tags[start][tag]);
        let stretch = Stretch {
            effect: Effect::between(self.before[start], self.after[end], events),
            length: f64::from(self.boundaries[end] - self.boundaries[start]),
            plausibility: (self.plausibility[start] + self.plausibility[end]) / 2.0,
            tags: self.intentions.then_some(&tags),
        };
        labels.score(&stretch, config, scores);
    }

    /// Dominant tag of a stretch, the first in canonical order of equally frequent ones; empty if no step has one.
    fn tag(&self, start: usize, end: usize) -> &'static str {
        let counted = Tag::all().into_iter().map(|tag| (self.tags[end][tag as usize] - self.tags[start][tag as usize], tag));
        counted.rev().max_by_key(|&(count, _)| count).filter(|&(count, _)| count > 0).map_or("", |(_, tag)| tag.as_str())
    }
}

/// Boundaries of an episode with their plausibility: its ends, and the cuts that lie within it. A cut's score s counts as s / (s + 1), so
/// that no heap of signals can buy a boundary on its own.
fn boundaries(rows: &[&Experience], cuts: &[&Cut]) -> (Vec<u32>, Vec<f64>) {
    let mut inner: Vec<(u32, f64)> = cuts
        .iter()
        .filter_map(|cut| rows.binary_search_by_key(&cut.t, |row| row.t).ok().map(|at| (at as u32, cut.score)))
        .filter(|&(at, _)| at > 0)
        .map(|(at, score)| (at, if score > 0.0 && score.is_finite() { score / (score + 1.0) } else { 0.0 }))
        .collect();
    inner.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
    inner.dedup_by_key(|(at, _)| *at);
    let ends = |at: usize| std::iter::once((at as u32, 1.0));
    ends(0).chain(inner).chain(ends(rows.len())).unzip()
}

/// The skill that was active in most steps; of equally frequent ones none first, then the lowest.
fn played(steps: &[&Experience]) -> Option<SkillId> {
    let mut counts: BTreeMap<Option<SkillId>, usize> = BTreeMap::new();
    for step in steps {
        *counts.entry(step.skill).or_default() += 1;
    }
    counts.into_iter().rev().max_by_key(|&(_, count)| count).and_then(|(skill, _)| skill)
}

/// The row of a segment.
fn describe(rows: &[&Experience], outline: &Outline, piece: &Piece, ordinal: u32, labels: &Labels, config: &Config) -> Option<Segment> {
    let span = outline.boundaries[piece.start] as usize..outline.boundaries[piece.end] as usize;
    let steps = rows.get(span.clone())?;
    let (first, last) = (steps.first()?, steps.last()?);
    let segment = SegmentId::new(first.episode, ordinal);
    let ordered = |names: BTreeSet<&String>| {
        let mut names: Vec<&String> = names.into_iter().collect();
        // Names that the environment does not know (foreign rollouts) come last, by name.
        names.sort_by_key(|name| labels.predicate(name).unwrap_or(usize::MAX));
        names.into_iter().cloned().collect::<Vec<String>>()
    };
    let before: BTreeSet<&String> = first.predicates.iter().collect();
    let after: BTreeSet<&String> = last.next_predicates.iter().collect();
    Some(Segment {
        segment,
        episode: first.episode,
        start: first.t,
        end: rows.get(span.end).map_or(last.t + 1, |next| next.t),
        skill: labels.skill(piece.label),
        relabelled: false,
        previous: None,
        played: played(steps),
        tag: outline.tag(piece.start, piece.end).to_owned(),
        added: ordered(after.difference(&before).copied().collect()),
        deleted: ordered(before.difference(&after).copied().collect()),
        preconditions: ordered(before),
        events: ordered(steps.iter().flat_map(|row| &row.events).collect()),
        ret: steps.iter().map(|row| row.reward).sum(),
        score: piece.score,
        margin: piece.margin,
        runner_up: piece.runner_up.and_then(|label| labels.skill(label)),
        holdout: is_held_out(segment, config.holdout),
    })
}
