//! RMSNorm: `y = x / sqrt(mean(x²) + ε) · w`, row by row.

use crate::compile::{dot, kernel};

/// Scales one row; shared by the forward passes of this module and of [`crate::norm_rope`].
#[inline(always)]
pub(crate) fn inverse_rms(row: &[f32], epsilon: f32) -> f32 {
    1.0 / (dot(row, row) / row.len() as f32 + epsilon).sqrt()
}

/// Gradient of one row: writes `dx`, adds to `dw`.
#[inline(always)]
pub(crate) fn row_gradient(x: &[f32], w: &[f32], g: &[f32], epsilon: f32, dx: &mut [f32], dw: &mut [f32]) {
    let r = inverse_rms(x, epsilon);
    for (((dx, dw), (g, w)), x) in dx.iter_mut().zip(dw.iter_mut()).zip(g.iter().zip(w)).zip(x) {
        *dx = g * w;
        *dw += g * x * r;
    }
    let shift = dot(dx, x) * r * r / x.len() as f32;
    for (dx, x) in dx.iter_mut().zip(x) {
        *dx = r * (*dx - x * shift);
    }
}

kernel! {
    /// Normalises every row of `x` `[rows, width]` and scales it by `w` `[width]` into `y`.
    pub fn rms_norm / rms_norm_portable(x: &[f32], w: &[f32], epsilon: f32, y: &mut [f32]) {
        let width = w.len();
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            let r = inverse_rms(x, epsilon);
            for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
                *y = x * r * w;
            }
        }
    }
}

kernel! {
    /// Backward pass of [`rms_norm`] for the gradient `g` of its result: writes `dx` (shape of `x`) and adds to `dw`, rows in order.
    pub fn rms_norm_backward / rms_norm_backward_portable(
        x: &[f32], w: &[f32], g: &[f32], epsilon: f32, dx: &mut [f32], dw: &mut [f32],
    ) {
        let width = w.len();
        let rows = x.chunks_exact(width).zip(g.chunks_exact(width));
        for ((x, g), dx) in rows.zip(dx.chunks_exact_mut(width)) {
            row_gradient(x, w, g, epsilon, dx, dw);
        }
    }
}
