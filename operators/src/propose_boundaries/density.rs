//! From triggers to candidates: merging what lies close together, and bounds on the number of candidates.

use super::{Config, Signal, Trigger};
use cosplay_datasets::SegmentId;
use std::collections::BTreeMap;

/// A place where a boundary may lie.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    /// Position of the first experience after the boundary.
    pub(super) at: usize,
    /// Sum of weight times strength over the signals.
    pub(super) score: f64,
    /// Strongest trigger of each signal that was merged into it.
    pub(super) strengths: BTreeMap<Signal, f64>,
}

impl Candidate {
    fn new(at: usize, strengths: BTreeMap<Signal, f64>, config: &Config) -> Self {
        let score = strengths.iter().map(|(signal, strength)| signal.weight(config) * strength).sum();
        Self { at, score, strengths }
    }
}

/// Candidates of an episode of `length` steps, sorted by position: merged triggers, filled up to the least number and cut down to the
/// largest.
pub(super) fn candidates(triggers: &[Trigger], length: usize, config: &Config) -> Vec<Candidate> {
    let radius = (config.merge_radius as usize).min((length / 8).max(1));
    let mut merged = merge(triggers, radius, config);
    let least = least_number(length, config);
    if merged.len() < least {
        // Where the two meet, real evidence wins: a fall-back cut is the weakest trigger and is merged into its neighbour.
        let mut all = triggers.to_vec();
        all.extend(uniform_positions(length, least).map(|at| Trigger { at, signal: Signal::Uniform, strength: 1.0 }));
        merged = merge(&all, radius, config);
    }
    let most = (length / config.shortest_mean_segment.max(1) as usize).max(least).min(MOST_CUTS);
    keep_strongest(&mut merged, most);
    merged
}

/// As many cuts as there can be between the segments of one episode.
const MOST_CUTS: usize = SegmentId::PER_EPISODE as usize - 1;

/// Merges triggers: the strongest place is taken first and absorbs all within `radius`, then the strongest of the rest, and so on. Of
/// equally strong places the earlier comes first.
fn merge(triggers: &[Trigger], radius: usize, config: &Config) -> Vec<Candidate> {
    let mut places: BTreeMap<usize, BTreeMap<Signal, f64>> = BTreeMap::new();
    for trigger in triggers {
        let strength = places.entry(trigger.at).or_default().entry(trigger.signal).or_insert(0.0);
        *strength = strength.max(trigger.strength);
    }
    let mut ranked: Vec<Candidate> = places.iter().map(|(&at, strengths)| Candidate::new(at, strengths.clone(), config)).collect();
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.at.cmp(&b.at)));

    let mut merged = Vec::new();
    for candidate in ranked {
        // Absorbed by a stronger place already.
        if !places.contains_key(&candidate.at) {
            continue;
        }
        let near = candidate.at.saturating_sub(radius)..=candidate.at.saturating_add(radius);
        let absorbed: Vec<usize> = places.range(near).map(|(&at, _)| at).collect();
        let mut strengths: BTreeMap<Signal, f64> = BTreeMap::new();
        for at in absorbed {
            for (signal, strength) in places.remove(&at).into_iter().flatten() {
                let strongest = strengths.entry(signal).or_insert(0.0);
                *strongest = strongest.max(strength);
            }
        }
        merged.push(Candidate::new(candidate.at, strengths, config));
    }
    merged.sort_by_key(|candidate| candidate.at);
    merged
}

/// Least number of candidates: segments of a twelfth of the episode, but not shorter than the fall-back length (published: 5), and at
/// least one cut where there is room for one.
fn least_number(length: usize, config: &Config) -> usize {
    if length < 3 {
        return 0;
    }
    let target = (config.fallback_segment.max(1) as usize).max(length / 12);
    (length / target).saturating_sub(1).max(1)
}

/// Evenly spaced positions k·T / (n + 1), rounded, within 1 to T − 2.
fn uniform_positions(length: usize, number: usize) -> impl Iterator<Item = usize> {
    (1..=number).map(move |k| {
        let position = (k as f64 * length as f64 / (number + 1) as f64).round_ties_even() as usize;
        position.clamp(1, length.saturating_sub(2).max(1))
    })
}

/// Keeps the `most` candidates with the highest scores, in order of position; of equal scores the earlier.
fn keep_strongest(candidates: &mut Vec<Candidate>, most: usize) {
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.at.cmp(&b.at)));
    candidates.truncate(most);
    candidates.sort_by_key(|candidate| candidate.at);
}
