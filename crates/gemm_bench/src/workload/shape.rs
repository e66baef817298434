//! Shapes of products, from texts and files.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use cuda_gemm::Gemm;
use gemm_report::Row;
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

    /// The shape of a product. All groups together are one product.
    pub const fn of(gemm: &Gemm) -> Self {
        let Gemm { m, n, k, trans_a, trans_b, .. } = *gemm;
        let [_, _, batch] = gemm.matrices();
        Self { m, n, k, trans_a, trans_b, batch }
    }

    /// `C = A * B` of this shape; the matrices of several products lie one below the other.
    pub const fn gemm(self) -> Gemm {
        let Self { m, n, k, trans_a, trans_b, batch } = self;
        let gemm = Gemm::new(m, n, k).transposed(trans_a, trans_b);
        if batch == 1 { gemm } else { gemm.stacked(batch) }
    }
}

impl From<&Row> for Shape {
    fn from(row: &Row) -> Self {
        let Row { m, n, k, trans_a, trans_b, batch, .. } = *row;
        Self { m, n, k, trans_a, trans_b, batch }
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

/// M of a [layer](random_layers): the rows of all tokens.
const LAYER_M: [usize; 2] = [1, 8192];
/// N and K of a layer, in multiples of [`LAYER_STEP`].
const LAYER_N_K: [usize; 2] = [512 / LAYER_STEP, 32_768 / LAYER_STEP];
const LAYER_STEP: usize = 64;

/// How many products a [batch](random_batches) has, and their sizes.
const BATCH_COUNT: [usize; 2] = [2, 128];
const BATCH_SIZE: [usize; 2] = [16, 1024];

/// Random numbers for shapes.
pub(crate) struct Draw(ChaCha8Rng);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// `count` shapes, each from the same generator.
    fn shapes(count: usize, seed: u64, mut shape: impl FnMut(&mut Self) -> Shape) -> Vec<Shape> {
        let mut draw = Self::new(seed);
        (0..count).map(|_| shape(&mut draw)).collect()
    }

    /// A whole number in this range, both ends included; its logarithm is uniformly distributed.
    pub(crate) fn log_uniform(&mut self, [min, max]: [usize; 2]) -> usize {
        let size = min as f64 * ((max + 1) as f64 / min as f64).powf(self.uniform());
        (size as usize).clamp(min, max)
    }

    /// A number from 0 to 1, without 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / 2f64.powi(32)
    }

    /// An index below `count`, which is not 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        // The modulus of a 32-bit number favours none of some hundred noticeably.
        self.0.next_u32() as usize % count
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.0.next_u32() % 2 == 1
    }
}

/// `count` random shapes of single products.
///
/// M, N and K are log-uniform from 1 to [`RANDOM_MAX`]. A seed gives the same shapes every time.
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
    Draw::shapes(count, seed, |draw| {
        let [m, n, k] = std::array::from_fn(|_| draw.log_uniform([1, RANDOM_MAX]));
        Shape::new(m, n, k)
    })
}

/// `count` random layers of language models.
///
/// M is log-uniform from 1 to 8192. N and K are multiples of 64, log-uniform from 512 to 32,768. B
/// lies transposed, as weights do. A seed gives the same layers every time.
///
/// ```
/// use gemm_bench::shape::random_layers;
///
/// let layers = random_layers(300, 7);
/// assert!(layers.iter().all(|layer| layer.trans_b && layer.n % 64 == 0 && layer.k >= 512));
/// let few = layers.iter().filter(|layer| layer.m < 91).count();
/// assert!(layers.len() == 300 && (100..200).contains(&few));
/// assert_eq!(random_layers(10, 7), layers[..10]);
/// ```
pub fn random_layers(count: usize, seed: u64) -> Vec<Shape> {
    Draw::shapes(count, seed, |draw| {
        let m = draw.log_uniform(LAYER_M);
        let [n, k] = std::array::from_fn(|_| LAYER_STEP * draw.log_uniform(LAYER_N_K));
        Shape { trans_b: true, ..Shape::new(m, n, k) }
    })
}

/// `count` random batches of middling products.
///
/// A batch has 2 to 128 products. M, N and K are from 16 to 1024. All four are log-uniform, and A
/// and B may lie transposed. A seed gives the same batches every time.
///
/// ```
/// use gemm_bench::shape::random_batches;
///
/// let batches = random_batches(20, 7);
/// assert!(batches.iter().all(|shape| (2..=128).contains(&shape.batch) && shape.m >= 16));
/// assert_eq!(random_batches(10, 7), batches[..10]);
/// ```
pub fn random_batches(count: usize, seed: u64) -> Vec<Shape> {
    Draw::shapes(count, seed, |draw| {
        let batch = draw.log_uniform(BATCH_COUNT);
        let [m, n, k] = std::array::from_fn(|_| draw.log_uniform(BATCH_SIZE));
        let [trans_a, trans_b] = std::array::from_fn(|_| draw.coin());
        Shape { m, n, k, trans_a, trans_b, batch }
    })
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

/// The shapes in a text, one per line, each as [`Shape`] is parsed; `#` starts a comment. `place`
/// is what errors call the text.
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

    /// What fractions of `values` lie in the four quarters of this range, by their logarithms.
    fn quarters(values: &[usize], [min, max]: [usize; 2]) -> [f64; 4] {
        let mut counts = [0.0; 4];
        for value in values {
            assert!((min..=max).contains(value), "{value}");
            let place = (*value as f64 / min as f64).ln() / (max as f64 / min as f64).ln();
            counts[((4.0 * place) as usize).min(3)] += 1.0 / values.len() as f64;
        }
        counts
    }

    #[test]
    fn sizes_are_log_uniform_in_their_ranges() {
        let sizes = |shapes: &[Shape], of: fn(&Shape) -> usize| shapes.iter().map(of).collect();
        let expect = |shapes: &[Shape], of: fn(&Shape) -> usize, range: [usize; 2]| {
            let values: Vec<usize> = sizes(shapes, of);
            for fraction in quarters(&values, range) {
                assert!((0.2..0.3).contains(&fraction), "{range:?}: {fraction}");
            }
            // Both ends are reached, or nearly.
            let (least, most) = (values.iter().min().unwrap(), values.iter().max().unwrap());
            let [min, max] = range;
            assert!(*least <= 2 * min && 2 * most >= max, "{range:?}: {least} to {most}");
        };
        let layers = random_layers(2000, 3);
        expect(&layers, |layer| layer.m, [1, 8192]);
        expect(&layers, |layer| layer.n, [512, 32_768]);
        expect(&layers, |layer| layer.k, [512, 32_768]);
        for layer in &layers {
            assert_eq!((layer.n % 64, layer.k % 64, layer.batch), (0, 0, 1), "{layer}");
            assert!(layer.to_string().ends_with(":NT"), "{layer}");
        }
        let batches = random_batches(2000, 3);
        expect(&batches, |batch| batch.batch, [2, 128]);
        for of in [|batch: &Shape| batch.m, |batch: &Shape| batch.n, |batch: &Shape| batch.k] {
            expect(&batches, of, [16, 1024]);
        }
        let ways = |is: fn(&Shape) -> bool| batches.iter().filter(|shape| is(shape)).count();
        assert!((900..1100).contains(&ways(|batch| batch.trans_a)));
        assert!((900..1100).contains(&ways(|batch| batch.trans_b)));
        assert!((400..600).contains(&ways(|batch| batch.trans_a && batch.trans_b)));
        expect(&random(2000, 3), |shape| shape.n, [1, RANDOM_MAX]);
    }

    #[test]
    fn a_seed_draws_the_same_shapes() {
        // As recorded in `runs/h200/f32/random-6666.jsonl`.
        assert_eq!(random(3, 6666), [shape(369, 139, 145), shape(1, 1, 1), shape(533, 7610, 16)]);
        for draw in [random, random_layers, random_batches] {
            assert_eq!(draw(40, 9), draw(40, 9));
            assert_eq!(draw(40, 9)[..7], draw(7, 9));
            assert_ne!(draw(7, 9), draw(7, 10));
            draw(500, 9).iter().for_each(|shape| shape.gemm().validate().unwrap());
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
