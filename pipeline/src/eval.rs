//! `cosplay eval`: plays with a run's policy and bank on seeds that no step has seen, beside the baselines.
//!
//! Temperatures are chosen on validation seeds, for every policy alike; what is reported was played on test seeds. The same test seeds are
//! used for every row, so that differences are paired.

use crate::error::Ending;
use crate::run::load_kept;
use crate::spec::Resolved;
use crate::stats::Interval;
use cosplay_datasets::{PolicyTensor, RunDir, Skill, TableName};
use cosplay_envs::{EnvInfo, Split};
use cosplay_models::Model;
use cosplay_operators::operator::{NodeContext, OperatorError};
use cosplay_operators::play::{self, Agent, AgentBank, AgentOptions};
use cosplay_operators::policy::{Policy, model_config};
use cosplay_operators::prompts::PromptBook;
use cosplay_operators::registry::configuration;
use cosplay_operators::teacher_rollouts::scripted_episodes;
use cosplay_operators::{rollout, teacher_rollouts};
use rand::Rng;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Temperatures among which the best is chosen; 0 is greedy.
const TEMPERATURES: [f64; 5] = [1.0, 0.7, 0.5, 0.3, 0.0];

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct EvalRequest {
    /// Run directory.
    pub run: PathBuf,
    /// Test episodes a row.
    pub episodes: u32,
    /// Validation episodes for choosing temperatures.
    pub validation: u32,
    /// Banks that are played with.
    pub banks: Vec<BankChoice>,
    /// Step whose policy and bank count as final; default the last.
    pub at: Option<u64>,
}

/// A bank to play with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum BankChoice {
    /// No skills.
    None,
    /// The first bank of the run that had any.
    First,
    /// The last bank.
    Final,
}

impl BankChoice {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::First => "first",
            Self::Final => "final",
        }
    }
}

/// One row of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `random`, `cold start`, `co-evolved`, …
    pub policy: String,
    /// Bank, for policies that can use one.
    pub bank: Option<BankChoice>,
    /// `T=1`, `best T=0.5`, `greedy`.
    pub decoding: Option<String>,
    /// Mean return on the test seeds.
    pub mean: f64,
    /// Half-width of its 95 % t interval.
    pub half_width: f64,
    /// Mean length of the episodes.
    pub length: f64,
    /// Difference to the cold start at its own best temperature without a bank, on the same seeds: mean and half-width.
    pub against_cold_start: Option<(f64, f64)>,
    #[serde(skip)]
    returns: Vec<f64>,
}

/// The report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Run directory.
    pub run: String,
    /// Environment.
    pub env: String,
    /// Test episodes a row.
    pub episodes: u32,
    /// Validation episodes a temperature.
    pub validation: u32,
    /// Step whose policy and bank are `co-evolved` and `final`.
    pub step: u64,
    /// Rows.
    pub rows: Vec<Row>,
    /// What could not be played, and why.
    pub notes: Vec<String>,
}

struct Evaluator {
    spec: Arc<Resolved>,
    context: NodeContext,
    info: EnvInfo,
    book: PromptBook,
    rollout: rollout::Config,
    episodes: u32,
    validation: u32,
}

/// Plays everything.
///
/// # Errors
/// If the run has no complete step, or what it holds does not fit its spec.
pub fn evaluate(request: &EvalRequest, tell: &dyn Fn(&str)) -> Result<Report, Ending> {
    let run = RunDir::open(&request.run)?;
    let spec = Arc::new(load_kept(&request.run, &[])?);
    let last = run.last_step().ok_or_else(|| Ending::wrong(format!("{} has no complete step", request.run.display())))?;
    let step = request.at.unwrap_or(last);
    if step > last {
        return Err(Ending::wrong(format!("step {step} is not complete; the last complete step is {last}")));
    }
    let evaluator = Evaluator::new(spec, request)?;
    let mut rows = evaluator.scripted(tell)?;
    let rows_of = |steps: &[u64]| -> Result<Vec<PolicyTensor>, Ending> {
        let mut rows = Vec::new();
        for &step in steps {
            rows.extend(run.read_step::<PolicyTensor>(step)?);
        }
        Ok(rows)
    };
    let first_rows = rows_of(&[0])?;
    if first_rows.is_empty() {
        let note = "the run trained no policy, so that only scripted policies could play".to_owned();
        return Ok(evaluator.report(request, step, rows, vec![note]));
    }
    let cold: Vec<PolicyTensor> = first_rows.iter().filter(|row| row.policy_version == 0).cloned().collect();
    let mut trained = first_rows;
    trained.extend(rows_of(&[step])?);
    let context = &evaluator.context;
    let cold = Policy::from_rows(cold, context, &evaluator.book)?.model;
    let trained = Policy::from_rows(trained, context, &evaluator.book)?.model;
    let untrained = evaluator.untrained()?;
    let banks = evaluator.banks(&run, step)?;
    let missing: Vec<&str> =
        request.banks.iter().filter(|wanted| banks.iter().all(|(choice, _)| choice != *wanted)).map(|choice| choice.name()).collect();
    let notes = if missing.is_empty() {
        Vec::new()
    } else {
        vec![format!("the run has no skill up to step {step}, so there are no rows for the bank `{}`", missing.join("`, `"))]
    };
    let empty = AgentBank::default();
    rows.extend(evaluator.model("untrained", &untrained, (None, &empty), tell)?);
    let cold_rows = evaluator.model("cold start", &cold, (Some(BankChoice::None), &empty), tell)?;
    let reference =
        cold_rows.iter().find(|row| row.decoding.as_ref().is_some_and(|text| text.starts_with("best"))).map(|row| row.returns.clone());
    rows.extend(cold_rows);
    for (name, model) in [("cold start", &cold), ("co-evolved", &trained)] {
        for (choice, bank) in &banks {
            let played = name == "cold start" && *choice == BankChoice::None;
            if !played && request.banks.contains(choice) {
                rows.extend(evaluator.model(name, model, (Some(*choice), bank), tell)?);
            }
        }
    }
    if let Some(reference) = reference {
        for row in &mut rows {
            let difference = Interval::paired(&row.returns, &reference);
            row.against_cold_start = Some((difference.mean, difference.half));
        }
    }
    Ok(evaluator.report(request, step, rows, notes))
}

impl Evaluator {
    fn new(spec: Arc<Resolved>, request: &EvalRequest) -> Result<Self, Ending> {
        let context = NodeContext::outside(&spec.settings, "eval", 99, cosplay_operators::dataflow::pool::cores());
        let info = play::environment(&context)?.info().clone();
        let book = PromptBook::new(&info, spec.settings.model.choices)?;
        let node = spec.nodes.iter().find(|node| node.info.name == "rollout");
        let rollout = match node {
            Some(node) => configuration("rollout", &node.config)?,
            None => rollout::Config::default(),
        };
        Ok(Self { spec, context, info, book, rollout, episodes: request.episodes, validation: request.validation })
    }

    fn report(&self, request: &EvalRequest, step: u64, rows: Vec<Row>, notes: Vec<String>) -> Report {
        Report {
            run: request.run.display().to_string(),
            env: self.info.name.to_owned(),
            episodes: self.episodes,
            validation: self.validation,
            step,
            rows,
            notes,
        }
    }

    fn plans(&self, split: Split) -> Vec<play::EpisodePlan> {
        let count = if split == Split::Validation { self.validation } else { self.episodes };
        play::plan_episodes(&self.context, 0, split, count, 1)
    }

    /// Rows of the scripted baselines and of the spec's own teacher.
    fn scripted(&self, tell: &dyn Fn(&str)) -> Result<Vec<Row>, Ending> {
        let mut policies: Vec<(String, String, f64)> =
            self.info.policy_names().into_iter().map(|name| (name.to_owned(), name.to_owned(), 0.0)).collect();
        if let Some(node) = self.spec.nodes.iter().find(|node| node.info.name == "teacher_rollouts") {
            let teacher: teacher_rollouts::Config = configuration("teacher_rollouts", &node.config)?;
            policies.push((
                format!("teacher ({}, {:.0} % random)", teacher.teacher, 100.0 * teacher.noise),
                teacher.teacher,
                teacher.noise,
            ));
        }
        policies
            .into_iter()
            .map(|(name, policy, noise)| {
                tell(&name);
                let played = scripted_episodes(&self.context, &policy, noise, &self.plans(Split::Test))?;
                Ok(row(name, None, None, &played))
            })
            .collect()
    }

    /// The embedded model as it is before any training.
    fn untrained(&self) -> Result<Model, Ending> {
        let start = self.spec.nodes.iter().find(|node| node.info.name == "cold_start").map_or("start", |node| node.name.as_str());
        let seed = cosplay_operators::operator::random_stream(self.spec.settings.seed, start, 0, 0).next_u64();
        Ok(Model::init(model_config(&self.context, &self.book)?, seed).map_err(OperatorError::from)?)
    }

    /// Empty, first and final bank, as far as the run has them.
    fn banks(&self, run: &RunDir, step: u64) -> Result<Vec<(BankChoice, AgentBank)>, Ending> {
        let mut banks = vec![(BankChoice::None, AgentBank::default())];
        let read = |at: u64| -> Result<AgentBank, Ending> { Ok(AgentBank::new(&run.read_step::<Skill>(at)?, &self.info, at as u32 + 1)?) };
        for at in run.steps(TableName::Skills).into_iter().filter(|&at| at <= step) {
            let bank = read(at)?;
            if !bank.skills().is_empty() {
                banks.push((BankChoice::First, bank));
                break;
            }
        }
        if banks.len() > 1 {
            banks.push((BankChoice::Final, read(step)?));
        }
        Ok(banks)
    }

    /// Three rows of a model: at T = 1, at its best temperature by validation, and greedy.
    fn model(
        &self,
        name: &str,
        model: &Model,
        (choice, bank): (Option<BankChoice>, &AgentBank),
        tell: &dyn Fn(&str),
    ) -> Result<Vec<Row>, Ending> {
        tell(&format!("{name}, bank {}", choice.map_or("none", BankChoice::name)));
        let mut best = (f64::NEG_INFINITY, 1.0);
        for temperature in TEMPERATURES {
            let played = self.play(model, bank, temperature, Split::Validation)?;
            let mean = Interval::of(&returns(&played)).mean;
            if mean > best.0 {
                best = (mean, temperature);
            }
        }
        let mut rows = Vec::new();
        for (label, temperature) in [("T=1".to_owned(), 1.0), (format!("best T={}", best.1), best.1), ("greedy".to_owned(), 0.0)] {
            let played = self.play(model, bank, temperature, Split::Test)?;
            rows.push(row(name.to_owned(), choice, Some(label), &played));
        }
        Ok(rows)
    }

    fn play(&self, model: &Model, bank: &AgentBank, temperature: f64, split: Split) -> Result<play::Played, Ending> {
        let options = AgentOptions { temperature, retrieval: self.rollout.retrieval.clone(), without_bank_every: 0, full: false };
        let adapter = |name: &'static str| model.adapters().any(|adapter| adapter == name).then_some(name);
        let agent = Agent {
            model,
            action_adapter: adapter("action"),
            retrieval_adapter: adapter("retrieval"),
            policy_version: 0,
            bank,
            book: &self.book,
            options: &options,
            total: 0,
        };
        Ok(play::on_threads(&self.plans(split), self.context.threads, |part| agent.play(&self.context, 0, part))?)
    }
}

fn returns(played: &play::Played) -> Vec<f64> {
    played.episodes.iter().map(|row| row.ret).collect()
}

fn row(policy: String, bank: Option<BankChoice>, decoding: Option<String>, played: &play::Played) -> Row {
    let returns = returns(played);
    let interval = Interval::of(&returns);
    let lengths: Vec<f64> = played.episodes.iter().map(|row| f64::from(row.length)).collect();
    Row {
        policy,
        bank,
        decoding,
        mean: interval.mean,
        half_width: interval.half,
        length: Interval::of(&lengths).mean,
        against_cold_start: None,
        returns,
    }
}

impl Report {
    /// The report as a table for people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} on {}: {} test episodes a row, the same seeds in all rows; mean return ± 95 % interval\n\
             best T is chosen on {} validation episodes; co-evolved is the policy after step {}\n\n",
            self.run, self.env, self.episodes, self.validation, self.step
        );
        text.push_str(&format!(
            "{:<38} {:<6} {:<11} {:>14} {:>7}   {}\n",
            "policy", "bank", "decoding", "return", "steps", "against cold start"
        ));
        for row in &self.rows {
            let against = match row.against_cold_start {
                Some((mean, half)) => format!("{mean:+.0} ± {half:.0}"),
                None => String::new(),
            };
            let interval = Interval { mean: row.mean, half: row.half_width, count: self.episodes as usize }.to_string();
            text.push_str(&format!(
                "{:<38} {:<6} {:<11} {:>14} {:>7.0}   {}\n",
                row.policy,
                row.bank.map_or("", BankChoice::name),
                row.decoding.as_deref().unwrap_or(""),
                interval,
                row.length,
                against
            ));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text.push_str("\nagainst cold start: paired difference to the cold start at its own best temperature, without a bank\n");
        text
    }
}

/// Writes a report as JSON.
///
/// # Errors
/// None in practice.
pub fn json(report: &Report) -> Result<String, Ending> {
    serde_json::to_string_pretty(report).map_err(Ending::failed)
}

/// True if `path` looks like a run directory.
pub fn is_run(path: &Path) -> bool {
    RunDir::exists(path)
}
