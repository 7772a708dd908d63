//! The gradient of a training step.

use crate::error::{ModelError, Result};
use crate::tensor::NamedTensor;

/// One number for every trained weight, tensors sorted by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    tensors: Vec<NamedTensor>,
}

impl Gradient {
    /// A gradient of the given tensors.
    pub(crate) fn new(tensors: impl Iterator<Item = NamedTensor>) -> Self {
        Self { tensors: tensors.collect() }
    }

    /// The tensors, sorted by name.
    pub fn tensors(&self) -> &[NamedTensor] {
        &self.tensors
    }

    pub(crate) fn tensors_mut(&mut self) -> &mut [NamedTensor] {
        &mut self.tensors
    }

    /// Euclidean norm over all tensors, summed in `f64`.
    pub fn norm(&self) -> f64 {
        let squares = self.tensors.iter().flat_map(|t| &t.data).map(|g| f64::from(*g) * f64::from(*g));
        squares.sum::<f64>().sqrt()
    }

    /// Scales the gradient down to `max_norm` where it is longer; returns the norm before.
    pub fn clip(&mut self, max_norm: f64) -> f64 {
        let norm = self.norm();
        if norm > max_norm && norm.is_finite() {
            self.scale((max_norm / norm) as f32);
        }
        norm
    }

    /// Whether every number is finite.
    pub fn all_finite(&self) -> bool {
        self.first_not_finite().is_none()
    }

    /// Whether every number is zero: then there is nothing to learn, and the caller leaves the update out.
    pub fn is_zero(&self) -> bool {
        self.tensors.iter().flat_map(|t| &t.data).all(|g| *g == 0.0)
    }

    /// Name of the first tensor with a number that is not finite.
    pub fn first_not_finite(&self) -> Option<&str> {
        self.tensors.iter().find(|t| t.data.iter().any(|g| !g.is_finite())).map(|t| t.name.as_str())
    }

    /// Adds another gradient of the same model.
    ///
    /// # Errors
    /// When the tensors differ in name or shape.
    pub fn add(&mut self, other: &Gradient) -> Result<()> {
        other.check_fits(self.tensors.iter())?;
        for (own, other) in self.tensors.iter_mut().zip(&other.tensors) {
            for (own, other) in own.data.iter_mut().zip(&other.data) {
                *own += other;
            }
        }
        Ok(())
    }

    /// Multiplies every number.
    pub fn scale(&mut self, factor: f32) {
        for g in self.tensors.iter_mut().flat_map(|t| &mut t.data) {
            *g *= factor;
        }
    }

    /// Checks that names and shapes are those of `tensors`.
    pub(crate) fn check_fits<'a>(&self, tensors: impl ExactSizeIterator<Item = &'a NamedTensor>) -> Result<()> {
        if tensors.len() != self.tensors.len() {
            let (expected, found) = (tensors.len(), self.tensors.len());
            return Err(ModelError::Length { what: "tensors of a gradient", expected, found });
        }
        for (own, expected) in self.tensors.iter().zip(tensors) {
            if own.name != expected.name {
                return Err(ModelError::UnexpectedTensor { name: own.name.clone() });
            }
            own.expect_shape(&expected.shape)?;
        }
        Ok(())
    }
}
