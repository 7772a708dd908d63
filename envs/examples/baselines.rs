//! Plays games with every scripted policy of an environment on the test split and prints mean scores and speeds.
//!
//! `cargo run --release -p cosplay-envs --example baselines -- [GAMES] [GAME]` (256 games of 2048 by default).

use std::time::Instant;

use cosplay_envs::{EnvError, EnvOptions, Player, Split, make, policy};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// What the games of one policy came to.
struct Row {
    returns: Vec<f64>,
    steps: usize,
    seconds: f64,
}

fn play(options: &EnvOptions, name: &str, noise: f64, games: u64) -> Result<Row, EnvError> {
    let mut env = make(options)?;
    let mut player = policy(&options.game, name, noise)?;
    let mut row = Row { returns: Vec::new(), steps: 0, seconds: 0.0 };
    let start = Instant::now();
    for index in 0..games {
        let seed = Split::Test.seed(1, index);
        env.reset(seed)?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut total = 0.0;
        while !env.to_move().is_empty() {
            let view = env.view(Player(0))?;
            let choice = player.choose(env.as_ref(), Player(0), &view, &mut rng);
            total += env.step(&[(Player(0), choice)])?.rewards.iter().sum::<f64>();
            row.steps += 1;
        }
        row.returns.push(total);
    }
    row.seconds = start.elapsed().as_secs_f64();
    Ok(row)
}

#[expect(clippy::print_stdout, reason = "the table is this program's result")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let games = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let options = EnvOptions { game: arguments.next().unwrap_or_else(|| "2048".to_owned()), max_steps: None };
    println!("{:<22}{:>6}{:>10}{:>8}{:>9}{:>13}", "policy", "noise", "return", "95 %", "steps", "steps/s");
    let info = make(&options)?.info().clone();
    for name in info.policy_names() {
        for noise in [0.0, 0.3] {
            let row = play(&options, name, noise, games)?;
            let n = row.returns.len() as f64;
            let mean = row.returns.iter().sum::<f64>() / n;
            let variance = row.returns.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
            let half = 1.96 * (variance / n).sqrt();
            let (length, speed) = (row.steps as f64 / n, row.steps as f64 / row.seconds);
            println!("{name:<22}{noise:>6.1}{mean:>10.0}{half:>8.0}{length:>9.1}{speed:>13.0}");
        }
    }
    Ok(())
}
