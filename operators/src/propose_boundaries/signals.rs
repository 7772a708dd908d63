//! The signals: each looks at one episode and returns triggers. Positions are indices into the episode's rows, from 1 to length − 1.

use super::Config;
use cosplay_datasets::tables::Experience;
use cosplay_envs::Tag;
use std::collections::{BTreeMap, BTreeSet};

/// What speaks for a boundary. The order is that of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Change point of the predicate vector.
    ChangePoint,
    /// Event of the environment in the step before.
    Event,
    /// Shift of the intention tag.
    Intention,
    /// Predicates that became true or false.
    Predicate,
    /// Reward spike in the step before.
    Reward,
    /// Surprising action.
    Surprisal,
    /// The agent's active skill changed.
    Switch,
    /// Evenly spaced cut for want of evidence.
    Uniform,
}

impl Signal {
    /// All signals, in order.
    pub const ALL: [Signal; 8] = [
        Signal::ChangePoint,
        Signal::Event,
        Signal::Intention,
        Signal::Predicate,
        Signal::Reward,
        Signal::Surprisal,
        Signal::Switch,
        Signal::Uniform,
    ];

    /// Name as written in the table `cuts`.
    pub fn name(self) -> &'static str {
        match self {
            Signal::ChangePoint => "change_point",
            Signal::Event => "event",
            Signal::Intention => "intention",
            Signal::Predicate => "predicate",
            Signal::Reward => "reward",
            Signal::Surprisal => "surprisal",
            Signal::Switch => "switch",
            Signal::Uniform => "uniform",
        }
    }

    /// Weight of the signal.
    pub(super) fn weight(self, config: &Config) -> f64 {
        let weights = &config.weights;
        match self {
            Signal::ChangePoint => weights.change_point,
            Signal::Event => weights.event,
            Signal::Intention => weights.intention,
            Signal::Predicate => weights.predicate,
            Signal::Reward => weights.reward,
            Signal::Surprisal => weights.surprisal,
            Signal::Switch => weights.switch,
            Signal::Uniform => weights.uniform,
        }
    }
}

/// One finding of one signal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trigger {
    /// Position of the first experience after the boundary.
    pub(super) at: usize,
    /// Who found it.
    pub(super) signal: Signal,
    /// Strength, above 0 and at most 1.
    pub(super) strength: f64,
}

/// Least strength of a trigger that fires at all: it still ranks above a place without evidence.
const FAINT: f64 = 0.1;

/// Triggers of all signals with a weight above 0.
pub(super) fn triggers(rows: &[&Experience], config: &Config) -> Vec<Trigger> {
    let mut found = Vec::new();
    if rows.len() < 2 {
        return found;
    }
    let flips = Flips::of(rows);
    predicate_changes(&flips, rows.len(), config, &mut found);
    change_points(&flips, config, &mut found);
    intention_shifts(rows, config, &mut found);
    events(rows, config, &mut found);
    reward_spikes(rows, config, &mut found);
    surprisal(rows, config, &mut found);
    skill_switches(rows, &mut found);
    found.retain(|trigger| trigger.signal.weight(config) > 0.0 && (1..rows.len()).contains(&trigger.at));
    found
}

/// How telling something is that happens `count` times in `chances` steps: 1 if hardly ever, falling to [`FAINT`] at the volatility
/// limit.
fn rarity(count: usize, chances: usize, config: &Config) -> f64 {
    let rate = count as f64 / chances.max(1) as f64;
    if config.volatility > 0.0 { (1.0 - rate / config.volatility).max(FAINT) } else { FAINT }
}

/// Which predicates differ between neighbouring rows.
struct Flips {
    /// Per position t ≥ 1, the predicates (by number) that hold in just one of the rows t − 1 and t.
    at: Vec<Vec<usize>>,
    /// Per position t ≥ 1, the Jaccard distance of the two predicate sets.
    distance: Vec<f64>,
    /// Per predicate, how often it flips. Predicates are numbered in the order of their names.
    counts: Vec<usize>,
}

impl Flips {
    fn of(rows: &[&Experience]) -> Self {
        let names: BTreeSet<&str> = rows.iter().flat_map(|row| &row.predicates).map(String::as_str).collect();
        let numbers: BTreeMap<&str, usize> = names.into_iter().enumerate().map(|(number, name)| (name, number)).collect();
        let held: Vec<Vec<usize>> = rows
            .iter()
            .map(|row| {
                let mut held: Vec<usize> = row.predicates.iter().filter_map(|name| numbers.get(name.as_str()).copied()).collect();
                held.sort_unstable();
                held.dedup();
                held
            })
            .collect();
        let mut flips = Self { at: vec![Vec::new()], distance: vec![0.0], counts: vec![0; numbers.len()] };
        for pair in held.windows(2) {
            if let [before, after] = pair {
                let differing = symmetric_difference(before, after);
                let union = (before.len() + after.len() + differing.len()) / 2;
                flips.distance.push(if union == 0 { 0.0 } else { differing.len() as f64 / union as f64 });
                for &number in &differing {
                    flips.counts[number] += 1;
                }
                flips.at.push(differing);
            }
        }
        flips
    }
}

/// Elements of exactly one of two sorted lists.
fn symmetric_difference(a: &[usize], b: &[usize]) -> Vec<usize> {
    let only = |here: &[usize], there: &[usize]| -> Vec<usize> {
        here.iter().copied().filter(|element| there.binary_search(element).is_err()).collect()
    };
    let mut differing = only(a, b);
    differing.extend(only(b, a));
    differing.sort_unstable();
    differing
}

/// Predicates that changed, except those that flip all the time. A change counts as much as its rarest predicate.
fn predicate_changes(flips: &Flips, length: usize, config: &Config, found: &mut Vec<Trigger>) {
    let chances = length - 1;
    let limit = (config.volatility * chances as f64).floor() as usize;
    let mut stable: Vec<bool> = flips.counts.iter().map(|&count| count > 0 && count <= limit).collect();
    if !stable.contains(&true) {
        let least = flips.counts.iter().enumerate().filter(|&(_, &count)| count > 0).min_by_key(|&(number, &count)| (count, number));
        if let Some((number, _)) = least {
            stable[number] = true;
        }
    }
    for (at, differing) in flips.at.iter().enumerate() {
        let strength = differing
            .iter()
            .filter(|&&number| stable[number])
            .map(|&number| rarity(flips.counts[number], chances, config))
            .fold(0.0, f64::max);
        if strength > 0.0 {
            found.push(Trigger { at, signal: Signal::Predicate, strength });
        }
    }
}

/// Local maxima of CUSUM over the distances of neighbouring predicate vectors: c_t = max(0, c_{t−1} + d_t − mean − drift). The mean is
/// taken off because in most games some predicates change in every step.
fn change_points(flips: &Flips, config: &Config, found: &mut Vec<Trigger>) {
    let Some(distances) = flips.distance.get(1..) else { return };
    let mean = distances.iter().sum::<f64>() / distances.len().max(1) as f64;
    let mut cumulated = vec![0.0];
    let mut sum = 0.0;
    for distance in distances {
        sum = f64::max(0.0, sum + distance - mean - config.change_point_drift);
        cumulated.push(sum);
    }
    let largest = cumulated.iter().copied().fold(0.0, f64::max);
    for at in local_maxima(&cumulated, config.change_point_radius as usize) {
        if cumulated[at] > 0.0 {
            found.push(Trigger { at, signal: Signal::ChangePoint, strength: (cumulated[at] / largest).max(FAINT) });
        }
    }
}

/// Positions whose value is the largest within `radius` on both sides; of equal values the first.
fn local_maxima(values: &[f64], radius: usize) -> Vec<usize> {
    (0..values.len())
        .filter(|&at| {
            let before = &values[at.saturating_sub(radius)..at];
            let after = &values[at + 1..values.len().min(at.saturating_add(radius).saturating_add(1))];
            before.iter().all(|&value| value < values[at]) && after.iter().all(|&value| value <= values[at])
        })
        .collect()
}

/// Shifts of the intention tag. Rows without a canonical tag are passed over, shifts too soon after the last one are ignored, and a shift that is
/// taken back at once counts less.
fn intention_shifts(rows: &[&Experience], config: &Config, found: &mut Vec<Trigger>) {
    let tagged: Vec<(usize, Tag)> =
        rows.iter().enumerate().filter_map(|(at, row)| Tag::parse(&row.intention_tag).map(|tag| (at, tag))).collect();
    let changed = tagged.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    let base = rarity(changed, tagged.len().saturating_sub(1), config);
    let mut last = 0;
    for (index, pair) in tagged.windows(2).enumerate() {
        let (before, (at, tag)) = (pair[0].1, pair[1]);
        if before == tag || at - last < config.intention_gap as usize {
            continue;
        }
        last = at;
        let taken_back = tagged.get(index + 2).is_some_and(|&(_, next)| next == before);
        let strength = base * if taken_back { 1.0 - config.ping_pong_penalty } else { 1.0 };
        found.push(Trigger { at, signal: Signal::Intention, strength: strength.max(FAINT) });
    }
}

/// Events: the boundary lies after the step in which they occur.
fn events(rows: &[&Experience], config: &Config, found: &mut Vec<Trigger>) {
    let mut times: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        for event in &row.events {
            times.entry(event).or_default().insert(at);
        }
    }
    for (_, occurred) in times {
        let strength = rarity(occurred.len(), rows.len(), config);
        found.extend(occurred.iter().map(|at| Trigger { at: at + 1, signal: Signal::Event, strength }));
    }
}

/// Rewards of at least mean + k standard deviations (population). In games that pay on most moves only the outstanding ones fire.
fn reward_spikes(rows: &[&Experience], config: &Config, found: &mut Vec<Trigger>) {
    let rewards: Vec<f64> = rows.iter().map(|row| row.reward).collect();
    let Some((mean, deviation)) = mean_and_deviation(&rewards) else { return };
    let threshold = mean + config.reward_deviations * deviation;
    found.extend(rewards.iter().enumerate().filter(|&(_, &reward)| reward >= threshold).map(|(at, _)| Trigger {
        at: at + 1,
        signal: Signal::Reward,
        strength: 1.0,
    }));
}

/// Surprising actions: spikes at full strength, other local maxima above the mean at up to half.
fn surprisal(rows: &[&Experience], config: &Config, found: &mut Vec<Trigger>) {
    let known: Vec<f64> = rows.iter().filter_map(|row| row.surprisal).filter(|value| value.is_finite()).collect();
    let Some((mean, deviation)) = mean_and_deviation(&known) else { return };
    let values: Vec<f64> = rows.iter().map(|row| row.surprisal.filter(|value| value.is_finite()).unwrap_or(mean)).collect();
    let spike = config.surprisal_deviations * deviation;
    let maxima: BTreeSet<usize> = local_maxima(&values, config.surprisal_radius as usize).into_iter().collect();
    for (at, value) in values.iter().enumerate() {
        let excess = value - mean;
        if excess > 0.0 && excess >= spike {
            found.push(Trigger { at, signal: Signal::Surprisal, strength: 1.0 });
        } else if excess > 0.0 && maxima.contains(&at) {
            found.push(Trigger { at, signal: Signal::Surprisal, strength: (0.5 * excess / spike).max(FAINT) });
        }
    }
}

/// Mean and population standard deviation; none for fewer than two values or if all are equal (published: a deviation below 1e-9).
fn mean_and_deviation(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count;
    let deviation = variance.sqrt();
    (deviation.is_finite() && deviation >= 1e-9).then_some((mean, deviation))
}

/// The agent's own switches of skill.
fn skill_switches(rows: &[&Experience], found: &mut Vec<Trigger>) {
    for (index, pair) in rows.windows(2).enumerate() {
        if pair[0].skill != pair[1].skill {
            found.push(Trigger { at: index + 1, signal: Signal::Switch, strength: 1.0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_maxima_take_the_first_of_equals_and_respect_the_radius() {
        assert_eq!(local_maxima(&[0.0, 2.0, 2.0, 1.0, 3.0], 3), vec![4]);
        assert_eq!(local_maxima(&[0.0, 2.0, 2.0, 1.0, 3.0], 1), vec![1, 4]);
        assert_eq!(local_maxima(&[1.0, 1.0, 1.0], 1), vec![0]);
    }

    #[test]
    fn deviation_is_that_of_the_population() {
        let (mean, deviation) = mean_and_deviation(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0]).unwrap_or_default();
        assert!((mean - 1.0).abs() < 1e-12 && (deviation - 3.0).abs() < 1e-12);
        assert_eq!(mean_and_deviation(&[2.0, 2.0]), None);
    }
}
