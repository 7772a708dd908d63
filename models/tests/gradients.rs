//! Gradients: our operations against the stock ones and against slopes, for every kind of trainable tensor.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::{bits, embedded, queries, random_prompts, tiny, trained_adapter};
use cosplay_models::{AdamW, Adapter, Composition, Gradient, Model, ModelError, NamedTensor, Query, Scorer, Target, Trainable};

fn targets() -> [Target; 2] {
    [Target::Base, Target::Adapter("action".into())]
}

fn weights_of(seed: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7 + seed) % 11) as f32 / 10.0 - 0.5).collect()
}

#[test]
fn fused_and_stock_operations_agree_forward_and_backward() {
    for model in [tiny(), embedded("0.1M"), embedded("0.3M")] {
        let model = model.with_adapter("action", trained_adapter(model.config(), 4, 1)).unwrap();
        let prompts = random_prompts(2, 150, 1..15, model.config().vocab_size);
        let queries = queries(&prompts, &[3, 4, 3]);
        for adapter in [None, Some("action")] {
            let score = |composition| Scorer::with_composition(&model, adapter, composition).unwrap().logits(&queries).unwrap();
            let (fused, stock) = (score(Composition::Fused), score(Composition::Stock));
            let scale = stock.iter().fold(0f32, |m, x| m.max(x.abs()));
            assert!(scale > 0.1);
            for (fused, stock) in fused.iter().zip(&stock) {
                assert!((fused - stock).abs() < 1e-5 * scale, "{fused} and {stock}");
            }
        }
        let d_logits = weights_of(0, 3 * queries.len());
        for target in targets() {
            let trainable = Trainable::new(&model, target).unwrap();
            let fused = trainable.gradient(&queries, &d_logits, 1).unwrap();
            let stock = trainable.with_composition(Composition::Stock).gradient(&queries, &d_logits, 1).unwrap();
            for (fused, stock) in fused.tensors().iter().zip(stock.tensors()) {
                let scale = stock.data.iter().fold(0f32, |m, x| m.max(x.abs()));
                assert!(scale > 0.0, "{} has no gradient", stock.name);
                for (f, s) in fused.data.iter().zip(&stock.data) {
                    assert!((f - s).abs() < 3e-5 * scale, "{}: {f} and {s} of {scale}", fused.name);
                }
            }
        }
    }
}

/// The model with one weight of one trained tensor moved by `by`.
fn moved(model: &Model, target: &Target, tensor: usize, element: usize, by: f32) -> Model {
    let shift = |mut tensors: Vec<NamedTensor>| {
        tensors[tensor].data[element] += by;
        tensors
    };
    match target {
        Target::Base => {
            let moved = Model::new(model.config().clone(), shift(model.base_tensors())).unwrap();
            moved.with_adapter("action", model.adapter("action").unwrap().clone()).unwrap()
        }
        Target::Adapter(name) => {
            let old = model.adapter(name).unwrap();
            let tensors = shift(model.adapter_tensors(name).unwrap());
            let adapter = Adapter::new(model.config(), old.rank(), old.alpha(), tensors).unwrap();
            model.with_adapter(name, adapter).unwrap()
        }
    }
}

#[test]
fn gradients_of_every_tensor_are_slopes() {
    let model = tiny();
    let model = model.with_adapter("action", trained_adapter(model.config(), 3, 1)).unwrap();
    let prompts = random_prompts(3, 12, 4..7, model.config().vocab_size);
    let queries = queries(&prompts, &[3, 8]);
    let d_logits = weights_of(1, 2 * queries.len());
    for target in targets() {
        let adapter = match &target {
            Target::Base => None,
            Target::Adapter(name) => Some(name.clone()),
        };
        let loss = |model: &Model| -> f64 {
            let logits = Scorer::new(model, adapter.as_deref()).unwrap().logits(&queries).unwrap();
            logits.iter().zip(&d_logits).map(|(l, d)| f64::from(*l) * f64::from(*d)).sum()
        };
        let gradient = Trainable::new(&model, target.clone()).unwrap().gradient(&queries, &d_logits, 1).unwrap();
        for (index, tensor) in gradient.tensors().iter().enumerate() {
            let scale = f64::from(tensor.data.iter().fold(0f32, |m, g| m.max(g.abs())));
            assert!(scale > 1e-4, "{} has no gradient", tensor.name);
            // The largest element and four others of each tensor.
            let largest = (0..tensor.data.len()).max_by(|a, b| tensor.data[*a].abs().total_cmp(&tensor.data[*b].abs()));
            let spread = (0..4).map(|i| i * (tensor.data.len() - 1) / 3);
            for element in spread.chain(largest) {
                let step = 2e-3f32;
                let side = |sign: f32| loss(&moved(&model, &target, index, element, sign * step));
                let slope = (side(1.0) - side(-1.0)) / (2.0 * f64::from(step));
                let error = (slope - f64::from(tensor.data[element])).abs();
                let (name, found) = (&tensor.name, tensor.data[element]);
                assert!(error < 0.02 * scale.max(0.01), "{name}[{element}]: slope {slope}, gradient {found}");
            }
        }
    }
}

#[test]
fn every_trained_tensor_of_an_embedded_model_gets_a_gradient() {
    let model = embedded("0.1M");
    let model = model.with_adapter("action", trained_adapter(model.config(), 16, 1)).unwrap();
    let prompts = random_prompts(3, 8, 12..13, model.config().vocab_size);
    let queries = queries(&prompts, &[3]);
    for (target, tensors) in targets().into_iter().zip([24, 28]) {
        let gradient = Trainable::new(&model, target).unwrap().gradient(&queries, &[1.0; 8], 1).unwrap();
        assert_eq!(gradient.tensors().len(), tensors);
        for tensor in gradient.tensors() {
            assert!(tensor.data.iter().any(|g| g.abs() > 1e-7), "{}", tensor.name);
        }
    }
}

fn bits_of(gradient: &Gradient) -> Vec<u32> {
    gradient.tensors().iter().flat_map(|t| bits(&t.data)).collect()
}

#[test]
fn gradients_are_the_same_bits_for_every_number_of_threads() {
    let model = embedded("0.1M");
    let model = model.with_adapter("action", trained_adapter(model.config(), 16, 1)).unwrap();
    // More chunks than sums, so that their order matters.
    let prompts = random_prompts(4, 1500, 6..9, model.config().vocab_size);
    let queries = queries(&prompts, &[3]);
    let d_logits = weights_of(2, queries.len());
    for target in targets() {
        let trainable = Trainable::new(&model, target).unwrap();
        let one = bits_of(&trainable.gradient(&queries, &d_logits, 1).unwrap());
        for threads in [2, 3, 16] {
            assert!(one == bits_of(&trainable.gradient(&queries, &d_logits, threads).unwrap()), "{threads} threads");
        }
    }
}

#[test]
fn shared_prompts_count_once_and_their_derivatives_add_up() {
    let model = tiny();
    let trainable = Trainable::new(&model, Target::Base).unwrap();
    let prompts = random_prompts(5, 3, 5..6, 17);
    let ask = |prompt, answers| Query { prompt, answers };
    let repeated = [ask(&prompts[0], &[3u32, 4] as &[u32]), ask(&prompts[1], &[3]), ask(&prompts[0], &[4]), ask(&prompts[0], &[3, 3])];
    let repeated = trainable.gradient(&repeated, &[0.5, 1.0, 2.0, 0.25, 0.125, 0.125], 1).unwrap();
    let merged = [ask(&prompts[1], &[3u32] as &[u32]), ask(&prompts[0], &[3, 4])];
    let merged = trainable.gradient(&merged, &[2.0, 0.75, 1.25], 1).unwrap();
    assert_eq!(bits_of(&repeated), bits_of(&merged));
}

#[test]
fn zero_derivatives_give_a_zero_gradient_and_no_queries_too() {
    let trainable = Trainable::new(&tiny(), Target::Base).unwrap();
    let prompts = random_prompts(6, 4, 5..6, 17);
    assert!(trainable.gradient(&queries(&prompts, &[3]), &[0.0; 4], 2).unwrap().is_zero());
    assert!(trainable.gradient(&[], &[], 2).unwrap().is_zero());
}

#[test]
fn weights_that_are_not_finite_are_reported_and_change_nothing() {
    let model = tiny();
    let mut base = model.base_tensors();
    base[2].data[0] = f32::NAN;
    let model = Model::new(model.config().clone(), base).unwrap();
    let mut trainable = Trainable::new(&model, Target::Base).unwrap();
    let prompts = random_prompts(7, 4, 5..6, 17);
    let gradient = trainable.gradient(&queries(&prompts, &[3]), &[1.0; 4], 1).unwrap();
    assert!(!gradient.all_finite() && gradient.first_not_finite().is_some());
    assert!(matches!(trainable.apply(&gradient, &AdamW::default()), Err(ModelError::NonFinite { .. })));
    assert_eq!(trainable.updates(), 0);
}

#[test]
fn clipping_and_adding_are_arithmetic() {
    let trainable = Trainable::new(&tiny(), Target::Base).unwrap();
    let prompts = random_prompts(8, 4, 5..6, 17);
    let mut gradient = trainable.gradient(&queries(&prompts, &[3]), &[1.0; 4], 1).unwrap();
    let norm = gradient.norm();
    assert!(norm > 0.1);
    let copy = gradient.clone();
    gradient.add(&copy).unwrap();
    assert!((gradient.norm() / norm - 2.0).abs() < 1e-6);
    assert!((gradient.clip(0.01) / norm - 2.0).abs() < 1e-6);
    assert!((gradient.norm() - 0.01).abs() < 1e-6);
    assert!((gradient.clip(1.0) - 0.01).abs() < 1e-6 && (gradient.norm() - 0.01).abs() < 1e-6);
}

#[test]
fn adamw_takes_the_published_step() {
    let mut trainable = Trainable::new(&tiny(), Target::Base).unwrap();
    let prompts = random_prompts(9, 4, 5..6, 17);
    let settings = AdamW { lr: 0.1, beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay: 0.5 };
    // Plain f64 AdamW beside it, for three steps.
    let mut expected: Vec<(f64, f64, f64)> = trainable.export().iter().map(|p| (f64::from(p.tensor.data[0]), 0.0, 0.0)).collect();
    for step in 1..=3 {
        let gradient = trainable.gradient(&queries(&prompts, &[3, 4]), &weights_of(step, 8), 1).unwrap();
        trainable.apply(&gradient, &settings).unwrap();
        for ((w, m, v), tensor) in expected.iter_mut().zip(gradient.tensors()) {
            let g = f64::from(tensor.data[0]);
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.99 * *v + 0.01 * g * g;
            let (m_hat, v_hat) = (*m / (1.0 - 0.9f64.powi(step as i32)), *v / (1.0 - 0.99f64.powi(step as i32)));
            let decay = if tensor.shape.len() > 1 { 0.1 * 0.5 * *w } else { 0.0 };
            *w -= decay + 0.1 * m_hat / (v_hat.sqrt() + 1e-8);
        }
    }
    for ((w, _, _), p) in expected.iter().zip(trainable.export()) {
        assert!((w - f64::from(p.tensor.data[0])).abs() < 1e-4, "{}", p.tensor.name);
        assert_eq!(p.updates, 3);
    }
}

#[test]
fn a_restored_trainable_continues_with_the_same_bits() {
    let model = tiny();
    let model = model.with_adapter("action", trained_adapter(model.config(), 4, 1)).unwrap();
    let prompts = random_prompts(10, 30, 5..8, 17);
    let queries = queries(&prompts, &[3]);
    for target in targets() {
        let step = |trainable: &mut Trainable| {
            let gradient = trainable.gradient(&queries, &weights_of(3, 30), 1).unwrap();
            trainable.apply(&gradient, &AdamW::default()).unwrap();
        };
        let mut whole = Trainable::new(&model, target.clone()).unwrap();
        step(&mut whole);
        let mut resumed = Trainable::restore(&model, target.clone(), whole.export()).unwrap();
        step(&mut whole);
        step(&mut resumed);
        assert_eq!(whole.export(), resumed.export());
        assert_eq!(whole.model().base_tensors(), resumed.model().base_tensors());
        let mut short = whole.export();
        short.pop();
        assert!(matches!(Trainable::restore(&model, target, short), Err(ModelError::Length { .. })));
    }
}
