//! The header of a `.npy` file, and the errors of reading one.
//!
//! The dictionary is parsed by hand, because the published readers multiply the dimensions before
//! they check them.

use std::io::{self, Read};

use host_system::format::excerpt;

use crate::element::Element;

/// The first bytes of every such file.
pub const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The longest accepted header, far above that of any matrix.
const MAX_HEADER: usize = 1 << 20;

/// The problem with a `.npy` file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// The file cannot be opened or read.
    #[error("{0}; check the path")]
    Io(#[from] io::Error),
    /// The magic number is missing.
    #[error("it is not a .npy file; store it with `numpy.save`")]
    NotNpy,
    /// A format version other than 1.0, 2.0 or 3.0.
    #[error("version {0}.{1} of the .npy format is unknown; store it with `numpy.save`")]
    Version(u8, u8),
    /// The dictionary cannot be parsed.
    #[error("its header is damaged ({0}); store it again with `numpy.save`")]
    Header(&'static str),
    /// The elements are neither little-endian f32 nor little-endian f16.
    #[error(
        "its elements are {found}, and must be float32 ('<f4') or float16 ('<f2'); convert it with \
         `x.astype('<f4')`"
    )]
    Dtype {
        /// The type in the header.
        found: String,
    },
    /// The array is not a matrix.
    #[error("it has {rank} dimension(s), and must have 2; reshape it with `x.reshape(rows, cols)`")]
    Rank {
        /// The number of dimensions.
        rank: usize,
    },
    /// The dimensions multiply to more bytes than any memory has.
    #[error("its shape, {rows} x {cols}, is too large for any memory; store a smaller matrix")]
    TooLarge {
        /// Rows.
        rows: usize,
        /// Columns.
        cols: usize,
    },
    /// The file ends early.
    #[error(
        "it is truncated: its header promises {expected} bytes of elements and {found} follow; \
         store it again with `numpy.save`"
    )]
    Truncated {
        /// Bytes that the shape needs.
        expected: u64,
        /// Bytes that the file has.
        found: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) fortran_order: bool,
    pub(super) element: Element,
}

impl Header {
    /// Bytes of elements; the header was refused if they overflow.
    pub(super) fn bytes(&self) -> u64 {
        self.rows as u64 * self.cols as u64 * self.element.bytes() as u64
    }
}

/// Reads everything before the elements, and returns its length in bytes as well.
pub(super) fn read_header(reader: &mut impl Read) -> Result<(Header, u64), NpyError> {
    let mut start = [0; 8];
    exact(reader, &mut start, NpyError::NotNpy)?;
    let [.., major, minor] = start;
    if start[..6] != *MAGIC {
        return Err(NpyError::NotNpy);
    }
    let cut = || NpyError::Header("it ends early");
    let (length, width) = match (major, minor) {
        (1, 0) => {
            let mut bytes = [0; 2];
            exact(reader, &mut bytes, cut())?;
            (usize::from(u16::from_le_bytes(bytes)), 2)
        }
        (2 | 3, 0) => {
            let mut bytes = [0; 4];
            exact(reader, &mut bytes, cut())?;
            (u32::from_le_bytes(bytes) as usize, 4)
        }
        _ => return Err(NpyError::Version(major, minor)),
    };
    if length > MAX_HEADER {
        return Err(NpyError::Header("it is too long"));
    }
    let mut text = vec![0; length];
    exact(reader, &mut text, cut())?;
    let text = str::from_utf8(&text).map_err(|_| NpyError::Header("it is not text"))?;
    Ok((parse_header(text)?, (8 + width + length) as u64))
}

/// Fills the buffer, or returns `early` if the file ends first.
pub(super) fn exact(
    reader: &mut impl Read,
    buffer: &mut [u8],
    early: NpyError,
) -> Result<(), NpyError> {
    reader.read_exact(buffer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => early,
        _ => NpyError::Io(error),
    })
}

/// Parses `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, with keys in any order.
pub(super) fn parse_header(text: &str) -> Result<Header, NpyError> {
    let damaged = NpyError::Header;
    let mut parser = Parser { rest: text };
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    parser.expect('{')?;
    while !parser.accept('}') {
        let key = parser.string()?;
        parser.expect(':')?;
        match key {
            "descr" => descr = Some(parser.descr()?),
            "fortran_order" => fortran_order = Some(parser.boolean()?),
            "shape" => shape = Some(parser.shape()?),
            _ => return Err(damaged("it has an unknown key")),
        }
        if !parser.accept(',') {
            parser.expect('}')?;
            break;
        }
    }
    if !parser.rest.trim().is_empty() {
        return Err(damaged("text follows the dictionary"));
    }
    let descr = descr.ok_or(damaged("`descr` is missing"))?;
    let fortran_order = fortran_order.ok_or(damaged("`fortran_order` is missing"))?;
    let shape = shape.ok_or(damaged("`shape` is missing"))?;
    let Some(element) = element_of(descr) else {
        return Err(NpyError::Dtype { found: name_dtype(descr) });
    };
    let [rows, cols] = shape[..] else { return Err(NpyError::Rank { rank: shape.len() }) };
    let fits = rows.checked_mul(cols).is_some_and(|n| n <= isize::MAX as usize / 4);
    if !fits {
        return Err(NpyError::TooLarge { rows, cols });
    }
    Ok(Header { rows, cols, fortran_order, element })
}

/// The element type of a type code, in any spelling that `numpy.dtype` accepts.
///
/// `=`, `|` and no sign mean the byte order of the host.
fn element_of(descr: &str) -> Option<Element> {
    let code = descr.strip_prefix('<').or_else(|| {
        let code = descr.strip_prefix(['=', '|']).unwrap_or(descr);
        Some(code).filter(|_| cfg!(target_endian = "little"))
    });
    match code? {
        "f4" | "f" => return Some(Element::F32),
        "f2" | "e" => return Some(Element::F16),
        _ => {}
    }
    match descr {
        "float32" | "single" => Some(Element::F32),
        "float16" | "half" => Some(Element::F16),
        _ => None,
    }
}

/// The type code of the header, with its usual name if it has one.
fn name_dtype(descr: &str) -> String {
    let name = match descr {
        ">f4" => "big-endian float32",
        ">f2" => "big-endian float16",
        "<f8" => "float64",
        "<c8" => "complex64",
        "<c16" => "complex128",
        "|b1" => "bool",
        "|i1" => "int8",
        "|u1" => "uint8",
        "<i2" => "int16",
        "<i4" => "int32",
        "<i8" => "int64",
        "" => return "records".to_owned(),
        _ => return format!("'{}'", excerpt(descr)),
    };
    format!("{name} ('{descr}')")
}

/// Parses Python literals at the front of a text.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn accept(&mut self, symbol: char) -> bool {
        self.rest = self.rest.trim_start();
        self.rest.strip_prefix(symbol).inspect(|rest| self.rest = rest).is_some()
    }

    fn expect(&mut self, symbol: char) -> Result<(), NpyError> {
        match self.accept(symbol) {
            true => Ok(()),
            false => Err(NpyError::Header("it is not a dictionary of the format")),
        }
    }

    /// A string; Python 2 wrote `u` before some.
    fn string(&mut self) -> Result<&'a str, NpyError> {
        self.rest = self.rest.trim_start();
        self.rest = self.rest.strip_prefix(['u', 'U']).unwrap_or(self.rest);
        let quote = if self.accept('"') { '"' } else { '\'' };
        if quote == '\'' {
            self.expect('\'')?;
        }
        let (text, rest) =
            self.rest.split_once(quote).ok_or(NpyError::Header("a string does not end"))?;
        self.rest = rest;
        Ok(text)
    }

    /// The element type as a string, or an empty string for a list of fields.
    fn descr(&mut self) -> Result<&'a str, NpyError> {
        match self.accept('[') {
            // Records are refused, so the rest does not matter.
            true => Err(NpyError::Dtype { found: name_dtype("") }),
            false => self.string(),
        }
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        self.rest = self.rest.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(NpyError::Header("`fortran_order` is neither True nor False"))
    }

    fn shape(&mut self) -> Result<Vec<usize>, NpyError> {
        self.expect('(')?;
        let mut shape = Vec::new();
        while !self.accept(')') {
            self.rest = self.rest.trim_start();
            let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = self.rest.split_at(digits);
            let number =
                number.parse().map_err(|_| NpyError::Header("`shape` is not a tuple of sizes"))?;
            shape.push(number);
            // Python 2 wrote long integers with an L.
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            if !self.accept(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }
}
