//! Text for messages: counts of bytes, and texts of others as messages quote them.

/// A count of bytes for people: exact below 1 MiB, then in binary units.
///
/// ```
/// use host_system::format::bytes;
///
/// assert_eq!(bytes(12), "12 bytes");
/// assert_eq!(bytes(3 << 29), "1.5 GiB");
/// ```
pub fn bytes(count: u128) -> String {
    const UNITS: [&str; 6] = ["MiB", "GiB", "TiB", "PiB", "EiB", "ZiB"];
    let mut value = count as f64 / f64::from(1 << 20);
    if value < 1.0 {
        return format!("{count} bytes");
    }
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// What is needed and what is available, in bytes, exact where they would read the same.
///
/// ```
/// use host_system::format::compared;
///
/// assert_eq!(compared(3 << 20, 1 << 20), ["3.0 MiB", "1.0 MiB"]);
/// assert_eq!(compared((1 << 20) + 1, 1 << 20), ["1048577 bytes", "1048576 bytes"]);
/// ```
pub fn compared(needed: u128, available: u64) -> [String; 2] {
    let both = [needed, u128::from(available)];
    match both.map(bytes) {
        [needed, available] if needed == available => both.map(|count| format!("{count} bytes")),
        different => different,
    }
}

/// Whether a terminal obeys a character, or shows nothing of it: control characters, and those of
/// Unicode's category Cf (format).
///
/// ```
/// use host_system::format::is_control_or_format;
///
/// assert!(is_control_or_format('\u{1b}') && is_control_or_format('\u{202e}'));
/// assert!(!is_control_or_format('é'));
/// ```
pub fn is_control_or_format(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}')
}

/// A text without what a terminal obeys: control and format characters escaped, except those in
/// `kept`.
///
/// ```
/// use host_system::format::printable;
///
/// assert_eq!(printable("\u{1b}[31mred\n", &['\n']), "\\u{1b}[31mred\n");
/// ```
pub fn printable(text: &str, kept: &[char]) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        if is_control_or_format(c) && !kept.contains(&c) {
            printable.extend(c.escape_default());
        } else {
            printable.push(c);
        }
    }
    printable
}

/// A text as messages quote it: control and format characters escaped, and what is longer than 60
/// characters cut.
///
/// ```
/// use host_system::format::excerpt;
///
/// assert_eq!(excerpt("two\nlines"), "two\\nlines");
/// assert_eq!(excerpt(&"x".repeat(99)), "x".repeat(60) + "…");
/// ```
pub fn excerpt(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => printable(&text[..end], &[]) + "…",
        None => printable(text, &[]),
    }
}

/// Names in quotes, as a sentence lists them.
///
/// ```
/// assert_eq!(host_system::format::alternatives(&["soft", "auto", "gpu"]), "`soft`, `auto` and `gpu`");
/// ```
pub fn alternatives(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match &names[..] {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        names => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_readable() {
        assert_eq!(bytes(12), "12 bytes");
        assert_eq!(bytes(1 << 20), "1.0 MiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(bytes(1 << 64), "16.0 EiB");
    }

    #[test]
    fn what_is_needed_never_reads_as_what_is_available() {
        let words = |needed, available| compared(needed, available).join(", ");
        assert_eq!(words(3 << 20, 1 << 20), "3.0 MiB, 1.0 MiB");
        assert_eq!(words((1 << 30) + 1, 1 << 30), "1073741825 bytes, 1073741824 bytes");
    }

    #[test]
    fn what_is_quoted_is_short_and_printable() {
        assert_eq!(excerpt("tile2d"), "tile2d");
        assert_eq!(excerpt("a\u{1b}[31m\nb"), "a\\u{1b}[31m\\nb");
        assert_eq!(printable("a\tb\u{9b}\n", &['\n']), "a\\tb\\u{9b}\n");
        // What turns the rest of a line around, and what is not seen.
        assert_eq!(excerpt("a\u{202e}b\u{200b}c\u{feff}"), "a\\u{202e}b\\u{200b}c\\u{feff}");
        assert_eq!(printable("\u{ad}\u{e0041}日本 é", &[]), "\\u{ad}\\u{e0041}日本 é");
        assert_eq!(excerpt(&"ü".repeat(60)), "ü".repeat(60));
        assert_eq!(excerpt(&"ü".repeat(10_000)), "ü".repeat(60) + "…");
    }
}
