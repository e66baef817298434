//! Reductions of tensors, `cp.reduce.async.bulk.tensor`.

use super::line_of;
use soft_cuda::{
    Config, Device, FaultKind, Fill, Isa, LaunchConfig, LaunchError, Swizzle, TensorElement,
    TensorMap,
};

/// A tensor and its boxes.
#[derive(Clone, Copy)]
struct Tensor<'a> {
    element: TensorElement,
    dims: &'a [u64],
    strides: &'a [u64],
    boxes: &'a [u32],
    swizzle: Swizzle,
}

/// A reduction of the box at `start` of a tensor, whose words are `to`, from the words `from` of
/// shared memory.
struct Case<'a> {
    tensor: Tensor<'a>,
    start: &'a [i32],
    operation: &'a str,
    from: &'a [u32],
    to: &'a [u32],
    blocks: u32,
    /// What comes after the commit; `%rd1` is the tensor's address, `%r1` that of shared memory.
    wait: &'a str,
}

const WAIT: &str = "cp.async.bulk.wait_group 0;";

impl Case<'_> {
    fn ptx(&self) -> String {
        let words: String = (0..)
            .zip(self.from)
            .map(|(i, word)| {
                format!("  mov.b32 %r2, {word}; st.shared.b32 [%r1+{}], %r2;\n", 4 * i)
            })
            .collect();
        let start: String =
            (10..).zip(self.start).map(|(i, at)| format!("  mov.b32 %r{i}, {at};\n")).collect();
        let rank = self.start.len();
        let coordinates: Vec<String> = (10..10 + rank).map(|i| format!("%r{i}")).collect();
        format!(
            ".version 8.0
.target sm_90a
.address_size 64
.shared .align 1024 .b8 tile[4096];
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 to)
{{
  .reg .b32 %r<20>;
  .reg .b64 %rd<9>;
  ld.param.b64 %rd1, [to];
  mov.b64 %rd2, map; cvta.param.u64 %rd2, %rd2;
  mov.b32 %r1, tile;
{words}{start}  fence.proxy.async;
  cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{}.tile.bulk_group [%rd2, {{{}}}], [%r1];
  cp.async.bulk.commit_group; {}
  ret;
}}
",
            self.operation,
            coordinates.join(", "),
            self.wait
        )
    }

    fn run_on(&self, isa: Isa) -> Result<Vec<u32>, LaunchError> {
        let device = Device::new(Config { isa, ..Config::default() });
        let module = device.load(&self.ptx()).unwrap_or_else(|error| panic!("{error}"));
        let to = device.alloc(self.to.len() as u64 * 4).unwrap();
        let bytes: Vec<u8> = self.to.iter().flat_map(|word| word.to_le_bytes()).collect();
        device.write(to, &bytes).unwrap();
        let Tensor { element, dims, strides, boxes, swizzle } = self.tensor;
        let map = TensorMap::of(element, to, dims, strides, boxes, (swizzle, Fill::Zeros)).unwrap();
        let params = [map.to_bytes().as_slice(), &to.to_le_bytes()].concat();
        let config = LaunchConfig { grid: [self.blocks, 1, 1], block: [1; 3], dynamic_shared: 0 };
        device.launch(&module.kernel("k").unwrap(), config, &params)?;
        let mut bytes = bytes;
        device.read(to, &mut bytes).unwrap();
        Ok(bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect())
    }

    fn run(&self) -> Vec<u32> {
        let [portable, rest @ ..] = [Isa::Portable, Isa::Avx2, Isa::Auto].map(|isa| {
            self.run_on(isa).unwrap_or_else(|error| panic!("{}: {error}", self.operation))
        });
        assert!(rest.iter().all(|other| *other == portable));
        portable
    }

    fn fault(&self) -> FaultKind {
        match self.run_on(Isa::Auto) {
            Err(LaunchError::Fault(fault)) => {
                assert_eq!(fault.line, line_of(&self.ptx(), "cp.reduce"), "{fault}");
                fault.kind
            }
            other => panic!("expected a fault, got {other:?}"),
        }
    }
}

const LINE: Tensor<'_> = Tensor {
    element: TensorElement::U32,
    dims: &[4],
    strides: &[],
    boxes: &[4],
    swizzle: Swizzle::None,
};

fn line(element: TensorElement) -> Tensor<'static> {
    let (dims, boxes): (&[u64], &[u32]) = match element {
        TensorElement::F16 | TensorElement::Bf16 => (&[8], &[8]),
        TensorElement::U64 | TensorElement::S64 | TensorElement::F64 => (&[2], &[2]),
        _ => (&[4], &[4]),
    };
    Tensor { element, dims, boxes, ..LINE }
}

/// One box of one row of 16 bytes.
fn case<'a>(
    element: TensorElement,
    operation: &'a str,
    from: &'a [u32; 4],
    to: &'a [u32],
) -> Case<'a> {
    Case { tensor: line(element), start: &[0], operation, from, to, blocks: 1, wait: WAIT }
}

#[test]
fn integers_by_every_operation() {
    use TensorElement::{S32, S64, U32, U64};
    let (from, to) = ([3, 5, 0x20, 2], [0, 5, 0xffff_fff0, 9]);
    for (element, operation, sums) in [
        (U32, "add", [3, 10, 0x10, 11]),
        (S32, "add", [3, 10, 0x10, 11]),
        (U32, "min", [0, 5, 0x20, 2]),
        (S32, "min", [0, 5, 0xffff_fff0, 2]),
        (U32, "max", [3, 5, 0xffff_fff0, 9]),
        (S32, "max", [3, 5, 0x20, 9]),
        (U32, "inc", [1, 0, 0, 0]),
        (U32, "dec", [3, 4, 0x20, 2]),
        (U32, "and", [0, 5, 0x20, 0]),
        (S32, "and", [0, 5, 0x20, 0]),
        (U32, "or", [3, 5, 0xffff_fff0, 11]),
        (U32, "xor", [3, 0, 0xffff_ffd0, 11]),
    ] {
        assert_eq!(case(element, operation, &from, &to).run(), sums, "{element:?} {operation}");
    }
    // -1 and 2^32; 1 and 2^32 + 1.
    let (from, to) = ([u32::MAX, u32::MAX, 0, 1], [1, 0, 1, 1]);
    for (element, operation, sums) in [
        (U64, "add", [0, 0, 1, 2]),
        (S64, "add", [0, 0, 1, 2]),
        (U64, "min", [1, 0, 0, 1]),
        (S64, "min", [u32::MAX, u32::MAX, 0, 1]),
        (U64, "max", [u32::MAX, u32::MAX, 1, 1]),
        (S64, "max", [1, 0, 1, 1]),
        (U64, "and", [1, 0, 0, 1]),
        (S64, "or", [u32::MAX, u32::MAX, 1, 1]),
        (U64, "xor", [u32::MAX - 1, u32::MAX, 1, 0]),
    ] {
        assert_eq!(case(element, operation, &from, &to).run(), sums, "{element:?} {operation}");
    }
}

#[test]
fn floats_by_every_operation() {
    use TensorElement::{Bf16, F16, F32, F64};
    // 1.5 + 2, 1 - 1, -0 - 0, and the least number and itself.
    let (from, to) =
        ([0x4000_0000, 0xbf80_0000, 1 << 31, 1], [0x3fc0_0000, 0x3f80_0000, 1 << 31, 1]);
    assert_eq!(case(F32, "add", &from, &to).run(), [0x4060_0000, 0, 1 << 31, 2]);
    // 1 + 2, and 0.5 - 0.5.
    let (from, to) = ([0, 0x4000_0000, 0, 0xbfe0_0000], [0, 0x3ff0_0000, 0, 0x3fe0_0000]);
    assert_eq!(case(F64, "add", &from, &to).run(), [0, 0x4008_0000, 0, 0]);
    // Pairs, the lower half first: 1 and 2, -1 and 0, NaN and the least number, -0 and 0.
    let from = [0x4000_3c00, 0x0000_bc00, 0x0001_7e00, 0x0000_8000];
    // 1 and 1, 1 and -0, 1 and the least number, 0 and -0.
    let to = [0x3c00_3c00, 0x8000_3c00, 0x0001_3c00, 0x8000_0000];
    for (operation, sums) in [
        ("add", [0x4200_4000, 0x0000_0000, 0x0002_7fff, 0x0000_0000]),
        ("min", [0x3c00_3c00, 0x8000_bc00, 0x0001_3c00, 0x8000_8000]),
        ("max", [0x4000_3c00, 0x0000_3c00, 0x0001_3c00, 0x0000_0000]),
    ] {
        assert_eq!(case(F16, operation, &from, &to).run(), sums, "f16 {operation}");
    }
    // As above; 1 is 0x3f80.
    let from = [0x4000_3f80, 0x0000_bf80, 0x0001_7fc0, 0x0000_8000];
    let to = [0x3f80_3f80, 0x8000_3f80, 0x0001_3f80, 0x8000_0000];
    for (operation, sums) in [
        ("add", [0x4040_4000, 0x0000_0000, 0x0002_7fff, 0x0000_0000]),
        ("min", [0x3f80_3f80, 0x8000_bf80, 0x0001_3f80, 0x8000_8000]),
        ("max", [0x4000_3f80, 0x0000_3f80, 0x0001_3f80, 0x0000_0000]),
    ] {
        assert_eq!(case(Bf16, operation, &from, &to).run(), sums, "bf16 {operation}");
    }
}

#[test]
fn elements_outside_of_the_tensor_are_not_written() {
    // 6 by 3 elements, rows of 8 words.
    let tensor =
        Tensor { dims: &[6, 3], strides: &[32], boxes: &[8, 2], ..line(TensorElement::U32) };
    let from: Vec<u32> = (1..=16).collect();
    let to = [100; 24];
    let at = |start: &[i32]| {
        let case = Case { tensor, start, from: &from, ..case(tensor.element, "add", &[0; 4], &to) };
        case.run()
    };
    let with = |at: usize, sums: &[u32]| {
        let mut all = to;
        all[at..at + sums.len()].copy_from_slice(sums);
        all.to_vec()
    };
    // The third row, and one that there is not.
    assert_eq!(at(&[4, 2]), with(20, &[101, 102]));
    // A row that there is not, and the first.
    assert_eq!(at(&[0, -1]), with(0, &[109, 110, 111, 112, 113, 114]));
    for outside in [[8, 0], [0, 3], [0, -2], [i32::MAX & !3, 0]] {
        assert_eq!(at(&outside), to, "{outside:?}");
    }
    let start = [-4, 0];
    let fault =
        Case { tensor, start: &start, from: &from, ..case(tensor.element, "add", &[0; 4], &to) };
    assert_eq!(fault.fault(), FaultKind::TensorStart { start: -4, store: true });
}

#[test]
fn swizzled_boxes_and_all_ranks() {
    let tensor = Tensor {
        dims: &[32, 2],
        strides: &[128],
        boxes: &[32, 2],
        swizzle: Swizzle::Bytes128,
        ..line(TensorElement::U32)
    };
    let from: Vec<u32> = (0..64).collect();
    let to = [1000; 64];
    let case = case(TensorElement::U32, "add", &[0; 4], &to);
    let swizzled = Case { tensor, start: &[0, 0], from: &from, ..case };
    // The second row has the 16-byte chunks of each pair the other way round.
    let sums: Vec<u32> = (0..64).map(|i| 1000 + if i < 32 { i } else { i ^ 4 }).collect();
    assert_eq!(swizzled.run(), sums);

    let (dims, strides) = ([4, 2, 2, 2, 2], [16, 32, 64, 128]);
    for rank in 1..=5 {
        // The second element of each dimension but the first.
        let start = [0, 1, 1, 1, 1];
        let boxes = [4, 1, 1, 1, 1];
        let tensor = Tensor {
            dims: &dims[..rank],
            strides: &strides[..rank - 1],
            boxes: &boxes[..rank],
            ..line(TensorElement::U32)
        };
        let got = Case { tensor, start: &start[..rank], from: &[1, 2, 3, 4], ..case }.run();
        let at = [0, 4, 12, 28, 60][rank - 1];
        let mut sums = to;
        sums[at..at + 4].copy_from_slice(&[1001, 1002, 1003, 1004]);
        assert_eq!(got, sums, "{rank}");
    }
}

#[test]
fn they_happen_at_the_wait_or_at_the_end() {
    let (from, to) = ([1, 2, 3, 4], [10, 20, 30, 40, 0, 0, 0, 0]);
    let run = |wait: &str, blocks: u32| {
        let wait = format!(
            "{wait} ld.global.b32 %r2, [%rd1]; st.global.b32 [%rd1+16], %r2; st.shared.b32 [%r1], 99;"
        );
        let case = case(TensorElement::U32, "add", &from, &to);
        Case { wait: &wait, blocks, ..case }.run()
    };
    assert_eq!(run(WAIT, 1), [11, 22, 33, 44, 11, 0, 0, 0]);
    assert_eq!(run("cp.async.bulk.wait_group.read 0;", 1), [11, 22, 33, 44, 11, 0, 0, 0]);
    // The source is another one at the end.
    assert_eq!(run("", 1), [109, 22, 33, 44, 10, 0, 0, 0]);
    // Blocks add to the same words.
    let blocks = Case { blocks: 50, ..case(TensorElement::S32, "add", &from, &to) };
    assert_eq!(blocks.run(), [60, 120, 180, 240, 0, 0, 0, 0]);
}

#[test]
fn what_has_no_reduction() {
    use TensorElement::{Bf16, F16, F32, F64, S32, S64, Tf32, U64};
    let pairs = [(F32, "min"), (F64, "max"), (F16, "and"), (Bf16, "inc"), (Tf32, "add")];
    for (element, operation) in pairs.into_iter().chain([(S32, "inc"), (U64, "dec"), (S64, "inc")])
    {
        let fault = case(element, operation, &[1; 4], &[1; 4]).fault();
        assert_eq!(fault, FaultKind::TensorReduction { operation, element });
    }
    let text = case(S32, "inc", &[1; 4], &[1; 4]).fault().to_string();
    assert!(text.contains("by `.inc` of a tensor whose elements are s32"), "{text}");
    let plane = Case { start: &[0, 0], ..case(S32, "add", &[1; 4], &[1; 4]) };
    assert!(matches!(plane.fault(), FaultKind::BadTensorMap { rank: Some(1), .. }));
}
