//! CPU kernels of the Qwen3 block: forward and backward passes over plain `f32` slices, with nothing of candle in them.
//!
//! Every kernel but the matrix products is one body compiled twice: for AVX2 and FMA, chosen at run time, and for the
//! baseline instruction set (`*_portable`), which is the fallback and the test oracle. The bodies use no fused
//! multiply-add, so both compilations give the same bits. The products go through [`gemm`], one thread each: parallelism
//! belongs to the caller, which gives every OS thread whole chunks of a batch.
//!
//! Invariant: a row of a result depends on the inputs of that row alone, never on how many other rows there are
//! ([`linear::MIN_ROWS`] says what that takes). A model's answer is therefore the same bits alone and in any batch.
//!
//! Deliberately absent: tensors, shapes beyond the arguments, autograd, threads.

mod compile;

pub mod attention;
pub mod linear;
pub mod norm_rope;
pub mod rms_norm;
pub mod swiglu;

pub use attention::AttentionShape;
pub use norm_rope::RotaryTable;
