//! Matrix instructions: the bits that an H200 gave.

use soft_cuda::{Config, Device, Fill, Isa, LaunchConfig, Swizzle, TensorElement, TensorMap};

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/tensor");
/// Words of each buffer.
const WORDS: u64 = 16384;

fn results() -> Vec<u32> {
    let file = std::fs::read(format!("{RUN}/results.bin.xz")).unwrap();
    let mut bytes = Vec::new();
    let mut reader = lzma_rust2::XzReader::new(file.as_slice(), false);
    std::io::Read::read_to_end(&mut reader, &mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

fn read(device: &Device, address: u64, words: usize) -> Vec<u32> {
    let mut bytes = vec![0; words * 4];
    device.read(address, &mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

/// Launches what `plan.csv` lists, as `run.py` does on a GPU.
fn recorded(isa: Isa) {
    let ptx = std::fs::read_to_string(format!("{RUN}/tensor.ptx")).unwrap();
    let plan = std::fs::read_to_string(format!("{RUN}/plan.csv")).unwrap();
    let results = results();
    let mut results = results.as_slice();
    let device = Device::new(Config { isa, ..Config::default() });
    let module = device.load(&ptx).unwrap();
    let buffers = [(); 4].map(|()| device.alloc(4 * WORDS).unwrap());
    let launch = |kernel: &str, grid: u32, block: u32, params: &[u8]| {
        let config = LaunchConfig { grid: [grid, 1, 1], block: [block, 1, 1], dynamic_shared: 0 };
        let kernel = module.kernel(kernel).unwrap();
        device.launch(&kernel, config, params).unwrap_or_else(|error| panic!("{error}"));
    };
    let mut wrong = Vec::new();
    for line in plan.lines().skip(1) {
        let row: Vec<&str> = line.split(',').collect();
        let number = |i: usize| row[i].parse::<u64>().unwrap();
        for (i, fill) in [13, 13, 14].into_iter().enumerate() {
            let words: Vec<u32> = row[fill].split(' ').map(|x| x.parse().unwrap()).collect();
            let threads = if words[..2] == [8, 23] { WORDS } else { 2 * WORDS };
            let mut params = buffers[i].to_le_bytes().to_vec();
            params.extend((4 * number(12) as u32 + i as u32).to_le_bytes());
            params.extend(words.into_iter().flat_map(u32::to_le_bytes));
            launch("fill", threads as u32 / 256, 256, &params);
        }
        let mut params: Vec<u8> = buffers.into_iter().flat_map(u64::to_le_bytes).collect();
        if row[0].starts_with("wgmma") {
            for at in [7, 9] {
                params.extend(number(at).to_le_bytes());
                params.extend((number(at + 1) as u32).to_le_bytes());
                // The next descriptor is aligned; the scale behind the second offset is not.
                params.extend(if at == 7 { vec![0; 4] } else { Vec::new() });
            }
            params.extend((number(11) as u32).to_le_bytes());
        }
        launch(row[0], number(1) as u32, number(2) as u32, &params);
        let (expected, rest) = results.split_at(number(6) as usize);
        results = rest;
        let got = read(&device, buffers[3], expected.len());
        let differ = got.iter().zip(expected).filter(|(got, expected)| got != expected).count();
        if differ != 0 {
            let at = got.iter().zip(expected).position(|(got, expected)| got != expected).unwrap();
            wrong.push(format!(
                "{line}: {differ} of {} differ; word {at} is {:#x}, not {:#x}",
                expected.len(),
                got[at],
                expected[at]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(results.is_empty());
}

#[test]
fn an_h200_gives_the_same_bits() {
    recorded(Isa::Auto);
}

#[test]
fn an_h200_gives_the_same_bits_without_avx512() {
    recorded(Isa::Avx2);
    recorded(Isa::Portable);
}

/// Sides of a product.
const SIDE: usize = 64;

/// A 64 x 64 product of bf16: boxes of row-major A and B as bulk copies swizzle them, which is
/// K-major for A and MN-major for B.
fn product(wait: &str) -> Vec<f32> {
    let sums: Vec<String> = (0..32).map(|i| format!("%f{i}")).collect();
    let zeros: String = sums.iter().map(|sum| format!("  mov.f32 {sum}, 0f7fffffff;\n")).collect();
    let steps: String = (0..4)
        .map(|k| {
            let (sums, adds) = (sums.join(", "), if k == 0 { "%p2" } else { "%p3" });
            format!(
                "  wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{{sums}}}, %rd5, %rd6, {adds}, 1, 1, 0, 1;
  add.s64 %rd5, %rd5, 2;
  add.s64 %rd6, %rd6, 128;\n"
            )
        })
        .collect();
    let stores: String = sums
        .iter()
        .enumerate()
        .map(|(i, sum)| {
            let at = 4 * (i / 2 % 2 * 8 * SIDE + i / 4 * 8 + i % 2);
            format!("  st.global.f32 [%rd4+{at}], {sum};\n")
        })
        .collect();
    let ptx = format!(
        ".version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u64 c)
{{
  .reg .pred %p<4>;
  .reg .b32 %r<9>;
  .reg .f32 %f<32>;
  .reg .b64 %rd<9>;
  .shared .align 1024 .b8 tiles[16384];
  .shared .align 8 .b64 full;
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  mov.b32 %r2, tiles;
  mov.b32 %r3, 0;
  mov.b32 %r4, full;
  @%p1 bra READY;
  mbarrier.init.shared.b64 [%r4], 1;
  fence.proxy.async.shared::cta;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 16384;
  mov.b64 %rd1, a;
  cvta.param.u64 %rd1, %rd1;
  mov.b64 %rd2, b;
  cvta.param.u64 %rd2, %rd2;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1, {{%r3, %r3}}], [%r4];
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+8192], [%rd2, {{%r3, %r3}}], [%r4];
READY:
  bar.sync 0;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p1, [%r4], 0;
  @!%p1 bra WAIT;
{zeros}  shr.u32 %r5, %r2, 4;
  cvt.u64.u32 %rd5, %r5;
  or.b64 %rd5, %rd5, {descriptor:#x};
  add.s64 %rd6, %rd5, 512;
  setp.ne.u32 %p2, 0, 0;
  setp.eq.u32 %p3, 0, 0;
  wgmma.fence.sync.aligned;
{steps}  wgmma.commit_group.sync.aligned;
{wait}
  ld.param.u64 %rd4, [c];
  shr.u32 %r6, %r1, 5;
  and.b32 %r7, %r1, 31;
  shr.u32 %r8, %r7, 2;
  mad.lo.u32 %r6, %r6, 16, %r8;
  mul.lo.u32 %r6, %r6, {SIDE};
  and.b32 %r7, %r7, 3;
  mad.lo.u32 %r6, %r7, 2, %r6;
  mul.wide.u32 %rd7, %r6, 4;
  add.s64 %rd4, %rd4, %rd7;
{stores}  ret;
}}
",
        descriptor = 1u64 << 62 | 64 << 32 | 1 << 16,
    );
    let device = Device::new(Config::default());
    let module = device.load(&ptx).unwrap();
    let kernel = module.kernel("k").unwrap();
    let mut params = Vec::new();
    for seed in [0, 1] {
        let address = device.alloc(2 * (SIDE * SIDE) as u64).unwrap();
        let values = (0..SIDE * SIDE).map(|i| (element(i, seed).to_bits() >> 16) as u16);
        device.write(address, &values.flat_map(u16::to_le_bytes).collect::<Vec<_>>()).unwrap();
        let (dims, boxes) = ([SIDE as u64; 2], [SIDE as u32; 2]);
        let layout = (Swizzle::Bytes128, Fill::Zeros);
        let element = TensorElement::Bf16;
        let map = TensorMap::of(element, address, &dims, &[128], &boxes, layout).unwrap();
        params.extend(map.to_bytes());
    }
    let c = device.alloc(4 * (SIDE * SIDE) as u64).unwrap();
    params.extend(c.to_le_bytes());
    let config = LaunchConfig { grid: [1; 3], block: [128, 1, 1], dynamic_shared: 0 };
    device.launch(&kernel, config, &params).unwrap_or_else(|error| panic!("{error}"));
    read(&device, c, SIDE * SIDE).into_iter().map(f32::from_bits).collect()
}

/// Small integers, whose products are exact.
fn element(i: usize, seed: usize) -> f32 {
    (i * (7 + seed) + i / SIDE * 3) as f32 % 11.0 - 5.0
}

#[test]
fn bulk_copies_lie_as_wgmma_reads_them() {
    let expected: Vec<f32> = (0..SIDE * SIDE)
        .map(|i| {
            let (row, col) = (i / SIDE, i % SIDE);
            let products =
                (0..SIDE).map(|k| element(row * SIDE + k, 0) * element(k * SIDE + col, 1));
            products.sum()
        })
        .collect();
    assert_eq!(product("  wgmma.wait_group.sync.aligned 0;"), expected);
    // Nobody waits, or only for the group before: the sums are what they were.
    for missing in ["", "  wgmma.wait_group.sync.aligned 1;"] {
        assert!(product(missing).iter().all(|sum| sum.is_nan()), "{missing}");
    }
}

#[test]
fn tiles_and_rows_outside_of_shared_memory_are_faults() {
    let fault = |body: &str| {
        let ptx = format!(
            ".version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a)
{{
  .reg .pred %p<4>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<9>;
  .shared .align 16 .b8 tile[8];
  ld.param.u64 %rd1, [a];
  mov.b32 %r1, tile;
  mov.b32 %r3, 0;
  setp.ne.u32 %p1, 0, 0;
  shr.u32 %r2, %r1, 4;
  cvt.u64.u32 %rd2, %r2;
{body}
  ret;
}}
"
        );
        let device = Device::new(Config::default());
        let module = device.load(&ptx).unwrap();
        let kernel = module.kernel("k").unwrap();
        let a = device.alloc(64).unwrap();
        let config = LaunchConfig { grid: [1; 3], block: [128, 1, 1], dynamic_shared: 0 };
        let error = device.launch(&kernel, config, &a.to_le_bytes()).unwrap_err();
        error.to_string()
    };
    let multiply = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r3, %r3, %r3, %r3}";
    for (body, part) in [
        ("  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r1];", "out of bounds"),
        ("  ldmatrix.sync.aligned.m8n8.x1.b16 {%r3}, [%rd1];", "not in the block's shared memory"),
        ("  stmatrix.sync.aligned.m8n8.x1.b16 [%rd1], {%r3};", "not in the block's shared memory"),
        (&format!("  {multiply}, %rd2, %rd2, %p1, 1, 1, 0, 0;"), "out of bounds"),
        (
            &format!(
                "  or.b64 %rd2, %rd2, 0x0002000000000000;\n  {multiply}, %rd2, %rd2, %p1, 1, 1, 0, 0;"
            ),
            "base offset",
        ),
    ] {
        let error = fault(body);
        assert!(error.contains(part), "{body}: {error}");
    }
}
