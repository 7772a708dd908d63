//! Seeded Gaussian numbers, because candle's own generator cannot be seeded on the CPU.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A stream of Gaussian numbers by the Box–Muller method, in `f64`.
pub(crate) struct Gaussian {
    rng: ChaCha8Rng,
    spare: Option<f64>,
}

impl Gaussian {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed), spare: None }
    }

    fn next(&mut self) -> f64 {
        if let Some(value) = self.spare.take() {
            return value;
        }
        // 1 - u lies in (0, 1], so the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.rng.random::<f64>()).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * self.rng.random::<f64>()).sin_cos();
        self.spare = Some(radius * sin);
        radius * cos
    }

    /// `count` numbers of mean 0 and the given deviation.
    pub(crate) fn fill(&mut self, count: usize, deviation: f64) -> Vec<f32> {
        (0..count).map(|_| (self.next() * deviation) as f32).collect()
    }
}
