//! A result depends on its own inputs alone: not on the batch, the threads, or what was computed before.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
use common::{bits, embedded, queries, random_prompts, rng, trained_adapter};
use cosplay_models::{
    Adapter, Generation, Model, ModelError, Query, Scorer, Vocabulary, choice, generate, generate_batch, logits_parallel,
};

fn model(size: &str) -> Model {
    let model = embedded(size);
    model.with_adapter("action", trained_adapter(model.config(), 16, 1)).unwrap()
}

#[test]
fn a_choice_is_the_same_alone_and_in_a_batch() {
    for size in ["0.1M", "0.3M"] {
        let model = model(size);
        let prompts = random_prompts(1, 300, 9..16, 96);
        let queries = queries(&prompts, &[3, 4, 7, 50]);
        let together = Scorer::new(&model, Some("action")).unwrap().logits(&queries).unwrap();
        for (index, (query, row)) in queries.iter().zip(together.chunks(4)).enumerate().step_by(7) {
            let alone = Scorer::new(&model, Some("action")).unwrap().logits(&[*query]).unwrap();
            assert_eq!(bits(&alone), bits(row), "prompt {index}");
            let draw = |logits: &[f32]| {
                let log_probs = choice::log_softmax(logits, 0.8).unwrap();
                let chosen = choice::sample(&log_probs, &mut rng(index as u64));
                (chosen, log_probs[chosen].to_bits())
            };
            assert_eq!(draw(&alone), draw(row));
        }
    }
}

#[test]
fn logits_do_not_depend_on_order_threads_or_memory() {
    let model = model("0.1M");
    let prompts = random_prompts(2, 500, 5..9, 96);
    let queries = queries(&prompts, &[3, 4]);
    let once = logits_parallel(&model, Some("action"), &queries, 1).unwrap();
    for threads in [2, 3] {
        assert_eq!(bits(&once), bits(&logits_parallel(&model, Some("action"), &queries, threads).unwrap()));
    }
    let mut scorer = Scorer::new(&model, Some("action")).unwrap();
    let mut piecewise = Vec::new();
    for piece in queries.chunks(37) {
        piecewise.extend(scorer.logits(piece).unwrap());
    }
    assert_eq!(bits(&once), bits(&piecewise));
    let reversed: Vec<Query<'_>> = queries.iter().rev().copied().collect();
    let again = scorer.logits(&reversed).unwrap();
    let restored: Vec<f32> = again.chunks(2).rev().flatten().copied().collect();
    assert_eq!(bits(&once), bits(&restored));
    let stats = scorer.stats();
    assert_eq!(stats.misses, 500);
    assert_eq!(stats.hits, 500);
    assert_eq!(stats.tokens, prompts.iter().map(|p| p.len() as u64).sum::<u64>());
}

#[test]
fn a_remembered_prompt_answers_new_tokens_too() {
    let model = model("0.1M");
    let prompt = [5u32, 9, 2];
    let mut scorer = Scorer::new(&model, None).unwrap();
    scorer.logits(&[Query { prompt: &prompt, answers: &[3] }]).unwrap();
    let both = scorer.logits(&[Query { prompt: &prompt, answers: &[4, 3] }]).unwrap();
    let fresh = logits_parallel(&model, None, &[Query { prompt: &prompt, answers: &[4, 3] }], 1).unwrap();
    assert_eq!(bits(&both), bits(&fresh));
    assert_eq!(scorer.stats().misses, 2);
    scorer.logits(&[Query { prompt: &prompt, answers: &[3, 4, 3] }]).unwrap();
    assert_eq!(scorer.stats().misses, 2);
}

#[test]
fn a_fresh_adapter_changes_nothing_and_a_trained_one_does() {
    let model = model("0.1M").with_adapter("fresh", Adapter::init(embedded("0.1M").config(), 16, 32.0, 3).unwrap()).unwrap();
    let prompts = random_prompts(3, 40, 5..9, 96);
    let queries = queries(&prompts, &[3]);
    let score = |adapter| logits_parallel(&model, adapter, &queries, 1).unwrap();
    assert_eq!(bits(&score(None)), bits(&score(Some("fresh"))));
    assert_ne!(bits(&score(None)), bits(&score(Some("action"))));
    let error = logits_parallel(&model, Some("retrieval"), &queries, 1).unwrap_err();
    assert!(error.to_string().contains("action") && error.to_string().contains("retrieval"), "{error}");
}

#[test]
fn text_is_the_same_alone_and_in_a_batch_and_ends_at_its_stop() {
    let model = model("0.1M");
    let prompts = random_prompts(4, 70, 3..6, 96);
    let slices: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    let settings = Generation { max_tokens: 12, temperature: 1.3, ..Generation::default() };
    let mut rngs: Vec<_> = (0..70).map(rng).collect();
    let together = generate_batch(&model, Some("action"), &slices, &settings, &mut rngs).unwrap();
    for (index, text) in together.iter().enumerate() {
        assert!(!text.tokens.contains(&Vocabulary::PAD));
        let stop = text.tokens.iter().position(|t| *t == Vocabulary::EOS);
        assert_eq!(text.tokens.len(), stop.map_or(12, |at| at + 1));
        if index % 10 == 0 {
            let alone = generate(&model, Some("action"), slices[index], &settings, &mut rng(index as u64)).unwrap();
            assert_eq!(&alone, text);
        }
    }
    assert!(together.iter().any(|text| text.tokens.last() == Some(&Vocabulary::EOS)));
    let greedy = Generation { temperature: 0.0, ..settings };
    let first = generate(&model, None, slices[0], &greedy, &mut rng(1)).unwrap();
    assert_eq!(first, generate(&model, None, slices[0], &greedy, &mut rng(2)).unwrap());
}

#[test]
fn bad_queries_are_refused_by_what_is_wrong() {
    let model = model("0.1M");
    let long = vec![1u32; 513];
    let ask = |prompt: &[u32], answers: &[u32]| Scorer::new(&model, None).unwrap().logits(&[Query { prompt, answers }]).unwrap_err();
    assert!(matches!(ask(&[], &[3]), ModelError::Prompt { found: 0, .. }));
    assert!(matches!(ask(&long, &[3]), ModelError::Prompt { found: 513, .. }));
    assert!(matches!(ask(&[1], &[]), ModelError::NoOptions));
    assert!(matches!(ask(&[96], &[3]), ModelError::Token { token: 96, .. }));
    assert!(matches!(ask(&[1], &[1000]), ModelError::Token { token: 1000, .. }));
}

#[test]
fn a_seed_fixes_a_model() {
    let config = embedded("0.1M").config().clone();
    let init = |seed| Model::init(config.clone(), seed).unwrap().base_tensors();
    assert_eq!(init(1), init(1));
    assert_ne!(init(1), init(2));
    let adapter = |seed| Adapter::init(&config, 16, 32.0, seed).unwrap();
    assert_eq!(adapter(1), adapter(1));
    assert_ne!(adapter(1), adapter(2));
}
