//! The evidence of the bank: every labelled segment, compactly, with its latest label.

use crate::contract::Effect;
use crate::learn_contracts::Instance;
use crate::operator::OperatorError;
use cosplay_datasets::tables::Segment;
use cosplay_datasets::{EpisodeId, SegmentId, SkillId};
use cosplay_envs::{EnvInfo, Tag};
use std::collections::BTreeMap;

/// What is kept of one segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The segment.
    pub segment: SegmentId,
    /// Its episode.
    pub episode: EpisodeId,
    /// Step in which it was first seen.
    pub step: u64,
    /// Skill that explains it; none is NEW.
    pub label: Option<SkillId>,
    /// Skill that the agent had active in most of it.
    pub played: Option<SkillId>,
    /// What it did.
    pub effect: Effect,
    /// Dominant intention tag, if anybody stated one.
    pub tag: Option<Tag>,
    /// Length in environment steps.
    pub length: u32,
    /// Sum of rewards.
    pub ret: f64,
    /// True if contracts are verified on it and never learnt from it.
    pub holdout: bool,
}

impl Record {
    /// As an instance to learn from.
    pub fn instance(&self) -> Instance {
        Instance { segment: self.segment, effect: self.effect, holdout: self.holdout }
    }
}

/// All labelled segments. Nothing is derived and kept, so that withdrawing an episode leaves exactly what there would be without it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    records: BTreeMap<SegmentId, Record>,
}

impl Evidence {
    /// Takes the rows of one step; of a segment that is there already, only the label changes.
    ///
    /// # Errors
    /// As [`Effect::from_segment`].
    pub fn ingest(&mut self, step: u64, segments: &[Segment], info: &EnvInfo) -> Result<(), OperatorError> {
        for segment in segments {
            let record = Record {
                segment: segment.segment,
                episode: segment.episode,
                step,
                label: segment.skill,
                played: segment.played,
                effect: Effect::from_segment(segment, info)?,
                tag: Tag::parse(&segment.tag),
                length: segment.end.saturating_sub(segment.start),
                ret: segment.ret,
                holdout: segment.holdout,
            };
            self.records.entry(segment.segment).and_modify(|known| known.label = segment.skill).or_insert(record);
        }
        Ok(())
    }

    /// Withdraws all segments of an episode; returns their number.
    pub fn retract(&mut self, episode: EpisodeId) -> usize {
        let before = self.records.len();
        let (first, next) = (SegmentId::new(episode, 0), SegmentId::new(EpisodeId(episode.0 + 1), 0));
        let of_episode: Vec<SegmentId> = self.records.range(first..next).map(|(segment, _)| *segment).collect();
        for segment in &of_episode {
            self.records.remove(segment);
        }
        before - self.records.len()
    }

    /// Gives a segment another label and returns the earlier one; `None` if there is no such segment.
    pub fn label(&mut self, segment: SegmentId, skill: Option<SkillId>) -> Option<Option<SkillId>> {
        self.records.get_mut(&segment).map(|record| std::mem::replace(&mut record.label, skill))
    }

    /// Number of segments.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no segment.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// One segment.
    pub fn get(&self, segment: SegmentId) -> Option<&Record> {
        self.records.get(&segment)
    }

    /// Segments by id; those that are not there are left out.
    pub fn select(&self, segments: &[SegmentId]) -> Vec<&Record> {
        segments.iter().filter_map(|segment| self.records.get(segment)).collect()
    }

    /// All segments, in order.
    pub fn records(&self) -> impl Iterator<Item = &Record> + Clone {
        self.records.values()
    }

    /// The segments of each skill, in order; those of `None` are NEW.
    pub fn by_label(&self) -> BTreeMap<Option<SkillId>, Vec<&Record>> {
        let mut by_label: BTreeMap<Option<SkillId>, Vec<&Record>> = BTreeMap::new();
        for record in self.records.values() {
            by_label.entry(record.label).or_default().push(record);
        }
        by_label
    }
}
