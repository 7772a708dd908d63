//! Tokens a CPU-second of the embedded models, forward and forward with backward, on the fused and on the stock operations.
//!
//! `cargo run --release -p cosplay-models --example throughput`

use cosplay_models::{Adapter, Composition, Model, ModelConfig, Query, Scorer, Target, Trainable, single_threaded_math};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Instant;

/// CPU time of this process in seconds, from `/proc/self/stat` (in steps of 10 ms).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (ticks(11) + ticks(12)) / 100.0
}

/// Runs `work` for about two CPU-seconds and prints thousands of tokens a CPU-second and a second.
fn measure(name: &str, tokens: usize, mut work: impl FnMut() -> cosplay_models::Result<()>) -> cosplay_models::Result<()> {
    work()?;
    let (cpu, wall) = (cpu_seconds(), Instant::now());
    let mut rounds = 0usize;
    while cpu_seconds() - cpu < 2.0 {
        work()?;
        rounds += 1;
    }
    let thousands = (rounds * tokens) as f64 / 1000.0;
    eprintln!("{name:<46} {:>7.1}k tok/CPU-s {:>7.1}k tok/s", thousands / (cpu_seconds() - cpu), thousands / wall.elapsed().as_secs_f64());
    Ok(())
}

fn main() -> cosplay_models::Result<()> {
    eprintln!("one rayon thread: {}", single_threaded_math());
    for (size, vocab, count, length) in [("0.1M", 128, 128, 13), ("0.1M", 512, 128, 13), ("0.1M", 128, 64, 34), ("0.3M", 128, 128, 13)] {
        let model = Model::init(ModelConfig::embedded(size, vocab)?, 1)?;
        let model = model.with_adapter("action", Adapter::init(model.config(), 16, 32.0, 2)?)?;
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        // Several batches, so that two threads have work.
        let prompts: Vec<Vec<u32>> = (0..4 * count).map(|_| (0..length).map(|_| rng.random_range(0..vocab as u32)).collect()).collect();
        let queries: Vec<Query<'_>> = prompts.iter().map(|prompt| Query { prompt, answers: &[3] }).collect();
        let tokens = queries.len() * length;
        let d_logits = vec![0.01; queries.len()];
        for composition in [Composition::Fused, Composition::Stock] {
            for threads in [1, 2] {
                let label = |what: &str| format!("{size} v{vocab} {count}x{length} {composition:?} {threads} thr {what}");
                let mut scorer = Scorer::with_composition(&model, None, composition)?.threads(threads).without_memory();
                measure(&label("forward"), tokens, || scorer.logits(&queries).map(drop))?;
                for (what, target) in [("fwd+bwd full", Target::Base), ("fwd+bwd LoRA", Target::Adapter("action".into()))] {
                    let trainable = Trainable::new(&model, target)?.with_composition(composition);
                    measure(&label(what), tokens, || trainable.gradient(&queries, &d_logits, threads).map(drop))?;
                }
            }
        }
    }
    Ok(())
}
