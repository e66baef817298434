//! Matrix instructions: the bits that an H200 gave.

use soft_cuda::{Config, Device, Isa, LaunchConfig};

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../runs/2026-11-22-h200-tensor");
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
