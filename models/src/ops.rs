//! The CPU kernels as candle operations with a backward pass.
//!
//! candle's own fused norm, rotary embedding and softmax have none and lose the gradient without an error, which is why
//! every operation here has a `bwd` and is applied with `apply_op*`, never with the `_no_bwd` forms. A gradient is only computed for an
//! argument that some variable stands behind.

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Device, Error, Layout, Result, Shape, Storage, Tensor};
use cosplay_kernels::{AttentionShape, RotaryTable, attention, linear, norm_rope, rms_norm, swiglu};
use std::sync::Arc;

/// The floats of a contiguous argument.
fn floats<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let (start, end) = layout.contiguous_offsets().ok_or_else(|| Error::Msg("argument is not contiguous".into()))?;
    Ok(&storage.as_slice::<f32>()?[start..end])
}

/// Calls `f` with the floats of every tensor in `tensors`.
fn with_floats<const N: usize, R>(tensors: [&Tensor; N], f: impl FnOnce([&[f32]; N]) -> R) -> Result<R> {
    let mut contiguous = Vec::with_capacity(N);
    for tensor in tensors {
        contiguous.push(tensor.contiguous()?);
    }
    let guards: Vec<_> = contiguous.iter().map(Tensor::storage_and_layout).collect();
    let mut slices: [&[f32]; N] = [&[]; N];
    for (slice, (storage, layout)) in slices.iter_mut().zip(&guards) {
        match &**storage {
            Storage::Cpu(storage) => *slice = floats(storage, layout)?,
            _ => return Err(Error::Msg("this operation runs on the CPU only".into())),
        }
    }
    Ok(f(slices))
}

/// A result with the shape of `like`.
fn shaped_like(data: Vec<f32>, like: &Tensor) -> Result<Tensor> {
    Tensor::from_vec(data, like.shape(), &Device::Cpu)
}

/// `data` as a tensor where `wanted`.
fn when(wanted: bool, data: Vec<f32>, like: &Tensor) -> Result<Option<Tensor>> {
    if wanted { shaped_like(data, like).map(Some) } else { Ok(None) }
}

/// RMSNorm of `x` `[.., width]` with weights `[width]`.
pub(crate) struct RmsNorm {
    pub(crate) epsilon: f32,
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        let (x, w) = (floats(s1, l1)?, floats(s2, l2)?);
        let mut y = vec![0f32; x.len()];
        rms_norm::rms_norm(x, w, self.epsilon, &mut y);
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, w: &Tensor, _: &Tensor, g: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (dx, dw) = with_floats([x, w, g], |[x, w, g]| {
            let (mut dx, mut dw) = (vec![0f32; x.len()], vec![0f32; w.len()]);
            rms_norm::rms_norm_backward(x, w, g, self.epsilon, &mut dx, &mut dw);
            (dx, dw)
        })?;
        Ok((when(x.track_op(), dx, x)?, when(w.track_op(), dw, w)?))
    }
}

/// RMSNorm of each head of `x` `[batch, positions, heads · D]` with weights `[D]`, then rotary embedding.
pub(crate) struct NormRope {
    pub(crate) table: Arc<RotaryTable>,
    pub(crate) heads: usize,
    pub(crate) positions: usize,
    /// Position of the first row of every sequence.
    pub(crate) first: usize,
    pub(crate) epsilon: f32,
}

impl CustomOp2 for NormRope {
    fn name(&self) -> &'static str {
        "norm_rope"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        let (x, w) = (floats(s1, l1)?, floats(s2, l2)?);
        let (cos, sin) = self.table.from(self.first);
        let mut y = vec![0f32; x.len()];
        norm_rope::norm_rope(x, w, cos, sin, self.heads, self.positions, self.epsilon, &mut y);
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, w: &Tensor, _: &Tensor, g: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (cos, sin) = self.table.from(self.first);
        let (dx, dw) = with_floats([x, w, g], |[x, w, g]| {
            let (mut dx, mut dw) = (vec![0f32; x.len()], vec![0f32; w.len()]);
            let (heads, positions, epsilon) = (self.heads, self.positions, self.epsilon);
            norm_rope::norm_rope_backward(x, w, cos, sin, heads, positions, epsilon, g, &mut dx, &mut dw);
            (dx, dw)
        })?;
        Ok((when(x.track_op(), dx, x)?, when(w.track_op(), dw, w)?))
    }
}

/// Causal grouped-query attention.
pub(crate) struct Attention(pub(crate) AttentionShape);

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (q, k, v) = (floats(s1, l1)?, floats(s2, l2)?, floats(s3, l3)?);
        let mut y = vec![0f32; q.len()];
        attention::attention(q, k, v, self.0, &mut y);
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }

    fn bwd(&self, q: &Tensor, k: &Tensor, v: &Tensor, _: &Tensor, g: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (dq, dk, dv) = with_floats([q, k, v, g], |[q, k, v, g]| {
            let (mut dq, mut dk, mut dv) = (vec![0f32; q.len()], vec![0f32; k.len()], vec![0f32; v.len()]);
            attention::attention_backward(q, k, v, g, self.0, &mut dq, &mut dk, &mut dv);
            (dq, dk, dv)
        })?;
        Ok((when(q.track_op(), dq, q)?, when(k.track_op(), dk, k)?, when(v.track_op(), dv, v)?))
    }
}

/// `silu(gate) · up`.
pub(crate) struct SwiGlu;

impl CustomOp2 for SwiGlu {
    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        let (gate, up) = (floats(s1, l1)?, floats(s2, l2)?);
        let mut y = vec![0f32; gate.len()];
        swiglu::swiglu(gate, up, &mut y);
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }

    fn bwd(&self, gate: &Tensor, up: &Tensor, _: &Tensor, g: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (d_gate, d_up) = with_floats([gate, up, g], |[gate, up, g]| {
            let (mut d_gate, mut d_up) = (vec![0f32; gate.len()], vec![0f32; gate.len()]);
            swiglu::swiglu_backward(gate, up, g, &mut d_gate, &mut d_up);
            (d_gate, d_up)
        })?;
        Ok((when(gate.track_op(), d_gate, gate)?, when(up.track_op(), d_up, up)?))
    }
}

/// `x · Wᵀ` for `x` `[.., inputs]` and `W` `[outputs, inputs]`. A frozen `W` costs no product in the backward pass.
pub(crate) struct Linear;

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        let (x, w) = (floats(s1, l1)?, floats(s2, l2)?);
        let (outputs, inputs) = l2.shape().dims2()?;
        let mut dims = l1.dims().to_vec();
        match dims.last_mut() {
            Some(last) if *last == inputs => *last = outputs,
            _ => {
                return Err(Error::Msg(format!("linear layer of {inputs} inputs on {:?}", l1.dims())));
            }
        }
        let mut y = vec![0f32; x.len() / inputs * outputs];
        linear::linear(x, w, inputs, outputs, &mut y);
        Ok((CpuStorage::F32(y), Shape::from(dims)))
    }

    fn bwd(&self, x: &Tensor, w: &Tensor, _: &Tensor, g: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (outputs, inputs) = w.dims2()?;
        let (for_x, for_w) = (x.track_op(), w.track_op());
        let (dx, dw) = with_floats([x, w, g], |[x_floats, w_floats, g]| {
            let mut dx = vec![0f32; if for_x { x_floats.len() } else { 0 }];
            let mut dw = vec![0f32; if for_w { w_floats.len() } else { 0 }];
            if for_x {
                linear::linear_input_gradient(g, w_floats, inputs, outputs, &mut dx);
            }
            if for_w {
                linear::linear_weight_gradient(g, x_floats, inputs, outputs, &mut dw);
            }
            (dx, dw)
        })?;
        Ok((when(for_x, dx, x)?, when(for_w, dw, w)?))
    }
}
