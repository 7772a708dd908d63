//! `cosplay bank`: looks into a bank, compares two, traces a clause to the segments that it rests on.

use crate::error::Ending;
use cosplay_datasets::{BankEvent, Clause, RunDir, Segment, SegmentId, Skill, SkillId, TableName};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// A run, as the bank commands need it.
pub struct Banks {
    run: RunDir,
}

/// Most segments that are listed for a clause.
const LISTED: usize = 12;
/// Most segments that are named with an event.
const EVENT_EVIDENCE: usize = 3;

impl Banks {
    /// Opens a run.
    ///
    /// # Errors
    /// If there is no run, or no complete step in it.
    pub fn open(path: &Path) -> Result<Self, Ending> {
        let run = RunDir::open(path)?;
        if run.last_step().is_none() {
            return Err(Ending::wrong(format!("{} has no complete step yet", path.display())));
        }
        if run.steps(TableName::Skills).is_empty() {
            return Err(Ending::wrong(format!("{} has no bank: its spec has no `maintain_bank` node", path.display())));
        }
        Ok(Self { run })
    }

    /// The step that is meant: `at`, or the last one.
    ///
    /// # Errors
    /// If the step is not complete.
    pub fn step(&self, at: Option<u64>) -> Result<u64, Ending> {
        let last = self.run.last_step().unwrap_or_default();
        match at {
            Some(step) if step > last => Err(Ending::wrong(format!("step {step} is not complete; the last complete step is {last}"))),
            Some(step) => Ok(step),
            None => Ok(last),
        }
    }

    /// Skills at the end of a step.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn skills(&self, step: u64) -> Result<Vec<Skill>, Ending> {
        Ok(self.run.read_step::<Skill>(step)?)
    }

    /// The skill with this id or name.
    ///
    /// # Errors
    /// Exit code 2 with the names that there are.
    pub fn skill(&self, step: u64, wanted: &str) -> Result<Skill, Ending> {
        let skills = self.skills(step)?;
        let found = skills.iter().find(|skill| skill.name == wanted || skill.skill.to_string() == wanted.trim_start_matches('s'));
        found.cloned().ok_or_else(|| {
            let nearest =
                skills.iter().map(|skill| (strsim::jaro_winkler(&skill.name, wanted), &skill.name)).max_by(|a, b| a.0.total_cmp(&b.0));
            let ending = Ending::wrong(format!("there is no skill `{wanted}` in step {step}"));
            match nearest {
                None => ending.hint("the bank is empty in that step"),
                Some((similarity, nearest)) if similarity > 0.8 => {
                    ending.hint(format!("the nearest name is `{nearest}`; `cosplay bank RUN` lists all"))
                }
                Some(_) => ending.hint(format!("it has {} skills; `cosplay bank RUN` lists them by id and name", skills.len())),
            }
        })
    }

    /// All skills of a step, a line each.
    ///
    /// # Errors
    /// If a table cannot be read.
    pub fn list(&self, step: u64) -> Result<String, Ending> {
        let skills = self.skills(step)?;
        let active = skills.iter().filter(|skill| skill.state == "active").count();
        let mut text = format!("bank after step {step}: {active} active skills, {} retired\n\n", skills.len() - active);
        let _ = writeln!(
            text,
            "{:>4}  {:<36} {:<8} {:>3} {:>9} {:>6} {:>8} {:>6}  contract",
            "id", "name", "state", "ver", "instances", "pass", "fitness", "length"
        );
        for skill in &skills {
            let _ = writeln!(
                text,
                "{:>4}  {:<36} {:<8} {:>3} {:>9} {:>5.0}% {:>8.1} {:>6.1}  {}",
                skill.skill,
                skill.name,
                skill.state,
                skill.version,
                skill.instances,
                100.0 * skill.pass_rate,
                skill.fitness,
                skill.duration,
                literals(skill).join(" ")
            );
        }
        Ok(text)
    }

    /// One skill with all its parts.
    ///
    /// # Errors
    /// As [`Banks::skill`].
    pub fn show(&self, step: u64, wanted: &str) -> Result<String, Ending> {
        let skill = self.skill(step, wanted)?;
        let mut text = format!("skill {} · {} · version {} · {}\n", skill.skill, skill.name, skill.version, skill.state);
        let mut part = |title: &str, lines: &[String]| {
            if !lines.is_empty() {
                let _ = writeln!(text, "\n{title}");
                for line in lines {
                    let _ = writeln!(text, "  {line}");
                }
            }
        };
        part("summary", std::slice::from_ref(&skill.summary));
        part("preconditions", &skill.preconditions);
        part("plan", &skill.plan);
        part("success", &skill.success);
        part("abort", &skill.abort);
        part("contract", &literals(&skill));
        part("parents", &skill.parents.iter().map(|parent| format!("skill {parent}")).collect::<Vec<_>>());
        let mut figures = vec![
            format!("instances {} · held-out pass rate {:.0} %", skill.instances, 100.0 * skill.pass_rate),
            format!("uses {} · successes {}", skill.uses, skill.successes),
            format!("fitness {:+.1} · quality {:.2}", skill.fitness, skill.quality),
            format!("duration {:.1} ± {:.1} steps", skill.duration, skill.duration_spread),
            format!(
                "generation {} · created in step {} · changed in {} · supported in {}",
                skill.generation, skill.created, skill.updated, skill.supported
            ),
        ];
        if let Some(into) = skill.merged_into {
            figures.push(format!("merged into skill {into}"));
        }
        part("figures", &figures);
        Ok(text)
    }

    /// What changed between two steps.
    ///
    /// # Errors
    /// If a table cannot be read.
    pub fn diff(&self, from: u64, to: u64) -> Result<String, Ending> {
        let by_id = |skills: Vec<Skill>| skills.into_iter().map(|skill| (skill.skill, skill)).collect::<BTreeMap<SkillId, Skill>>();
        let (before, after) = (by_id(self.skills(from)?), by_id(self.skills(to)?));
        let ids: BTreeSet<SkillId> = before.keys().chain(after.keys()).copied().collect();
        let mut text = format!("bank after step {from} → after step {to}\n\n");
        let mut changes = 0;
        for id in ids {
            let line = match (before.get(&id), after.get(&id)) {
                (None, Some(new)) => Some(format!("+ {} {}: {}", id, new.name, literals(new).join(" "))),
                (Some(old), None) => Some(format!("- {} {}", id, old.name)),
                (Some(old), Some(new)) => change(old, new).map(|what| format!("~ {} {}: {what}", id, new.name)),
                (None, None) => None,
            };
            if let Some(line) = line {
                changes += 1;
                let _ = writeln!(text, "{line}");
            }
        }
        if changes == 0 {
            text.push_str("no skill was added, changed or retired\n");
        }
        Ok(text)
    }

    /// From the clauses of a skill (or one of them) to the segments that they rest on, and the bank events that concern it.
    ///
    /// # Errors
    /// As [`Banks::skill`]; exit code 2 if there is no such clause.
    pub fn why(&self, step: u64, wanted: &str, clause: Option<&str>) -> Result<String, Ending> {
        let skill = self.skill(step, wanted)?;
        let (at, clauses) = self.clauses(step, skill.skill)?;
        let segments = self.segments(at)?;
        let mut text = format!("skill {} · {} · {} after step {step}\n", skill.skill, skill.name, skill.state);
        let events: Vec<(u64, BankEvent)> = self.run.read_all::<BankEvent>()?;
        let events: Vec<(u64, BankEvent)> =
            events.into_iter().filter(|(at, event)| *at <= step && event.skills.contains(&skill.skill)).collect();
        if clauses.is_empty() {
            self.founding(&mut text, &skill, clause, &events, &segments)?;
        } else {
            if at < step {
                let _ = writeln!(text, "clauses as of step {at}, the last in which segments had its label");
            }
            let shown = |row: &&Clause| match clause {
                Some(clause) => clause == spell(&row.effect, &row.literal) || clause == row.literal,
                None => row.accepted,
            };
            let rows: Vec<&Clause> = clauses.iter().filter(shown).collect();
            if let (Some(clause), true) = (clause, rows.is_empty()) {
                let names: Vec<String> = clauses.iter().map(|row| spell(&row.effect, &row.literal)).collect();
                return Err(no_clause(&skill, clause, &names));
            }
            for row in rows {
                self.clause(&mut text, row, &spell(&row.effect, &row.literal), &skill, &segments);
            }
        }
        let _ = writeln!(text, "\nevents");
        for (at, event) in &events {
            let first: Vec<String> = event.evidence.iter().take(EVENT_EVIDENCE).map(ToString::to_string).collect();
            let _ = writeln!(
                text,
                "  step {at}: {} {} by {} — {} ({} segments{})",
                event.kind,
                event.verdict,
                event.proposed_by,
                event.reason,
                event.support,
                if first.is_empty() { String::new() } else { format!(", such as {}", first.join(", ")) }
            );
        }
        Ok(text)
    }

    /// The clauses of a skill in the last step up to `step` that has any, with that step.
    fn clauses(&self, step: u64, skill: SkillId) -> Result<(u64, Vec<Clause>), Ending> {
        for at in self.run.steps(TableName::Contracts).into_iter().rev().filter(|&at| at <= step) {
            let rows: Vec<Clause> = self.run.read_step::<Clause>(at)?.into_iter().filter(|row| row.skill == skill).collect();
            if !rows.is_empty() {
                return Ok((at, rows));
            }
        }
        Ok((step, Vec::new()))
    }

    /// A skill that was made in this very step: its contract rests on the segments of the event that made it.
    fn founding(
        &self,
        text: &mut String,
        skill: &Skill,
        clause: Option<&str>,
        events: &[(u64, BankEvent)],
        segments: &BTreeMap<SegmentId, Segment>,
    ) -> Result<(), Ending> {
        let Some((at, event)) = events.iter().find(|(_, event)| event.verdict == "accepted") else { return Ok(()) };
        let names = literals(skill);
        if let Some(clause) = clause.filter(|clause| !names.iter().any(|name| name == clause)) {
            return Err(no_clause(skill, clause, &names));
        }
        for name in names.iter().filter(|name| clause.is_none_or(|clause| *name == clause)) {
            let (effect_name, literal) = match name.split_at_checked(1) {
                Some(("+", rest)) => ("add", rest),
                Some(("-", rest)) => ("delete", rest),
                _ => ("event", name.as_str()),
            };
            let rests = |segment: &&Segment| effect(segment, effect_name).iter().any(|own| own == literal);
            let rests: Vec<&Segment> = event.evidence.iter().filter_map(|id| segments.get(id)).filter(rests).collect();
            let _ = writeln!(
                text,
                "\n{name}  made in step {at} ({}): brought about in {} of {} segments",
                event.kind,
                rests.len(),
                event.evidence.len()
            );
            list(text, &rests);
        }
        Ok(())
    }

    /// Latest row of every segment up to a step.
    fn segments(&self, step: u64) -> Result<BTreeMap<SegmentId, Segment>, Ending> {
        let mut latest = BTreeMap::new();
        for at in self.run.steps(TableName::Segments).into_iter().filter(|&at| at <= step) {
            for row in self.run.read_step::<Segment>(at)? {
                latest.insert(row.segment, row);
            }
        }
        Ok(latest)
    }

    fn clause(&self, text: &mut String, row: &Clause, spelt: &str, skill: &Skill, segments: &BTreeMap<SegmentId, Segment>) {
        let verdict = if row.accepted { "accepted" } else { "not accepted" };
        let _ = writeln!(
            text,
            "\n{spelt}  {verdict}: {}\n  learnt on {} of {} segments ({:.0} %), held out {} of {} ({:.0} %)",
            row.reason,
            row.support,
            row.instances,
            100.0 * row.rate,
            row.holdout_support,
            row.holdout_instances,
            100.0 * row.holdout_rate
        );
        let rests: Vec<&Segment> = segments
            .values()
            .filter(|segment| segment.skill == Some(skill.skill) && effect(segment, &row.effect).contains(&row.literal))
            .collect();
        list(text, &rests);
    }
}

/// A line for each segment, up to [`LISTED`].
fn list(text: &mut String, segments: &[&Segment]) {
    for segment in segments.iter().take(LISTED) {
        let _ = writeln!(
            text,
            "  segment {} · episode {} steps {}–{} · {} · return {:.0} · margin {:.2}{}",
            segment.segment,
            segment.episode,
            segment.start,
            segment.end.saturating_sub(1),
            segment.tag,
            segment.ret,
            segment.margin,
            if segment.holdout { " · held out" } else { "" }
        );
    }
    if segments.len() > LISTED {
        let _ = writeln!(text, "  … and {} more (table `segments`)", segments.len() - LISTED);
    }
}

fn no_clause(skill: &Skill, clause: &str, names: &[String]) -> Ending {
    Ending::wrong(format!("skill {} has no clause `{clause}`", skill.skill)).hint(format!("its clauses: {}", names.join(" ")))
}

fn effect<'a>(segment: &'a Segment, effect: &str) -> &'a [String] {
    match effect {
        "add" => &segment.added,
        "delete" => &segment.deleted,
        _ => &segment.events,
    }
}

fn spell(effect: &str, literal: &str) -> String {
    match effect {
        "add" => format!("+{literal}"),
        "delete" => format!("-{literal}"),
        _ => literal.to_owned(),
    }
}

/// Contract of a skill as literals.
fn literals(skill: &Skill) -> Vec<String> {
    let part = |effect: &'static str, names: &[String]| names.iter().map(|name| spell(effect, name)).collect::<Vec<_>>();
    [part("add", &skill.adds), part("delete", &skill.deletes), part("event", &skill.events)].concat()
}

/// What changed in a skill, if anything but its statistics did.
fn change(old: &Skill, new: &Skill) -> Option<String> {
    let mut parts = Vec::new();
    if old.state != new.state {
        parts.push(format!("{} → {}", old.state, new.state));
    }
    let (before, after) = (literals(old), literals(new));
    let gone: Vec<&String> = before.iter().filter(|literal| !after.contains(literal)).collect();
    let come: Vec<&String> = after.iter().filter(|literal| !before.contains(literal)).collect();
    parts.extend(gone.iter().map(|literal| format!("lost {literal}")));
    parts.extend(come.iter().map(|literal| format!("gained {literal}")));
    if old.version != new.version {
        parts.push(format!("version {} → {}", old.version, new.version));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}
