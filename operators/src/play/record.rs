//! From what happens in an episode to rows.

use super::{EpisodePlan, Played};
use crate::operator::OperatorError;
use cosplay_datasets::{Decision, Episode, Experience, SkillId};
use cosplay_envs::{EnvInfo, Environment, Player, PredicateSet, Transition, View};

/// Facts about the run that go into every episode's row.
#[derive(Clone, Debug)]
pub struct EpisodeRecord {
    /// Name of the node.
    pub node: String,
    /// Version of the policy.
    pub policy_version: u32,
    /// Version of the bank.
    pub bank_version: u32,
}

/// What an environment step is made of, besides its view and transition.
#[derive(Clone, Debug)]
pub struct StepFacts {
    /// Active skill.
    pub skill: Option<SkillId>,
    /// Why it was kept or replaced.
    pub switch_reason: &'static str,
    /// −ln π(a), if a model chose.
    pub surprisal: Option<f64>,
    /// Index of the action.
    pub action: usize,
}

/// Collects the rows of one episode. With `full` false only the row of the episode is kept, which is all that an evaluation needs.
#[derive(Debug)]
pub struct Recorder {
    full: bool,
    ret: f64,
    length: u32,
    outcome: String,
    experiences: Vec<Experience>,
    decisions: Vec<Decision>,
}

impl Recorder {
    /// A recorder of an episode that begins.
    pub fn new(full: bool) -> Self {
        Self { full, ret: 0.0, length: 0, outcome: "unfinished".into(), experiences: Vec::new(), decisions: Vec::new() }
    }

    /// True if rows of steps and decisions are kept.
    pub fn full(&self) -> bool {
        self.full
    }

    /// Steps so far.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Adds a decision of the current step.
    pub fn decision(&mut self, decision: Decision) {
        if self.full {
            self.decisions.push(decision);
        }
    }

    /// Adds a step of a single-player game.
    pub fn step(
        &mut self,
        plan: &EpisodePlan,
        info: &EnvInfo,
        env: &dyn Environment,
        view: View,
        transition: &Transition,
        facts: &StepFacts,
    ) {
        let reward = transition.rewards.first().copied().unwrap_or(0.0);
        self.ret += reward;
        if let Some(outcome) = &transition.outcome {
            self.outcome = outcome.to_string();
        }
        if self.full {
            let names = |set: PredicateSet| info.names(set).into_iter().map(str::to_owned).collect::<Vec<_>>();
            self.experiences.push(Experience {
                episode: plan.episode,
                t: self.length,
                player: 0,
                observation: view.observation,
                summary: view.summary,
                state_words: view.state_words.iter().map(ToString::to_string).collect(),
                predicates: names(view.predicates),
                valid_actions: view.choices.iter().map(|choice| choice.text.to_string()).collect(),
                action: view.choices.get(facts.action).map(|choice| choice.text.to_string()).unwrap_or_default(),
                reward,
                done: transition.done,
                next_predicates: names(env.state_predicates(Player(0))),
                events: names(transition.events),
                next_observation: transition.done.then(|| env.observation(Player(0))),
                intention_tag: view.intention.tag.as_str().to_owned(),
                intention: view.intention.phrase,
                skill: facts.skill,
                switch_reason: facts.switch_reason.to_owned(),
                surprisal: facts.surprisal,
            });
        }
        self.length += 1;
    }

    /// Ends the episode and adds its rows to `played`.
    ///
    /// # Errors
    /// None today; a recorder that cannot place its rows says so here.
    pub fn finish(
        self,
        plan: &EpisodePlan,
        record: &EpisodeRecord,
        env: &dyn Environment,
        played: &mut Played,
    ) -> Result<(), OperatorError> {
        played.episodes.push(Episode {
            episode: plan.episode,
            node: record.node.clone(),
            env: env.info().name.to_owned(),
            split: plan.split.as_str().to_owned(),
            role: env.role(Player(0)).to_string(),
            seed: plan.seed,
            group: plan.group,
            outcome: self.outcome,
            ret: self.ret,
            length: self.length,
            policy_version: record.policy_version,
            bank_version: record.bank_version,
        });
        played.experiences.extend(self.experiences);
        played.decisions.extend(self.decisions);
        Ok(())
    }
}
