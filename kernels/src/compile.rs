//! One kernel body, compiled for AVX2 and for the baseline instruction set, and the small inlined pieces the bodies share.

/// Declares `$name`, which runs the AVX2 and FMA compilation of the body where the processor has them, and `$portable`,
/// which always runs the baseline compilation of the same body.
macro_rules! kernel {
    ($(#[$doc:meta])* pub fn $name:ident / $portable:ident($($arg:ident: $ty:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments, reason = "a kernel takes its buffers one by one")]
        pub fn $name($($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                #[allow(clippy::too_many_arguments, reason = "a kernel takes its buffers one by one")]
                fn wide($($arg: $ty),*) $body
                if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has just been found to have both features.
                    return unsafe { wide($($arg),*) };
                }
            }
            $portable($($arg),*);
        }

        #[doc = concat!("The baseline compilation of [`", stringify!($name), "`]: fallback and test oracle.")]
        #[allow(clippy::too_many_arguments, reason = "a kernel takes its buffers one by one")]
        pub fn $portable($($arg: $ty),*) $body
    };
}
pub(crate) use kernel;

/// Inner product in eight fixed lanes, so that the order of additions is the same for every vector width.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; 8];
    let (a_lanes, b_lanes) = (a.chunks_exact(8), b.chunks_exact(8));
    let (a_rest, b_rest) = (a_lanes.remainder(), b_lanes.remainder());
    for (a, b) in a_lanes.zip(b_lanes) {
        for lane in 0..8 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let mut sum = ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
    for (a, b) in a_rest.iter().zip(b_rest) {
        sum += a * b;
    }
    sum
}

/// `y += a * x`.
#[inline(always)]
pub(crate) fn add_scaled(y: &mut [f32], a: f32, x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

/// `e^x` to about 2e-7 relative, without a call, so that loops over it vectorise: `2^n · 2^f` with `n` the nearest integer
/// to `x / ln 2` and a polynomial of degree six for the rest. Arguments are cut at ±87; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2^23: adding it leaves no bits for a fraction
    // Comparisons, not `clamp` or `max`: a NaN must pass through.
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 87.0 { 87.0 } else { x };
    let scaled = x * std::f32::consts::LOG2_E;
    let whole = (scaled + ROUND) - ROUND;
    // ln 2 in two parts keeps the rest exact where `x / ln 2` is large.
    let rest = (x - whole * 0.693_359_4) + whole * 2.121_944_4e-4;
    let tail = 0.5 + rest * (0.166_666_67 + rest * (0.041_666_67 + rest * (0.008_333_334 + rest * 0.001_388_889)));
    let power = 1.0 + rest + rest * rest * tail;
    f32::from_bits(((whole as i32).wrapping_add(127) as u32) << 23) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_exact_to_single_precision() {
        for i in -8_600..=8_600 {
            let x = i as f32 / 100.0;
            let expected = f64::from(x).exp();
            let error = (f64::from(exp(x)) - expected).abs() / expected;
            assert!(error < 4e-7, "exp({x}): relative error {error}");
        }
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(-1000.0) < 2e-38 && exp(1000.0).is_finite());
    }

    #[test]
    fn dot_takes_every_length() {
        for n in 0..40 {
            let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let expected: f32 = a.iter().map(|x| x * x).sum();
            assert_eq!(dot(&a, &a), expected);
        }
    }
}
