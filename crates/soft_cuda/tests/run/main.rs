//! Runs small kernels on every instruction-set path and compares the bits.

mod arithmetic;
mod around;
mod arrivals;
mod barriers;
mod bulk;
mod calls;
mod cluster;
mod constants;
mod divergence;
mod endless;
mod faults;
mod gemm;
mod half;
mod integers;
mod limits;
mod loading;
mod memory;
mod operations;
mod passing;
mod pipeline;
mod reduce;
mod straight;
mod subword;
mod tensor;
mod tensor_reduce;
mod together;
mod warp;

use soft_cuda::{Config, Device, Fault, FaultKind, Isa, LaunchConfig, LaunchError};

/// Result of a launch: the buffers afterwards.
type Outcome = Result<Vec<Vec<u32>>, LaunchError>;

/// A launch of the only kernel of a module. Its parameters are the addresses
/// of `buffers`.
#[derive(Clone)]
struct Case {
    ptx: String,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    buffers: Vec<Vec<u32>>,
    budget: u64,
}

/// A module with one kernel `k` of `buffers` pointer parameters, which are in
/// `%rd1`, `%rd2`, ... The thread index is in `%r1`, four times it in `%rd0`.
fn kernel(buffers: usize, body: &str) -> String {
    module(buffers, "", body)
}

/// As [`kernel`], with module-scope declarations in front.
fn module(buffers: usize, declarations: &str, body: &str) -> String {
    let params: Vec<String> =
        (1..=buffers).map(|i| format!(".param .u64 .ptr .global .align 4 p{i}")).collect();
    let loads: String =
        (1..=buffers).map(|i| format!("  ld.param.b64 %rd{i}, [p{i}];\n")).collect();
    format!(
        ".version 8.7\n.target sm_80\n.address_size 64\n{declarations}
.visible .entry k({})
{{
  .reg .pred %p<20>;
  .reg .b16 %h<20>;
  .reg .b32 %r<100>;
  .reg .b64 %rd<100>;
{loads}  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd0, %r1, 4;
{body}
  ret;
}}
",
        params.join(", ")
    )
}

impl Case {
    /// One warp of a kernel with these buffers.
    fn new(ptx: String, buffers: &[Vec<u32>]) -> Case {
        let buffers = buffers.to_vec();
        let (grid, block) = ([1; 3], [32, 1, 1]);
        Case { ptx, grid, block, dynamic_shared: 0, buffers, budget: 50_000_000 }
    }

    fn threads(mut self, threads: u32) -> Case {
        self.block = [threads, 1, 1];
        self
    }

    fn blocks(mut self, blocks: u32) -> Case {
        self.grid = [blocks, 1, 1];
        self
    }

    fn shared(mut self, bytes: u32) -> Case {
        self.dynamic_shared = bytes;
        self
    }

    fn budget(mut self, budget: u64) -> Case {
        self.budget = budget;
        self
    }

    fn run_on(&self, isa: Isa) -> Outcome {
        let config = Config { isa, instruction_budget: Some(self.budget), ..Config::default() };
        let device = Device::new(config);
        let module = device.load(&self.ptx).unwrap_or_else(|error| panic!("{error}"));
        let kernel = module.kernel("k").expect("the kernel is called k");
        let mut params = Vec::new();
        let mut addresses = Vec::new();
        for buffer in &self.buffers {
            let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let address = device.alloc(bytes.len() as u64).unwrap();
            device.write(address, &bytes).unwrap();
            params.extend(address.to_ne_bytes());
            addresses.push(address);
        }
        let Case { grid, block, dynamic_shared, .. } = *self;
        device.launch(&kernel, LaunchConfig { grid, block, dynamic_shared }, &params)?;
        let read = |(&address, buffer): (&u64, &Vec<u32>)| {
            let mut bytes = vec![0; buffer.len() * 4];
            device.read(address, &mut bytes).unwrap();
            bytes.as_chunks().0.iter().map(|&word| u32::from_ne_bytes(word)).collect()
        };
        Ok(addresses.iter().zip(&self.buffers).map(read).collect())
    }

    /// Runs on all paths, which must agree, and returns the outcome.
    fn outcome(&self) -> Outcome {
        let portable = self.run_on(Isa::Portable);
        for isa in [Isa::Auto, Isa::Avx2] {
            assert_eq!(self.run_on(isa), portable, "{isa:?} and the portable path disagree");
        }
        portable
    }

    /// Runs on all paths and returns the last buffer.
    fn run(&self) -> Vec<u32> {
        let mut buffers = self.outcome().unwrap_or_else(|error| panic!("{error}"));
        buffers.pop().expect("a case has buffers")
    }

    /// Runs on all paths and returns the fault.
    fn fault(&self) -> Fault {
        match self.outcome() {
            Err(LaunchError::Fault(fault)) => *fault,
            other => panic!("expected a fault, got {other:?}"),
        }
    }

    fn fault_kind(&self) -> FaultKind {
        self.fault().kind
    }
}

/// The line of the PTX text that contains `needle`, from 1.
fn line_of(ptx: &str, needle: &str) -> u32 {
    let at = ptx.lines().position(|line| line.contains(needle));
    at.unwrap_or_else(|| panic!("no line has {needle}")) as u32 + 1
}

fn f(value: f32) -> u32 {
    value.to_bits()
}
