//! Causal grouped-query attention over `[batch, positions, heads · D]`, without a score matrix in memory.

use crate::compile::{add_scaled, dot, exp, kernel};

/// Shape of one call. The queries are the **last** `queries` of `keys` positions: equal for a whole prompt, one for a pass that
/// only needs the answer's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Positions that ask.
    pub queries: usize,
    /// Positions that are looked at; at least `queries`.
    pub keys: usize,
    /// Query heads, `H`.
    pub heads: usize,
    /// Key and value heads, a divisor of `H`.
    pub kv_heads: usize,
    /// Width of a head, `D`.
    pub head_dim: usize,
}

impl AttentionShape {
    /// Floats of one sequence's queries.
    pub fn query_len(&self) -> usize {
        self.queries * self.heads * self.head_dim
    }

    /// Floats of one sequence's keys, and of its values.
    pub fn key_len(&self) -> usize {
        self.keys * self.kv_heads * self.head_dim
    }
}

/// Softmax of one query's scaled scores against keys `0..p.len()`, whose rows lie `stride` apart.
#[inline(always)]
fn probabilities(q: &[f32], k: &[f32], stride: usize, scale: f32, p: &mut [f32]) {
    let mut largest = f32::MIN;
    for (j, p) in p.iter_mut().enumerate() {
        *p = dot(q, &k[j * stride..j * stride + q.len()]) * scale;
        largest = if *p > largest { *p } else { largest };
    }
    let mut total = 0.0;
    for p in p.iter_mut() {
        *p = exp(*p - largest);
    }
    for p in p.iter() {
        total += *p;
    }
    let inverse = 1.0 / total;
    for p in p.iter_mut() {
        *p *= inverse;
    }
}

kernel! {
    /// Attention of queries `q` `[batch, queries, H·D]` over `k` and `v` `[batch, keys, KV·D]` into `y` (shape of `q`).
    pub fn attention / attention_portable(q: &[f32], k: &[f32], v: &[f32], shape: AttentionShape, y: &mut [f32]) {
        let AttentionShape { queries, keys, heads, kv_heads, head_dim } = shape;
        let (group, stride, scale) = (heads / kv_heads, kv_heads * head_dim, 1.0 / (head_dim as f32).sqrt());
        let mut scores = vec![0f32; keys];
        let sequences = q.chunks_exact(shape.query_len()).zip(y.chunks_exact_mut(shape.query_len()));
        let kv = k.chunks_exact(shape.key_len()).zip(v.chunks_exact(shape.key_len()));
        for ((q, y), (k, v)) in sequences.zip(kv) {
            for head in 0..heads {
                let column = head / group * head_dim;
                for i in 0..queries {
                    let at = (i * heads + head) * head_dim;
                    let p = &mut scores[..keys - queries + i + 1];
                    probabilities(&q[at..at + head_dim], &k[column..], stride, scale, p);
                    let y = &mut y[at..at + head_dim];
                    y.fill(0.0);
                    for (j, p) in p.iter().enumerate() {
                        let from = j * stride + column;
                        add_scaled(y, *p, &v[from..from + head_dim]);
                    }
                }
            }
        }
    }
}

kernel! {
    /// Backward pass of [`attention`] for the gradient `g` of its result: adds to `dq`, `dk`, `dv` (zeroed by the caller).
    /// The probabilities are computed again instead of being kept.
    pub fn attention_backward / attention_backward_portable(
        q: &[f32], k: &[f32], v: &[f32], g: &[f32], shape: AttentionShape,
        dq: &mut [f32], dk: &mut [f32], dv: &mut [f32],
    ) {
        let AttentionShape { queries, keys, heads, kv_heads, head_dim } = shape;
        let (group, stride, scale) = (heads / kv_heads, kv_heads * head_dim, 1.0 / (head_dim as f32).sqrt());
        let (q_len, k_len) = (shape.query_len(), shape.key_len());
        let (mut scores, mut d_scores) = (vec![0f32; keys], vec![0f32; keys]);
        let asked = q.chunks_exact(q_len).zip(g.chunks_exact(q_len)).zip(dq.chunks_exact_mut(q_len));
        let seen = k.chunks_exact(k_len).zip(v.chunks_exact(k_len));
        let d_seen = dk.chunks_exact_mut(k_len).zip(dv.chunks_exact_mut(k_len));
        for ((((q, g), dq), (k, v)), (dk, dv)) in asked.zip(seen).zip(d_seen) {
            for head in 0..heads {
                let column = head / group * head_dim;
                for i in 0..queries {
                    let at = (i * heads + head) * head_dim;
                    let (q, g, dq) = (&q[at..at + head_dim], &g[at..at + head_dim], &mut dq[at..at + head_dim]);
                    let count = keys - queries + i + 1;
                    let (p, dp) = (&mut scores[..count], &mut d_scores[..count]);
                    probabilities(q, &k[column..], stride, scale, p);
                    let mut mean = 0.0;
                    for (j, (p, dp)) in p.iter().zip(dp.iter_mut()).enumerate() {
                        let row = j * stride + column..j * stride + column + head_dim;
                        *dp = dot(g, &v[row.clone()]);
                        mean += *dp * *p;
                        add_scaled(&mut dv[row], *p, g);
                    }
                    for (j, (p, dp)) in p.iter().zip(dp.iter()).enumerate() {
                        let row = j * stride + column..j * stride + column + head_dim;
                        let d_score = p * (dp - mean) * scale;
                        add_scaled(dq, d_score, &k[row.clone()]);
                        add_scaled(&mut dk[row], d_score, q);
                    }
                }
            }
        }
    }
}
