//! `cold_start`: supervised training of the base model on teacher episodes; both agents start from it.

use crate::kind::Kind;
use crate::operator::{Inputs, NodeContext, Operator, OperatorError, Outputs, Port, Routing, Schedule};
use crate::play;
use crate::policy::{self, ADAPTERS, BASE};
use crate::prompts::{Prompt, PromptBook};
use crate::registry::{self, OperatorInfo};
use cosplay_datasets::{Decision, PolicyTensor};
use cosplay_models::{AdamW, Adapter, Decay, Model, Schedule as Rate, Scorer, Target, Trainable, choice};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Optimiser steps.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub steps: u32,
    /// Action choices in a batch.
    #[schemars(range(min = 1, max = 100_000))]
    pub batch: u32,
    /// Skill choices in a batch (hindsight labels).
    #[schemars(range(min = 0, max = 100_000))]
    pub skill_batch: u32,
    /// Highest learning rate; cosine decay to 5 % of it.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: f64,
    /// Steps of linear warm-up.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub warmup: u32,
    /// Weight decay of AdamW.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub weight_decay: f64,
    /// Gradients longer than this are scaled down to it.
    #[schemars(range(min = 0.0, max = 1.0e6))]
    pub max_grad_norm: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { steps: 150, batch: 48, skill_batch: 12, learning_rate: 3e-3, warmup: 30, weight_decay: 0.01, max_grad_norm: 1.0 }
    }
}

/// A choice that a teacher made.
struct Lesson {
    prompt: Prompt,
    chosen: usize,
}

/// Lessons of a task; choices without alternative teach nothing.
fn lessons(decisions: &[Decision], task: &str, book: &PromptBook) -> Result<Vec<Lesson>, OperatorError> {
    decisions
        .iter()
        .filter(|row| row.task == task && row.choices.len() > 1)
        .map(|row| {
            let prompt = book.recorded(row).ok_or_else(|| {
                OperatorError::Other(format!(
                    "decision {} of episode {} at t={} was recorded with another vocabulary or form",
                    row.call, row.episode, row.t
                ))
            })?;
            Ok(Lesson { prompt, chosen: row.chosen as usize })
        })
        .collect()
}

/// Mean cross-entropy of a batch, share of choices that agree with the teacher, and the derivatives by logit. Only the answer counts: the
/// prompts' tokens carry no loss.
fn cross_entropy(batch: &[&Lesson], logits: &[f32]) -> Result<(f64, f64, Vec<f32>), OperatorError> {
    let (mut loss, mut hits, mut derivative) = (0.0, 0.0, Vec::with_capacity(logits.len()));
    let mut rest = logits;
    for lesson in batch {
        let (scores, tail) = rest.split_at(lesson.prompt.options());
        rest = tail;
        let logprobs = choice::log_softmax(scores, 1.0)?;
        loss -= logprobs[lesson.chosen];
        hits += f64::from(u8::from(choice::greedy(scores) == lesson.chosen));
        derivative.extend(choice::d_log_prob(&logprobs, lesson.chosen, 1.0).iter().map(|value| (-value / batch.len() as f64) as f32));
    }
    let count = batch.len().max(1) as f64;
    Ok((loss / count, hits / count, derivative))
}

/// Trains a fresh model; returns it with loss and agreement at the start and at the end (means of ten steps).
fn train(
    context: &NodeContext,
    config: &Config,
    book: &PromptBook,
    actions: &[Lesson],
    skills: &[Lesson],
) -> Result<(Trainable, [(f64, f64); 2]), OperatorError> {
    let model = Model::init(policy::model_config(context, book)?, context.random(0, 0).next_u64())?;
    let mut trainable = Trainable::new(&model, Target::Base)?;
    let mut random = context.random(0, 1);
    let rate = Rate { peak: config.learning_rate, warmup: config.warmup, total: config.steps, floor: 0.05, decay: Decay::Cosine };
    let mut history = Vec::new();
    for step in 0..config.steps {
        context.check_stop()?;
        let mut batch: Vec<&Lesson> = draw(actions, config.batch, &mut random);
        batch.extend(draw(skills, config.skill_batch, &mut random));
        let queries: Vec<_> = batch.iter().flat_map(|lesson| lesson.prompt.queries()).collect();
        let logits = Scorer::new(trainable.model(), None)?.threads(context.threads).logits(&queries)?;
        let (loss, agreement, derivative) = cross_entropy(&batch, &logits)?;
        if !loss.is_finite() {
            return Err(OperatorError::NotFinite { what: "loss".into(), samples: format!("batch {step} of the cold start") });
        }
        let mut gradient = trainable.gradient(&queries, &derivative, context.threads)?;
        gradient.clip(config.max_grad_norm);
        let adam = AdamW { lr: rate.at(step), beta1: 0.9, beta2: 0.98, eps: 1e-8, weight_decay: config.weight_decay };
        trainable.apply(&gradient, &adam)?;
        history.push((loss, agreement));
        context.progress.advance(&context.node, 1, u64::from(config.steps), 0);
    }
    let mean = |part: &[(f64, f64)]| {
        let count = part.len().max(1) as f64;
        (part.iter().map(|(loss, _)| loss).sum::<f64>() / count, part.iter().map(|(_, hits)| hits).sum::<f64>() / count)
    };
    let ten = history.len().min(10);
    let ends = [mean(&history[..ten]), mean(&history[history.len() - ten..])];
    Ok((trainable, ends))
}

fn draw<'a>(lessons: &'a [Lesson], count: u32, random: &mut ChaCha8Rng) -> Vec<&'a Lesson> {
    if lessons.is_empty() {
        return Vec::new();
    }
    (0..count).map(|_| &lessons[random.next_u32() as usize % lessons.len()]).collect()
}

struct ColdStart {
    config: Config,
    context: NodeContext,
    book: PromptBook,
}

impl Operator for ColdStart {
    fn step(&mut self, _step: u64, inputs: &Inputs) -> Result<Outputs, OperatorError> {
        let (context, config) = (&self.context, &self.config);
        let mut outputs = Outputs::default();
        // The whole training happens on the first worker; the others receive its weights.
        if context.worker != 0 {
            return Ok(outputs);
        }
        let decisions = inputs.rows::<Decision>("rollouts")?;
        let actions = lessons(&decisions, "action", &self.book)?;
        let skills = lessons(&decisions, "skill", &self.book)?;
        if actions.is_empty() && config.steps > 0 {
            return Err(OperatorError::Other("the teacher's episodes hold no choice with an alternative to learn from".into()));
        }
        let (trainable, [first, last]) = train(context, config, &self.book, &actions, &skills)?;
        let model = trainable.model();
        outputs.push::<PolicyTensor>(&policy::rows(0, BASE, policy::frozen(model.base_tensors())))?;
        let shape = &context.settings.model.adapters;
        for (index, name) in ADAPTERS.iter().enumerate() {
            let seed = context.random(0, 2 + index as u64).next_u64();
            let adapter = Adapter::init(model.config(), shape.rank as usize, shape.alpha, seed)?;
            let with_adapter = model.with_adapter(name, adapter)?;
            let state = Trainable::new(&with_adapter, Target::Adapter((*name).to_owned()))?.export();
            outputs.push::<PolicyTensor>(&policy::rows(0, &policy::adapter_part(name), state))?;
        }
        let node = &context.node;
        outputs.metric(node, "lessons.action", actions.len() as f64);
        outputs.metric(node, "lessons.skill", skills.len() as f64);
        outputs.metric(node, "loss.first", first.0);
        outputs.metric(node, "loss.last", last.0);
        outputs.metric(node, "agreement.first", first.1);
        outputs.metric(node, "agreement.last", last.1);
        outputs.metric(node, "parameters", model.config().parameters() as f64);
        Ok(outputs)
    }
}

/// The operator.
pub static INFO: OperatorInfo = OperatorInfo {
    name: "cold_start",
    about: "Trains the embedded base model on a teacher's choices and prepares the adapters, which start without effect.",
    paper: "section 4.3, cold start",
    inputs: &[Port {
        name: "rollouts",
        kind: Kind::Rollouts,
        required: true,
        routing: Routing::ToOne,
        accumulates: false,
        about: "Episodes of the teacher.",
    }],
    output: Kind::Policy,
    schedule: Schedule::Once,
    restores: &[],
    inherits: &[],
    prepare: None,
    plays: false,
    learns: true,
    schema: || schemars::schema_for!(Config),
    resolve: registry::resolve::<Config>,
    check: |_, _| Vec::new(),
    build: |config: &Value, context: NodeContext| {
        let book = PromptBook::new(play::environment(&context)?.info(), context.settings.model.choices)?;
        Ok(Box::new(ColdStart { config: registry::configuration("cold_start", config)?, context, book }))
    },
};
