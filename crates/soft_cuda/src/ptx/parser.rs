//! Tokens to a syntax tree.

use super::ast::{Function, Instruction, Module, Operand, Statement, Variable};
use super::lexer::{Token, tokens};
use crate::error::LoadError;

/// The most registers of one declaration such as `.reg .b32 %r<4>`.
const MAX_REGISTERS: u32 = 1 << 20;

/// Parses a whole module.
pub(crate) fn parse(text: &str) -> Result<Module, LoadError> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0 };
    let mut module = Module::default();
    while !parser.done() {
        parser.item(&mut module)?;
    }
    Ok(module)
}

pub(super) struct Parser {
    tokens: Vec<(Token, u32)>,
    pub(super) at: usize,
}

pub(super) type Result<T, E = LoadError> = std::result::Result<T, E>;

impl Parser {
    pub(super) fn done(&self) -> bool {
        self.at >= self.tokens.len()
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    /// Line of the next token, or of the last one at the end of the text.
    pub(super) fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |&(_, line)| line)
    }

    pub(super) fn is(&self, c: char) -> bool {
        self.peek() == Some(&Token::Punct(c))
    }

    /// Takes the punctuation `c` if it is next.
    pub(super) fn take(&mut self, c: char) -> bool {
        let found = self.is(c);
        self.at += usize::from(found);
        found
    }

    pub(super) fn error<T>(&self, help: &str) -> Result<T> {
        let text = self.peek().map_or("end of text".to_owned(), ToString::to_string);
        Err(LoadError::Syntax {
            line: self.line(),
            text: text.trim_matches('`').to_owned(),
            help: help.to_owned(),
        })
    }

    pub(super) fn expect(&mut self, c: char) -> Result<()> {
        if self.take(c) { Ok(()) } else { self.error(&format!("`{c}` belongs here")) }
    }

    pub(super) fn word(&mut self, what: &str) -> Result<String> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            _ => self.error(&format!("{what} belongs here")),
        }
    }

    /// A possibly negative integer.
    pub(super) fn int(&mut self) -> Result<i128> {
        let negative = self.take('-');
        match self.peek() {
            Some(&Token::Int(value)) => {
                self.at += 1;
                Ok(if negative { -value } else { value })
            }
            _ => self.error("an integer belongs here"),
        }
    }

    /// Takes a minus and a 64-bit float, as bits.
    pub(super) fn negative_float(&mut self) -> Option<u64> {
        let &(Token::F64(bits), _) = self.tokens.get(self.at + 1)? else { return None };
        self.take('-').then(|| {
            self.at += 1;
            bits ^ 1 << 63
        })
    }

    pub(super) fn unsigned<T: TryFrom<i128>>(&mut self) -> Result<T> {
        let at = self.at;
        let value = self.int()?;
        T::try_from(value).or_else(|_| {
            self.at = at;
            self.error("this number is out of range here")
        })
    }

    /// Skips the rest of the line the cursor is on.
    fn skip_line(&mut self) {
        let line = self.line();
        while !self.done() && self.line() == line {
            self.at += 1;
        }
    }

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
                    self.word("a section name")?;
                    self.expect('{')?;
                    while !self.is('}') {
                        if self.done() {
                            return self.error("close this section with `}`");
                        }
                        self.at += 1;
                    }
                    return self.expect('}');
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
        // `.noreturn` is an attribute in front of the name or after the parameters.
        let mut returns = Vec::new();
        if self.is('(') {
            returns = self.params()?;
        }
        let name = self.word("a function name")?;
        let params = if self.is('(') { self.params()? } else { Vec::new() };
        let mut function = Function {
            name,
            entry,
            returns,
            params,
            max_threads: None,
            required_threads: None,
            min_blocks_per_sm: None,
            body: None,
            line,
        };
        loop {
            if self.take(';') {
                return Ok(function);
            }
            if self.is('{') {
                function.body = Some(self.body()?);
                return Ok(function);
            }
            match self.word("`{`, `;` or a directive")?.as_str() {
                ".maxntid" => function.max_threads = Some(self.extents()?),
                ".reqntid" => function.required_threads = Some(self.extents()?),
                ".minnctapersm" => function.min_blocks_per_sm = Some(self.unsigned()?),
                ".maxnreg" => {
                    self.int()?;
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

    fn params(&mut self) -> Result<Vec<Variable>> {
        self.expect('(')?;
        let mut params = Vec::new();
        while !self.take(')') {
            if !params.is_empty() {
                self.expect(',')?;
            }
            let line = self.line();
            let word = self.word("`.param`")?;
            if word != ".param" {
                self.at -= 1;
                return self.error("only `.param` parameters are supported");
            }
            params.push(self.parameter(line)?);
        }
        Ok(params)
    }

    /// `+4`, `-4`, `+-4` or nothing.
    pub(super) fn offset(&mut self) -> Result<i64> {
        if self.take('+') || self.is('-') { self.unsigned() } else { Ok(0) }
    }

    fn body(&mut self) -> Result<Vec<Statement>> {
        self.expect('{')?;
        let (mut out, mut depth) = (Vec::new(), 1);
        loop {
            let line = self.line();
            match self.peek() {
                None => return self.error("close this function with `}`"),
                Some(Token::Punct('{')) => {
                    self.at += 1;
                    depth += 1;
                    out.push(Statement::Open);
                }
                Some(Token::Punct('}')) => {
                    self.at += 1;
                    depth -= 1;
                    if depth == 0 {
                        return Ok(out);
                    }
                    out.push(Statement::Close);
                }
                Some(Token::Punct(';')) => self.at += 1,
                Some(Token::Punct('@')) => {
                    self.at += 1;
                    let negated = self.take('!');
                    let guard = self.word("a predicate register")?;
                    let opcode = self.word("an instruction")?;
                    out.push(self.instruction(Some((guard, negated)), opcode, line)?);
                }
                Some(Token::Word(word)) => {
                    let word = word.clone();
                    self.at += 1;
                    match word.as_str() {
                        ".reg" => self.registers(&mut out, line)?,
                        ".shared" | ".local" | ".param" | ".global" | ".const" => {
                            let mut variables = Vec::new();
                            self.variables(&word, false, &mut variables)?;
                            self.expect(';')?;
                            out.extend(variables.into_iter().map(Statement::Variable));
                        }
                        ".loc" => {
                            self.at -= 1;
                            self.skip_line();
                        }
                        ".pragma" => {
                            self.at += 1;
                            self.expect(';')?;
                        }
                        _ if word.starts_with('.') => {
                            self.at -= 1;
                            return self.error("this is not a directive the device knows here");
                        }
                        _ if self.take(':') => out.push(Statement::Label(word, line)),
                        _ => out.push(self.instruction(None, word, line)?),
                    }
                }
                Some(_) => {
                    return self.error("an instruction, a label or a directive belongs here");
                }
            }
        }
    }

    fn registers(&mut self, out: &mut Vec<Statement>, line: u32) -> Result<()> {
        let ty = self.word("a register type")?;
        let ty = ty.trim_start_matches('.').to_owned();
        loop {
            let name = self.word("a register name")?;
            let count = if self.take('<') {
                let count: u32 = self.unsigned()?;
                if count > MAX_REGISTERS {
                    self.at -= 1;
                    return self.error(&format!(
                        "one declaration makes at most {MAX_REGISTERS} registers"
                    ));
                }
                self.expect('>')?;
                Some(count)
            } else {
                None
            };
            out.push(Statement::Register { name, ty: ty.clone(), count, line });
            if !self.take(',') {
                return self.expect(';');
            }
        }
    }

    fn instruction(
        &mut self,
        guard: Option<(String, bool)>,
        opcode: String,
        line: u32,
    ) -> Result<Statement> {
        let mut operands = Vec::new();
        while !self.take(';') {
            if !operands.is_empty() {
                self.expect(',')?;
            }
            operands.push(self.operand()?);
        }
        Ok(Statement::Instruction(Instruction { guard, opcode, operands, line }))
    }

    fn operand(&mut self) -> Result<Operand> {
        let first = self.simple_operand()?;
        if self.take('|') {
            let second = self.simple_operand()?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    /// A comma-separated list of plain operands, up to `close`.
    fn list(&mut self, close: char) -> Result<Vec<Operand>> {
        self.at += 1;
        let mut out = Vec::new();
        while !self.take(close) {
            if !out.is_empty() {
                self.expect(',')?;
            }
            if self.is('{') || self.is('(') {
                return self.error("lists of operands do not nest");
            }
            let operand = self.simple_operand()?;
            out.push(operand);
        }
        Ok(out)
    }

    fn simple_operand(&mut self) -> Result<Operand> {
        match self.peek() {
            Some(Token::Punct('{')) => Ok(Operand::Vector(self.list('}')?)),
            Some(Token::Punct('(')) => Ok(Operand::List(self.list(')')?)),
            Some(Token::Punct('!')) => {
                self.at += 1;
                Ok(Operand::Not(self.word("a predicate register")?))
            }
            Some(Token::Punct('[')) => {
                self.at += 1;
                let base = match self.peek() {
                    Some(Token::Word(_)) => Some(self.word("a base")?),
                    _ => None,
                };
                let offset = if base.is_some() { self.offset()? } else { self.unsigned()? };
                let operand = match base {
                    Some(map) if self.take(',') => {
                        if !self.is('{') {
                            return self.error("coordinates `{...}` belong here");
                        }
                        Operand::Tensor(map, offset, self.list('}')?)
                    }
                    base => Operand::Address(base, offset),
                };
                self.expect(']')?;
                Ok(operand)
            }
            Some(&Token::F32(bits)) => {
                self.at += 1;
                Ok(Operand::F32(bits))
            }
            Some(&Token::F64(bits)) => {
                self.at += 1;
                Ok(Operand::F64(bits))
            }
            Some(Token::Word(_)) => {
                let word = self.word("an operand")?;
                if self.is('+') || self.is('-') {
                    return Ok(Operand::Offset(word, self.offset()?));
                }
                Ok(Operand::Name(word))
            }
            Some(Token::Int(_) | Token::Punct('-')) => {
                if let Some(bits) = self.negative_float() {
                    return Ok(Operand::F64(bits));
                }
                Ok(Operand::Int(self.int()?))
            }
            _ => self.error("an operand belongs here"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = ".version 8.7\n.target sm_80, debug\n.address_size 64\n";

    fn line_of(error: LoadError) -> u32 {
        match error {
            LoadError::Syntax { line, .. } => line,
            other => panic!("{other}"),
        }
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
            let text = format!("{HEADER}.entry k() {{{body}\n}}");
            assert_eq!(line_of(parse(&text).unwrap_err()), line, "{body}");
        }
        assert_eq!(line_of(parse("\n.entry k() { ret;").unwrap_err()), 2);
        assert_eq!(line_of(parse("\n.address_size 32").unwrap_err()), 2);
    }
}
