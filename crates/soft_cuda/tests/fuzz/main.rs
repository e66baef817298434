//! No PTX, however malformed, makes the loader panic, hang or allocate without bound.
//!
//! Texts of a corpus are mutated at random, the same way in every run; `FUZZ_EXECUTIONS` says how
//! many mutants there are, `FUZZ_SEED` with which one to begin. Those that load are launched, too,
//! with all checks: what a kernel does ends in a result or a fault.

mod corpus;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use corpus::{CORPUS, NUMBERS, WORDS};
use soft_cuda::{Checks, Config, Device, LaunchConfig, Schedule};

/// Mutants in CI.
const EXECUTIONS: u64 = 50_000;
/// What one may take, on a machine that does other things as well.
const LIMIT: Duration = Duration::from_secs(10);

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn one<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// The lexemes of a text, roughly: words, and everything else one by one.
fn lexemes(text: &str) -> Vec<&str> {
    let word = |c: char| c.is_ascii_alphanumeric() || "_%$.".contains(c);
    let mut rest = text;
    let mut all = Vec::new();
    while let Some(first) = rest.chars().next() {
        let end = match word(first) {
            true => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (lexeme, after) = rest.split_at(end);
        all.push(lexeme);
        rest = after;
    }
    all
}

/// A mutant of a text of the corpus.
fn mutant(random: &mut Random) -> String {
    let text = CORPUS[random.below(CORPUS.len())];
    let other = lexemes(CORPUS[random.below(CORPUS.len())]);
    let mut all: Vec<&str> = lexemes(text);
    // Most have one change, which loads more often.
    for _ in 0..1 + random.below(2) * random.below(5) {
        let at = random.below(all.len());
        match random.below(9) {
            0 => {
                all.remove(at);
            }
            1 => all.insert(at, random.one(&WORDS)),
            2 => all[at] = random.one(&WORDS),
            3 => {
                let digit = |lexeme: &&str| lexeme.starts_with(|c: char| c.is_ascii_digit());
                let next = all[at..].iter().position(digit).map_or(at, |after| at + after);
                all[next] = random.one(&NUMBERS);
            }
            4 => all[at] = other[random.below(other.len())],
            5 => all.truncate(at.max(1)),
            6 => {
                let end = (at + random.below(40)).min(all.len());
                let part: Vec<&str> = all[at..end].to_vec();
                for _ in 0..random.below(20) {
                    all.splice(at..at, part.iter().copied());
                }
            }
            7 => {
                let end = (at + random.below(10)).min(all.len());
                all.drain(at..end);
            }
            _ => {
                let with = random.below(all.len());
                all.swap(at, with);
            }
        }
        if all.is_empty() {
            all.push(";");
        }
    }
    let text = all.concat();
    match random.below(8) {
        // Bytes, not lexemes.
        0 => {
            let mut bytes = text.into_bytes();
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
            String::from_utf8_lossy(&bytes).into_owned()
        }
        _ => text,
    }
}

/// Loads a text, and launches the kernels that it has.
fn execute(text: &str) {
    let device = Device::new(Config {
        total_memory: 1 << 20,
        instruction_budget: Some(20_000),
        checks: Checks::ALL,
        schedule: Schedule::Random(1),
        host_threads: std::num::NonZero::new(1),
        ..Config::default()
    });
    let Ok(module) = device.load(text) else { return };
    let buffer = device.alloc(4096).unwrap();
    for name in module.names() {
        let Ok(kernel) = module.kernel(name) else { continue };
        let mut params = vec![0; kernel.params_size()];
        for word in params.as_chunks_mut::<8>().0 {
            *word = buffer.to_ne_bytes();
        }
        let block = kernel.required_block().unwrap_or([64, 1, 1]);
        let config = LaunchConfig { grid: [2, 1, 1], block, dynamic_shared: 1024 };
        // A fault is as good as a result.
        let _ = device.launch(&kernel, config, &params);
    }
}

#[test]
fn nothing_makes_the_loader_panic_or_hang() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("FUZZ_SEED").unwrap_or(0);
    let executions = number("FUZZ_EXECUTIONS").unwrap_or(EXECUTIONS);
    for text in CORPUS {
        execute(text);
        let device = Device::new(Config::default());
        let module = device.load(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        for name in module.names() {
            module.kernel(name).unwrap_or_else(|error| panic!("{error}\n{text}"));
        }
    }
    let mut loaded = 0;
    for seed in seed..seed + executions {
        let text = mutant(&mut Random(seed));
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            execute(&text);
            let device = Device::new(Config { total_memory: 1 << 20, ..Config::default() });
            let module = device.load(&text);
            module.is_ok_and(|module| module.names().all(|name| module.kernel(name).is_ok()))
        }));
        match outcome {
            Ok(good) => loaded += u64::from(good),
            Err(_) => panic!("FUZZ_SEED={seed} panics:\n{text}"),
        }
        let took = started.elapsed();
        assert!(took < LIMIT, "FUZZ_SEED={seed} takes {took:?}:\n{text}");
    }
    // Mutants that are all refused at once would test little.
    assert!(loaded * 20 > executions, "only {loaded} of {executions} mutants load");
}
