//! Linear layers `y = x · Wᵀ` with `W` `[outputs, inputs]`, on one thread.

use gemm::{Parallelism, gemm};

/// Fewest rows a product is computed with; fewer are padded with zeros.
///
/// Below this `gemm` changes to kernels that add in another order (measured: 1 to 4 rows, and up to 16 rows for products
/// as narrow as LoRA's A), so that a row's bits would depend on its company. From 32 rows on they do not.
pub const MIN_ROWS: usize = 32;

/// A matrix in memory: its floats and the distances between neighbouring rows and columns.
struct Strided<'a> {
    data: &'a [f32],
    row: usize,
    column: usize,
}

/// `out = a · b`, `[m, k] · [k, n]`, result row by row.
fn product(m: usize, n: usize, k: usize, a: Strided<'_>, b: Strided<'_>, out: &mut [f32]) {
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        out.fill(0.0);
        return;
    }
    assert!(a.data.len() > (m - 1) * a.row + (k - 1) * a.column, "left operand is shorter than its shape");
    assert!(b.data.len() > (k - 1) * b.row + (n - 1) * b.column, "right operand is shorter than its shape");
    assert!(out.len() >= m * n, "result is shorter than its shape");
    // SAFETY: the assertions above bound every address that the strides reach; `out` is borrowed exclusively.
    unsafe {
        gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n as isize,
            false,
            a.data.as_ptr(),
            a.column as isize,
            a.row as isize,
            b.data.as_ptr(),
            b.column as isize,
            b.row as isize,
            0.0f32,
            1.0f32,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Rows of `x` times a matrix `[width, out_width]`, padded to [`MIN_ROWS`].
fn rows_times(x: &[f32], width: usize, out_width: usize, matrix: Strided<'_>, y: &mut [f32]) {
    let rows = x.len() / width.max(1);
    assert!(y.len() == rows * out_width, "result of {rows} rows of {out_width} has {} floats", y.len());
    if rows >= MIN_ROWS || rows == 0 {
        product(rows, out_width, width, Strided { data: x, row: width, column: 1 }, matrix, y);
        return;
    }
    let mut padded = vec![0f32; MIN_ROWS * width];
    padded[..x.len()].copy_from_slice(x);
    let mut result = vec![0f32; MIN_ROWS * out_width];
    product(MIN_ROWS, out_width, width, Strided { data: &padded, row: width, column: 1 }, matrix, &mut result);
    y.copy_from_slice(&result[..rows * out_width]);
}

/// `y = x · Wᵀ`: `x` `[rows, inputs]`, `w` `[outputs, inputs]`, `y` `[rows, outputs]`.
///
/// # Panics
/// When a slice does not fit these shapes.
pub fn linear(x: &[f32], w: &[f32], inputs: usize, outputs: usize, y: &mut [f32]) {
    rows_times(x, inputs, outputs, Strided { data: w, row: 1, column: inputs }, y);
}

/// Gradient of [`linear`] with respect to `x`: `dx = g · W`, `g` `[rows, outputs]`.
///
/// # Panics
/// When a slice does not fit these shapes.
pub fn linear_input_gradient(g: &[f32], w: &[f32], inputs: usize, outputs: usize, dx: &mut [f32]) {
    rows_times(g, outputs, inputs, Strided { data: w, row: inputs, column: 1 }, dx);
}

/// Gradient of [`linear`] with respect to `W`: `dw = gᵀ · x`, a sum over rows. Frozen weights leave this product out.
///
/// # Panics
/// When a slice does not fit these shapes.
pub fn linear_weight_gradient(g: &[f32], x: &[f32], inputs: usize, outputs: usize, dw: &mut [f32]) {
    let rows = x.len() / inputs.max(1);
    let (g, x) = (Strided { data: g, row: 1, column: outputs }, Strided { data: x, row: inputs, column: 1 });
    product(outputs, inputs, rows, g, x, dw);
}

/// The plain loops of [`linear`]: test oracle.
pub fn linear_portable(x: &[f32], w: &[f32], inputs: usize, outputs: usize, y: &mut [f32]) {
    for (x, y) in x.chunks_exact(inputs).zip(y.chunks_exact_mut(outputs)) {
        for (y, w) in y.iter_mut().zip(w.chunks_exact(inputs)) {
            *y = x.iter().zip(w).map(|(x, w)| x * w).sum();
        }
    }
}
