//! Files of text that are read whole.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use crate::format::bytes;

/// Far above any table or list of shapes; what is longer is something else, and may have no end.
const MAX_BYTES: u64 = 16 << 20;

/// The text of a file or a pipe.
///
/// # Errors
///
/// If it cannot be read, is longer than 16 MiB, or is not UTF-8.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let text = host_system::text::read("Cargo.toml".as_ref())?;
/// assert!(text.contains("[package]"));
/// # Ok(())
/// # }
/// ```
pub fn read(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        let reason = format!("it is longer than {}", bytes(MAX_BYTES.into()));
        return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
    }
    String::from_utf8(text)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_up_to_its_longest() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // The last character has two bytes.
        let mut text = "x".repeat(MAX_BYTES as usize - 2) + "ü";
        std::fs::write(file.path(), &text).unwrap();
        assert!(read(file.path()).unwrap() == text);
        // What is cut within a character is too long, and no less text for that.
        text.insert(0, 'x');
        std::fs::write(file.path(), &text).unwrap();
        assert_eq!(read(file.path()).unwrap_err().to_string(), "it is longer than 16.0 MiB");
        std::fs::write(file.path(), [0xff]).unwrap();
        assert_eq!(read(file.path()).unwrap_err().to_string(), "it is not text in UTF-8");
    }
}
