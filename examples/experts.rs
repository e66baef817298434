//! A layer of experts: each token has the weights of one expert, and all tokens are one product.
//! `cargo run --example experts`, or with tokens, experts, inputs and outputs: `-- 512 8 1024 4096`.
//! `--time` compares it with one product of as many tokens, and with a product for each expert.

use std::error::Error;

use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, GroupEnds, Matrix, Plan, Timer, bf16, gemm};

const ROUNDS: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let (options, sizes): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let sizes = sizes.iter().map(|size| size.parse()).collect::<Result<Vec<usize>, _>>()?;
    let [tokens, experts, inputs, outputs] = match sizes[..] {
        [] => [100, 4, 64, 48],
        [tokens, experts, inputs, outputs] => [tokens, experts, inputs, outputs],
        _ => return Err("the sizes are TOKENS EXPERTS INPUTS OUTPUTS".into()),
    };
    let device = Device::open(DeviceChoice::Auto)?;
    let number = |row: usize, col: usize| ((row * 7 + col * 3 + row * col) % 5) as f32 - 2.0;
    let on_device =
        |rows, cols| DeviceMatrix::<bf16>::from_host(&device, &Matrix::from_fn(rows, cols, number));
    // The tokens are sorted by expert. Some experts have more than others.
    let (x, weights) = (on_device(tokens, inputs)?, on_device(experts * outputs, inputs)?);
    let w = weights.batch(experts)?;
    let ends: Vec<u32> = (1..=experts)
        .map(|expert| (tokens as f64 * (expert as f64 / experts as f64).powf(1.3)) as u32)
        .collect();
    let on_device = GroupEnds::new(&device.stream(), &ends)?;
    let mut y = DeviceMatrix::<bf16>::zeros(&device, [tokens, outputs])?;
    gemm(&x, w.t()).groups(&on_device).run(&mut y)?;

    // The same by one product for each expert.
    let rows = |expert: usize| {
        let begin = if expert == 0 { 0 } else { ends[expert - 1] };
        begin as usize..ends[expert] as usize
    };
    let of = |expert: usize| weights.submatrix(expert * outputs..(expert + 1) * outputs, 0..inputs);
    let mut each = DeviceMatrix::<bf16>::zeros(&device, [tokens, outputs])?;
    for expert in 0..experts {
        let x = x.submatrix(rows(expert), 0..inputs)?;
        gemm(x, of(expert)?.t()).run(&mut each.submatrix_mut(rows(expert), 0..outputs)?)?;
    }
    // These sums are exact.
    println!("every token has its expert's outputs: {}", y.download()? == each.download()?);
    if options.is_empty() {
        return Ok(());
    }

    let (one, grouped) = (gemm(&x, of(0)?.t()), gemm(&x, w.t()).groups(&on_device));
    let plans = [grouped.plan(&y)?, one.plan(&y)?];
    let timer = Timer::new(&device)?;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        times[0].push(timer.milliseconds(|| grouped.run(&mut y))?);
        times[1].push(timer.milliseconds(|| one.run(&mut y))?);
        times[2].push(timer.milliseconds(|| {
            (0..experts).try_for_each(|expert| {
                let x = x.submatrix(rows(expert), 0..inputs)?;
                gemm(x, of(expert)?.t()).run(&mut each.submatrix_mut(rows(expert), 0..outputs)?)
            })
        })?);
    }
    let [grouped, one, apart] = times.map(|mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    let kernel = |plan: &Plan<'_>| plan.configuration().to_string();
    println!("{tokens} tokens, {experts} experts of {inputs} x {outputs}, ms");
    println!("grouped            {grouped:8.4}  {}", kernel(&plans[0]));
    println!("one product        {one:8.4}  {}, {:.3} x", kernel(&plans[1]), one / grouped);
    println!("one for each       {apart:8.4}  {:.3} x", apart / grouped);
    let bytes = 2 * (experts * inputs * outputs + tokens * (inputs + outputs));
    println!("                   {:8.0} GB/s", bytes as f64 / grouped / 1e6);
    Ok(())
}
