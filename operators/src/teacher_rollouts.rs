//! `teacher_rollouts`: episodes of a scripted teacher, for the cold start.

use crate::kind::Kind;
use crate::operator::{Inputs, NodeContext, Operator, OperatorError, Outputs, Schedule};
use crate::play::{self, EpisodePlan, EpisodeRecord, Played, Recorder, StepFacts};
use crate::prompts::{ActionContext, PromptBook, SkillWords};
use crate::registry::{self, ConfigProblem, OperatorInfo};
use crate::settings::RunSettings;
use cosplay_datasets::Decision;
use cosplay_envs::{EnvInfo, Player, PredicateSet, Split, Transition, View};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Scripted policy that plays; `cosplay envs GAME` lists them. A weak teacher leaves room to learn.
    pub teacher: String,
    /// Share of moves that are drawn at random instead.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub noise: f64,
    /// Number of episodes (the paper's cold start has 60).
    #[schemars(range(min = 1, max = 90_000))]
    pub episodes: u32,
    /// Split that the seeds are drawn from.
    pub split: SplitName,
    /// Share of stretches that are labelled in hindsight with a skill's words: something that came true within `horizon` steps. It teaches
    /// the model what the words of a skill mean before there is a bank.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub hindsight: f64,
    /// Longest such stretch, in steps.
    #[schemars(range(min = 1, max = 1000))]
    pub horizon: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { teacher: "greedy_merge".into(), noise: 0.3, episodes: 60, split: SplitName::Train, hindsight: 0.5, horizon: 10 }
    }
}

/// A split, as specs write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SplitName {
    /// For learning.
    #[default]
    Train,
    /// For choosing temperatures and checkpoints.
    Validation,
    /// For reports alone: no policy and no bank may learn from it.
    Test,
}

impl From<SplitName> for Split {
    fn from(name: SplitName) -> Self {
        match name {
            SplitName::Train => Split::Train,
            SplitName::Validation => Split::Validation,
            SplitName::Test => Split::Test,
        }
    }
}

/// An episode of a scripted policy, with the views that its choices were made on.
struct Scripted {
    views: Vec<View>,
    chosen: Vec<usize>,
    events: Vec<PredicateSet>,
    after: Vec<PredicateSet>,
}

/// Plays one episode with a scripted policy.
fn play_scripted(
    context: &NodeContext,
    policy: &str,
    noise: f64,
    plan: &EpisodePlan,
    step: u64,
    full: bool,
    played: &mut Played,
) -> Result<Scripted, OperatorError> {
    let mut env = play::environment(context)?;
    env.reset(plan.seed)?;
    let info = env.info().clone();
    let mut random = play::episode_stream(context, step, plan.episode);
    let mut policy = cosplay_envs::policy(info.name, policy, noise)?;
    let mut recorder = Recorder::new(full);
    let mut scripted = Scripted { views: Vec::new(), chosen: Vec::new(), events: Vec::new(), after: Vec::new() };
    while !env.to_move().is_empty() {
        context.check_stop()?;
        let view = env.view(Player(0))?;
        let chosen = policy.choose(env.as_ref(), Player(0), &view, &mut random);
        let transition: Transition = env.step(&[(Player(0), chosen)])?;
        let facts = StepFacts { skill: None, switch_reason: "no_bank", surprisal: None, action: chosen };
        if full {
            scripted.views.push(view.clone());
            scripted.chosen.push(chosen);
            scripted.events.push(transition.events);
            scripted.after.push(env.state_predicates(Player(0)));
        }
        recorder.step(plan, &info, env.as_ref(), view, &transition, &facts);
    }
    let record = EpisodeRecord { node: context.node.clone(), policy_version: 0, bank_version: 0 };
    recorder.finish(plan, &record, env.as_ref(), played)?;
    Ok(scripted)
}

/// Returns of a scripted policy on `plans`, as rows of `episodes`.
///
/// # Errors
/// If the environment does not know the policy.
pub fn scripted_episodes(context: &NodeContext, policy: &str, noise: f64, plans: &[EpisodePlan]) -> Result<Played, OperatorError> {
    play::on_threads(plans, context.threads, |part| {
        let mut played = Played::default();
        for plan in part {
            play_scripted(context, policy, noise, plan, 0, false, &mut played)?;
        }
        Ok(played)
    })
}

/// Plays an episode of the teacher and writes down its choices as the model would have been asked for them.
fn teach(context: &NodeContext, config: &Config, book: &PromptBook, info: &EnvInfo, plan: &EpisodePlan) -> Result<Played, OperatorError> {
    let mut played = Played::default();
    let scripted = play_scripted(context, &config.teacher, config.noise, plan, 0, true, &mut played)?;
    // A stream of its own: the labels must not change the play.
    let mut random = crate::operator::random_stream(context.settings.seed, "hindsight", 0, plan.episode.0);
    let mut skill: Option<SkillWords> = None;
    let (mut until, mut literal) = (0, None);
    let mut recent: Vec<String> = Vec::new();
    for t in 0..scripted.views.len() {
        let view = &scripted.views[t];
        let reached =
            literal.is_some_and(|literal| t > 0 && (scripted.after[t - 1].contains(literal) || scripted.events[t - 1].contains(literal)));
        let mut call = 0;
        if t >= until || reached {
            (skill, literal) = (None, None);
            until = t + 1 + (random.next_u32() % config.horizon) as usize;
            let wanted = random.random::<f64>() < config.hindsight;
            let drawn = if wanted { hindsight(book, info, &scripted, t, config, plan, &mut random)? } else { None };
            if let Some((words, index, decision)) = drawn {
                until = t + config.horizon as usize;
                (skill, literal) = (Some(words), Some(index));
                played.decisions.push(decision);
                call = 1;
            }
        }
        let prompt = book.action(view, ActionContext { skill: skill.as_ref(), intention: view.intention.tag, recent: &recent })?;
        let chosen = scripted.chosen[t];
        let choices = view.choices.iter().map(|choice| choice.text.to_string()).collect();
        played.decisions.push(scripted_decision(plan, t, call, "action", prompt, choices, chosen, &config.teacher));
        if let Some(word) = view.choices.get(chosen).and_then(|choice| choice.words.first()) {
            recent.insert(0, word.to_string());
            recent.truncate(2);
        }
    }
    Ok(played)
}

/// Draws something that comes true within the horizon, and the skill choice that would have been right for it.
fn hindsight(
    book: &PromptBook,
    info: &EnvInfo,
    scripted: &Scripted,
    t: usize,
    config: &Config,
    plan: &EpisodePlan,
    random: &mut ChaCha8Rng,
) -> Result<Option<(SkillWords, usize, Decision)>, OperatorError> {
    let view = &scripted.views[t];
    let end = (t + config.horizon as usize).min(scripted.views.len());
    let reached = (t..end).fold(PredicateSet::EMPTY, |set, at| set.union(scripted.after[at]).union(scripted.events[at]));
    let coming: Vec<usize> = reached.minus(view.predicates).iter().collect();
    let other: Vec<usize> =
        (0..info.predicates.len()).filter(|&index| !reached.contains(index) && !view.predicates.contains(index)).collect();
    if coming.is_empty() {
        return Ok(None);
    }
    let literal = coming[random.next_u32() as usize % coming.len()];
    let mut options = vec![literal];
    for _ in 0..3.min(other.len()) {
        let candidate = other[random.next_u32() as usize % other.len()];
        if !options.contains(&candidate) {
            options.push(candidate);
        }
    }
    let place = random.next_u32() as usize % options.len();
    options.swap(0, place);
    let tag = view.intention.tag;
    let words: Vec<SkillWords> = options.iter().map(|&index| [tag.as_str().to_owned(), info.predicates[index].name.to_owned()]).collect();
    let prompt = book.skill(view, tag, &words)?;
    let choices = words.iter().map(|words| words.join(" ")).collect();
    let decision = scripted_decision(plan, t, 0, "skill", prompt, choices, place, "hindsight");
    Ok(Some((words[place].clone(), literal, decision)))
}

#[expect(clippy::too_many_arguments, reason = "one row, one call")]
fn scripted_decision(
    plan: &EpisodePlan,
    t: usize,
    call: u32,
    task: &str,
    prompt: crate::prompts::Prompt,
    choices: Vec<String>,
    chosen: usize,
    source: &str,
) -> Decision {
    Decision {
        episode: plan.episode,
        t: t as u32,
        call,
        adapter: "base".into(),
        task: task.to_owned(),
        form: prompt.form.to_owned(),
        completion_ids: vec![prompt.answer(chosen)],
        prompt_ids: prompt.ids,
        prompt_lengths: prompt.lengths,
        // A scripted policy states no probabilities.
        logprobs: vec![0.0; choices.len()],
        mask: vec![true],
        chosen: chosen as u32,
        logprob: 0.0,
        choices,
        temperature: 0.0,
        source: source.to_owned(),
        policy_version: 0,
    }
}

struct TeacherRollouts {
    config: Config,
    context: NodeContext,
    book: PromptBook,
}

impl Operator for TeacherRollouts {
    fn step(&mut self, step: u64, _inputs: &Inputs) -> Result<Outputs, OperatorError> {
        let context = &self.context;
        let info = play::environment(context)?.info().clone();
        let plans: Vec<EpisodePlan> = play::plan_episodes(context, step, self.config.split.into(), self.config.episodes, 1)
            .into_iter()
            .filter(|plan| crate::dataflow::routing::worker_of_episode(plan.episode.index(), context.workers) == context.worker)
            .collect();
        let played = play::on_threads(&plans, context.threads, |part| {
            let mut played = Played::default();
            for plan in part {
                played.append(teach(context, &self.config, &self.book, &info, plan)?);
                context.progress.advance(&context.node, 1, plans.len() as u64, 0);
            }
            Ok(played)
        })?;
        let mut outputs = Outputs::default();
        outputs.push(&played.episodes)?;
        outputs.push(&played.experiences)?;
        outputs.push(&played.decisions)?;
        outputs.metric(&context.node, "episodes", played.episodes.len() as f64);
        outputs.metric(&context.node, "environment_steps", played.experiences.len() as f64);
        Ok(outputs)
    }
}

/// Problem if `policy` is not a scripted policy of the run's game.
pub(crate) fn check_policy(policy: &str, key: &'static str, settings: &RunSettings) -> Vec<ConfigProblem> {
    let Some(info) = cosplay_envs::environments().into_iter().find(|info| info.name == settings.env.game) else {
        return Vec::new(); // the game itself is reported where it stands
    };
    let valid: Vec<String> = info.policy_names().into_iter().map(str::to_owned).collect();
    if valid.iter().any(|name| name == policy) {
        return Vec::new();
    }
    let message = format!("`{}` has no scripted policy `{policy}`; expected one of {}", info.name, valid.join(", "));
    vec![ConfigProblem { key, message, valid }]
}

/// The operator.
pub static INFO: OperatorInfo = OperatorInfo {
    name: "teacher_rollouts",
    about: "Plays episodes with a scripted teacher and records its choices in the form in which the model is asked for them.",
    paper: "section 4.3, cold start",
    inputs: &[],
    output: Kind::Rollouts,
    schedule: Schedule::Once,
    restores: &[],
    inherits: &[],
    prepare: None,
    plays: true,
    learns: false,
    schema: || schemars::schema_for!(Config),
    resolve: registry::resolve::<Config>,
    check: |config, settings| match Config::deserialize(config) {
        Ok(config) => check_policy(&config.teacher, "teacher", settings),
        Err(_) => Vec::new(),
    },
    build: |config: &Value, context: NodeContext| {
        let book = PromptBook::new(play::environment(&context)?.info(), context.settings.model.choices)?;
        Ok(Box::new(TeacherRollouts { config: registry::configuration("teacher_rollouts", config)?, context, book }))
    },
};
