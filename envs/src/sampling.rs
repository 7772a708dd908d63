//! Draws from a random stream that stay the same whatever version of a sampling library is about.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// A uniform index below `count`; 0 if `count` is 0. Unbiased: draws that would favour low indices are made again.
pub(crate) fn below(rng: &mut ChaCha8Rng, count: usize) -> usize {
    let Ok(count) = u32::try_from(count) else {
        return 0;
    };
    if count <= 1 {
        return 0;
    }
    // Lemire's multiply-and-shift: the high word is the index, and a low word under the threshold is drawn again.
    let threshold = count.wrapping_neg() % count;
    loop {
        let product = u64::from(rng.next_u32()) * u64::from(count);
        if product as u32 >= threshold {
            return (product >> 32) as usize;
        }
    }
}

/// Uniform in [0, 1) with 53 bits.
pub(crate) fn unit(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn indices_are_uniform() {
        let mut rng = ChaCha8Rng::from_seed([1; 32]);
        let mut counts = [0u32; 3];
        for _ in 0..30_000 {
            counts[below(&mut rng, 3)] += 1;
        }
        assert!(counts.iter().all(|&count| (9_600..10_400).contains(&count)), "{counts:?}");
        assert_eq!((below(&mut rng, 0), below(&mut rng, 1)), (0, 0));
        let mean = (0..10_000).map(|_| unit(&mut rng)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02);
    }
}
