//! What `atom`, `red` and ordered accesses do at an address in local memory, once a text is
//! finished: what they do in global memory.

use cuda_builder::{CudaArch, Rules, ptx};
use soft_cuda::{Config, Device, LaunchConfig};

mod common;

/// An operation with its type, the value in memory, and the operands.
const OPERATIONS: &[(&str, u64, &[&str])] = &[
    ("add.u32", 7, &["-9"]),
    ("add.s32", 7, &["%rx"]),
    ("add.u64", 7, &["%rdx"]),
    ("add.f32", 0x3fc0_0000, &["%rx"]),
    ("add.f64", 0x3ff8_0000_0000_0000, &["%rdx"]),
    ("add.noftz.f16x2", 0x3c00_4200, &["%rx"]),
    ("and.b32", 0xff0f, &["%rx"]),
    ("or.b64", 0xff0f, &["%rdx"]),
    ("xor.b32", 0xff0f, &["255"]),
    ("min.u32", 0xffff_fff0, &["5"]),
    ("min.s32", 0xffff_fff0, &["5"]),
    ("max.u64", 0xffff_ffff_ffff_fff0, &["5"]),
    ("max.s64", 0xffff_ffff_ffff_fff0, &["5"]),
    ("exch.b32", 1, &["%rx"]),
    ("exch.b64", 1, &["%rdx"]),
    ("cas.b32", 5, &["5", "%rx"]),
    ("cas.b32", 6, &["5", "%rx"]),
    ("cas.b64", 5, &["5", "%rdx"]),
    ("inc.u32", 4, &["4"]),
    ("inc.u32", 3, &["4"]),
    ("inc.u32", 9, &["4"]),
    ("dec.u32", 0, &["4"]),
    ("dec.u32", 4, &["4"]),
    ("dec.u32", 5, &["4"]),
    ("dec.u32", 1, &["0"]),
];

/// A kernel that does something at `%at`, first in local and then in global memory, and leaves what
/// it gets and what is there then for both.
fn results(old: u64, code: &str) -> [[u64; 2]; 2] {
    let on_memory = |result: u32| {
        format!(
            "st.b64 [%at], {old};\n\tmov.b64 %rd, 3;\n\tmov.b32 %r, 3;\n\t{code}\n\t\
             ld.b64 %after, [%at];\n\tcvt.u64.u32 %wide, %r;\n\tor.b64 %rd, %rd, %wide;\n\t\
             st.global.b64 [%out+{result}], %rd;\n\tst.global.b64 [%out+{}], %after;\n\t",
            result + 8
        )
    };
    let text = format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 k_param_0)\n{{\n\t\
         .local .align 8 .b8 depot[16];\n\t.reg .pred %yes, %no;\n\t.reg .b32 %r, %rx;\n\t\
         .reg .b64 %rd, %rdx, %at, %out, %own, %after, %wide;\n\t\
         ld.param.u64 %out, [k_param_0];\n\tmov.b32 %rx, 0x40103c00;\n\t\
         mov.b64 %rdx, 0x4010000000000000;\n\tsetp.eq.b32 %yes, 1, 1;\n\tsetp.eq.b32 %no, 1, 2;\n\t\
         mov.b64 %own, depot;\n\tcvta.local.u64 %own, %own;\n\tadd.s64 %at, %own, 8;\n\t{}\
         add.s64 %at, %out, 32;\n\t{}ret;\n}}\n",
        on_memory(0),
        on_memory(16),
    );
    let finished = ptx::finish(&text, Rules::default()).unwrap();
    for line in finished.lines().map(str::trim) {
        let is_for_others = ["atom.", "red.", "ld.acquire", "st.release", "ld.volatile"];
        let instruction = is_for_others.iter().any(|word| line.contains(word));
        assert!(!instruction || line.starts_with("@!%own_is ") || line.starts_with("@%own_not "));
    }
    common::assemble(&finished, CudaArch::Sm80);
    let device = Device::new(Config::default());
    let module = device.load(&finished).unwrap_or_else(|error| panic!("{error}\n{finished}"));
    let kernel = module.kernel("k").unwrap();
    let out = device.alloc(64).unwrap();
    device.write(out, &[0; 64]).unwrap();
    let config = LaunchConfig { grid: [1; 3], block: [1; 3], dynamic_shared: 0 };
    device.launch(&kernel, config, &out.to_le_bytes()).unwrap();
    let mut bytes = [0; 32];
    device.read(out, &mut bytes).unwrap();
    let words: Vec<u64> =
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    [[words[0], words[1]], [words[2], words[3]]]
}

#[test]
fn atomics_do_in_local_memory_what_they_do_in_global_memory() {
    for (operation, old, operands) in OPERATIONS {
        let result = if operation.ends_with("64") { "%rd" } else { "%r" };
        let operands = operands.join(", ");
        let atom = format!("atom.acq_rel.sys.{operation} {result}, [%at], {operands};");
        let [own, global] = results(*old, &atom);
        assert_eq!(own, global, "{atom}");
        let offset = atom.replace("[%at]", "[%at+-0]");
        assert_eq!(results(*old, &offset), [own, global], "{offset}");
        for (guard, runs) in [("@%yes", true), ("@!%no", true), ("@%no", false), ("@!%yes", false)]
        {
            let guarded = results(*old, &format!("{guard} {atom}"));
            let nothing = [3, *old];
            let expected = if runs { own } else { nothing };
            assert_eq!(guarded, [expected; 2], "{guard} {atom}");
        }
        if !operation.starts_with("cas") && !operation.starts_with("exch") {
            let [_, after] = own;
            let red = format!("red.relaxed.gpu.{operation} [%at], {operands};");
            assert_eq!(results(*old, &red), [[3, after]; 2], "{red}");
        }
    }
}

#[test]
fn ordered_accesses_are_ordinary_in_local_memory() {
    for code in [
        "ld.acquire.sys.b32 %r, [%at];",
        "ld.relaxed.gpu.u32 %r, [%at];",
        "ld.volatile.b32 %r, [%at];",
    ] {
        assert_eq!(results(77, code), [[77 | 3, 77]; 2], "{code}");
    }
    for code in [
        "st.release.cta.b32 [%at], 5;",
        "st.relaxed.sys.b32 [%at], 5;",
        "st.volatile.b32 [%at], 5;",
    ] {
        assert_eq!(results(77, code), [[3, 5]; 2], "{code}");
    }
}

#[test]
fn what_cannot_be_local_stays() {
    let kernel = |local: &str, code: &str| {
        format!(
            ".version 7.8\n.target sm_80\n.address_size 64\n.global .b32 x;\n.visible .entry k()\n{{\n\t{local}{code}\n\tret;\n}}\n"
        )
    };
    let local = ".local .align 8 .b8 depot[16];\n\t";
    let generic = "atom.add.u32 %r1, [%rd1], 1;";
    // No memory is local here.
    let text = kernel("", generic);
    assert_eq!(ptx::finish(&text, Rules::default()).unwrap(), text);
    assert_ne!(
        ptx::finish(&kernel(local, generic), Rules::default()).unwrap(),
        kernel(local, generic)
    );
    for code in [
        "atom.global.add.u32 %r1, [%rd1], 1;",
        "atom.relaxed.cta.shared.add.u32 %r1, [%r2], 1;",
        "atom.relaxed.cluster.shared::cluster.add.u32 %r1, [%r2], 1;",
        "ld.acquire.sys.global.b32 %r1, [%rd1];",
        "ld.b32 %r1, [%rd1];",
        "atom.add.u32 %r1, [x], 1;",
    ] {
        let text = kernel(local, code);
        assert_eq!(ptx::finish(&text, Rules::default()).unwrap(), text, "{code}");
    }
    // What the compiler knows to be local has no other half.
    let text = kernel(local, "atom.local.add.u32 %r1, [depot], 1;");
    let finished = ptx::finish(&text, Rules::default()).unwrap();
    assert!(
        finished.contains("ld.local.b32 %own_old, [depot];") && !finished.contains("atom"),
        "{finished}"
    );
}
