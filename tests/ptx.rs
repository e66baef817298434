//! What the PTX of the kernels must contain, and must not.

use std::collections::HashSet;

use host::kernels::abi::{KernelAbi, KernelDescriptor, Reads};
use host::kernels::ladder::f32::sm_90a::persistent;
use host::kernels::{LADDER, TENSOR_CORE, TF32, TILES};
use host::ptx::{self, Kernels};
use ptx_syntax::ast::{Instruction, Space, Statement};

/// The PTX, and the kernels that are in it: what needs tensor maps is for Hopper alone.
fn kernels() -> impl Iterator<Item = (&'static Kernels, Vec<&'static KernelDescriptor>)> {
    [&*ptx::SM_80, &*ptx::SM_90A].into_iter().map(|kernels| {
        let all = LADDER.iter().chain(TILES).copied();
        let has = |descriptor: &&KernelDescriptor| {
            kernels.target() == "sm_90a" || !descriptor.abi().has_tensor_maps()
        };
        (kernels, all.filter(has).collect())
    })
}

/// What an entry point consists of.
fn body(kernels: &Kernels, entry: &str) -> Vec<Statement> {
    let text = kernels.kernel(entry).unwrap_or_else(|| panic!("no {entry} in the PTX"));
    let mut module = ptx_syntax::parse(&text).unwrap();
    module.functions.pop().unwrap().body.unwrap()
}

fn instructions(body: &[Statement]) -> impl Iterator<Item = &Instruction> {
    body.iter().filter_map(|statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        _ => None,
    })
}

fn for_each_entry(test: impl Fn(&str, &[Statement])) {
    for (kernels, descriptors) in kernels() {
        let entries = descriptors.iter().flat_map(|descriptor| {
            [Some(descriptor.name()), descriptor.unaligned().map(|other| other.name)]
        });
        for entry in entries.flatten().chain(["stage_operands"]) {
            let name = format!("{entry} for {}", kernels.target());
            test(&name, &body(kernels, entry));
        }
    }
}

/// A generic access, one that does not name its memory, costs a look-up each time.
#[test]
fn every_load_and_store_names_its_memory() {
    for_each_entry(|name, body| {
        let mut accesses = 0;
        for Instruction { opcode, line, .. } in instructions(body) {
            let mut parts = opcode.split('.');
            if !matches!(parts.next(), Some("ld" | "st" | "atom" | "red")) {
                continue;
            }
            accesses += 1;
            let spaces = ["global", "shared", "param", "const"];
            assert!(parts.any(|part| spaces.contains(&part)), "{name}, line {line}: {opcode}");
        }
        // At least the parameters and C.
        assert!(accesses > 11, "{name}: {accesses}");
    });
}

/// Local memory would mean that an array was not kept in registers.
#[test]
fn nothing_is_in_local_memory() {
    for_each_entry(|name, body| {
        for statement in body {
            if let Statement::Variable(variable) = statement {
                assert_ne!(variable.space, Space::Local, "{name}: {}", variable.name);
            }
        }
        for Instruction { opcode, line, .. } in instructions(body) {
            assert!(
                !opcode.split('.').any(|part| part == "local"),
                "{name}, line {line}: {opcode}"
            );
        }
    });
}

/// A kernel that moves 128 bits does so where it may, and does not where it must not. Those with
/// tensor maps look for themselves whether C is aligned, and so do the tiles.
#[test]
fn only_aligned_entry_points_move_128_bits_of_global_memory() {
    for (kernels, descriptors) in kernels() {
        for descriptor in
            descriptors.iter().filter(|descriptor| !descriptor.abi().has_tensor_maps())
        {
            let is_wide = |entry| {
                instructions(&body(kernels, entry)).any(|instruction| {
                    ["ld.global.v4", "st.global.v4", "cp.async.cg.shared.global"]
                        .iter()
                        .any(|wide| instruction.opcode.starts_with(wide))
                })
            };
            assert_eq!(
                is_wide(descriptor.name()),
                descriptor.unaligned().is_some(),
                "{}",
                descriptor.name()
            );
            if let Some(unaligned) = descriptor.unaligned() {
                let looks_at_c = !unaligned.vectorized[2];
                for Instruction { opcode, .. } in instructions(&body(kernels, unaligned.name)) {
                    let is_copy = opcode.starts_with("cp.async.cg.shared.global");
                    let is_access = ["ld.global.v4", "st.global.v4"]
                        .iter()
                        .any(|wide| opcode.starts_with(wide));
                    let bad = is_copy || is_access && !looks_at_c;
                    assert!(!bad, "{}: {opcode}", unaligned.name);
                }
            }
        }
    }
}

/// The kernels that `auto` chooses from, and those that run before them, wait for the launch in
/// front, where a GPU can do that. This instruction is why a launch may begin early.
#[test]
fn the_kernels_of_auto_wait_for_the_launch_in_front() {
    fn waiting(kernels: &Kernels) -> HashSet<&str> {
        let waits = |name: &&str| {
            let is_wait = |one: &Instruction| one.opcode == "griddepcontrol.wait";
            instructions(&body(kernels, name)).any(is_wait)
        };
        kernels.names().filter(waits).collect()
    }
    let f32 = [TILES, TF32, &[&persistent::DESCRIPTOR]].into_iter().flatten();
    let f32 = f32.flat_map(|descriptor| {
        [Some(descriptor.name()), descriptor.unaligned().map(|other| other.name)]
    });
    // Of those by `mma.sync` only the ones for a short K are chosen where launches overlap; rungs
    // that compute plain products never are.
    let on_hopper = TENSOR_CORE.iter().filter(|one| {
        let reads_anywhere = one.reads(true, false) == Reads::Anywhere;
        one.takes_transposes() && (one.abi() != KernelAbi::MmaPointers || reads_anywhere)
    });
    let halves = on_hopper
        .flat_map(|kernel| [false, true].map(|of_f16| kernel.entry_points(of_f16)).concat());
    let before = ["stage_operands", "stage_transposed", "stage_halves", "group_tiles"];
    let expected: HashSet<&str> = f32.flatten().chain(halves).chain(before).collect();
    assert_eq!(waiting(&ptx::SM_90A), expected);
    assert_eq!(waiting(&ptx::SM_80), HashSet::new());
}
