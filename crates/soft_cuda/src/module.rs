//! A loaded module.

use std::collections::HashMap;
use std::sync::Arc;

use crate::checks::Checks;
use crate::error::LoadError;
use crate::exec::Path;
use crate::globals::Globals;
use crate::kernel::{Kernel, Param};
use crate::lower;
use crate::memory::Memory;
use crate::ptx;

/// The address of the first function of a module, and how far it is to the next.
const FUNCTION_BASE: u64 = 0x0054_0000_0000_0000;
const FUNCTION_STEP: u64 = 16;

/// A loaded module. Its variables live as long as it or one of its kernels.
#[derive(Debug)]
pub struct Module {
    target: String,
    kernels: Vec<Arc<Kernel>>,
    /// Places in `kernels`.
    by_name: HashMap<String, usize>,
    globals: Arc<Globals>,
}

impl Module {
    /// See [`Device::load`](crate::Device::load).
    pub(crate) fn load(
        ptx: &str,
        memory: &Arc<Memory>,
        path: Path,
        checks: Checks,
    ) -> Result<Module, LoadError> {
        let ast = ptx::parse(ptx)?;
        let text: Arc<[String]> = ptx.lines().map(|line| line.trim().to_owned()).collect();
        let functions = function_addresses(&ast);
        let globals = Arc::new(Globals::place(memory.clone(), &ast.variables, &functions)?);
        let address = |name: &str| {
            let variable = globals.get(name).map(|(address, _)| address);
            variable.or_else(|| functions.get(name).copied())
        };
        let index = lower::Index::new(&ast, address)?;
        let mut kernels: Vec<Arc<Kernel>> = Vec::new();
        let mut by_name = HashMap::new();
        for function in ast.functions.iter().filter(|f| f.entry && f.body.is_some()) {
            let name = function.name.clone();
            if by_name.insert(name.clone(), kernels.len()).is_some() {
                return Err(LoadError::Redeclared { line: function.line, name });
            }
            if function.required_cluster.is_some() && !ast.targets(90) {
                return Err(LoadError::Unsupported {
                    line: function.line,
                    opcode: ".reqnctapercluster".to_owned(),
                    help: format!(
                        "clusters need `.target sm_90` or newer, but the module is for `{}`",
                        ast.target
                    ),
                });
            }
            let lowered = lower::lower(&ast, &index, function, (path, checks), text.clone())?;
            let offsets = lower::parameter_offsets(&function.params);
            let params = function.params.iter().zip(offsets).map(|(param, offset)| Param {
                offset: offset as usize,
                size: (param.element * param.count.unwrap_or(0)) as usize,
                align: param.align as usize,
            });
            kernels.push(Arc::new(Kernel {
                name,
                params: params.collect(),
                max_block: function.max_threads,
                required_block: function.required_threads,
                required_cluster: function.required_cluster,
                has_clusters: ast.targets(90),
                min_blocks_per_sm: function.min_blocks_per_sm,
                lowered,
                globals: globals.clone(),
            }));
        }
        Ok(Module { target: ast.target, kernels, by_name, globals })
    }

    /// The architecture that the text is written for, such as `sm_90a`. The
    /// device loads those of all GPUs.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// All kernels, in the order of the text.
    pub fn kernels(&self) -> &[Arc<Kernel>] {
        &self.kernels
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<Arc<Kernel>> {
        Some(self.kernels[*self.by_name.get(name)?].clone())
    }

    /// Address and bytes of a `.global` or `.const` variable.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        self.globals.get(name)
    }
}

/// The addresses of a module's functions. They are no addresses of any memory.
fn function_addresses(ast: &ptx::ast::Module) -> HashMap<&str, u64> {
    let mut addresses = HashMap::new();
    for function in ast.functions.iter().filter(|function| !function.entry) {
        let next = FUNCTION_BASE + FUNCTION_STEP * addresses.len() as u64;
        addresses.entry(function.name.as_str()).or_insert(next);
    }
    addresses
}
