//! Shapes of products, from texts and files.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use cuda_gemm::Gemm;
use host_system::format::excerpt;
use host_system::text;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::error::Error;

/// M, N and K in elements, each at least 1 and at most what a kernel can count; whether A and B lie
/// transposed; and how many products there are.
///
/// ```
/// use gemm_bench::Shape;
///
/// let shape: Shape = "16x4096x4096".parse().unwrap();
/// assert_eq!(shape, Shape::new(16, 4096, 4096));
/// assert_eq!("512".parse(), Ok(Shape::square(512)));
/// assert_eq!(shape.to_string(), "16x4096x4096");
/// assert!("16x0x16".parse::<Shape>().is_err());
///
/// // Ten products with the transposes of A.
/// let shape: Shape = "10*64x64x256:TN".parse().unwrap();
/// assert_eq!((shape.batch, shape.trans_a, shape.trans_b), (10, true, false));
/// assert_eq!(shape.to_string(), "10*64x64x256:TN");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Whether A lies transposed.
    pub trans_a: bool,
    /// Whether B lies transposed.
    pub trans_b: bool,
    /// How many products there are.
    pub batch: usize,
}

impl Shape {
    /// One product, of matrices that are not transposed.
    pub const fn new(m: usize, n: usize, k: usize) -> Self {
        Self { m, n, k, trans_a: false, trans_b: false, batch: 1 }
    }

    /// All three sizes the same.
    pub const fn square(n: usize) -> Self {
        Self::new(n, n, n)
    }

    /// That of a product.
    pub const fn of(gemm: &Gemm) -> Self {
        let Gemm { m, n, k, trans_a, trans_b, batch, .. } = *gemm;
        Self { m, n, k, trans_a, trans_b, batch }
    }

    /// `C = A * B` of this shape; the matrices of several products lie one below the other.
    pub const fn gemm(self) -> Gemm {
        let Self { m, n, k, trans_a, trans_b, batch } = self;
        let gemm = Gemm::new(m, n, k).transposed(trans_a, trans_b);
        if batch == 1 { gemm } else { gemm.stacked(batch) }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, n, k, trans_a, trans_b, batch } = *self;
        let count = if batch == 1 { String::new() } else { format!("{batch}*") };
        let op = |trans: bool| if trans { 'T' } else { 'N' };
        let ops = match (trans_a, trans_b) {
            (false, false) => String::new(),
            (a, b) => format!(":{}{}", op(a), op(b)),
        };
        f.pad(&format!("{count}{m}x{n}x{k}{ops}"))
    }
}

impl FromStr for Shape {
    type Err = String;

    /// `N`, `MxNxK`, or the three numbers with blanks between them. In front there may be `COUNT*`,
    /// and behind `:TN` and the like, T for a matrix that lies transposed, first A, then B.
    fn from_str(text: &str) -> Result<Self, String> {
        let size = |word: &str| match word.trim().parse() {
            Ok(0) => Err("a size is 0, and must be at least 1".to_owned()),
            Ok(size) => Ok(size),
            Err(_) => Err(format!(
                "`{}` is not a size, which is a whole number of 1 or more, at most {}",
                excerpt(word),
                i32::MAX
            )),
        };
        let (batch, rest) = match text.split_once('*') {
            Some((count, rest)) => (size(count)?, rest),
            None => (1, text),
        };
        let (sizes, ops) = rest.split_once(':').unwrap_or((rest, "NN"));
        let [trans_a, trans_b] = match &ops.trim().to_ascii_uppercase()[..] {
            "NN" => [false, false],
            "NT" => [false, true],
            "TN" => [true, false],
            "TT" => [true, true],
            _ => {
                return Err(format!(
                    "`{}` does not say how A and B lie: it is NN, NT, TN or TT",
                    excerpt(ops)
                ));
            }
        };
        let words: Vec<_> = match sizes.contains(['x', 'X']) {
            true => sizes.split(['x', 'X']).map(str::trim).collect(),
            false => sizes.split_whitespace().collect(),
        };
        let shape = match words[..] {
            [n] => size(n).map(Self::square)?,
            [m, n, k] => Self::new(size(m)?, size(n)?, size(k)?),
            _ => {
                let (text, count) = (excerpt(text), words.len());
                return Err(format!(
                    "`{text}` has {count} numbers: a shape has three, or one for a square"
                ));
            }
        };
        let shape = Self { trans_a, trans_b, batch, ..shape };
        shape.gemm().validate().map_err(|error| error.to_string())?;
        Ok(shape)
    }
}

/// The largest size of a [`random`] shape.
pub const RANDOM_MAX: usize = 10_000;

/// So many shapes of single products, the same for the same seed: M, N and K each from 1 to
/// [`RANDOM_MAX`], with logarithms that are uniformly distributed.
///
/// ```
/// use gemm_bench::shape::random;
///
/// let shapes = random(300, 7);
/// let small = shapes.iter().filter(|shape| shape.k < 100).count();
/// assert!(shapes.len() == 300 && (100..200).contains(&small));
/// assert_eq!(random(10, 7), shapes[..10]);
/// assert_ne!(random(10, 8), shapes[..10]);
/// ```
pub fn random(count: usize, seed: u64) -> Vec<Shape> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut size = || {
        let uniform = f64::from(rng.next_u32()) / 2f64.powi(32);
        let size = ((RANDOM_MAX + 1) as f64).powf(uniform);
        (size as usize).clamp(1, RANDOM_MAX)
    };
    (0..count).map(|_| Shape::new(size(), size(), size())).collect()
}

/// The shapes in a file: see [`parse`].
///
/// # Errors
///
/// [`Error::Shapes`] if the file cannot be read, and those of [`parse`].
///
/// ```no_run
/// # fn main() -> Result<(), gemm_bench::Error> {
/// for shape in gemm_bench::shape::read("shapes.txt".as_ref())? {
///     println!("{shape}: {} FLOP", shape.gemm().flops());
/// }
/// # Ok(())
/// # }
/// ```
pub fn read(path: &Path) -> Result<Vec<Shape>, Error> {
    let place = path.display().to_string();
    let text = text::read(path)
        .map_err(|error| Error::Shapes { place: place.clone(), reason: error.to_string() })?;
    parse(&text, &place)
}

/// The shapes in a text, one per line, each as [`Shape`] is parsed; `#` starts a comment. `place` is what errors
/// call the text.
///
/// # Errors
///
/// [`Error::Shapes`], which names the line, if one has no shape, or if all are empty.
///
/// ```
/// use gemm_bench::{Shape, shape};
///
/// let shapes = shape::parse("# M N K\n512 1024 256\n10*64x64x256:TN # a batch\n", "a list")?;
/// let batch = Shape { trans_a: true, batch: 10, ..Shape::new(64, 64, 256) };
/// assert_eq!(shapes, [Shape::new(512, 1024, 256), batch]);
/// let error = shape::parse("512\n512x64\n", "a list").unwrap_err().to_string();
/// assert!(error.starts_with("a list:2: `512x64` has 2 numbers"), "{error}");
/// # Ok::<(), gemm_bench::Error>(())
/// ```
pub fn parse(text: &str, place: &str) -> Result<Vec<Shape>, Error> {
    // Some editors write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let shapes = (1..).zip(lines).filter(|(_, line)| !line.is_empty()).map(|(number, line)| {
        line.parse().map_err(|reason| Error::Shapes { place: format!("{place}:{number}"), reason })
    });
    let shapes: Vec<_> = shapes.collect::<Result<_, _>>()?;
    match shapes.is_empty() {
        true => Err(Error::Shapes {
            place: place.to_owned(),
            reason: "there is no shape in it".to_owned(),
        }),
        false => Ok(shapes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const fn shape(m: usize, n: usize, k: usize) -> Shape {
        Shape::new(m, n, k)
    }

    #[test]
    fn shapes_are_written_in_three_ways() {
        let text = "\u{feff}# M N K\n16 4096 4096\n\n333x777x1555 # odd\n  512\r\n1X2X3\n";
        let expected =
            [shape(16, 4096, 4096), shape(333, 777, 1555), shape(512, 512, 512), shape(1, 2, 3)];
        assert_eq!(parse(text, "a list").unwrap(), expected);
        assert_eq!(expected[1].to_string().parse(), Ok(expected[1]));
        let many = Shape { trans_b: true, batch: 512, ..shape(64, 32, 16) };
        assert_eq!(parse("512*64 32 16 :nt", "a list").unwrap(), [many]);
        assert_eq!(many.to_string().parse(), Ok(many));
        assert_eq!(format!("{:<8}|", shape(1, 2, 3)), "1x2x3   |");
    }

    #[test]
    fn a_bad_line_is_named() {
        for (line, says) in [
            ("1 2", "has 2 numbers"),
            ("12x", "has 2 numbers"),
            ("1x2x", "`` is not a size"),
            ("1 2 3 4", "has 4 numbers"),
            ("1x2xthree", "`three` is not a size"),
            ("-1", "`-1` is not a size"),
            ("4096 0 4096", "a size is 0"),
            ("2147483648", "m is 2147483648"),
            ("99999999999999999999", "is not a size"),
            ("0*16", "a size is 0"),
            ("x*16", "`x` is not a size"),
            ("16:NX", "`NX` does not say how"),
            ("4294967296*16", "batch is 4294967296"),
        ] {
            let text = format!("256\n# fine\n{line}\n512\n");
            let error = parse(&text, "a list").unwrap_err().to_string();
            assert!(error.starts_with("a list:3: ") && error.contains(says), "{line}: {error}");
        }
    }

    /// DeepBench's products, and those that tensor cores find hard.
    #[test]
    fn the_lists_of_the_repository_are_read_as_they_stand() {
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs");
        let deep_bench = read(&runs.join("shapes/deepbench.txt")).unwrap();
        assert!(deep_bench.len() == 234 && deep_bench[0] == shape(16, 1760, 1760));
        assert!(deep_bench.iter().any(|shape| shape.trans_a || shape.trans_b));
        let hard = read(&runs.join("shapes/tensor-cores.txt")).unwrap();
        assert_eq!(hard.len(), 40);
        for (i, shape) in hard.iter().enumerate() {
            assert!(!hard[..i].contains(shape), "{shape}");
        }
        let count = |is: fn(&Shape) -> bool| hard.iter().filter(|shape| is(shape)).count();
        assert!(count(|shape| shape.m.min(shape.n) <= 128) >= 30);
        assert!(count(|shape| (shape.n * shape.k) % 8 != 0) >= 5, "rows of less than 16 bytes");
        assert!(count(|shape| shape.trans_a || shape.trans_b) >= 10);
    }

    #[test]
    fn a_file_without_shapes_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = read(file.path()).unwrap_err().to_string();
        assert!(error.contains("no shape"), "{error}");
        fs::write(file.path(), "256\n1 2\n").unwrap();
        let error = read(file.path()).unwrap_err().to_string();
        let place = format!("{}:2: ", file.path().display());
        assert!(error.starts_with(&place), "{error}");
    }
}
