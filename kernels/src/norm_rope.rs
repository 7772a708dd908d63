//! Qwen3's treatment of queries and keys in one pass: RMSNorm over each head, then rotary position embedding in the
//! half-split form (element `i` turns with element `i + D/2`).

use crate::compile::kernel;
use crate::rms_norm::{inverse_rms, row_gradient};

/// Cosines and sines of the rotary angles `position · base^(-2i/D)`, `[positions, D/2]` each, computed in `f64`.
#[derive(Clone, Debug, PartialEq)]
pub struct RotaryTable {
    /// Width of a head, `D`.
    pub head_dim: usize,
    /// Cosines, `[positions, D/2]`.
    pub cos: Vec<f32>,
    /// Sines, `[positions, D/2]`.
    pub sin: Vec<f32>,
}

impl RotaryTable {
    /// Angles of `positions` positions for heads of width `head_dim` (even).
    pub fn new(head_dim: usize, positions: usize, base: f64) -> Self {
        let half = head_dim / 2;
        let angle = |index: usize| {
            let (position, i) = (index / half, index % half);
            position as f64 * base.powf(-2.0 * i as f64 / head_dim as f64)
        };
        let angles: Vec<f64> = (0..positions * half).map(angle).collect();
        Self { head_dim, cos: angles.iter().map(|a| a.cos() as f32).collect(), sin: angles.iter().map(|a| a.sin() as f32).collect() }
    }

    /// The tables from position `first` on, which is what a pass over the last positions alone needs.
    pub fn from(&self, first: usize) -> (&[f32], &[f32]) {
        let start = (first * (self.head_dim / 2)).min(self.cos.len());
        (&self.cos[start..], &self.sin[start..])
    }
}

kernel! {
    /// `x` `[batch, positions, heads, D]` with `w` `[D]` and angle tables `[positions, D/2]` (at least) into `y`.
    pub fn norm_rope / norm_rope_portable(
        x: &[f32], w: &[f32], cos: &[f32], sin: &[f32], heads: usize, positions: usize, epsilon: f32, y: &mut [f32],
    ) {
        let (width, half) = (w.len(), w.len() / 2);
        let (w_low, w_high) = w.split_at(half);
        let steps = x.chunks_exact(heads * width).zip(y.chunks_exact_mut(heads * width));
        for (step, (x, y)) in steps.enumerate() {
            let at = step % positions * half;
            let (cos, sin) = (&cos[at..at + half], &sin[at..at + half]);
            for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
                let r = inverse_rms(x, epsilon);
                let (x_low, x_high) = x.split_at(half);
                let (y_low, y_high) = y.split_at_mut(half);
                let (x_high, y_high) = (&x_high[..half], &mut y_high[..half]);
                for i in 0..half {
                    let a = x_low[i] * r * w_low[i];
                    let b = x_high[i] * r * w_high[i];
                    y_low[i] = a * cos[i] - b * sin[i];
                    y_high[i] = a * sin[i] + b * cos[i];
                }
            }
        }
    }
}

kernel! {
    /// Backward pass of [`norm_rope`] for the gradient `g` of its result: writes `dx`, adds to `dw`, rows in order.
    pub fn norm_rope_backward / norm_rope_backward_portable(
        x: &[f32], w: &[f32], cos: &[f32], sin: &[f32], heads: usize, positions: usize, epsilon: f32,
        g: &[f32], dx: &mut [f32], dw: &mut [f32],
    ) {
        let (width, half) = (w.len(), w.len() / 2);
        let mut turned = vec![0f32; width];
        let steps = x.chunks_exact(heads * width).zip(g.chunks_exact(heads * width));
        for (step, ((x, g), dx)) in steps.zip(dx.chunks_exact_mut(heads * width)).enumerate() {
            let at = step % positions * half;
            let (cos, sin) = (&cos[at..at + half], &sin[at..at + half]);
            let rows = x.chunks_exact(width).zip(g.chunks_exact(width)).zip(dx.chunks_exact_mut(width));
            for ((x, g), dx) in rows {
                let (g_low, g_high) = g.split_at(half);
                let (low, high) = turned.split_at_mut(half);
                let (g_high, high) = (&g_high[..half], &mut high[..half]);
                for i in 0..half {
                    low[i] = g_low[i] * cos[i] + g_high[i] * sin[i];
                    high[i] = g_high[i] * cos[i] - g_low[i] * sin[i];
                }
                row_gradient(x, w, &turned, epsilon, dx, dw);
            }
        }
    }
}
