//! Tokens to a syntax tree.

use crate::ast::{Function, Module};
use crate::cursor::{Cursor, Result};
use crate::error::SyntaxError;
use crate::lexer::Token;

/// Parses a whole module. A function that cannot be read does not keep others from being read:
/// its [`error`](Function::error) says why.
///
/// # Errors
/// A [`SyntaxError`] names the line, if what cannot be read is not in one function.
pub fn parse(text: &str) -> Result<Module, SyntaxError> {
    let mut parser = Cursor::new(text)?;
    let mut module = Module::default();
    while !parser.done() {
        parser.item(&mut module)?;
    }
    Ok(module)
}

impl Cursor {
    fn item(&mut self, module: &mut Module) -> Result<()> {
        let (mut external, line) = (false, self.line());
        loop {
            let word = self.word("a directive")?;
            match word.as_str() {
                ".target" => {
                    module.target = self.word("an architecture")?;
                    self.skip_line();
                    return Ok(());
                }
                ".version" => {
                    let Some(&Token::F64(bits)) = self.peek() else {
                        return self.error("a PTX version such as `8.7` belongs here");
                    };
                    self.at += 1;
                    module.version = f64::from_bits(bits);
                    return Ok(());
                }
                ".file" => {
                    self.skip_line();
                    return Ok(());
                }
                ".address_size" => {
                    if self.int()? != 64 {
                        self.at -= 1;
                        return self.error("only 64-bit addresses are supported");
                    }
                    return Ok(());
                }
                ".pragma" => {
                    self.at += 1;
                    return self.expect(';');
                }
                // Debug information.
                ".section" => {
                    while !self.done() && !self.is('{') {
                        self.at += 1;
                    }
                    return self.skip_braces();
                }
                ".visible" | ".weak" | ".common" => {}
                ".extern" => external = true,
                ".entry" | ".func" => {
                    module.functions.push(self.function(word == ".entry", line)?);
                    return Ok(());
                }
                ".global" | ".const" | ".shared" => {
                    self.variables(&word, external, &mut module.variables)?;
                    return self.expect(';');
                }
                _ => {
                    self.at -= 1;
                    return self.error("this is not a module-level directive the device knows");
                }
            }
        }
    }

    fn function(&mut self, entry: bool, line: u32) -> Result<Function> {
        let start = self.at;
        let mut function = Function { entry, line, ..Function::default() };
        if let Err(error) = self.function_parts(&mut function) {
            self.at = start;
            function.name = self.function_name().ok_or_else(|| error.clone())?;
            if !self.skip_function() {
                return Err(error);
            }
            (function.body, function.error) = (None, Some(error));
        }
        Ok(function)
    }

    /// What follows `.entry` or `.func`.
    fn function_parts(&mut self, function: &mut Function) -> Result<()> {
        if self.is('(') {
            function.returns = self.params(function.entry)?;
        }
        function.name = self.word("a function name")?;
        if self.is('(') {
            function.params = self.params(function.entry)?;
        }
        loop {
            if self.take(';') {
                return Ok(());
            }
            if self.is('{') {
                function.body = Some(self.body()?);
                return Ok(());
            }
            match self.word("`{`, `;` or a directive")?.as_str() {
                ".maxntid" => function.max_threads = Some(self.extents()?),
                ".reqntid" => function.required_threads = Some(self.extents()?),
                ".reqnctapercluster" => function.required_cluster = Some(self.extents()?),
                ".explicitcluster" => function.explicit_cluster = true,
                ".maxclusterrank" => function.max_cluster = Some(self.unsigned()?),
                ".minnctapersm" => function.min_blocks_per_sm = Some(self.unsigned()?),
                ".maxnreg" => function.max_registers = Some(self.unsigned()?),
                // For ptxas alone.
                ".maxnctapersm" | ".abi_preserve" | ".abi_preserve_control" => {
                    self.unsigned::<u32>()?;
                }
                ".noreturn" => {}
                ".pragma" => {
                    self.at += 1;
                    self.expect(';')?;
                }
                _ => {
                    self.at -= 1;
                    return self.error("this is not a kernel directive the device knows");
                }
            }
        }
    }

    /// The name of a function, behind its results.
    fn function_name(&mut self) -> Option<String> {
        if self.is('(') {
            while !self.done() && !self.take(')') {
                self.at += 1;
            }
        }
        self.word("a function name").ok()
    }

    /// Skips what follows the name of a function; `false` if another one comes before its end.
    fn skip_function(&mut self) -> bool {
        let mut depth = 0;
        while let Some(token) = self.peek() {
            match token {
                Token::Punct('{') => depth += 1,
                Token::Punct('}') => depth -= 1,
                Token::Word(word) if matches!(word.as_str(), ".entry" | ".func") => return false,
                _ => {}
            }
            let ends = matches!(token, Token::Punct('}' | ';'));
            self.at += 1;
            if depth <= 0 && ends {
                return depth == 0;
            }
        }
        false
    }

    /// `256` or `16, 16` or `8, 8, 4`.
    fn extents(&mut self) -> Result<[u32; 3]> {
        let mut extents = [1; 3];
        for (i, extent) in extents.iter_mut().enumerate() {
            if i > 0 && !self.take(',') {
                break;
            }
            *extent = self.unsigned()?;
        }
        Ok(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{Operand, Statement};

    const HEADER: &str = ".version 8.7\n.target sm_80, debug\n.address_size 64\n";

    fn line_of(error: SyntaxError) -> u32 {
        error.line
    }

    #[test]
    fn a_kernel_with_everything() {
        let module = parse(&format!(
            "{HEADER}
.extern .shared .align 128 .b8 smem[];
.global .align 8 .b64 table[16] = {{1, 2, generic(other)+4}};
.extern .func (.param .b32 r) f (.param .b64 a) .noreturn;
.visible .entry k(.param .u64 .ptr .global .align 4 k_0, .param .align 8 .b8 k_1[24])
.maxntid 16, 16
.reqnctapercluster 2, 1, 1
.minnctapersm 2
{{
  .reg .pred %p<3>;
  .reg .b32 a, b;
  .pragma \"nounroll\";
  .loc 1 2 3
  @!%p1 bra $L__1;
  ld.global.v2.b32 {{a, _}}, [%rd1+-16];
  {{ .reg .b64 t; mov.u64 t, smem+4; }}
  setp.eq.s32 %p1|%p2, a, -1;
$L__1:
  ret;
}}"
        ))
        .unwrap();
        assert_eq!(module.variables.len(), 2);
        assert_eq!(module.variables[0].count, None);
        assert_eq!(module.variables[1].init.len(), 3);
        let kernel = &module.functions[1];
        assert_eq!(kernel.max_threads, Some([16, 16, 1]));
        assert_eq!(kernel.required_cluster, Some([2, 1, 1]));
        assert_eq!(kernel.min_blocks_per_sm, Some(2));
        assert_eq!(kernel.params[0].align, 8);
        assert_eq!(kernel.params[1].count, Some(24));
        let body = kernel.body.as_ref().unwrap();
        let instructions: Vec<_> = body
            .iter()
            .filter_map(|s| match s {
                Statement::Instruction(i) => Some(i),
                _ => None,
            })
            .collect();
        assert_eq!(instructions[0].guard, Some(("%p1".into(), true)));
        assert_eq!(instructions[1].operands[1], Operand::Address(Some("%rd1".into()), -16));
        assert_eq!(instructions[2].operands[1], Operand::Offset("smem".into(), 4));
        assert_eq!(instructions[3].operands[2], Operand::Int(-1));
    }

    #[test]
    fn errors_name_the_line() {
        for (body, line) in [
            ("\n\n add.u32 %r1 %r2;", 6),
            ("\n .reg .b32 %r<;", 5),
            ("\n .frobnicate 3;", 5),
            (" mov.b32 r, {{a}};", 4),
            ("\n ld.b32 r, [a, b];", 5),
        ] {
            // In a function, the error is the function's.
            let text = format!("{HEADER}.entry k() {{{body}\n}}\n.entry l() {{ ret; }}");
            let functions = parse(&text).unwrap().functions;
            let names: Vec<_> = functions.iter().map(|function| function.name.as_str()).collect();
            assert_eq!(names, ["k", "l"], "{body}");
            assert_eq!(functions[0].error.as_ref().map(|error| error.line), Some(line), "{body}");
            assert!(functions[0].body.is_none(), "{body}");
            assert!(functions[1].error.is_none() && functions[1].body.is_some(), "{body}");
        }
        // Nothing says where the first of these ends.
        let open = format!("{HEADER}.entry k() {{ add %r1 %r2;\n.entry l() {{ ret; }} }}");
        assert_eq!(line_of(parse(&open).unwrap_err()), 4);
        for head in ["(.frob .b32 r) f()", "f(.param .frob p)", "f() .frobnicate 2"] {
            let text = format!("{HEADER}.func {head} {{ {{ mov.b64 {{a, b}}, c; }} }}\n.func g();");
            let functions = parse(&text).unwrap().functions;
            assert_eq!((functions[0].name.as_str(), functions.len()), ("f", 2), "{head}");
            assert_eq!(functions[0].error.as_ref().map(|error| error.line), Some(4), "{head}");
        }
        assert_eq!(line_of(parse("\n.entry k() { ret;").unwrap_err()), 2);
        assert_eq!(line_of(parse("\n.address_size 32").unwrap_err()), 2);
    }
}
