//! Which line of the source a line of PTX comes from: `.loc` and `.file`.

use crate::fault::SourceLine;

/// What the last `.loc` in front of line `line` of `text` says, in the same function.
pub(crate) fn find(text: &[String], line: u32) -> Option<SourceLine> {
    let before = text.get(..line as usize)?;
    let location = before
        .iter()
        .rev()
        .take_while(|line| !line.contains(".entry") && !line.contains(".func"))
        .find_map(|line| line.strip_prefix(".loc"))?;
    let mut numbers = location.split_ascii_whitespace();
    let (file, line) = (numbers.next()?, numbers.next()?.parse().ok()?);
    let name = text.iter().find_map(|line| {
        let rest = line.strip_prefix(".file")?.trim_start().strip_prefix(file)?;
        rest.split('"').nth(1)
    })?;
    Some(SourceLine { file: name.to_owned(), line })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_location_of_the_function_counts() {
        let text = [
            ".entry a()",
            ".loc 1 5 2",
            "ret;",
            ".entry k()",
            "{",
            ".loc 2 7 1",
            "add;",
            "mul;",
            ".loc 1 9 1",
            "}",
            ".file 1 \"a.rs\"",
            ".file\t2 \"b.rs\"",
        ]
        .map(str::to_owned);
        assert_eq!(find(&text, 8), Some(SourceLine { file: "b.rs".to_owned(), line: 7 }));
        assert_eq!(find(&text, 3), Some(SourceLine { file: "a.rs".to_owned(), line: 5 }));
        assert_eq!(find(&text, 5), None);
        assert_eq!(find(&text, 100), None);
    }
}
