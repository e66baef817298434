//! Plans a product once and enqueues it many times: the steps of a Markov chain, for 32 starting
//! points at once. `cargo run --example reuse_plan`.

use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Error, Matrix, gemm};

const STATES: usize = 100;
const STARTS: usize = 32;

fn main() -> Result<(), Error> {
    let device = Device::open(DeviceChoice::Auto)?;
    // A walk on a ring: stay, or go one step to either side. Each starting point is a column.
    let transitions = Matrix::from_fn(STATES, STATES, |to, from| match to.abs_diff(from) {
        0 => 0.5,
        1 | 99 => 0.25,
        _ => 0.0,
    });
    let one_if = |condition| if condition { 1.0 } else { 0.0 };
    let starts = Matrix::from_fn(STATES, STARTS, |state, start| one_if(state == 3 * start));

    let transitions = DeviceMatrix::<f32>::from_host(&device, &transitions)?;
    let mut state = DeviceMatrix::<f32>::from_host(&device, &starts)?;
    let mut next = DeviceMatrix::<f32>::zeros(&device, [STATES, STARTS])?;
    let step = gemm(&transitions, &state).plan(&next)?;
    for _ in 0..200 {
        // Nothing is looked up or allocated, and nobody waits.
        step.run(&transitions, &state, &mut next)?;
        std::mem::swap(&mut state, &mut next);
    }
    let state = state.download()?;
    let sum: f32 = (0..STATES).map(|row| state.at(row, 0)).sum();
    println!("after 200 steps: {:.4} where it started, {sum:.3} in all", state.at(0, 0));
    Ok(())
}
