//! A loaded module.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use ptx_syntax::source;

use crate::checks::Checks;
use crate::error::{KernelError, LoadError};
use crate::exec::Path;
use crate::globals::Globals;
use crate::kernel::{Kernel, Param};
use crate::lower::{self, Index, Names};
use crate::memory::Memory;
use crate::ptx;

/// A loaded module. Its variables live as long as it or one of its kernels.
#[derive(Debug)]
pub struct Module {
    ast: ptx::ast::Module,
    names: Names,
    /// The lines of the text.
    text: Arc<[String]>,
    path: Path,
    checks: Checks,
    kernels: Vec<Entry>,
    /// Places in `kernels`.
    by_name: HashMap<String, usize>,
    globals: Arc<Globals>,
}

/// A kernel of a module.
#[derive(Debug)]
struct Entry {
    /// Its place among the functions of the syntax tree.
    function: usize,
    /// Decoded when it is asked for.
    kernel: OnceLock<Result<Arc<Kernel>, KernelError>>,
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
        let text = ptx.lines().map(|line| line.trim().to_owned()).collect();
        let names = Names::new(&ast)?;
        let functions = |name: &str| names.function_address(name);
        let globals = Arc::new(Globals::place(memory.clone(), &ast, functions)?);
        let mut kernels = Vec::new();
        let mut by_name = HashMap::new();
        for (place, function) in ast.functions.iter().enumerate() {
            if !function.entry || function.body.is_none() && function.error.is_none() {
                continue;
            }
            let name = function.name.clone();
            if by_name.insert(name.clone(), kernels.len()).is_some() {
                return Err(LoadError::Redeclared { line: function.line, name });
            }
            kernels.push(Entry { function: place, kernel: OnceLock::new() });
        }
        Ok(Module { ast, names, text, path, checks, kernels, by_name, globals })
    }

    /// The architecture that the text is written for, such as `sm_90a`. The
    /// device loads those of all GPUs.
    pub fn target(&self) -> &str {
        &self.ast.target
    }

    /// The names of all kernels, in the order of the text.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.kernels.iter().map(|entry| self.ast.functions[entry.function].name.as_str())
    }

    /// The kernel of this name. It is decoded when it is asked for the first time.
    ///
    /// # Errors
    /// [`KernelError::Unknown`] if there is none. [`KernelError::Refused`] names the line of what
    /// the device does not know, in the kernel or in a function that it may call. Nothing is
    /// skipped: that is an error whether or not it would run.
    pub fn kernel(&self, name: &str) -> Result<Arc<Kernel>, KernelError> {
        let Some(&place) = self.by_name.get(name) else {
            return Err(KernelError::Unknown { name: name.to_owned() });
        };
        let Entry { function, kernel } = &self.kernels[place];
        let decode = || {
            self.decode(&self.ast.functions[*function]).map_err(|error| {
                let place = source::place(&self.text, error.line());
                KernelError::Refused { error, place }
            })
        };
        kernel.get_or_init(decode).clone()
    }

    fn decode(&self, function: &ptx::ast::Function) -> Result<Arc<Kernel>, LoadError> {
        let Module { ast, names, globals, .. } = self;
        let clusters = [
            (".reqnctapercluster", function.required_cluster.is_some()),
            (".explicitcluster", function.explicit_cluster),
            (".maxclusterrank", function.max_cluster.is_some()),
        ];
        let given = clusters.iter().find(|(_, given)| *given);
        if let Some((directive, _)) = given.filter(|_| !ast.targets(90)) {
            return Err(LoadError::Unsupported {
                line: function.line,
                opcode: (*directive).to_owned(),
                help: format!(
                    "clusters need `.target sm_90` or newer, but the module is for `{}`",
                    ast.target
                ),
            });
        }
        let index = Index { module: ast, names, globals };
        let lowered = lower::lower(index, function, (self.path, self.checks), self.text.clone())?;
        let offsets = lower::parameter_offsets(&function.params);
        let params = function.params.iter().zip(offsets).map(|(param, offset)| Param {
            offset: offset as usize,
            size: (param.element * param.count.unwrap_or(0)) as usize,
            align: param.align as usize,
        });
        Ok(Arc::new(Kernel {
            name: function.name.clone(),
            architecture: ast.architecture().unwrap_or(0),
            params: params.collect(),
            max_block: function.max_threads,
            required_block: function.required_threads,
            required_cluster: function.required_cluster,
            explicit_cluster: function.explicit_cluster,
            max_cluster: function.max_cluster,
            min_blocks_per_sm: function.min_blocks_per_sm,
            max_registers: function.max_registers,
            lowered,
            globals: globals.clone(),
        }))
    }

    /// Address and bytes of a `.global` or `.const` variable.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        self.globals.get(name)
    }
}
