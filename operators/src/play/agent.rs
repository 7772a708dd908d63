//! The decision agent (paper section 4.1): keep or retrieve a skill (eq. 1), state an intention (eq. 2), choose an action (eq. 3).

use super::record::{EpisodeRecord, Recorder, StepFacts};
use super::tracker::{AgentSkill, SwitchReason, Tracker};
use super::{EpisodePlan, Played, environment, episode_stream};
use crate::contract::Contract;
use crate::operator::{NodeContext, OperatorError};
use crate::prompts::{ActionContext, Prompt, PromptBook, SkillWords};
use crate::retrieve::{self, RetrievalConfig, RetrievalSkill};
use cosplay_datasets::{Decision, Skill};
use cosplay_envs::{EnvInfo, Environment, Player, PredicateSet, View};
use cosplay_models::{Model, Scorer, choice};
use rand_chacha::ChaCha8Rng;

/// The bank as the agent sees it: active skills only, in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct AgentBank {
    skills: Vec<AgentSkill>,
    words: Vec<SkillWords>,
    retrieval: Vec<RetrievalSkill>,
    version: u32,
}

impl AgentBank {
    /// Reads the rows of a bank; `version` is the step that made it, plus one (0 is the empty bank).
    ///
    /// # Errors
    /// If a skill names predicates that the environment does not have.
    pub fn new(rows: &[Skill], info: &EnvInfo, version: u32) -> Result<Self, OperatorError> {
        let mut bank = Self { version, ..Self::default() };
        for row in rows.iter().filter(|row| row.state == "active") {
            let literals = |sign: char| {
                let names = row.abort.iter().filter_map(move |literal| literal.strip_prefix(sign));
                info.set(names).0
            };
            bank.skills.push(AgentSkill {
                skill: row.skill,
                name: row.name.clone(),
                tag: cosplay_envs::Tag::parse(&row.tag),
                contract: Contract::from_skill(row, info)?,
                abort_true: literals('+'),
                abort_false: literals('-'),
                max_duration: longest(row.duration),
            });
            bank.words.push(retrieve::skill_words(row));
            bank.retrieval.push(RetrievalSkill::new(row, info)?);
        }
        Ok(bank)
    }

    /// Active skills.
    pub fn skills(&self) -> &[AgentSkill] {
        &self.skills
    }

    /// Version of the bank.
    pub fn version(&self) -> u32 {
        self.version
    }
}

/// Longest time on a skill, from the median duration of its instances.
fn longest(duration: f64) -> u32 {
    if duration > 0.0 { ((1.5 * duration).ceil() as u32).max(5) } else { 10 }
}

/// How the agent decides.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Sampling temperature; 0 is greedy.
    pub temperature: f64,
    /// Retrieval: weights and number of candidates.
    pub retrieval: RetrievalConfig,
    /// Every n-th episode plays without a bank, so that the policy also knows states without a skill; 0 is never.
    pub without_bank_every: u32,
    /// True to keep rows of steps and decisions.
    pub full: bool,
}

/// A policy with a bank.
pub struct Agent<'a> {
    /// Model with its adapters.
    pub model: &'a Model,
    /// Adapter of the actions; `None` plays the base alone.
    pub action_adapter: Option<&'a str>,
    /// Adapter of the skill choices.
    pub retrieval_adapter: Option<&'a str>,
    /// Version of the policy.
    pub policy_version: u32,
    /// Bank.
    pub bank: &'a AgentBank,
    /// Prompts.
    pub book: &'a PromptBook,
    /// Options.
    pub options: &'a AgentOptions,
    /// Episodes that all threads play together, for the display.
    pub total: u64,
}

struct Live<'p> {
    plan: &'p EpisodePlan,
    env: Box<dyn Environment>,
    random: ChaCha8Rng,
    tracker: Tracker,
    recorder: Recorder,
    recent: Vec<String>,
    with_bank: bool,
}

struct Turn {
    view: View,
    reason: SwitchReason,
    call: u32,
}

impl Agent<'_> {
    /// Plays `plans` in lock-step on this thread.
    ///
    /// # Errors
    /// Of the environment or the model, or that the run was stopped.
    pub fn play(&self, context: &NodeContext, step: u64, plans: &[EpisodePlan]) -> Result<Played, OperatorError> {
        let mut live = plans.iter().map(|plan| self.start(context, step, plan)).collect::<Result<Vec<_>, _>>()?;
        let info = match live.first() {
            Some(first) => first.env.info().clone(),
            None => return Ok(Played::default()),
        };
        let mut action_scorer = Scorer::new(self.model, self.action_adapter)?;
        let mut skill_scorer = Scorer::new(self.model, self.retrieval_adapter)?;
        let record = EpisodeRecord { node: context.node.clone(), policy_version: self.policy_version, bank_version: self.bank.version };
        let (mut told, mut tokens_told) = (0, 0);
        let mut finished: Vec<(usize, Live<'_>)> = Vec::new();
        let mut index: Vec<usize> = (0..live.len()).collect();
        while !live.is_empty() {
            context.check_stop()?;
            let mut turns = live.iter_mut().map(|episode| self.observe(episode)).collect::<Result<Vec<_>, _>>()?;
            self.choose_skills(&mut live, &mut turns, &mut skill_scorer)?;
            self.act(&info, &mut live, turns, &mut action_scorer)?;
            let mut still = Vec::new();
            let mut still_index = Vec::new();
            for (position, episode) in index.into_iter().zip(live) {
                if episode.env.to_move().is_empty() {
                    finished.push((position, episode));
                } else {
                    still.push(episode);
                    still_index.push(position);
                }
            }
            (live, index) = (still, still_index);
            let tokens = action_scorer.stats().tokens + skill_scorer.stats().tokens;
            context.progress.advance(&context.node, finished.len() as u64 - told, self.total, tokens - tokens_told);
            (told, tokens_told) = (finished.len() as u64, tokens);
        }
        finished.sort_by_key(|(position, _)| *position);
        let mut played = Played::default();
        for (_, episode) in finished {
            episode.recorder.finish(episode.plan, &record, episode.env.as_ref(), &mut played)?;
        }
        Ok(played)
    }

    fn start<'p>(&self, context: &NodeContext, step: u64, plan: &'p EpisodePlan) -> Result<Live<'p>, OperatorError> {
        let mut env = environment(context)?;
        env.reset(plan.seed)?;
        let every = self.options.without_bank_every;
        Ok(Live {
            plan,
            env,
            random: episode_stream(context, step, plan.episode),
            tracker: Tracker::default(),
            recorder: Recorder::new(self.options.full),
            recent: Vec::new(),
            with_bank: every == 0 || plan.episode.index() % every != every - 1,
        })
    }

    fn observe(&self, episode: &mut Live<'_>) -> Result<Turn, OperatorError> {
        let view = episode.env.view(Player(0))?;
        let skills = if episode.with_bank { self.bank.skills() } else { &[] };
        let reason = episode.tracker.reason(skills, view.intention.tag);
        Ok(Turn { view, reason, call: 0 })
    }

    /// Retrieval: the bank's best candidates, of which the retrieval adapter picks one.
    fn choose_skills(&self, live: &mut [Live<'_>], turns: &mut [Turn], scorer: &mut Scorer) -> Result<(), OperatorError> {
        let mut asked: Vec<(usize, Vec<usize>, Prompt)> = Vec::new();
        for (position, (episode, turn)) in live.iter_mut().zip(turns.iter()).enumerate() {
            if matches!(turn.reason, SwitchReason::Keep | SwitchReason::NoBank) {
                continue;
            }
            let query = retrieve::Query::new(turn.view.predicates, turn.view.intention.tag);
            let candidates = retrieve::candidates(&self.bank.retrieval, &query, &self.options.retrieval);
            let options: Vec<usize> = candidates.iter().map(|candidate| candidate.index).collect();
            if options.is_empty() {
                episode.tracker.choose(None, turn.view.predicates, turn.view.intention.tag);
                continue;
            }
            let words: Vec<SkillWords> = options.iter().map(|&option| self.bank.words[option].clone()).collect();
            let prompt = self.book.skill(&turn.view, turn.view.intention.tag, &words)?;
            asked.push((position, options, prompt));
        }
        let prompts: Vec<&Prompt> = asked.iter().map(|(_, _, prompt)| prompt).collect();
        let scores = score(scorer, &prompts)?;
        for ((position, options, prompt), scores) in asked.iter().zip(scores) {
            let (episode, turn) = (&mut live[*position], &mut turns[*position]);
            let picked = self.pick(&scores, &mut episode.random)?;
            let option = options[picked.chosen];
            episode.tracker.choose(Some(option), turn.view.predicates, turn.view.intention.tag);
            if episode.recorder.full() {
                let choices = options.iter().map(|&option| self.bank.skills[option].name.clone()).collect();
                let decision = self.decision(episode, turn, "retrieval", "skill", prompt, choices, picked);
                episode.recorder.decision(decision);
            }
            turn.call += 1;
        }
        Ok(())
    }

    /// The action choice of every live episode, and the step in its environment.
    fn act(&self, info: &EnvInfo, live: &mut [Live<'_>], turns: Vec<Turn>, scorer: &mut Scorer) -> Result<(), OperatorError> {
        let mut prompts = Vec::with_capacity(turns.len());
        for (episode, turn) in live.iter().zip(&turns) {
            let skill = episode.tracker.active().map(|index| &self.bank.words[index]);
            let context = ActionContext { skill, intention: turn.view.intention.tag, recent: &episode.recent };
            prompts.push(self.book.action(&turn.view, context)?);
        }
        let scores = score(scorer, &prompts.iter().collect::<Vec<_>>())?;
        for (((episode, turn), prompt), scores) in live.iter_mut().zip(turns).zip(&prompts).zip(scores) {
            let picked = self.pick(&scores, &mut episode.random)?;
            let surprisal = (turn.view.choices.len() > 1).then_some(-f64::from(picked.logprob));
            let chosen = picked.chosen;
            if episode.recorder.full() {
                let choices = turn.view.choices.iter().map(|choice| choice.text.to_string()).collect();
                let decision = self.decision(episode, &turn, "action", "action", prompt, choices, picked);
                episode.recorder.decision(decision);
            }
            if let Some(word) = turn.view.choices.get(chosen).and_then(|choice| choice.words.first()) {
                episode.recent.insert(0, word.to_string());
                episode.recent.truncate(2);
            }
            let transition = episode.env.step(&[(Player(0), chosen)])?;
            let facts = StepFacts {
                skill: episode.tracker.active().map(|index| self.bank.skills[index].skill),
                switch_reason: turn.reason.as_str(),
                surprisal,
                action: chosen,
            };
            let after: PredicateSet = episode.env.state_predicates(Player(0));
            let reward = transition.rewards.first().copied().unwrap_or(0.0);
            episode.tracker.observe(after, transition.events, reward);
            episode.recorder.step(episode.plan, info, episode.env.as_ref(), turn.view, &transition, &facts);
        }
        Ok(())
    }

    fn pick(&self, scores: &[f32], random: &mut ChaCha8Rng) -> Result<Picked, OperatorError> {
        let temperature = self.options.temperature;
        let logprobs = choice::log_softmax(scores, if temperature > 0.0 { temperature } else { 1.0 })?;
        let chosen = match scores.len() {
            // An option without alternative draws nothing, so that it does not matter how it came about.
            1 => 0,
            _ if temperature > 0.0 => choice::sample(&logprobs, random),
            _ => choice::greedy(scores),
        };
        let logprobs: Vec<f32> = logprobs.iter().map(|&value| value as f32).collect();
        Ok(Picked { chosen, logprob: logprobs[chosen], logprobs })
    }

    #[expect(clippy::too_many_arguments, reason = "one row, one call")]
    fn decision(
        &self,
        episode: &Live<'_>,
        turn: &Turn,
        adapter: &str,
        task: &str,
        prompt: &Prompt,
        choices: Vec<String>,
        picked: Picked,
    ) -> Decision {
        Decision {
            episode: episode.plan.episode,
            t: episode.recorder.length(),
            call: turn.call,
            adapter: adapter.to_owned(),
            task: task.to_owned(),
            form: prompt.form.to_owned(),
            prompt_ids: prompt.ids.clone(),
            prompt_lengths: prompt.lengths.clone(),
            completion_ids: vec![prompt.answer(picked.chosen)],
            mask: vec![true],
            source: if choices.len() > 1 { "model" } else { "only_choice" }.to_owned(),
            chosen: picked.chosen as u32,
            logprob: picked.logprob,
            logprobs: picked.logprobs,
            choices,
            temperature: self.options.temperature as f32,
            policy_version: self.policy_version,
        }
    }
}

struct Picked {
    chosen: usize,
    logprob: f32,
    logprobs: Vec<f32>,
}

/// Scores of the options of every prompt.
fn score(scorer: &mut Scorer, prompts: &[&Prompt]) -> Result<Vec<Vec<f32>>, OperatorError> {
    let queries: Vec<_> = prompts.iter().flat_map(|prompt| prompt.queries()).collect();
    let logits = scorer.logits(&queries)?;
    let mut rest = logits.as_slice();
    Ok(prompts
        .iter()
        .map(|prompt| {
            let (scores, tail) = rest.split_at(prompt.options());
            rest = tail;
            scores.to_vec()
        })
        .collect())
}
