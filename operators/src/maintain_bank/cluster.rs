//! Clusters of segments by what they did: the candidates for new skills and for the parts of a split.

use crate::contract::{ClauseKind, Contract, Literal};
use crate::maintain_bank::evidence::Record;
use cosplay_envs::Tag;
use std::collections::BTreeMap;

/// Segments that share their dominant effect.
#[derive(Clone, Debug)]
pub struct Cluster<'a> {
    /// Commonest tag of the members.
    pub tag: Option<Tag>,
    /// Effects that at least half of the learning members share.
    pub centroid: Contract,
    /// Members, in order.
    pub members: Vec<&'a Record>,
}

/// Clusters of at least `min_size` segments each, the largest first; segments without any effect belong to none.
///
/// The dominant effect of a segment is the rarest of its effects that occur in at least `min_size` segments: what nearly all segments do
/// tells nothing apart, and what hardly any does is chance. Segments with the same tag and dominant effect form a cluster, and clusters
/// with similar centroids are joined, the smaller ones to the larger ones: from `similarity` on if they share the tag, else from
/// `similarity_of_others` on. The cost grows with segments × effects of a segment, and with the square of the number of (tag, effect)
/// pairs, not with the square of the segments.
pub fn clusters<'a>(records: &[&'a Record], min_size: usize, similarity: f64, similarity_of_others: f64) -> Vec<Cluster<'a>> {
    let counts = LiteralCounts::of(records.iter().copied());
    let mut groups: BTreeMap<(Option<Tag>, Literal), Vec<&'a Record>> = BTreeMap::new();
    for record in records {
        if let Some(dominant) = counts.rarest(&record.effect.occurred(), min_size as u32) {
            groups.entry((record.tag, dominant)).or_default().push(record);
        }
    }
    let mut groups: Vec<Cluster<'a>> = groups.into_iter().map(|((tag, _), members)| cluster(tag, members)).collect();
    // The sort is stable and the groups are in order of their keys.
    groups.sort_by_key(|group| std::cmp::Reverse(group.members.len()));
    let mut joined: Vec<Cluster<'a>> = Vec::new();
    for group in groups {
        let close = |other: &Cluster<'_>| {
            let limit = if other.tag == group.tag { similarity } else { similarity_of_others };
            other.centroid.jaccard(&group.centroid) >= limit
        };
        match joined.iter_mut().find(|other| close(other)) {
            Some(other) => other.members.extend(group.members),
            None => joined.push(group),
        }
    }
    joined.retain(|cluster| cluster.members.len() >= min_size);
    for joint in &mut joined {
        joint.members.sort_unstable_by_key(|record| record.segment);
        *joint = cluster(commonest_tag(&joint.members), std::mem::take(&mut joint.members));
    }
    joined.sort_by_key(|cluster| (std::cmp::Reverse(cluster.members.len()), cluster.centroid));
    joined
}

fn cluster<'a>(tag: Option<Tag>, members: Vec<&'a Record>) -> Cluster<'a> {
    let learning = members.iter().copied().filter(|record| !record.holdout);
    Cluster { tag, centroid: LiteralCounts::of(learning).common(), members }
}

/// The tag that most records have; ties go to the first one in canonical order, and no tag counts only if there is none.
pub fn commonest_tag(records: &[&Record]) -> Option<Tag> {
    let mut counts: BTreeMap<Tag, usize> = BTreeMap::new();
    records.iter().filter_map(|record| record.tag).for_each(|tag| *counts.entry(tag).or_insert(0) += 1);
    counts.into_iter().max_by_key(|(tag, count)| (*count, std::cmp::Reverse(*tag))).map(|(tag, _)| tag)
}

/// How many records each effect occurs in.
pub struct LiteralCounts {
    records: u32,
    counts: Box<[[u32; 128]; 3]>,
}

impl LiteralCounts {
    /// Counts the effects of the records.
    pub fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Self {
        let mut all = Self { records: 0, counts: Box::new([[0; 128]; 3]) };
        for record in records {
            all.records += 1;
            for literal in record.effect.occurred().literals() {
                all.counts[row(literal.kind)][usize::from(literal.predicate)] += 1;
            }
        }
        all
    }

    /// Number of records that the effect occurs in.
    pub fn count(&self, literal: Literal) -> u32 {
        self.counts[row(literal.kind)][usize::from(literal.predicate)]
    }

    /// The rarest of these effects that occurs in at least `min` records; ties go to the first one.
    pub fn rarest(&self, occurred: &Contract, min: u32) -> Option<Literal> {
        occurred.literals().filter(|literal| self.count(*literal) >= min).min_by_key(|literal| (self.count(*literal), *literal))
    }

    /// Effects that occur in at least half of the records.
    fn common(&self) -> Contract {
        let kinds = [ClauseKind::Add, ClauseKind::Delete, ClauseKind::Event];
        let all = kinds.into_iter().flat_map(|kind| (0..128).map(move |predicate| Literal { kind, predicate }));
        all.filter(|literal| self.count(*literal) > 0 && 2 * self.count(*literal) >= self.records).collect()
    }
}

fn row(kind: ClauseKind) -> usize {
    match kind {
        ClauseKind::Add => 0,
        ClauseKind::Delete => 1,
        ClauseKind::Event => 2,
    }
}
