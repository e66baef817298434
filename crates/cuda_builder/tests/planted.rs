//! Bugs planted in Rust: the software device finds each, at the line of the source where it is, and
//! nothing in its clean twin.

use std::path::Path;

use cuda_builder::{CudaBuilder, DebugInfo};
use soft_cuda::{Checks, Config, Device, Findings, LaunchConfig, Schedule, SourcePlace};

mod common;

const ORDERS: [Schedule; 3] = [Schedule::InOrder, Schedule::Random(1), Schedule::Adversarial];

/// What a kernel of `text` does wrong.
fn findings(text: &str, name: &str, schedule: Schedule) -> Findings {
    let (checks, instruction_budget) = (Checks::ALL, Some(1_000_000));
    // One thread, so that an order is the same each time.
    let host_threads = std::num::NonZero::new(1);
    let rest = Config { max_findings: 20, host_threads, ..Config::default() };
    let device = Device::new(Config { checks, schedule, instruction_budget, ..rest });
    let module = device.load(text).unwrap_or_else(|error| panic!("{error}"));
    let kernel = module.kernel(name).unwrap();
    let bytes = u64::from(planted::WORDS) * 4;
    let (input, output) = (device.alloc(bytes).unwrap(), device.alloc(bytes).unwrap());
    device.fill_u32(input, 0, planted::WORDS.into()).unwrap();
    let params = [input.to_ne_bytes(), output.to_ne_bytes()].concat();
    let (grid, block) = ([2, 1, 1], [planted::THREADS, 1, 1]);
    // How it ends is among the findings.
    let _ = device.launch(&kernel, LaunchConfig { grid, block, dynamic_shared: 0 }, &params);
    device.findings()
}

/// The line of the source where the bug of a function is, from 1.
fn line_of(function: &str) -> u32 {
    let source = include_str!("planted/src/lib.rs");
    let mark = format!("// BUG {function}");
    let at = source.lines().position(|line| line.ends_with(&mark));
    at.unwrap_or_else(|| panic!("no line has `{mark}`")) as u32 + 1
}

#[test]
fn every_bug_is_found_at_its_line() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/planted");
    let builder = CudaBuilder::new(folder).debug(DebugInfo::LineTables);
    let Some(text) = common::build(builder) else { return };
    let text = text.unwrap();
    for &(bug, fix, kind) in planted::PLANTED {
        let line = line_of(bug.trim_end_matches("_bug"));
        let is_at_line = |source: &Option<SourcePlace>| {
            source.as_ref().is_some_and(|source| {
                source.file.replace('\\', "/").ends_with("planted/src/lib.rs")
                    && source.line == line
            })
        };
        for order in ORDERS {
            let clean = findings(&text, fix, order);
            assert!(clean.is_empty(), "{fix}, {order}: {clean}");
            let found = findings(&text, bug, order);
            // Of two accesses that race, either may be the later one.
            let is_found = found.iter().filter(|finding| finding.name() == kind).any(|finding| {
                finding.fault().is_some_and(|fault| {
                    let earlier = fault.kind.earlier();
                    is_at_line(&fault.source)
                        || earlier.is_some_and(|earlier| is_at_line(&earlier.source))
                })
            });
            assert!(is_found, "{bug}, {order}: not at {line}: {found}");
        }
    }
    let text = findings(&text, "past_the_array_bug", Schedule::InOrder).to_string();
    let place = format!("planted/src/lib.rs:{}:14, in ", line_of("past_the_array"));
    assert!(text.contains(&place) && text.contains("/cuda_std/src/shared.rs:"), "{text}");
}
