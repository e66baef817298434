//! NumPy's `.npy` files: reads f32 and f16 matrices, and writes f32.
//!
//! The format is NumPy's own
//! (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>). A magic number, a
//! version and a Python dictionary of three keys precede the bare elements.
//!
//! ```
//! use std::fs::{self, File};
//!
//! use gemm_matrix::Matrix;
//! use gemm_matrix::npy::{NpyFile, write_matrix};
//!
//! let path = std::env::temp_dir().join(format!("matrix-{}.npy", std::process::id()));
//! let matrix = Matrix::from_fn(2, 3, |row, col| (row + col) as f32);
//! write_matrix(&matrix, &mut File::create(&path)?)?;
//! let file = NpyFile::open(&path)?;
//! assert_eq!(file.shape(), (2, 3));
//! assert_eq!(file.read()?, matrix);
//! fs::remove_file(&path)?;
//!
//! let error = NpyFile::open(&path).unwrap_err();
//! assert!(error.to_string().starts_with("cannot use"), "{error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::element::Element;
use crate::matrix::Matrix;

mod header;

pub use header::MAGIC;
pub use header::NpyError;
use header::{Header, exact, read_header};

/// A `.npy` file that cannot be used.
#[derive(thiserror::Error)]
#[error("cannot use {}: {source}", .path.display())]
pub struct NpyFileError {
    /// The path of the file.
    pub path: PathBuf,
    /// The problem with it.
    pub source: NpyError,
}

impl fmt::Debug for NpyFileError {
    /// The sentence: `unwrap` and a `main` that returns the error show this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An opened `.npy` file whose header describes an f32 or f16 matrix.
///
/// [`NpyFile::read`] reads the elements, so that sizes can be checked first.
#[derive(Debug)]
pub struct NpyFile {
    path: PathBuf,
    header: Header,
    reader: BufReader<File>,
}

impl NpyFile {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    ///
    /// [`NpyFileError`].
    pub fn open(path: &Path) -> Result<Self, NpyFileError> {
        let (header, reader) = Self::open_inner(path)
            .map_err(|source| NpyFileError { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), header, reader })
    }

    fn open_inner(path: &Path) -> Result<(Header, BufReader<File>), NpyError> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let (header, length) = read_header(&mut reader)?;
        let expected = header.bytes();
        // A pipe has no length, so its end is found while reading.
        if metadata.is_file() {
            let found = metadata.len().saturating_sub(length);
            if found < expected {
                return Err(NpyError::Truncated { expected, found });
            }
        }
        Ok((header, reader))
    }

    /// The numbers of rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.header.rows, self.header.cols)
    }

    /// Reads the elements, in C or in Fortran order, into a row-major matrix.
    ///
    /// # Errors
    ///
    /// [`NpyFileError`].
    pub fn read(mut self) -> Result<Matrix, NpyFileError> {
        read_elements(&self.header, &mut self.reader)
            .map_err(|source| NpyFileError { path: self.path, source })
    }

    /// Reads the elements of some rows and columns, and skips the others.
    ///
    /// ```
    /// use std::fs::{self, File};
    ///
    /// use gemm_matrix::Matrix;
    /// use gemm_matrix::npy::{NpyFile, write_matrix};
    ///
    /// let path = std::env::temp_dir().join(format!("part-{}.npy", std::process::id()));
    /// let matrix = Matrix::from_fn(4, 3, |row, col| (10 * row + col) as f32);
    /// write_matrix(&matrix, &mut File::create(&path)?)?;
    /// let part = NpyFile::open(&path)?.read_part(1..3, 2..3)?;
    /// assert_eq!(part.as_slice(), [12.0, 22.0]);
    /// fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NpyFileError`], also for a file that cannot seek, such as a pipe.
    ///
    /// # Panics
    ///
    /// Panics if the part is out of bounds.
    pub fn read_part(
        mut self,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> Result<Matrix, NpyFileError> {
        read_part(&self.header, &mut self.reader, [rows, cols])
            .map_err(|source| NpyFileError { path: self.path, source })
    }
}

/// The part of these rows and columns. The reader is at the first element.
fn read_part<R: Read + Seek>(
    header: &Header,
    reader: &mut BufReader<R>,
    [rows, cols]: [Range<usize>; 2],
) -> Result<Matrix, NpyError> {
    let Header { fortran_order, element, .. } = *header;
    let is_within = |range: &Range<usize>, len| range.start <= range.end && range.end <= len;
    let is_part = is_within(&rows, header.rows) && is_within(&cols, header.cols);
    assert!(is_part, "{rows:?} and {cols:?} are out of bounds of {header:?}");
    let mut matrix = Matrix::zeros(rows.len(), cols.len());
    // Lines lie one after the other: rows, or in Fortran order columns.
    let (lines, along, len) = match fortran_order {
        false => (rows, cols, header.cols),
        true => (cols, rows, header.rows),
    };
    let mut bytes = vec![0; along.len() * element.bytes()];
    let mut at = 0;
    for (i, line) in lines.clone().enumerate() {
        // A part is within the header's bytes, which were counted.
        let place = (line * len + along.start) * element.bytes();
        reader.seek_relative((place - at) as i64)?;
        at = place + bytes.len();
        let early = NpyError::Truncated { expected: header.bytes(), found: place as u64 };
        exact(reader, &mut bytes, early)?;
        let values = element.decode(&bytes);
        let stride = matrix.cols();
        match fortran_order {
            false => matrix.as_mut_slice()[i * stride..][..stride].copy_from_slice(&values),
            true => {
                let column = matrix.as_mut_slice().iter_mut().skip(i).step_by(stride);
                column.zip(values).for_each(|(to, from)| *to = from);
            }
        }
    }
    Ok(matrix)
}

fn read_elements(header: &Header, reader: &mut impl Read) -> Result<Matrix, NpyError> {
    let Header { rows, cols, fortran_order, element } = *header;
    let mut matrix = Matrix::zeros(rows, cols);
    let data = matrix.as_mut_slice();
    let mut bytes = vec![0; 1 << 18];
    let mut at = 0;
    while at < data.len() {
        let count = (data.len() - at).min(bytes.len() / element.bytes());
        let piece = &mut bytes[..element.bytes() * count];
        let early =
            NpyError::Truncated { expected: header.bytes(), found: (element.bytes() * at) as u64 };
        exact(reader, piece, early)?;
        let values = element.decode(piece).into_iter();
        match fortran_order {
            false => data[at..at + count].iter_mut().zip(values).for_each(|(to, from)| *to = from),
            // Fortran order walks down the columns.
            true => {
                for (i, value) in (at..).zip(values) {
                    data[i % rows * cols + i / rows] = value;
                }
            }
        }
        at += count;
    }
    Ok(matrix)
}

/// Writes a matrix in C order, as NumPy does.
///
/// # Errors
///
/// The writer's errors.
pub fn write_matrix(matrix: &Matrix, writer: &mut impl Write) -> io::Result<()> {
    let mut header = String::new();
    let (rows, cols) = (matrix.rows(), matrix.cols());
    write!(header, "{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}")
        .expect("a string takes all");
    // Padded with spaces and a newline, so that the elements begin at a multiple of 64.
    let length = (MAGIC.len() + 4 + header.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
    writer.write_all(MAGIC)?;
    writer.write_all(&[1, 0])?;
    // Fits 16 bits: two dimensions have at most 40 digits.
    writer.write_all(&(length as u16).to_le_bytes())?;
    writeln!(writer, "{header:<width$}", width = length - 1)?;
    for values in matrix.as_slice().chunks(1 << 16) {
        writer.write_all(&Element::F32.encode(values))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::header::parse_header;
    use super::*;

    fn header(text: &str) -> Result<Header, NpyError> {
        parse_header(text)
    }

    /// A file of version 1.0 with this dictionary and these elements.
    fn file(dictionary: &str, elements: &[f32]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((dictionary.len() as u16).to_le_bytes());
        bytes.extend(dictionary.as_bytes());
        bytes.extend(elements.iter().flat_map(|x| x.to_le_bytes()));
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Matrix, NpyError> {
        let mut reader = bytes;
        let (header, _) = read_header(&mut reader)?;
        read_elements(&header, &mut reader)
    }

    #[test]
    fn both_orders_give_the_same_matrix() {
        let expected = Matrix::from_vec(2, 3, vec![1., 2., 3., 4., 5., 6.]);
        let c = file(
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
            expected.as_slice(),
        );
        let fortran = file(
            "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n",
            &[1., 4., 2., 5., 3., 6.],
        );
        assert_eq!(read(&c).unwrap(), expected);
        assert_eq!(read(&fortran).unwrap(), expected);
    }

    #[test]
    fn parts_of_both_orders() {
        let whole = Matrix::from_fn(5, 4, |row, col| (10 * row + col) as f32);
        let columns: Vec<_> = whole.transposed().into_vec();
        for (order, elements) in [("False", whole.as_slice()), ("True", &columns)] {
            let text = format!("{{'descr': '<f4', 'fortran_order': {order}, 'shape': (5, 4), }}");
            let bytes = file(&text, elements);
            for (rows, cols) in
                [(0..5, 0..4), (1..3, 0..4), (2..5, 1..2), (5..5, 0..4), (0..5, 3..3)]
            {
                let mut reader = BufReader::new(io::Cursor::new(&bytes));
                let (header, _) = read_header(&mut reader).unwrap();
                let part = read_part(&header, &mut reader, [rows.clone(), cols.clone()]).unwrap();
                let expected = Matrix::from_fn(rows.len(), cols.len(), |row, col| {
                    whole.at(rows.start + row, cols.start + col)
                });
                assert_eq!(part, expected, "{order} {rows:?} {cols:?}");
            }
            let mut reader = BufReader::new(io::Cursor::new(&bytes[..bytes.len() - 1]));
            let (header, _) = read_header(&mut reader).unwrap();
            assert!(read_part(&header, &mut reader, [4..5, 3..4]).is_err());
        }
    }

    #[test]
    fn fortran_order_goes_on_from_piece_to_piece() {
        // Five pieces in f32 and three in f16. Each value is its place in the file, exact in f16.
        let (rows, cols) = (517, 521);
        let place = |row, col| ((col * rows + row) % 2003) as f32;
        let expected = Matrix::from_fn(rows, cols, place);
        let elements: Vec<f32> =
            (0..cols).flat_map(|col| (0..rows).map(move |row| place(row, col))).collect();
        for (element, descr) in [(Element::F32, "<f4"), (Element::F16, "<f2")] {
            let dictionary = format!(
                "{{'descr': '{descr}', 'fortran_order': True, 'shape': ({rows}, {cols}), }}\n"
            );
            let mut bytes = file(&dictionary, &[]);
            bytes.extend(element.encode(&elements));
            assert!(read(&bytes).unwrap() == expected, "{descr}");
        }
    }

    #[test]
    fn f16_comes_in() {
        let matrix = Matrix::from_vec(2, 2, vec![1.0, 65504.0, -0.1, f32::INFINITY]);
        let mut bytes = file("{'descr': '<f2', 'fortran_order': False, 'shape': (2, 2), }", &[]);
        bytes.extend(Element::F16.encode(matrix.as_slice()));
        assert_eq!(read(&bytes).unwrap(), matrix.clone().rounded(Element::F16));
        assert!(read(&bytes[..bytes.len() - 1]).is_err());
        assert_ne!(read(&bytes).unwrap(), matrix);
    }

    #[test]
    fn what_is_written_is_what_numpy_writes() {
        // The bytes of numpy.save for numpy.array([[1, -2.5]], dtype='<f4').
        let mut expected = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, \
            'shape': (1, 2), }"
            .to_vec();
        expected.resize(127, b' ');
        expected.push(b'\n');
        expected.extend([0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0]);
        let mut bytes = Vec::new();
        let matrix = Matrix::from_vec(1, 2, vec![1.0, -2.5]);
        write_matrix(&matrix, &mut bytes).unwrap();
        assert_eq!(bytes, expected);
        assert_eq!(read(&bytes).unwrap(), matrix);
    }

    #[test]
    fn empty_matrices() {
        for (rows, cols) in [(0, 3), (3, 0), (0, 0)] {
            let mut bytes = Vec::new();
            write_matrix(&Matrix::zeros(rows, cols), &mut bytes).unwrap();
            assert_eq!(bytes.len(), 128);
            assert_eq!(read(&bytes).unwrap(), Matrix::zeros(rows, cols));
        }
    }

    #[test]
    fn headers_in_other_spellings() {
        let expected = Header { rows: 3, cols: 4, fortran_order: true, element: Element::F32 };
        for text in [
            "{'shape': (3, 4), 'fortran_order': True, 'descr': '<f4'}",
            "{\"descr\":\"<f4\",\"fortran_order\":True,\"shape\":(3L,4L)}   \n",
            "  { 'descr' : '<f4' , 'fortran_order' : True , 'shape' : ( 3 , 4 , ) , } ",
        ] {
            assert_eq!(header(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn types_in_other_spellings() {
        // Spellings that numpy.dtype resolves to float32 and float16 on a little-endian host.
        let spellings = [
            (Element::F32, ["<f4", "=f4", "|f4", "f4", "<f", "=f", "f", "float32", "single"]),
            (Element::F16, ["<f2", "=f2", "|f2", "f2", "<e", "=e", "e", "float16", "half"]),
        ];
        for (element, all) in spellings {
            for descr in all {
                let text = format!(
                    "{{u'descr': u'{descr}', u'fortran_order': False, U'shape': (3L, 4L), }}"
                );
                let expected = Header { rows: 3, cols: 4, fortran_order: false, element };
                assert_eq!(header(&text).unwrap(), expected, "{descr}");
            }
        }
        for descr in [">f4", "!f4", "f8", "float", "float64", "<float32", "F4", "u<f4", "4f", ""] {
            let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (3, 4), }}");
            assert!(matches!(header(&text), Err(NpyError::Dtype { .. })), "{descr}");
        }
    }

    #[test]
    fn versions_two_and_three_have_longer_lengths() {
        for major in [2, 3] {
            let text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }\n";
            let mut bytes = MAGIC.to_vec();
            bytes.extend([major, 0]);
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text);
            bytes.extend(7.0f32.to_le_bytes());
            assert_eq!(read(&bytes).unwrap().at(0, 0), 7.0);
        }
    }

    #[test]
    fn other_types_and_ranks_are_refused_by_name() {
        let dtype = |descr: &str| {
            header(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (3, 4), }}"))
                .unwrap_err()
                .to_string()
        };
        assert!(dtype("'<f8'").contains("float64 ('<f8')"));
        assert!(dtype("'>f4'").contains("big-endian float32"));
        assert!(dtype("'|O'").contains("'|O'"));
        let long = dtype(&format!("'\u{1b}{}'", "x".repeat(10_000)));
        assert!(long.contains("'\\u{1b}xxx") && long.contains("xxx…'") && long.len() < 300);
        assert!(dtype("[('x', '<f4'), ('y', '<i4')]").contains("records"));
        for (shape, rank) in [("()", 0), ("(5,)", 1), ("(1, 2, 3)", 3)] {
            let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
            assert!(matches!(header(&text), Err(NpyError::Rank { rank: r }) if r == rank));
        }
    }

    #[test]
    fn shapes_that_overflow_are_refused() {
        let shape = |shape: &str| {
            header(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"))
        };
        assert!(matches!(shape("(4294967296, 4294967296)"), Err(NpyError::TooLarge { .. })));
        assert!(matches!(shape("(18446744073709551615, 1)"), Err(NpyError::TooLarge { .. })));
        assert!(matches!(shape("(99999999999999999999, 1)"), Err(NpyError::Header(_))));
        assert!(matches!(shape("(-1, 1)"), Err(NpyError::Header(_))));
    }

    #[test]
    fn damaged_headers_are_errors_and_never_panics() {
        let good =
            file("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }\n", &[1.0, 2.0]);
        assert!(read(&good).is_ok());
        for end in 0..good.len() {
            assert!(read(&good[..end]).is_err(), "cut at {end}");
        }
        for at in 0..good.len() - 8 {
            for byte in [0, b'(', b'\'', b'9', 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                // Some changes leave a valid header; none may panic.
                let _ = read(&bad);
            }
        }
        for text in [
            "",
            "{",
            "}",
            "{}",
            "[]",
            "{'descr'",
            "{'descr': '<f4'}",
            "{'a': 1}",
            "{'shape': (1 2)}",
        ] {
            assert!(header(text).is_err(), "{text}");
        }
    }
}
