//! Optimiser steps on the choices of one adapter.

use super::Config;
use super::loss::{self, Choice, Objective};
use crate::operator::{NodeContext, OperatorError, Outputs};
use crate::policy::Policy;
use crate::prompts::Prompt;
use cosplay_datasets::{EpisodeId, PolicyTensor};
use cosplay_models::{AdamW, Decay, Model, Schedule, Scorer, Target, Trainable};
use std::collections::BTreeMap;

/// A choice that is trained on.
pub(super) struct Lesson {
    pub(super) episode: EpisodeId,
    pub(super) t: u32,
    pub(super) prompt: Prompt,
    pub(super) chosen: usize,
    pub(super) behaviour: f64,
    pub(super) temperature: f64,
    pub(super) advantage: f64,
}

/// Sums over all choices of an update.
#[derive(Default)]
struct Totals {
    choices: f64,
    loss: f64,
    kl: f64,
    entropy: f64,
    clipped: f64,
    ratio: f64,
    largest_ratio: f64,
    norms: f64,
    steps: f64,
    skipped: f64,
}

/// Trains `adapter` on `lessons`, in that order, and pushes its tensors.
pub(super) fn update_adapter(
    context: &NodeContext,
    config: &Config,
    step: u64,
    policy: &mut Policy,
    adapter: &str,
    lessons: &[Lesson],
    outputs: &mut Outputs,
) -> Result<(), OperatorError> {
    let target = Target::Adapter(adapter.to_owned());
    let state = policy.adapters.remove(adapter).unwrap_or_default();
    let mut trainable = Trainable::restore(&policy.model, target, state)?;
    let reference = reference_scores(&policy.model, lessons, context.threads)?;
    let objective = Objective { clip: config.clip, kl: config.kl };
    let rate = Schedule {
        peak: config.learning_rate,
        warmup: config.warmup,
        total: u32::try_from(context.settings.steps).unwrap_or(u32::MAX),
        floor: config.final_rate,
        decay: Decay::Linear,
    };
    let adam = AdamW { lr: rate.at(step as u32), beta1: 0.9, beta2: config.beta2, eps: 1e-8, weight_decay: config.weight_decay };
    let mut totals = Totals::default();
    let total = lessons.len() as u64 * u64::from(config.epochs);
    let size = config.minibatch as usize;
    for _ in 0..config.epochs {
        for (lessons, reference) in lessons.chunks(size).zip(reference.chunks(size)) {
            context.check_stop()?;
            let lessons_in_batch = lessons.len();
            minibatch(context, config, &objective, &adam, &mut trainable, lessons, reference, &mut totals)?;
            context.progress.advance(&context.node, lessons_in_batch as u64, total, 0);
        }
    }
    outputs.push::<PolicyTensor>(&crate::policy::rows(step as u32 + 1, &crate::policy::adapter_part(adapter), trainable.export()))?;
    report(&context.node, adapter, adam.lr, &totals, outputs);
    Ok(())
}

/// Scores of the reference policy: the cold start, which is the base with the adapter switched off.
fn reference_scores(model: &Model, lessons: &[Lesson], threads: usize) -> Result<Vec<Vec<f32>>, OperatorError> {
    let mut scorer = Scorer::new(model, None)?.threads(threads);
    scores(&mut scorer, lessons)
}

fn scores(scorer: &mut Scorer, lessons: &[Lesson]) -> Result<Vec<Vec<f32>>, OperatorError> {
    let queries: Vec<_> = lessons.iter().flat_map(|lesson| lesson.prompt.queries()).collect();
    let logits = scorer.logits(&queries)?;
    let mut rest = logits.as_slice();
    Ok(lessons
        .iter()
        .map(|lesson| {
            let (scores, tail) = rest.split_at(lesson.prompt.options());
            rest = tail;
            scores.to_vec()
        })
        .collect())
}

#[expect(clippy::too_many_arguments, reason = "one optimiser step")]
fn minibatch(
    context: &NodeContext,
    config: &Config,
    objective: &Objective,
    adam: &AdamW,
    trainable: &mut Trainable,
    lessons: &[Lesson],
    reference: &[Vec<f32>],
    totals: &mut Totals,
) -> Result<(), OperatorError> {
    // Without any advantage there is nothing to learn: the weights stay as they are, bit by bit.
    if lessons.iter().all(|lesson| lesson.advantage == 0.0) {
        totals.skipped += 1.0;
        return Ok(());
    }
    let mut scorer = Scorer::new(trainable.model(), adapter_of(trainable))?.threads(context.threads);
    let current = scores(&mut scorer, lessons)?;
    let mut derivative = Vec::new();
    let mut broken: BTreeMap<EpisodeId, Vec<u32>> = BTreeMap::new();
    for ((lesson, scores), reference) in lessons.iter().zip(&current).zip(reference) {
        let choice = Choice {
            scores,
            reference,
            chosen: lesson.chosen,
            behaviour: lesson.behaviour,
            temperature: lesson.temperature,
            advantage: lesson.advantage,
        };
        let finite = scores.iter().chain(reference).all(|score| score.is_finite()) && lesson.advantage.is_finite();
        let term = if finite { Some(loss::term(&choice, objective)?) } else { None };
        match term.filter(|term| term.loss.is_finite()) {
            Some(term) => {
                totals.choices += 1.0;
                totals.loss += term.loss;
                totals.kl += term.kl;
                totals.entropy += term.entropy;
                totals.clipped += f64::from(u8::from(term.clipped));
                totals.ratio += term.ratio;
                totals.largest_ratio = totals.largest_ratio.max(term.ratio);
                derivative.extend(term.derivative.iter().map(|value| (value / lessons.len() as f64) as f32));
            }
            None => broken.entry(lesson.episode).or_default().push(lesson.t),
        }
    }
    if !broken.is_empty() {
        let samples = broken.iter().map(|(episode, times)| format!("episode {episode} at t={times:?}")).collect::<Vec<_>>();
        return Err(OperatorError::NotFinite { what: "the loss".into(), samples: samples.join(", ") });
    }
    let queries: Vec<_> = lessons.iter().flat_map(|lesson| lesson.prompt.queries()).collect();
    let mut gradient = trainable.gradient(&queries, &derivative, context.threads)?;
    if let Some(tensor) = gradient.first_not_finite() {
        let samples = lessons.iter().map(|lesson| format!("episode {} at t={}", lesson.episode, lesson.t)).collect::<Vec<_>>();
        return Err(OperatorError::NotFinite { what: format!("the gradient of {tensor}"), samples: samples.join(", ") });
    }
    totals.norms += gradient.clip(config.max_grad_norm);
    totals.steps += 1.0;
    Ok(trainable.apply(&gradient, adam)?)
}

fn adapter_of(trainable: &Trainable) -> Option<&str> {
    match trainable.target() {
        Target::Base => None,
        Target::Adapter(name) => Some(name),
    }
}

fn report(node: &str, adapter: &str, rate: f64, totals: &Totals, outputs: &mut Outputs) {
    let choices = totals.choices.max(1.0);
    for (name, value) in [
        ("trained_choices", totals.choices),
        ("loss", totals.loss / choices),
        ("kl", totals.kl / choices),
        ("entropy", totals.entropy / choices),
        ("clip_fraction", totals.clipped / choices),
        ("ratio", totals.ratio / choices),
        ("largest_ratio", totals.largest_ratio),
        ("gradient_norm", totals.norms / totals.steps.max(1.0)),
        ("optimiser_steps", totals.steps),
        ("skipped_minibatches", totals.skipped),
        ("learning_rate", rate),
    ] {
        outputs.metric(node, format!("{adapter}.{name}"), value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::operator::Silent;
    use crate::prompts::PromptBook;
    use crate::settings::{ChoiceForm, EnvSettings, ModelSettings, RunSettings};
    use cosplay_models::Adapter;
    use std::sync::Arc;

    fn context() -> NodeContext {
        NodeContext {
            node: "update".into(),
            ordinal: 0,
            settings: Arc::new(RunSettings {
                name: "test".into(),
                seed: 1,
                steps: 4,
                env: EnvSettings { game: "2048".into(), max_steps: None },
                model: ModelSettings::default(),
            }),
            worker: 0,
            workers: 1,
            threads: 1,
            progress: Arc::new(Silent),
            stop: Arc::default(),
        }
    }

    fn policy(context: &NodeContext, book: &PromptBook) -> Policy {
        let model = Model::init(crate::policy::model_config(context, book).unwrap(), 1).unwrap();
        let adapter = Adapter::init(model.config(), 16, 32.0, 2).unwrap();
        let model = model.with_adapter("action", adapter).unwrap();
        let state = Trainable::new(&model, Target::Adapter("action".into())).unwrap().export();
        Policy { model, version: 0, adapters: BTreeMap::from([("action".to_owned(), state)]) }
    }

    fn lessons(book: &PromptBook, advantage: impl Fn(usize) -> f64) -> Vec<Lesson> {
        let vocabulary = book.vocabulary().len() as u32;
        (0..24)
            .map(|index| {
                let ids: Vec<u32> = (0..15).map(|place| (index * 31 + place * 7) % vocabulary).collect();
                let prompt = Prompt { form: "per_option", ids, lengths: vec![5, 5, 5], answers: vec![3] };
                let advantage = advantage(index as usize);
                let episode = EpisodeId(100 + u64::from(index));
                Lesson {
                    episode,
                    t: index,
                    prompt,
                    chosen: index as usize % 3,
                    behaviour: (1.0f64 / 3.0).ln(),
                    temperature: 1.0,
                    advantage,
                }
            })
            .collect()
    }

    fn train(advantage: impl Fn(usize) -> f64) -> (Vec<PolicyTensor>, Vec<PolicyTensor>, Result<(), OperatorError>) {
        let context = context();
        let info = crate::play::environment(&context).unwrap().info().clone();
        let book = PromptBook::new(&info, ChoiceForm::PerOption).unwrap();
        let mut policy = policy(&context, &book);
        let before = crate::policy::rows(1, "adapter.action", policy.adapters["action"].clone());
        let mut outputs = Outputs::default();
        let config = Config { minibatch: 8, ..Config::default() };
        let result = update_adapter(&context, &config, 0, &mut policy, "action", &lessons(&book, advantage), &mut outputs);
        let batches = outputs.into_batches().unwrap();
        let after = batches.iter().find(|(table, _)| table.as_str() == "policies");
        let after = after.map(|(_, rows)| cosplay_datasets::Table::from_batch(rows).unwrap()).unwrap_or_default();
        (before, after, result)
    }

    #[test]
    fn zero_advantages_leave_the_weights_bit_identical() {
        let (before, after, result) = train(|_| 0.0);
        result.unwrap();
        assert_eq!(before, after);
    }

    #[test]
    fn advantages_move_the_weights() {
        let (before, after, result) = train(|index| if index % 2 == 0 { 1.0 } else { -1.0 });
        result.unwrap();
        assert!(before.iter().zip(&after).any(|(before, after)| before.weights != after.weights));
        assert!(after.iter().all(|row| row.updates == 3), "three minibatches of eight");
    }

    #[test]
    fn a_number_that_is_not_finite_names_its_samples() {
        let (_, _, result) = train(|index| if index == 5 { f64::NAN } else { 1.0 });
        let message = result.unwrap_err().to_string();
        assert!(message.contains("episode 105") && message.contains("[5]") && !message.contains("episode 104"), "{message}");
    }
}
