//! What a run says when it has ended.

use crate::error::Ending;
use crate::run::progress::time;
use crate::spec::Resolved;
use crate::stats::Interval;
use cosplay_datasets::{BankEvent, Episode, RunDir, Skill, TableName};
use cosplay_envs::Split;
use cosplay_operators::operator::NodeContext;
use cosplay_operators::play;
use cosplay_operators::teacher_rollouts::scripted_episodes;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Episodes a baseline plays for the summary.
const BASELINE_EPISODES: u32 = 64;
/// Lines of the table of returns.
const LINES: u64 = 12;

/// The closing summary of a run.
pub(super) fn text(run: &RunDir, spec: &Resolved, steps: u64, elapsed: Duration) -> Result<String, Ending> {
    let path = run.path().display();
    let mut text = format!("\n{} · {} steps in {}\n", spec.settings.name, steps, time(elapsed.as_secs_f64()));
    returns(&mut text, run, spec, steps)?;
    baselines(&mut text, spec)?;
    bank(&mut text, run, steps)?;
    let bytes: u64 = run.manifest().files().map(|file| file.bytes).sum();
    let _ = writeln!(text, "\n{path}: {:.0} MB of Parquet, one folder a table\n\nnext", bytes as f64 / 1e6);
    if run.steps(TableName::Policies).is_empty() {
        let _ = writeln!(text, "  cosplay bank {path}");
    } else {
        let _ = writeln!(text, "  cosplay eval {path}                       how good is the policy, on seeds it has not seen?");
        let _ = writeln!(text, "  cosplay bank {path}                       the skills, and `bank why` for their evidence");
        let _ = writeln!(text, "  cosplay rebuild {path} --out rebuilt      the same bank again, from the stored rollouts");
    }
    let player = spec.nodes.iter().find(|node| node.info.name == "rollout");
    let only = player.map_or_else(String::new, |node| format!(" WHERE node = '{}'", node.name));
    let _ = write!(text, "  cosplay query {path} \"SELECT step, AVG(return) FROM episodes{only} GROUP BY step ORDER BY step\"");
    Ok(text)
}

/// Returns by step with their intervals; long runs are thinned out.
fn returns(text: &mut String, run: &RunDir, spec: &Resolved, steps: u64) -> Result<(), Ending> {
    let Some(player) = spec.nodes.iter().find(|node| node.info.name == "rollout") else { return Ok(()) };
    let _ = writeln!(text, "\nreturn a step (mean ± 95 %), as sampled in training");
    let every = steps.div_ceil(LINES).max(1);
    for step in (0..steps).filter(|step| step % every == 0 || step + 1 == steps) {
        let rows = run.read_step::<Episode>(step)?;
        let values: Vec<f64> = rows.iter().filter(|row| row.node == player.name).map(|row| row.ret).collect();
        let _ = writeln!(text, "  step {:>4}  {}  ({} episodes)", step + 1, Interval::of(&values), values.len());
    }
    Ok(())
}

/// The environment's scripted baselines on validation seeds.
fn baselines(text: &mut String, spec: &Resolved) -> Result<(), Ending> {
    let context = NodeContext::outside(&spec.settings, "baselines", 98, cosplay_operators::dataflow::pool::cores());
    let info = play::environment(&context)?.info().clone();
    let plans = play::plan_episodes(&context, 0, Split::Validation, BASELINE_EPISODES, 1);
    let _ = writeln!(text, "\nscripted baselines ({BASELINE_EPISODES} episodes each)");
    for policy in &info.baselines {
        let played = scripted_episodes(&context, policy.name, 0.0, &plans)?;
        let values: Vec<f64> = played.episodes.iter().map(|row| row.ret).collect();
        let _ = writeln!(text, "  {:<22}{}", policy.name, Interval::of(&values));
    }
    Ok(())
}

fn bank(text: &mut String, run: &RunDir, steps: u64) -> Result<(), Ending> {
    let skills = run.read_step::<Skill>(steps.saturating_sub(1))?;
    let active = skills.iter().filter(|skill| skill.state == "active").count();
    let mut events: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (_, event) in run.read_all::<BankEvent>()? {
        let count = events.entry(event.kind).or_default();
        count.1 += 1;
        count.0 += usize::from(event.verdict == "accepted");
    }
    let _ = writeln!(text, "\nbank: {active} active skills, {} retired", skills.len() - active);
    let events: Vec<String> = events.iter().map(|(kind, (accepted, all))| format!("{kind} {accepted} of {all}")).collect();
    if !events.is_empty() {
        let _ = writeln!(text, "  accepted proposals: {}", events.join(", "));
    }
    Ok(())
}
