//! Roundings, conversions, carries and integer instructions, against words from MPFR and Python
//! (`tests/reference/operations.py`), and against those of an H200.

use super::{Case, kernel};

const COMPUTED: &str = include_str!("../reference/operations.txt");
const MEASURED: &str = include_str!("../reference/h200.txt");

/// A register for a number of bits, with a prefix of its own for what it holds.
fn register(bits: u32, number: usize) -> String {
    let class = match bits {
        64 => "%rd",
        16 => "%h",
        _ => "%r",
    };
    format!("{class}{}", 10 + number)
}

/// Code that loads word `at` of `%rd8` into a register.
fn load(register: &str, bits: u32, at: usize) -> String {
    let narrow = match bits {
        64 => return format!("  ld.global.b64 {register}, [%rd8+{}];\n", 8 * at),
        16 => "u16",
        _ => "u32",
    };
    format!("  ld.global.b64 %rd9, [%rd8+{}]; cvt.{narrow}.u64 {register}, %rd9;\n", 8 * at)
}

/// Code that stores a register as word `at` of `%rd7`.
fn store(register: &str, bits: u32, at: usize) -> String {
    let to = 8 * at;
    match bits {
        64 => format!("  st.global.b64 [%rd7+{to}], {register};\n"),
        bits => format!("  cvt.u64.u{bits} %rd9, {register}; st.global.b64 [%rd7+{to}], %rd9;\n"),
    }
}

/// The numbers of a list.
fn numbers(text: &str, radix: u32) -> Vec<u64> {
    text.split_whitespace().map(|word| u64::from_str_radix(word, radix).unwrap()).collect()
}

/// Runs the code of a header for its rows.
fn check(header: &str, rows: &[(Vec<u64>, Vec<u64>)]) {
    let mut parts = header.splitn(3, " | ");
    let (types, modes, code) =
        (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let (operands, results) = types.split_once(" > ").unwrap();
    let (operands, result) = (numbers(operands, 10), numbers(results, 10)[0] as u32);
    let modes: Vec<&str> = modes.split(' ').collect();
    let d = register(result, 8);
    let mut body = format!(
        "  mul.wide.u32 %rd7, %r1, {}; add.s64 %rd7, %rd7, %rd2;
  mul.wide.u32 %rd8, %r1, {}; add.s64 %rd8, %rd8, %rd1;\n",
        8 * modes.len(),
        8 * operands.len()
    );
    for (i, mode) in modes.iter().enumerate() {
        let mut code = code.replace('R', mode).replace('D', &d);
        for (i, &bits) in operands.iter().enumerate() {
            let register = register(bits as u32, i);
            body += &load(&register, bits as u32, i);
            code = code.replace(["A", "B", "C"][i], &register);
        }
        code = code.replace('T', &register(operands[0] as u32, 5));
        body += &format!("  {code}\n{}", store(&d, result, i));
    }
    let words = |all: Vec<u64>| -> Vec<u32> {
        all.iter().flat_map(|&word| [word as u32, (word >> 32) as u32]).collect()
    };
    let input = rows.iter().flat_map(|row| row.0.clone()).collect();
    let buffers = [words(input), vec![0; 2 * modes.len() * rows.len()]];
    let got = Case::new(kernel(2, &body), &buffers).threads(rows.len() as u32).run();
    let got: Vec<u64> =
        got.chunks(2).map(|word| u64::from(word[1]) << 32 | u64::from(word[0])).collect();
    for ((operands, want), got) in rows.iter().zip(got.chunks(modes.len())) {
        for ((mode, want), got) in modes.iter().zip(want).zip(got) {
            let code = code.replace('R', mode);
            assert_eq!(got, want, "{code} of {operands:x?} gave {got:x}, not {want:x}");
        }
    }
}

/// Checks a table, and that it has at least so many headers.
fn check_table(table: &str, least: usize) {
    let mut lines = table.lines().filter(|line| !line.starts_with('#')).peekable();
    let mut headers = 0;
    while let Some(header) = lines.next() {
        let mut rows = Vec::new();
        while let Some(row) = lines.next_if(|line| line.contains('=')) {
            let (operands, results) = row.split_once(" = ").unwrap();
            rows.push((numbers(operands, 16), numbers(results, 16)));
        }
        check(header, &rows);
        headers += 1;
    }
    assert!(headers >= least, "{headers}");
}

#[test]
fn as_mpfr_and_integers_say() {
    check_table(COMPUTED, 262);
}

#[test]
fn as_an_h200_says() {
    check_table(MEASURED, 247);
}
