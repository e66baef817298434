//! The formats of C's `printf`, as CUDA's device code has them (CUDA C++ Programming Guide,
//! "Formatted Output").

/// The largest width and precision: as wide as anybody wants a line.
const MOST: usize = 1 << 15;

/// A part of a format.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Text(&'a [u8]),
    Conversion(ConversionSpec),
}

/// A width or a precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    None,
    Is(usize),
    /// `*`: an argument says it.
    Argument,
}

/// `%[flags][width][.precision][length]type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConversionSpec {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zeros: bool,
    pub width: Size,
    pub precision: Size,
    /// Whether an integer has 64 bits.
    long: bool,
    letter: u8,
}

/// An argument, as its bits or as the text that it is the address of.
pub(super) enum Argument {
    Bits(u64),
    Text(Vec<u8>),
}

/// The parts of a format. What begins like a conversion and is none is text.
pub(super) fn parts(format: &[u8]) -> Vec<Part<'_>> {
    let (mut parts, mut rest) = (Vec::new(), format);
    while !rest.is_empty() {
        let plain = rest.iter().position(|&byte| byte == b'%').unwrap_or(rest.len());
        if plain > 0 {
            parts.push(Part::Text(&rest[..plain]));
            rest = &rest[plain..];
            continue;
        }
        if rest.starts_with(b"%%") {
            parts.push(Part::Text(&rest[..1]));
            rest = &rest[2..];
            continue;
        }
        match ConversionSpec::parse(&rest[1..]) {
            Some((conversion, after)) => {
                parts.push(Part::Conversion(conversion));
                rest = after;
            }
            None => {
                parts.push(Part::Text(&rest[..1]));
                rest = &rest[1..];
            }
        }
    }
    parts
}

impl ConversionSpec {
    /// A conversion after its `%`, and what follows it.
    fn parse(mut text: &[u8]) -> Option<(ConversionSpec, &[u8])> {
        let mut conversion = ConversionSpec {
            left: false,
            plus: false,
            space: false,
            alternate: false,
            zeros: false,
            width: Size::None,
            precision: Size::None,
            long: false,
            letter: 0,
        };
        loop {
            let flag = match text.first()? {
                b'-' => &mut conversion.left,
                b'+' => &mut conversion.plus,
                b' ' => &mut conversion.space,
                b'#' => &mut conversion.alternate,
                b'0' => &mut conversion.zeros,
                _ => break,
            };
            *flag = true;
            text = &text[1..];
        }
        (conversion.width, text) = size(text);
        if let Some(after) = text.strip_prefix(b".") {
            (conversion.precision, text) = size(after);
            if conversion.precision == Size::None {
                conversion.precision = Size::Is(0);
            }
        }
        loop {
            match text.first()? {
                // Sizes and pointers have 64 bits, shorter integers are passed as 32.
                b'l' | b'j' | b'z' | b't' => conversion.long = true,
                b'h' => {}
                _ => break,
            }
            text = &text[1..];
        }
        conversion.letter = *text.first().filter(|letter| b"diouxXcspfFeEgG".contains(letter))?;
        Some((conversion, &text[1..]))
    }

    /// The conversion with what the arguments for `*` say: a negative width is a positive one to
    /// the left, a negative precision is none.
    pub(super) fn with(mut self, width: Option<i32>, precision: Option<i32>) -> ConversionSpec {
        if let Some(width) = width {
            self.left |= width < 0;
            self.width = Size::Is((width.unsigned_abs() as usize).min(MOST));
        }
        if let Some(precision) = precision {
            let precision = usize::try_from(precision).map(|precision| precision.min(MOST));
            self.precision = precision.map_or(Size::None, Size::Is);
        }
        self
    }

    pub(super) fn is_string(&self) -> bool {
        self.letter == b's'
    }

    /// Bytes of the argument.
    pub(super) fn bytes(&self) -> u32 {
        match self.letter {
            b'c' => 4,
            b'd' | b'i' | b'o' | b'u' | b'x' | b'X' if !self.long => 4,
            _ => 8,
        }
    }

    /// The most characters of a string.
    pub(super) fn most(&self) -> u64 {
        match self.precision {
            Size::Is(most) => most as u64,
            _ => u64::MAX,
        }
    }

    /// Writes an argument.
    pub(super) fn write(&self, argument: &Argument, out: &mut Vec<u8>) {
        let (sign, digits) = match *argument {
            Argument::Text(ref text) => return self.pad("", text, false, out),
            Argument::Bits(bits) => match self.letter {
                b'c' => return self.pad("", &[bits as u8], false, out),
                b'p' => return self.pad("", format!("{bits:#x}").as_bytes(), false, out),
                b'd' | b'i' => {
                    let value = if self.long { bits as i64 } else { i64::from(bits as i32) };
                    (self.sign(value < 0), self.integer(value.unsigned_abs()))
                }
                b'o' | b'u' | b'x' | b'X' => (self.prefix(bits), self.integer(bits)),
                _ => {
                    let value = f64::from_bits(bits);
                    let sign = self.sign(value.is_sign_negative() && !value.is_nan());
                    (sign, self.float(value.abs()))
                }
            },
        };
        let is_integer = !b"fFeEgG".contains(&self.letter);
        let finite = digits.ends_with(|c: char| c.is_ascii_hexdigit() || c == '.');
        // A precision says how many digits an integer has.
        let zeros = self.zeros && !(is_integer && self.precision != Size::None);
        self.pad(sign, digits.as_bytes(), zeros && (is_integer || finite), out);
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    fn prefix(&self, bits: u64) -> &'static str {
        match self.letter {
            b'x' if self.alternate && bits != 0 => "0x",
            b'X' if self.alternate && bits != 0 => "0X",
            b'o' if self.alternate => "0",
            _ => "",
        }
    }

    fn integer(&self, value: u64) -> String {
        let digits = match self.letter {
            b'o' => format!("{value:o}"),
            b'x' => format!("{value:x}"),
            b'X' => format!("{value:X}"),
            _ => value.to_string(),
        };
        match self.precision {
            Size::Is(0) if value == 0 => String::new(),
            Size::Is(least) => format!("{digits:0>least$}"),
            _ => digits,
        }
    }

    /// A float that is not negative.
    fn float(&self, value: f64) -> String {
        let precision = match self.precision {
            Size::Is(precision) => precision,
            _ => 6,
        };
        let text = if value.is_nan() {
            "nan".to_owned()
        } else if value.is_infinite() {
            "inf".to_owned()
        } else {
            match self.letter.to_ascii_lowercase() {
                b'f' => format!("{value:.precision$}"),
                b'e' => exponential(value, precision),
                _ => self.shorter(value, precision.max(1)),
            }
        };
        if self.letter.is_ascii_uppercase() { text.to_ascii_uppercase() } else { text }
    }

    /// `%g`: as `%e` or `%f`, with so many significant digits, without zeros at the end.
    fn shorter(&self, value: f64, digits: usize) -> String {
        let scientific = exponential(value, digits - 1);
        let exponent = scientific.rsplit('e').next().and_then(|e| e.parse::<i32>().ok());
        let exponent = exponent.unwrap_or(0);
        let is_fixed = (-4..digits as i32).contains(&exponent);
        let (mantissa, tail) = if is_fixed {
            let precision = (digits as i32 - 1 - exponent) as usize;
            (format!("{value:.precision$}"), String::new())
        } else {
            let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
            (mantissa.to_owned(), format!("e{exponent}"))
        };
        let mantissa = match mantissa.contains('.') && !self.alternate {
            true => mantissa.trim_end_matches('0').trim_end_matches('.'),
            false => &mantissa,
        };
        format!("{mantissa}{tail}")
    }

    /// Writes a text in the field's width.
    fn pad(&self, sign: &str, text: &[u8], zeros: bool, out: &mut Vec<u8>) {
        let width = match self.width {
            Size::Is(width) => width,
            _ => 0,
        };
        let missing = width.saturating_sub(sign.len() + text.len());
        if !self.left && !zeros {
            out.extend(std::iter::repeat_n(b' ', missing));
        }
        out.extend_from_slice(sign.as_bytes());
        if !self.left && zeros {
            out.extend(std::iter::repeat_n(b'0', missing));
        }
        out.extend_from_slice(text);
        if self.left {
            out.extend(std::iter::repeat_n(b' ', missing));
        }
    }
}

/// A number or a `*`, and what follows it.
fn size(text: &[u8]) -> (Size, &[u8]) {
    if let Some(after) = text.strip_prefix(b"*") {
        return (Size::Argument, after);
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, after) = text.split_at(digits);
    let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
    (number.map_or(Size::None, |number: usize| Size::Is(number.min(MOST))), after)
}

/// `%e`, whose exponent has two digits at least.
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one argument looks like.
    fn shown(format: &str, bits: u64) -> String {
        let mut out = Vec::new();
        for part in parts(format.as_bytes()) {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Conversion(conversion) => conversion.write(&Argument::Bits(bits), &mut out),
            }
        }
        String::from_utf8(out).unwrap()
    }

    /// As glibc's `printf` shows them.
    #[test]
    fn numbers_look_as_in_c() {
        let minus = -42i32 as u32;
        for (format, bits, expected) in [
            ("%d", minus.into(), "-42"),
            ("%6d|%-6d|", minus.into(), "   -42|-42   |"),
            ("%06d %+d % d", 42, "000042 +42  42"),
            ("%.4d %.0d", 0, "0000 "),
            ("%u", minus.into(), "4294967254"),
            ("%lld", -5i64 as u64, "-5"),
            ("%x %X %#x %o %#o", 255, "ff FF 0xff 377 0377"),
            ("%c%%", b'a'.into(), "a%"),
            ("%p", 4096, "0x1000"),
            ("100% %y", 0, "100% %y"),
        ] {
            assert_eq!(shown(format, bits), expected, "{format}");
        }
        for (format, value, expected) in [
            ("%f %.2f %.0f", 1234.5678, "1234.567800 1234.57 1235"),
            ("%e %.1E", 1234.5678, "1.234568e+03 1.2E+03"),
            ("%g %g", 1234.5678, "1234.57 1234.57"),
            ("%g", 1e-10, "1e-10"),
            ("%g", 0.0001, "0.0001"),
            ("%g %G", 1e20, "1e+20 1E+20"),
            ("%g", 100_000.0, "100000"),
            ("%9.3f|%-9.3f|%09.3f", -3.25, "   -3.250|-3.250   |-0003.250"),
            ("%f %5f", f64::INFINITY, "inf   inf"),
            ("%05f %F", f64::NAN, "  nan NAN"),
        ] {
            assert_eq!(shown(format, f64::to_bits(value)), expected, "{format}");
        }
    }
}
