//! Plans a product once and enqueues it many times: the steps of a Markov chain, for 32 starting
//! points at once. `cargo run --example reuse_plan`.

use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Error, Gemm, Matrix, Plan};

const STATES: usize = 100;
const STARTS: usize = 32;

/// A plan owns what it needs, so it can be kept beside its matrices, and used by any thread.
struct Chain {
    step: Plan,
    transitions: DeviceMatrix,
    state: DeviceMatrix,
    next: DeviceMatrix,
}

impl Chain {
    /// A walk on a ring: stay, or go one step to either side. Each starting point is a column.
    fn new(device: &Device) -> Result<Self, Error> {
        let transitions = Matrix::from_fn(STATES, STATES, |to, from| match to.abs_diff(from) {
            0 => 0.5,
            1 | 99 => 0.25,
            _ => 0.0,
        });
        let one_if = |condition| if condition { 1.0 } else { 0.0 };
        let starts = Matrix::from_fn(STATES, STARTS, |state, start| one_if(state == 3 * start));
        Ok(Self {
            step: device.auto()?.prepare(Gemm::new(STATES, STARTS, STATES))?,
            transitions: DeviceMatrix::from_host(device, &transitions)?,
            state: DeviceMatrix::from_host(device, &starts)?,
            next: DeviceMatrix::zeros(device, STATES, STARTS)?,
        })
    }

    /// Enqueues a step; nothing is allocated, and nobody waits.
    fn advance(&mut self) -> Result<(), Error> {
        self.step.enqueue(&self.transitions, &self.state, &mut self.next)?;
        std::mem::swap(&mut self.state, &mut self.next);
        Ok(())
    }
}

fn main() -> Result<(), Error> {
    let mut chain = Chain::new(&Device::open(DeviceChoice::Auto)?)?;
    for _ in 0..200 {
        chain.advance()?;
    }
    let state = chain.state.download()?;
    let sum: f32 = (0..STATES).map(|row| state.at(row, 0)).sum();
    println!("after 200 steps: {:.4} where it started, {sum:.3} in all", state.at(0, 0));
    Ok(())
}
