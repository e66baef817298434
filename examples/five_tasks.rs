//! The five tasks of `docs/library-compared.md`, where the same is written for other libraries:
//! `cargo run --example five_tasks`.

use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Error, Matrix, bf16, gemm};

/// `a b`, of f32 on the host.
fn product(
    device: &Device,
    (a, b): (&[f32], &[f32]),
    [m, n, k]: [usize; 3],
) -> Result<Vec<f32>, Error> {
    let a = DeviceMatrix::from_slice(device, [m, k], a)?;
    let b = DeviceMatrix::from_slice(device, [k, n], b)?;
    let mut c = DeviceMatrix::<f32>::zeros(device, [m, n])?;
    gemm(&a, &b).run(&mut c)?;
    c.to_vec()
}

/// `gelu(x w^T + bias)` in one kernel.
fn layer(
    x: &DeviceMatrix<bf16>,
    w: &DeviceMatrix<bf16>,
    bias: &DeviceMatrix<f32>,
) -> Result<DeviceMatrix<bf16>, Error> {
    let mut y = DeviceMatrix::zeros(x.stream(), [x.rows(), w.rows()])?;
    gemm(x, w.t()).bias(bias).gelu().run(&mut y)?;
    Ok(y)
}

/// `scale * q k^T` of each head; heads lie one below the other.
fn scores(
    q: &DeviceMatrix<bf16>,
    k: &DeviceMatrix<bf16>,
    heads: usize,
    scale: f32,
) -> Result<DeviceMatrix<bf16>, Error> {
    let mut s = DeviceMatrix::zeros(q.stream(), [q.rows(), k.rows() / heads])?;
    gemm(q.batch(heads)?, k.batch(heads)?.t()).alpha(scale).run(s.batch_mut(heads)?)?;
    Ok(s)
}

/// Rows 10 to 73 and columns 20 to 67 of `large`, times `b`.
fn part(large: &DeviceMatrix<f32>, b: &DeviceMatrix<f32>) -> Result<DeviceMatrix<f32>, Error> {
    let mut c = DeviceMatrix::zeros(large.stream(), [64, b.cols()])?;
    gemm(large.submatrix(10..74, 20..68)?, b).run(&mut c)?;
    Ok(c)
}

/// `x = a x`, `2 * times` times: a graph of two products, launched `times` times.
fn power(
    a: &DeviceMatrix<f32>,
    x: &mut DeviceMatrix<f32>,
    y: &mut DeviceMatrix<f32>,
    times: usize,
) -> Result<(), Error> {
    let step = gemm(a, &*x).plan(&*y)?; // allocates what it needs
    let stream = a.stream();
    let graph = stream.capture(|| {
        step.run(a, &*x, &mut *y)?;
        step.run(a, &*y, &mut *x)
    })?;
    for _ in 0..times {
        // SAFETY: the plan and the matrices outlive the wait below; only this stream uses them.
        unsafe { graph.launch() }?;
    }
    stream.synchronize()
}

/// Small integers, whose sums are exact.
fn number(row: usize, col: usize) -> f32 {
    ((row * 7 + col * 3) % 11) as f32 - 5.0
}

fn main() -> Result<(), Error> {
    let device = Device::open(DeviceChoice::Auto)?;
    let host = |rows, cols| Matrix::from_fn(rows, cols, number);
    let half = |rows, cols| DeviceMatrix::<bf16>::from_host(&device, &host(rows, cols));

    let (a, b) = (host(30, 50), host(50, 20));
    let c = product(&device, (a.as_slice(), b.as_slice()), [30, 20, 50])?;
    println!("product: {}", c[0]);

    let bias = DeviceMatrix::<f32>::from_host(&device, &host(1, 48))?;
    let y = layer(&half(32, 64)?, &half(48, 64)?, &bias)?;
    println!("layer: {}", y.download()?.at(0, 0));

    let (heads, tokens, depth) = (4, 16, 64);
    let (q, k) = (half(heads * tokens, depth)?, half(heads * tokens, depth)?);
    println!("scores: {}", scores(&q, &k, heads, 0.125)?.download()?.at(0, 0));

    let large = DeviceMatrix::<f32>::from_host(&device, &host(80, 100))?;
    let b = DeviceMatrix::<f32>::from_host(&device, &host(48, 32))?;
    println!("part: {}", part(&large, &b)?.download()?.at(0, 0));

    // Each step swaps rows 0 and 1.
    let swap = DeviceMatrix::from_slice(&device, [2, 2], &[0f32, 1.0, 1.0, 0.0])?;
    let mut x = DeviceMatrix::from_slice(&device, [2, 1], &[1f32, 2.0])?;
    let mut y = DeviceMatrix::<f32>::zeros(&device, [2, 1])?;
    power(&swap, &mut x, &mut y, 3)?;
    println!("power: {:?}, one step before {:?}", x.to_vec()?, y.to_vec()?);
    Ok(())
}
