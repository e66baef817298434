//! NVIDIA's assembler, where there is one: it alone knows registers and spills.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cuda_builder::CudaArch;
use host_system::toolkit;

/// A `ptxas` that runs.
pub struct Ptxas(PathBuf);

/// The error if there is none.
pub const MISSING: &str =
    "no ptxas found: name one in $PTXAS, or install the CUDA toolkit's compiler package";

/// What a kernel takes, as ptxas reports it.
#[derive(Debug, PartialEq, Eq)]
pub struct Resources {
    pub kernel: String,
    pub registers: u32,
    /// Bytes of spill stores and loads together, and of the stack.
    pub spill_bytes: u32,
}

impl Ptxas {
    /// The program at this path.
    #[cfg(test)]
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The `ptxas` in $PTXAS; else the first that runs of those on the PATH and in toolkits.
    ///
    /// # Errors
    /// If the one in $PTXAS does not run.
    pub fn find() -> Result<Option<Self>, String> {
        Self::find_with(env::var_os("PTXAS").map(PathBuf::from))
    }

    fn find_with(given: Option<PathBuf>) -> Result<Option<Self>, String> {
        let runs = |path: &Path| {
            let run = Command::new(path).arg("--version").output();
            run.is_ok_and(|run| {
                run.status.success() && String::from_utf8_lossy(&run.stdout).contains("ptxas")
            })
        };
        if let Some(path) = given {
            return match runs(&path) {
                true => Ok(Some(Ptxas(path))),
                false => {
                    Err(format!("`{}`, named in $PTXAS, is no ptxas that runs", path.display()))
                }
            };
        }
        Ok(toolkit::programs("ptxas").find(|path| runs(path)).map(Ptxas))
    }

    /// Whether there is a `cuobjdump` beside this `ptxas`.
    pub fn can_disassemble(&self) -> bool {
        Command::new(self.0.with_file_name("cuobjdump"))
            .arg("--version")
            .output()
            .is_ok_and(|run| run.status.success())
    }

    /// Whether it can compile kernels in parallel, as from CUDA 12.1 on.
    fn uses_all_processors(&self) -> bool {
        run(Command::new(&self.0).arg("--help")).is_ok_and(|help| help.contains("--split-compile"))
    }

    /// The machine instructions of one kernel in a PTX text, as the `cuobjdump` beside this
    /// `ptxas` lists them.
    pub fn disassemble(&self, ptx: &str, arch: CudaArch, kernel: &str) -> Result<String, String> {
        let input = input(ptx)?;
        let cubin = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        run(Command::new(&self.0)
            .arg(format!("-arch={arch}"))
            .args(["--entry", kernel, "-o"])
            .args([cubin.path(), input.path()]))?;
        run(Command::new(self.0.with_file_name("cuobjdump")).arg("-sass").arg(cubin.path()))
    }

    /// Assembles `ptx` for `arch`, and reports what each kernel takes.
    pub fn resources(&self, ptx: &str, arch: CudaArch) -> Result<Vec<Resources>, String> {
        let input = input(ptx)?;
        let output = Command::new(&self.0)
            .arg("-v")
            .args(self.uses_all_processors().then_some("--split-compile=0"))
            .arg(format!("-arch={arch}"))
            .args(["-o", if cfg!(windows) { "NUL" } else { "/dev/null" }])
            .arg(input.path())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("`{}` could not be run: {error}", self.0.display()))?;
        let report = String::from_utf8_lossy(&output.stderr);
        // It says so where the compiler has put a copy of a sum between two `wgmma` in flight.
        let serialized = report.lines().find(|line| line.contains("instructions are serialized"));
        if let Some(line) = serialized {
            Err(format!("the tensor cores would wait after each instruction: {}", line.trim()))
        } else if output.status.success() {
            Ok(parse(&report))
        } else {
            Err(format!("ptxas refuses the PTX for {arch}: {}", report.trim()))
        }
    }
}

/// A file with this text.
fn input(text: &str) -> Result<tempfile::NamedTempFile, String> {
    let mut file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    file.write_all(text.as_bytes()).map_err(|error| error.to_string())?;
    Ok(file)
}

/// Runs a program of the toolkit; its standard output.
fn run(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("`{program}` could not be run: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("`{program}` failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// Reads the report of `ptxas -v`.
fn parse(report: &str) -> Vec<Resources> {
    let mut kernels: Vec<Resources> = Vec::new();
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            kernels.push(Resources { kernel, registers: 0, spill_bytes: 0 });
        }
        let Some(kernel) = kernels.last_mut() else { continue };
        if line.contains("bytes spill stores") {
            kernel.spill_bytes = number_before(line, " bytes stack frame")
                + number_before(line, " bytes spill stores")
                + number_before(line, " bytes spill loads");
        }
        if line.contains(" registers") {
            kernel.registers = number_before(line, " registers");
        }
    }
    kernels
}

/// The number that stands right before `unit`, or 0.
fn number_before(line: &str, unit: &str) -> u32 {
    let before = line.split_once(unit).map_or("", |(before, _)| before);
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_must_run() {
        for path in ["/nowhere/ptxas", "true"] {
            let error = Ptxas::find_with(Some(path.into())).err().unwrap();
            assert_eq!(error, format!("`{path}`, named in $PTXAS, is no ptxas that runs"));
        }
    }

    #[test]
    fn report_is_read() {
        let report = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'tile2d' for 'sm_90a'
ptxas info    : Function properties for tile2d
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 8192 bytes smem
ptxas info    : Compiling entry function 'naive' for 'sm_90a'
ptxas info    : Function properties for naive
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
";
        let of = |kernel: &str, registers, spill_bytes| Resources {
            kernel: kernel.into(),
            registers,
            spill_bytes,
        };
        assert_eq!(parse(report), [of("tile2d", 128, 36), of("naive", 32, 0)]);
    }
}
