//! The figures of a skill, computed anew in every step from all of its evidence.
//!
//! * `instances`: segments that segmentation has given to the skill: what was done, whether or not the agent had the skill in mind.
//! * `uses`: segments that the agent played with the skill, whatever they became; `successes`: those that fulfil its contract (at least
//!   `instance_pass` of the clauses hold).
//! * `pass_rate`: the share of the held-out instances that fulfil the contract.
//! * `fitness`: how much more reward than segments of like length (same power of two) its instances brought on average.
//! * `quality`: the published score ([`skill_score`]).

use crate::learn_contracts::{passes_one, share};
use crate::maintain_bank::evidence::Record;
use crate::maintain_bank::{Config, Entry, SKILL_EVIDENCE, Work};
use cosplay_datasets::{EpisodeId, SkillId};
use cosplay_envs::Tag;
use std::collections::BTreeMap;

/// Writes the figures of all active skills. Those of retired ones stay as they were.
pub fn update(work: &mut Work<'_>) {
    let by_label = work.evidence.by_label();
    let likes = LikeLength::of(work.evidence.records());
    let none = Vec::new();
    let mut by_use: BTreeMap<SkillId, Vec<&Record>> = BTreeMap::new();
    for record in work.evidence.records() {
        if let Some(skill) = record.played {
            by_use.entry(skill).or_default().push(record);
        }
    }
    for skill in work.active() {
        if let Some(entry) = work.skills.get_mut(&skill) {
            update_entry(entry, by_label.get(&Some(skill)).unwrap_or(&none), &likes, work.config);
            count_uses(entry, by_use.get(&skill).unwrap_or(&none), work.config);
        }
    }
}

fn update_entry(entry: &mut Entry, records: &[&Record], likes: &LikeLength, config: &Config) {
    let passes = |record: &&&Record| passes_one(&record.effect, &entry.contract, &config.contract);
    let holdout = records.iter().filter(|record| record.holdout).count() as u32;
    let holdout_passes = records.iter().filter(|record| record.holdout).filter(passes).count() as u32;
    let lengths = sorted(records.iter().map(|record| f64::from(record.length)));
    let pass_rate = share(holdout_passes, holdout);
    let quality = quality(entry, records, median(&lengths), (holdout > 0).then_some(pass_rate), config);
    let row = &mut entry.row;
    row.instances = records.len() as u32;
    row.pass_rate = pass_rate;
    row.fitness = likes.advantage(records);
    row.quality = quality;
    row.duration = median(&lengths);
    row.duration_spread = spread(&lengths);
    row.supported = records.iter().map(|record| record.step as u32).max().unwrap_or(row.supported.max(row.created));
    row.evidence = records.iter().take(SKILL_EVIDENCE).map(|record| record.segment).collect();
}

fn count_uses(entry: &mut Entry, records: &[&Record], config: &Config) {
    let success = |record: &&&Record| passes_one(&record.effect, &entry.contract, &config.contract);
    entry.row.successes = records.iter().filter(success).count() as u32;
    entry.row.uses = records.len() as u32;
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Median of sorted values; 0 if there is none.
fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len();
    if n == 0 { 0.0 } else { values.sum::<f64>() / n as f64 }
}

/// Standard deviation.
fn spread(values: &[f64]) -> f64 {
    let centre = mean(values.iter().copied());
    mean(values.iter().map(|value| (value - centre) * (value - centre))).sqrt()
}

/// Mean return of all segments by the power of two of their length.
struct LikeLength {
    means: [f64; 33],
}

impl LikeLength {
    fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Self {
        let (mut sums, mut counts) = ([0.0; 33], [0u32; 33]);
        for record in records {
            sums[class(record.length)] += record.ret;
            counts[class(record.length)] += 1;
        }
        let mut means = [0.0; 33];
        for (mean, (sum, count)) in means.iter_mut().zip(sums.into_iter().zip(counts)) {
            *mean = if count == 0 { 0.0 } else { sum / f64::from(count) };
        }
        Self { means }
    }

    fn advantage(&self, records: &[&Record]) -> f64 {
        mean(records.iter().map(|record| record.ret - self.means[class(record.length)]))
    }
}

fn class(length: u32) -> usize {
    (32 - length.leading_zeros()) as usize
}

fn quality(entry: &Entry, records: &[&Record], duration: f64, pass_rate: Option<f64>, config: &Config) -> f64 {
    let returns = || records.iter().map(|record| record.ret);
    let (least, most) = (returns().fold(f64::INFINITY, f64::min), returns().fold(f64::NEG_INFINITY, f64::max));
    let tag = Tag::parse(&entry.row.tag);
    let of_segment = |record: &&Record| {
        segment_quality(&SegmentFigures {
            credit: if most > least { (record.ret - least) / (most - least) } else { 0.5 },
            progress: progress(record, entry, config),
            length: f64::from(record.length),
            expected_length: duration,
            tag_overlap: tag.map_or(0.5, |tag| if record.tag == Some(tag) { 1.0 } else { 0.0 }),
            pass_rate,
        })
    };
    let mut by_episode: BTreeMap<EpisodeId, Vec<f64>> = BTreeMap::new();
    records.iter().for_each(|record| by_episode.entry(record.episode).or_default().push(record.ret));
    let successes = records.iter().filter(|record| passes_one(&record.effect, &entry.contract, &config.contract)).count();
    skill_score(&SkillFigures {
        qualities: records.iter().map(of_segment).collect(),
        successes: successes as u32,
        episode_returns: by_episode.into_values().map(|returns| mean(returns.into_iter())).collect(),
        pass_rate,
        has_clauses: !entry.contract.is_empty(),
    })
}

/// 1 if the contract is fulfilled, 0.5 if some clause holds, else 0.
fn progress(record: &Record, entry: &Entry, config: &Config) -> f64 {
    let fulfilled = record.effect.fulfilled(&entry.contract);
    if fulfilled >= config.contract.instance_pass {
        1.0
    } else if fulfilled > 0.0 {
        0.5
    } else {
        0.0
    }
}

/// What the quality of a segment is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentFigures {
    /// Its return between the least and the largest of the skill's segments, 0 to 1; 0.5 if they are all equal.
    pub credit: f64,
    /// 1 for success, 0.5 for part of it, 0 for failure.
    pub progress: f64,
    /// Length in environment steps.
    pub length: f64,
    /// Median length of the skill's segments.
    pub expected_length: f64,
    /// Share of the skill's tag that the segment has, 0 to 1; 0.5 if the skill has none.
    pub tag_overlap: f64,
    /// Pass rate of the skill's contract, if it is known.
    pub pass_rate: Option<f64>,
}

/// Quality of a segment under its skill, 0 to 1 (published code, without its term for novelty, which needs a comparison with other runs):
/// 0.30 · credit + 0.25 · progress + 0.20 · validity + 0.15 · contract.
pub fn segment_quality(figures: &SegmentFigures) -> f64 {
    let off = if figures.expected_length > 0.0 { (figures.length - figures.expected_length).abs() / figures.expected_length } else { 0.0 };
    let validity = 0.5 * (1.0 - off).max(0.0) + 0.5 * figures.tag_overlap;
    let contract = figures.pass_rate.map_or(0.5, |rate| (rate / 0.5).min(1.0));
    (0.30 * figures.credit + 0.25 * figures.progress + 0.20 * validity + 0.15 * contract).clamp(0.0, 1.0)
}

/// What the score of a skill is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillFigures {
    /// Qualities of its segments.
    pub qualities: Vec<f64>,
    /// Segments that fulfil the contract.
    pub successes: u32,
    /// Mean return of its segments in each episode.
    pub episode_returns: Vec<f64>,
    /// Pass rate of its contract, if it is known.
    pub pass_rate: Option<f64>,
    /// Whether its contract has any clause.
    pub has_clauses: bool,
}

/// Score of a skill, 0 to 1 (published code): 0.30 · mean quality + 0.25 · success rate · min(1, n / 5) + 0.20 · pass rate
/// + 0.15 · consistency over episodes + 0.10 · exploration bonus of a young skill. Without evidence 0.5.
pub fn skill_score(figures: &SkillFigures) -> f64 {
    let n = figures.qualities.len();
    if n == 0 {
        return 0.5;
    }
    let quality = mean(figures.qualities.iter().copied());
    let success = f64::from(figures.successes) / n as f64 * (n as f64 / 5.0).min(1.0);
    let contract = figures.pass_rate.unwrap_or(if figures.has_clauses { 0.5 } else { 0.0 });
    let exploration = if n <= 5 && figures.has_clauses && quality > 0.3 { (1.5 * quality).min(1.0) } else { 0.0 };
    let consistency = consistency(&figures.episode_returns);
    (0.30 * quality + 0.25 * success + 0.20 * contract + 0.15 * consistency + 0.10 * exploration).clamp(0.0, 1.0)
}

/// 1 − min(CV, 2) / 2 of the episodes' returns; 0.5 with one episode or a mean of zero.
fn consistency(returns: &[f64]) -> f64 {
    let centre = mean(returns.iter().copied());
    if returns.len() < 2 || centre == 0.0 {
        return 0.5;
    }
    1.0 - (spread(returns) / centre.abs()).min(2.0) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn the_skill_score_follows_the_reference() {
        // Vectors 80 and 81.
        let mut figures = SkillFigures {
            qualities: vec![0.8, 0.6, 0.4],
            successes: 2,
            episode_returns: vec![10.0, 10.0, 10.0],
            pass_rate: None,
            has_clauses: true,
        };
        assert!(close(skill_score(&figures), 0.62));
        figures.pass_rate = Some(1.0);
        assert!(close(skill_score(&figures), 0.72));
        figures.qualities.clear();
        assert!(close(skill_score(&figures), 0.5));
    }

    #[test]
    fn the_segment_quality_follows_the_reference() {
        // Vector 83.
        let figures =
            SegmentFigures { credit: 0.5, progress: 1.0, length: 8.0, expected_length: 10.0, tag_overlap: 0.5, pass_rate: Some(0.4) };
        assert!(close(segment_quality(&figures), 0.65));
    }

    #[test]
    fn medians_and_spreads() {
        assert!(close(median(&[1.0, 2.0, 9.0]), 2.0) && close(median(&[1.0, 2.0]), 1.5) && close(median(&[]), 0.0));
        assert!(close(spread(&[2.0, 4.0]), 1.0) && close(spread(&[]), 0.0));
    }
}
