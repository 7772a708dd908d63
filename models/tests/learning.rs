//! Both kinds of training solve a small task, reproducibly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::rng;
use cosplay_models::{AdamW, Adapter, Decay, Model, ModelConfig, Query, Schedule, Scorer, Target, Trainable, Vocabulary, choice, prompt};
use rand::RngExt;

/// Pick the option whose number is larger, from a state word that says whether larger or smaller is wanted.
fn task(seed: u64, count: usize) -> Vec<(prompt::Choice, usize)> {
    let mut rng = rng(seed);
    (0..count)
        .map(|_| {
            let want_larger = rng.random_range(0..2u32);
            let mut numbers: Vec<u32> = (0..4).map(|_| rng.random_range(0..12)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            let best = if want_larger == 1 { numbers.len() - 1 } else { 0 };
            let options: Vec<[u32; 1]> = numbers.iter().map(|n| [60 + n]).collect();
            (prompt::per_option(&[Vocabulary::ACTION, 50 + want_larger], &options).unwrap(), best)
        })
        .collect()
}

fn accuracy(model: &Model, adapter: Option<&str>) -> f64 {
    let tasks = task(99, 200);
    let mut scorer = Scorer::new(model, adapter).unwrap();
    let right = |(choice, best): &(prompt::Choice, usize)| {
        let queries: Vec<Query<'_>> = choice.queries().collect();
        choice::greedy(&scorer.logits(&queries).unwrap()) == *best
    };
    tasks.iter().map(right).filter(|right| *right).count() as f64 / 200.0
}

/// Cross-entropy over the options, `steps` steps of 32 choices.
fn train(model: &Model, target: Target, steps: u32, peak: f64) -> Trainable {
    let adapter = match &target {
        Target::Base => None,
        Target::Adapter(name) => Some(name.clone()),
    };
    let mut trainable = Trainable::new(model, target).unwrap();
    let schedule = Schedule { peak, warmup: 5, total: steps, floor: 0.05, decay: Decay::Cosine };
    for step in 0..steps {
        let tasks = task(1000 + u64::from(step), 32);
        let mut scorer = Scorer::new(trainable.model(), adapter.as_deref()).unwrap();
        let (mut queries, mut d_logits) = (Vec::new(), Vec::new());
        for (choice, best) in &tasks {
            let own: Vec<Query<'_>> = choice.queries().collect();
            let log_probs = choice::log_softmax(&scorer.logits(&own).unwrap(), 1.0).unwrap();
            d_logits.extend(choice::d_log_prob(&log_probs, *best, 1.0).iter().map(|d| (-d / 32.0) as f32));
            queries.extend(own);
        }
        let mut gradient = trainable.gradient(&queries, &d_logits, 1).unwrap();
        gradient.clip(1.0);
        trainable.apply(&gradient, &AdamW { lr: schedule.at(step), ..AdamW::default() }).unwrap();
    }
    trainable
}

#[test]
fn the_base_and_an_adapter_learn_a_task_from_scratch() {
    let model = Model::init(ModelConfig::embedded("0.1M", 80).unwrap(), 1).unwrap();
    let model = model.with_adapter("action", Adapter::init(model.config(), 16, 32.0, 2).unwrap()).unwrap();
    assert!(accuracy(&model, Some("action")) < 0.75);
    let base = train(&model, Target::Base, 60, 3e-3);
    assert!(accuracy(base.model(), None) > 0.95, "base: {}", accuracy(base.model(), None));
    let adapted = train(&model, Target::Adapter("action".into()), 120, 5e-3);
    let reached = accuracy(adapted.model(), Some("action"));
    assert!(reached > 0.95, "adapter: {reached}");
    assert_eq!(adapted.model().base_tensors(), model.base_tensors(), "the base stays frozen");
    let again = train(&model, Target::Adapter("action".into()), 120, 5e-3);
    assert!(again.export() == adapted.export(), "the same run gives the same bits");
}
