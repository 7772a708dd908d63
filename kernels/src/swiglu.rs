//! SwiGLU: `y = silu(gate) · up`, element by element.

use crate::compile::{exp, kernel};

kernel! {
    /// `y = gate / (1 + e^(-gate)) · up`; all of one length.
    pub fn swiglu / swiglu_portable(gate: &[f32], up: &[f32], y: &mut [f32]) {
        for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
            *y = gate / (1.0 + exp(-gate)) * up;
        }
    }
}

kernel! {
    /// Backward pass of [`swiglu`] for the gradient `g` of its result: writes `d_gate` and `d_up`.
    pub fn swiglu_backward / swiglu_backward_portable(
        gate: &[f32], up: &[f32], g: &[f32], d_gate: &mut [f32], d_up: &mut [f32],
    ) {
        let inputs = gate.iter().zip(up).zip(g);
        for (((gate, up), g), (d_gate, d_up)) in inputs.zip(d_gate.iter_mut().zip(d_up.iter_mut())) {
            let sigmoid = 1.0 / (1.0 + exp(-gate));
            *d_up = g * gate * sigmoid;
            *d_gate = g * up * sigmoid * (1.0 + gate * (1.0 - sigmoid));
        }
    }
}
