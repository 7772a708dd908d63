//! Tensors as plain data, which is how they leave and enter this crate.

use crate::error::{ModelError, Result};

/// A named tensor of single-precision floats, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// Hugging Face name, for example `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// The floats; as many as the product of `shape`.
    pub data: Vec<f32>,
}

impl NamedTensor {
    /// Checks that the tensor has `shape` and as many floats as that takes.
    pub fn expect_shape(&self, shape: &[usize]) -> Result<()> {
        let count = shape.iter().product::<usize>();
        if self.shape == shape && self.data.len() == count {
            return Ok(());
        }
        let found = if self.shape == shape { vec![self.data.len()] } else { self.shape.clone() };
        Err(ModelError::Shape { name: self.name.clone(), expected: shape.to_vec(), found })
    }
}

/// A trainable tensor with the state that AdamW keeps about it.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainedTensor {
    /// The weights.
    pub tensor: NamedTensor,
    /// Running mean of gradients; as long as the weights.
    pub first_moment: Vec<f32>,
    /// Running mean of squared gradients; as long as the weights.
    pub second_moment: Vec<f32>,
    /// Updates made so far.
    pub updates: u32,
}

impl TrainedTensor {
    /// A tensor that has not been updated yet.
    pub fn new(tensor: NamedTensor) -> Self {
        let zeros = vec![0f32; tensor.data.len()];
        Self { tensor, first_moment: zeros.clone(), second_moment: zeros, updates: 0 }
    }
}
