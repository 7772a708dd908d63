//! What must hold of every kernel: both compilations agree, gradients are slopes, and a row does not depend on its company.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cosplay_kernels::attention::{attention, attention_backward, attention_backward_portable, attention_portable};
use cosplay_kernels::linear::{linear, linear_input_gradient, linear_portable, linear_weight_gradient};
use cosplay_kernels::norm_rope::{norm_rope, norm_rope_backward, norm_rope_backward_portable, norm_rope_portable};
use cosplay_kernels::rms_norm::{rms_norm, rms_norm_backward, rms_norm_backward_portable, rms_norm_portable};
use cosplay_kernels::swiglu::{swiglu, swiglu_backward, swiglu_backward_portable, swiglu_portable};
use cosplay_kernels::{AttentionShape, RotaryTable};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const EPSILON: f32 = 1e-6;

fn floats(rng: &mut ChaCha8Rng, count: usize) -> Vec<f32> {
    (0..count).map(|_| rng.random_range(-1.5f32..1.5)).collect()
}

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Largest difference, relative to the largest number.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let scale = a.iter().fold(1e-6f32, |m, x| m.max(x.abs()));
    a.iter().zip(b).fold(0f32, |m, (a, b)| m.max((a - b).abs())) / scale
}

/// The slope of `Σ weights · f(x)` in every element of `x` by central differences, against `gradient`.
fn check_slopes(x: &[f32], weights: &[f32], gradient: &[f32], f: impl Fn(&[f32]) -> Vec<f32>) {
    let total = |x: &[f32]| f(x).iter().zip(weights).map(|(y, w)| f64::from(*y) * f64::from(*w)).sum::<f64>();
    let step = 4e-3f32;
    let scale = gradient.iter().fold(0f32, |m, g| m.max(g.abs()));
    for index in 0..x.len() {
        let moved = |sign: f32| {
            let mut x = x.to_vec();
            x[index] += sign * step;
            total(&x)
        };
        let slope = (moved(1.0) - moved(-1.0)) / (2.0 * f64::from(step));
        let error = (slope - f64::from(gradient[index])).abs();
        assert!(error < 5e-3 * f64::from(scale), "element {index}: slope {slope}, gradient {}", gradient[index]);
    }
}

#[test]
fn rms_norm_has_unit_rms_and_the_right_gradient() {
    let (x, w, g) = (floats(&mut rng(1), 30), floats(&mut rng(2), 10), floats(&mut rng(3), 30));
    let forward = |x: &[f32], w: &[f32]| {
        let mut y = vec![0.0; x.len()];
        rms_norm(x, w, EPSILON, &mut y);
        y
    };
    for row in forward(&x, &[1.0; 10]).chunks(10) {
        assert!((row.iter().map(|y| y * y).sum::<f32>() / 10.0 - 1.0).abs() < 1e-5);
    }
    let (mut dx, mut dw) = (vec![0.0; 30], vec![0.0; 10]);
    rms_norm_backward(&x, &w, &g, EPSILON, &mut dx, &mut dw);
    check_slopes(&x, &g, &dx, |x| forward(x, &w));
    check_slopes(&w, &g, &dw, |w| forward(&x, w));
}

#[test]
fn norm_rope_turns_by_relative_position_and_has_the_right_gradient() {
    let (heads, positions, width) = (2, 3, 8);
    let count = 2 * positions * heads * width;
    let (x, w, g) = (floats(&mut rng(1), count), floats(&mut rng(2), width), floats(&mut rng(3), count));
    let table = RotaryTable::new(width, 8, 100.0);
    for first in [0, 4] {
        let (cos, sin) = table.from(first);
        let forward = |x: &[f32], w: &[f32]| {
            let mut y = vec![0.0; x.len()];
            norm_rope(x, w, cos, sin, heads, positions, EPSILON, &mut y);
            y
        };
        let (mut dx, mut dw) = (vec![0.0; count], vec![0.0; width]);
        norm_rope_backward(&x, &w, cos, sin, heads, positions, EPSILON, &g, &mut dx, &mut dw);
        check_slopes(&x, &g, &dx, |x| forward(x, &w));
        check_slopes(&w, &g, &dw, |w| forward(&x, w));
    }
    // The inner product of two rotated vectors depends on their distance alone.
    let (a, b) = (floats(&mut rng(4), width), floats(&mut rng(5), width));
    let at = |x: &[f32], position: usize| {
        let (cos, sin) = table.from(position);
        let mut y = vec![0.0; width];
        norm_rope(x, &vec![1.0; width], cos, sin, 1, 1, EPSILON, &mut y);
        y
    };
    let inner = |i, j| at(&a, i).iter().zip(at(&b, j)).map(|(a, b)| a * b).sum::<f32>();
    assert!((inner(0, 2) - inner(3, 5)).abs() < 1e-4 && (inner(0, 2) - inner(0, 3)).abs() > 1e-3);
}

/// Attention in `f64`, straight from its definition.
fn attention_oracle(q: &[f32], k: &[f32], v: &[f32], shape: AttentionShape) -> Vec<f32> {
    let AttentionShape { queries, keys, heads, kv_heads, head_dim } = shape;
    let mut y = vec![0f32; q.len()];
    for b in 0..q.len() / shape.query_len() {
        for (i, head) in (0..queries).flat_map(|i| (0..heads).map(move |h| (i, h))) {
            let at = b * shape.query_len() + (i * heads + head) * head_dim;
            let row = |j: usize| b * shape.key_len() + (j * kv_heads + head * kv_heads / heads) * head_dim;
            let score = |j: usize| {
                let products = (0..head_dim).map(|c| f64::from(q[at + c]) * f64::from(k[row(j) + c]));
                products.sum::<f64>() / (head_dim as f64).sqrt()
            };
            let weights: Vec<f64> = (0..keys - queries + i + 1).map(|j| score(j).exp()).collect();
            let total: f64 = weights.iter().sum();
            for c in 0..head_dim {
                let mixed: f64 = weights.iter().enumerate().map(|(j, w)| w * f64::from(v[row(j) + c])).sum();
                y[at + c] = (mixed / total) as f32;
            }
        }
    }
    y
}

#[test]
fn attention_is_its_definition_and_has_the_right_gradient() {
    for (queries, keys, heads, kv_heads) in [(4, 4, 4, 2), (1, 5, 2, 1), (3, 5, 2, 2)] {
        let shape = AttentionShape { queries, keys, heads, kv_heads, head_dim: 6 };
        let q = floats(&mut rng(1), 2 * shape.query_len());
        let (k, v) = (floats(&mut rng(2), 2 * shape.key_len()), floats(&mut rng(3), 2 * shape.key_len()));
        let g = floats(&mut rng(4), q.len());
        let forward = |q: &[f32], k: &[f32], v: &[f32]| {
            let mut y = vec![0.0; q.len()];
            attention(q, k, v, shape, &mut y);
            y
        };
        assert!(distance(&attention_oracle(&q, &k, &v, shape), &forward(&q, &k, &v)) < 1e-6);
        let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
        attention_backward(&q, &k, &v, &g, shape, &mut dq, &mut dk, &mut dv);
        check_slopes(&q, &g, &dq, |q| forward(q, &k, &v));
        check_slopes(&k, &g, &dk, |k| forward(&q, k, &v));
        check_slopes(&v, &g, &dv, |v| forward(&q, &k, v));
    }
}

#[test]
fn swiglu_has_the_right_gradient() {
    let (gate, up, g) = (floats(&mut rng(1), 20), floats(&mut rng(2), 20), floats(&mut rng(3), 20));
    let forward = |gate: &[f32], up: &[f32]| {
        let mut y = vec![0.0; gate.len()];
        swiglu(gate, up, &mut y);
        y
    };
    let expected: Vec<f32> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
    assert!(distance(&expected, &forward(&gate, &up)) < 1e-6);
    let (mut d_gate, mut d_up) = (vec![0.0; 20], vec![0.0; 20]);
    swiglu_backward(&gate, &up, &g, &mut d_gate, &mut d_up);
    check_slopes(&gate, &g, &d_gate, |gate| forward(gate, &up));
    check_slopes(&up, &g, &d_up, |up| forward(&gate, up));
}

#[test]
fn linear_has_the_right_gradient() {
    for rows in [3, 40] {
        let (inputs, outputs) = (7, 5);
        let (x, w) = (floats(&mut rng(1), rows * inputs), floats(&mut rng(2), outputs * inputs));
        let g = floats(&mut rng(3), rows * outputs);
        let forward = |x: &[f32], w: &[f32]| {
            let mut y = vec![0.0; rows * outputs];
            linear(x, w, inputs, outputs, &mut y);
            y
        };
        let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
        linear_input_gradient(&g, &w, inputs, outputs, &mut dx);
        linear_weight_gradient(&g, &x, inputs, outputs, &mut dw);
        check_slopes(&x, &g, &dx, |x| forward(x, &w));
        check_slopes(&w, &g, &dw, |w| forward(&x, w));
    }
}

/// Every product of the embedded models, and LoRA's narrow ones.
const SHAPES: [(usize, usize); 11] =
    [(64, 64), (64, 32), (64, 192), (192, 64), (64, 512), (96, 96), (96, 48), (96, 256), (256, 96), (64, 16), (16, 64)];

#[test]
fn rows_of_a_product_do_not_depend_on_how_many_there_are() {
    for (inputs, outputs) in SHAPES {
        let x = floats(&mut rng(1), 1100 * inputs);
        let w = floats(&mut rng(2), outputs * inputs);
        let product = |rows: usize| {
            let mut y = vec![0.0; rows * outputs];
            linear(&x[..rows * inputs], &w, inputs, outputs, &mut y);
            y
        };
        let all = product(1100);
        let mut oracle = vec![0.0; 1100 * outputs];
        linear_portable(&x, &w, inputs, outputs, &mut oracle);
        assert!(distance(&oracle, &all) < 1e-5);
        let bits = |y: &[f32]| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
        for rows in (1..70).chain([127, 128, 129, 448, 500, 831, 832, 833, 1024]) {
            assert_eq!(bits(&product(rows)), bits(&all[..rows * outputs]), "{rows} rows of {inputs} to {outputs}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_compilations_give_the_same_bits(
        seed: u64, batch in 1usize..4, queries in 1usize..6, more in 0usize..4, kv in 1usize..3, group in 1usize..3, half in 1usize..20,
    ) {
        let shape = AttentionShape { queries, keys: queries + more, heads: kv * group, kv_heads: kv, head_dim: 2 * half };
        let rng = &mut rng(seed);
        let (q, g) = (floats(rng, batch * shape.query_len()), floats(rng, batch * shape.query_len()));
        let (k, v) = (floats(rng, batch * shape.key_len()), floats(rng, batch * shape.key_len()));
        let w = floats(rng, shape.head_dim);
        let table = RotaryTable::new(shape.head_dim, queries, 1000.0);
        let zeros = |like: &[f32]| vec![0f32; like.len()];

        let (mut a, mut b) = (zeros(&q), zeros(&q));
        attention(&q, &k, &v, shape, &mut a);
        attention_portable(&q, &k, &v, shape, &mut b);
        prop_assert_eq!(&a, &b);
        let (mut a, mut b) = ((zeros(&q), zeros(&k), zeros(&v)), (zeros(&q), zeros(&k), zeros(&v)));
        attention_backward(&q, &k, &v, &g, shape, &mut a.0, &mut a.1, &mut a.2);
        attention_backward_portable(&q, &k, &v, &g, shape, &mut b.0, &mut b.1, &mut b.2);
        prop_assert_eq!(a, b);

        let (mut a, mut b) = (zeros(&q), zeros(&q));
        rms_norm(&q, &w, EPSILON, &mut a);
        rms_norm_portable(&q, &w, EPSILON, &mut b);
        prop_assert_eq!(&a, &b);
        let (mut a, mut b) = ((zeros(&q), zeros(&w)), (zeros(&q), zeros(&w)));
        rms_norm_backward(&q, &w, &g, EPSILON, &mut a.0, &mut a.1);
        rms_norm_backward_portable(&q, &w, &g, EPSILON, &mut b.0, &mut b.1);
        prop_assert_eq!(a, b);

        let (mut a, mut b) = (zeros(&q), zeros(&q));
        norm_rope(&q, &w, &table.cos, &table.sin, shape.heads, queries, EPSILON, &mut a);
        norm_rope_portable(&q, &w, &table.cos, &table.sin, shape.heads, queries, EPSILON, &mut b);
        prop_assert_eq!(&a, &b);
        let (mut a, mut b) = ((zeros(&q), zeros(&w)), (zeros(&q), zeros(&w)));
        norm_rope_backward(&q, &w, &table.cos, &table.sin, shape.heads, queries, EPSILON, &g, &mut a.0, &mut a.1);
        norm_rope_backward_portable(&q, &w, &table.cos, &table.sin, shape.heads, queries, EPSILON, &g, &mut b.0, &mut b.1);
        prop_assert_eq!(a, b);

        let (mut a, mut b) = (zeros(&q), zeros(&q));
        swiglu(&q, &g, &mut a);
        swiglu_portable(&q, &g, &mut b);
        prop_assert_eq!(&a, &b);
        let (mut a, mut b) = ((zeros(&q), zeros(&q)), (zeros(&q), zeros(&q)));
        swiglu_backward(&q, &g, &g, &mut a.0, &mut a.1);
        swiglu_backward_portable(&q, &g, &g, &mut b.0, &mut b.1);
        prop_assert_eq!(a, b);
    }
}
