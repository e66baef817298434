//! Declarations of variables, and their initial values.

use crate::ast::{Init, Space, Variable};
use crate::cursor::{Cursor, Result};
use crate::lexer::Token;

/// The most that a variable may be aligned to, in bytes.
const MAX_ALIGN: u64 = 1 << 16;
/// The most extents that an array may have, which bounds how deep initial values nest.
const MAX_EXTENTS: usize = 16;

/// The type of a variable's scalars.
#[derive(Clone, Copy)]
struct Scalar {
    kind: ElementKind,
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ElementKind {
    Bits,
    Integer,
    Float,
    /// Without initial values: half precision, 128 bits.
    Other,
    /// A handle, whose initial value is a list of properties.
    Opaque,
}

impl Scalar {
    /// By its name without the dot.
    fn parse(name: &str) -> Option<Scalar> {
        let (kind, bytes) = match name {
            "b8" => (ElementKind::Bits, 1),
            "b16" => (ElementKind::Bits, 2),
            "b32" => (ElementKind::Bits, 4),
            "b64" => (ElementKind::Bits, 8),
            "u8" | "s8" => (ElementKind::Integer, 1),
            "u16" | "s16" => (ElementKind::Integer, 2),
            "u32" | "s32" => (ElementKind::Integer, 4),
            "u64" | "s64" => (ElementKind::Integer, 8),
            "f32" => (ElementKind::Float, 4),
            "f64" => (ElementKind::Float, 8),
            "f16" | "bf16" => (ElementKind::Other, 2),
            "f16x2" | "bf16x2" => (ElementKind::Other, 4),
            "b128" => (ElementKind::Other, 16),
            "texref" | "samplerref" | "surfref" => (ElementKind::Opaque, 8),
            _ => return None,
        };
        Some(Scalar { kind, bytes })
    }
}

/// What the variables of one declaration have in common.
#[derive(Clone, Copy)]
struct Shape {
    space: Space,
    external: bool,
    scalar: Scalar,
    /// Scalars of one element.
    lanes: u64,
    align: u64,
}

impl Cursor {
    /// One or more declarations after the state space, up to the `;`.
    pub(crate) fn variables(
        &mut self,
        space: &str,
        external: bool,
        out: &mut Vec<Variable>,
    ) -> Result<()> {
        let space = match space {
            ".global" => Space::Global,
            ".const" => Space::Const,
            ".shared" => Space::Shared,
            ".local" => Space::Local,
            _ => Space::Param,
        };
        let line = self.line();
        let (name, shape) = self.shape(space, external)?;
        out.push(self.variable_tail(name, shape, line)?);
        while self.take(',') {
            let line = self.line();
            let name = self.word("a variable name")?;
            out.push(self.variable_tail(name, shape, line)?);
        }
        Ok(())
    }

    /// The list of a function's parameters. Those of a kernel lie in `.param`.
    pub(crate) fn params(&mut self, entry: bool) -> Result<Vec<Variable>> {
        self.expect('(')?;
        let mut params = Vec::new();
        while !self.take(')') {
            if !params.is_empty() {
                self.expect(',')?;
            }
            let line = self.line();
            let register = match self.word("`.param`")?.as_str() {
                ".param" => false,
                ".reg" if !entry => true,
                _ => {
                    self.at -= 1;
                    return self.error("a parameter is declared with `.param` here");
                }
            };
            let (name, shape) = self.shape(Space::Param, false)?;
            let fits = shape.lanes == 1 && matches!(shape.scalar.bytes, 4 | 8) && !self.is('[');
            if register && !fits {
                return self
                    .error("a parameter in a register has 32 or 64 bits; use `.param` here");
            }
            params.push(Variable { register, ..self.variable_tail(name, shape, line)? });
        }
        Ok(params)
    }

    /// Alignment and type, and the first name after them.
    fn shape(&mut self, space: Space, external: bool) -> Result<(String, Shape)> {
        let (mut align, mut scalar, mut lanes) = (None, None, 1);
        loop {
            let word = self.word("a type or a name")?;
            match word.as_str() {
                ".align" => {
                    let value: u64 = self.unsigned()?;
                    if !value.is_power_of_two() || value > MAX_ALIGN {
                        self.at -= 1;
                        return self.error(&format!(
                            "an alignment is a power of two of at most {MAX_ALIGN}"
                        ));
                    }
                    align = Some(value);
                }
                ".ptr" | ".global" | ".shared" | ".const" | ".local" => {}
                ".attribute" => {
                    while !self.take(')') {
                        if self.done() {
                            return self.error("close this attribute with `)`");
                        }
                        self.at += 1;
                    }
                }
                ".v2" => lanes = 2,
                ".v4" => lanes = 4,
                _ if word.starts_with('.') => match Scalar::parse(&word[1..]) {
                    Some(found) => scalar = Some(found),
                    None => {
                        self.at -= 1;
                        return self.error("this is not a PTX type");
                    }
                },
                _ => {
                    let Some(scalar) = scalar else {
                        self.at -= 1;
                        return self.error("a type such as `.b32` belongs in front of the name");
                    };
                    // For a pointer parameter `.align` describes what it points to.
                    let align = align.unwrap_or(scalar.bytes * lanes);
                    return Ok((word, Shape { space, external, scalar, lanes, align }));
                }
            }
        }
    }

    fn variable_tail(&mut self, name: String, shape: Shape, line: u32) -> Result<Variable> {
        let Shape { space, external, scalar, lanes, mut align } = shape;
        let element = scalar.bytes * lanes;
        // Extents, the outermost first; that one may be left open.
        let (mut extents, mut open, mut bytes) = (Vec::new(), false, element);
        while self.take('[') {
            if extents.is_empty() && self.take(']') {
                (open, extents) = (true, vec![0]);
                continue;
            }
            let extent: u64 = self.unsigned()?;
            match bytes.checked_mul(extent).filter(|&bytes| bytes < 1 << 48) {
                Some(product) => bytes = product,
                None => {
                    self.at -= 1;
                    return self.error("this array is too large");
                }
            }
            if extents.len() == MAX_EXTENTS {
                return self.error(&format!("arrays have at most {MAX_EXTENTS} dimensions"));
            }
            extents.push(extent);
            self.expect(']')?;
        }
        if space == Space::Param && extents.is_empty() {
            // A scalar parameter lies at its own size; see `shape`.
            align = element;
        }
        let mut init = Vec::new();
        let mut count = (!open).then_some(bytes / element);
        if scalar.kind == ElementKind::Opaque && self.take('=') {
            self.skip_braces()?;
        } else if self.is('=') {
            if !matches!(space, Space::Global | Space::Const) {
                return self.error("only `.global` and `.const` variables have initial values");
            }
            self.at += 1;
            if lanes > 1 {
                extents.push(lanes);
            }
            let rows = self.initializer(&extents, open, scalar, &mut init)?;
            if open {
                count = Some(rows * (bytes / element));
            }
        }
        let register = false;
        Ok(Variable { name, space, element, count, align, register, external, init, line })
    }

    /// The value or the braced values of an array of these extents; returns how many
    /// there are at this level.
    ///
    /// It calls itself once per extent, however deep the text nests.
    fn initializer(
        &mut self,
        extents: &[u64],
        open: bool,
        scalar: Scalar,
        out: &mut Vec<Init>,
    ) -> Result<u64> {
        let [extent, inner @ ..] = extents else {
            out.push(self.initial_value(scalar)?);
            return Ok(1);
        };
        self.expect('{')?;
        let mut n = 0;
        while !self.take('}') {
            if n > 0 {
                self.expect(',')?;
            }
            if n == *extent && !open {
                return self.error("there are more initial values than elements");
            }
            let rows = self.initializer(inner, false, scalar, out)?;
            // The assembler of GPUs closes up such gaps, against PTX's specification.
            if inner.first().is_some_and(|&extent| rows < extent) {
                self.at -= 1;
                return self.error("write out all values of this row; it is too short");
            }
            n += 1;
        }
        Ok(n)
    }

    fn initial_value(&mut self, scalar: Scalar) -> Result<Init> {
        let at = self.at;
        let Scalar { kind, bytes } = scalar;
        let size = bytes as u8;
        let untyped = kind == ElementKind::Bits;
        let wrong = |parser: &mut Cursor, help: &str| {
            parser.at = at;
            parser.error(help)
        };
        if kind == ElementKind::Other {
            return self
                .error("variables of this type have no initial values; use `.b16` or `.b32`");
        }
        let float = match self.peek() {
            Some(&Token::F32(bits)) => {
                self.at += 1;
                if bytes != 4 || kind == ElementKind::Integer {
                    return wrong(self, "a 32-bit float does not fit this type");
                }
                return Ok(Init::Bits(bits.into(), size));
            }
            Some(&Token::F64(bits)) => {
                self.at += 1;
                Some(bits)
            }
            _ => self.negative_float(),
        };
        if let Some(bits) = float {
            return match bytes {
                8 if kind != ElementKind::Integer => Ok(Init::Bits(bits, size)),
                4 if kind != ElementKind::Integer => {
                    Ok(Init::Bits((f64::from_bits(bits) as f32).to_bits().into(), size))
                }
                _ => wrong(self, "a float does not fit this type"),
            };
        }
        if let Some(Token::Word(word)) = self.peek() {
            let mut name = word.clone();
            self.at += 1;
            if name == "generic" && self.take('(') {
                name = self.word("a variable name")?;
                self.expect(')')?;
            }
            let offset = self.offset()?;
            if bytes != 8 || kind == ElementKind::Float {
                return wrong(self, "an address needs `.b64` or `.u64`");
            }
            return Ok(Init::Address(name, offset));
        }
        let value = self.int()?;
        if !untyped && kind != ElementKind::Integer {
            return wrong(self, &format!("an integer for a float; write `{value}.0`"));
        }
        let bits = 8 * bytes;
        if !(-(1i128 << (bits - 1))..1i128 << bits).contains(&value) {
            return wrong(self, &format!("this value does not fit {bits} bits"));
        }
        Ok(Init::Bits(value as u64, size))
    }
}
