//! What bank maintenance must do, on planted evidence.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changes;
mod evidence;
mod faults;

use super::planted::{contract, info, labelled, segment};
use super::*;
use crate::learn_contracts::{clauses, learn_contract};

/// A run of the bank side: segments in, and what maintenance makes of them, with contracts learnt by the sequential twin and relabellings
/// passed on with the next step as segmentation does.
#[derive(Clone)]
struct Bank {
    config: Config,
    evidence: Evidence,
    skills: Vec<Skill>,
    relabels: Vec<Relabel>,
    stored: Vec<(u64, Vec<Segment>)>,
    known: BTreeMap<SegmentId, Segment>,
    next: u64,
}

impl Bank {
    fn new(config: Config) -> Self {
        Self { config, evidence: Evidence::default(), skills: vec![], relabels: vec![], stored: vec![], known: BTreeMap::new(), next: 0 }
    }

    fn step(&mut self, mut segments: Vec<Segment>) -> Maintained {
        for relabel in std::mem::take(&mut self.relabels) {
            let Relabel { skill, previous, .. } = relabel;
            let known = self.known[&relabel.segment].clone();
            segments.push(Segment { skill, previous, relabelled: true, ..known });
        }
        self.take(&segments);
        let step = self.next;
        self.stored.push((step, segments));
        self.maintain()
    }

    fn take(&mut self, segments: &[Segment]) {
        segments.iter().for_each(|segment| drop(self.known.insert(segment.segment, segment.clone())));
        self.evidence.ingest(self.next, segments, &info()).unwrap();
    }

    fn maintain(&mut self) -> Maintained {
        let rows = self.clauses();
        let before = self.evidence.clone();
        let made = maintain(self.next, self.skills.clone(), &rows, &mut self.evidence, &self.config, &info()).unwrap();
        assert!(self.evidence == before, "evidence is left as it was");
        self.next += 1;
        self.skills = made.skills.clone();
        self.relabels = made.relabels.clone();
        made
    }

    fn clauses(&self) -> Vec<Clause> {
        let rules = &self.config.contract;
        let of = |(skill, records): (Option<SkillId>, Vec<&Record>)| {
            let learned = learn_contract(&instances(&records), rules);
            skill.map(|skill| clauses(skill, &learned, rules, &info())).unwrap_or_default()
        };
        self.evidence.by_label().into_iter().flat_map(of).collect()
    }

    /// Puts a skill into the bank by hand.
    fn plant(&mut self, id: u32, promise: &str) {
        let contract = contract(promise);
        let names = |set| info().names(set).into_iter().map(str::to_owned).collect();
        self.skills.push(Skill {
            skill: SkillId(id),
            version: 1,
            name: format!("planted-{id}"),
            state: ACTIVE.into(),
            tag: "MERGE".into(),
            adds: names(contract.adds),
            deletes: names(contract.deletes),
            events: names(contract.events),
            ..Skill::default()
        });
    }

    fn skill(&self, id: u32) -> &Skill {
        self.skills.iter().find(|skill| skill.skill == SkillId(id)).unwrap()
    }

    fn promise(&self, id: u32) -> Contract {
        Contract::from_skill(self.skill(id), &info()).unwrap()
    }
}

/// One segment in each of `count` episodes from `first` on.
fn segments(first: u64, count: u64, ordinal: u32, text: &str) -> Vec<Segment> {
    (first..first + count).map(|episode| segment(episode, ordinal, text)).collect()
}

fn of_skill(skill: u32, segments: Vec<Segment>) -> Vec<Segment> {
    segments.into_iter().map(|segment| labelled(segment, skill)).collect()
}

fn events<'a>(made: &'a Maintained, kind: &str, verdict: &str) -> Vec<&'a BankEvent> {
    made.events.iter().filter(|event| event.kind == kind && event.verdict == verdict).collect()
}
