//! Bodies of functions: statements and operands.

use crate::ast::{Instruction, LANES, Operand, Statement};
use crate::cursor::{Cursor, Registers, Result};
use crate::lexer::Token;

/// The most registers of one declaration such as `.reg .b32 %r<4>`.
const MAX_REGISTERS: u32 = 1 << 20;
/// The most declarations of vectors in the open scopes of a function, which operands are looked up
/// in.
const MAX_VECTORS: usize = 1 << 10;

impl Cursor {
    /// From its opening brace to its closing one.
    pub(crate) fn body(&mut self) -> Result<Vec<Statement>> {
        self.expect('{')?;
        // How many vectors there were where each scope began.
        let (mut out, mut open) = (Vec::new(), vec![0]);
        self.vectors.clear();
        loop {
            let line = self.line();
            match self.peek() {
                None => return self.error("close this function with `}`"),
                Some(Token::Punct('{')) => {
                    self.at += 1;
                    open.push(self.vectors.len());
                    out.push(Statement::Open);
                }
                Some(Token::Punct('}')) => {
                    self.at += 1;
                    self.vectors.truncate(open.pop().unwrap_or(0));
                    if open.is_empty() {
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
                        _ if self.take(':') => out.push(self.labelled(word, line)?),
                        _ => out.push(self.instruction(None, word, line)?),
                    }
                }
                Some(_) => {
                    return self.error("an instruction, a label or a directive belongs here");
                }
            }
        }
    }

    /// What follows `name:`: a list that the name is for, or, if the name is a label, nothing.
    fn labelled(&mut self, name: String, line: u32) -> Result<Statement> {
        let Some(Token::Word(directive)) = self.peek() else {
            return Ok(Statement::Label(name, line));
        };
        let is_prototype = directive == ".callprototype";
        if !is_prototype && directive != ".branchtargets" {
            return Ok(Statement::Label(name, line));
        }
        self.at += 1;
        if !is_prototype {
            let mut labels = vec![self.word("a label")?];
            while self.take(',') {
                labels.push(self.word("a label")?);
            }
            self.expect(';')?;
            return Ok(Statement::BranchTargets { name, labels, line });
        }
        let returns = if self.is('(') { self.params(false)? } else { Vec::new() };
        self.word("`_`")?;
        let params = if self.is('(') { self.params(false)? } else { Vec::new() };
        if self.peek() == Some(&Token::Word(".noreturn".to_owned())) {
            self.at += 1;
        }
        self.expect(';')?;
        Ok(Statement::Prototype { name, returns, params, line })
    }

    fn registers(&mut self, out: &mut Vec<Statement>, line: u32) -> Result<()> {
        let mut ty = self.word("a register type")?;
        let lanes = match ty.as_str() {
            ".v2" => 2,
            ".v4" => 4,
            _ => 1,
        };
        if lanes > 1 {
            ty = self.word("a register type")?;
        }
        let ty = ty.trim_start_matches('.').to_owned();
        loop {
            let name = self.word("a register name")?;
            let count = if self.take('<') {
                let count: u32 = self.unsigned()?;
                if count > MAX_REGISTERS / lanes {
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
            let hides = |vector: &Registers| vector.name == name || vector.include(&name);
            if lanes > 1 || self.vectors.iter().any(hides) {
                if self.vectors.len() == MAX_VECTORS {
                    return self.error(&format!(
                        "a function has at most {MAX_VECTORS} declarations of vectors of registers"
                    ));
                }
                self.vectors.push(Registers { name: name.clone(), count, lanes });
            }
            out.push(Statement::Register { name, ty: ty.clone(), count, lanes, line });
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
                let vector = self.vectors.iter().rfind(|registers| registers.include(&word));
                let lanes = vector.map_or(1, |vector| vector.lanes);
                if lanes > 1 {
                    let parts = LANES.iter().take(lanes as usize);
                    let part = |names: &[&str; 2]| Operand::Name(format!("{word}.{}", names[0]));
                    return Ok(Operand::Vector(parts.map(part).collect()));
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
