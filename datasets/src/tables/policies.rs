//! `policies`: one row a tensor of a policy version.

crate::table! {
    /// One tensor of the model: of the shared base (written once, by the cold start) or of an adapter (at each update).
    pub struct PolicyTensor in "policies" by (policy_version, part, tensor) {
        /// Version of the policy: 0 is the cold start.
        policy_version: u32,
        /// `base`, or `adapter.NAME`.
        part: String,
        /// Name of the tensor, as Hugging Face (base) or PEFT (adapters) name it.
        tensor: String,
        /// Shape, row-major.
        shape: Vec<u32>,
        /// Values.
        weights: Vec<f32>,
        /// AdamW's first moment; empty for frozen tensors.
        first_moment: Vec<f32>,
        /// AdamW's second moment; empty for frozen tensors.
        second_moment: Vec<f32>,
        /// Optimiser steps that the tensor has seen.
        updates: u32,
    }
}
