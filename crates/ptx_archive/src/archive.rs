//! Kernels that are kept compressed, each by itself.
//!
//! An archive is a file that `xz --decompress` reads. Its first stream is an index of comments,
//! with a line for each kernel: the bytes of its stream, its [`digest`](crate::digest()), and its
//! name. The streams of the kernels follow in that order. So a program gets one kernel without
//! decompressing the others, and an edited kernel changes only its own bytes of the file.

use std::collections::BTreeMap;
use std::io::{self, Read};

use lzma_rust2::XzReader;

/// The kernels of an archive, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Archive<'a>(BTreeMap<String, Packed<'a>>);

/// A kernel of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed<'a> {
    digest: String,
    stream: &'a [u8],
}

impl<'a> Archive<'a> {
    /// Reads the index of an archive.
    ///
    /// # Errors
    /// If the bytes are none that [`pack`] made.
    pub fn read(bytes: &'a [u8]) -> io::Result<Self> {
        let mut reader = XzReader::new(bytes, false);
        let mut index = String::new();
        reader.read_to_string(&mut index)?;
        let mut rest = reader.into_inner();
        let mut kernels = BTreeMap::new();
        let damaged = || io::Error::other("this is no archive of kernels");
        for line in index.lines() {
            let mut words = line.split(' ').skip(1);
            let (Some(length), Some(digest), Some(name), None) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                return Err(damaged());
            };
            let length = length.parse().ok();
            let (stream, others) =
                length.and_then(|length| rest.split_at_checked(length)).ok_or_else(damaged)?;
            rest = others;
            kernels.insert(name.to_owned(), Packed { digest: digest.to_owned(), stream });
        }
        if rest.is_empty() { Ok(Archive(kernels)) } else { Err(damaged()) }
    }

    /// The kernels of several archives.
    ///
    /// # Errors
    /// Those of [`Archive::read`], and if two have a kernel of one name.
    pub fn joined(archives: impl IntoIterator<Item = &'a [u8]>) -> io::Result<Self> {
        let mut all = Self::default();
        for bytes in archives {
            for (name, packed) in Self::read(bytes)?.0 {
                if all.0.contains_key(&name) {
                    let message = format!("two archives have a kernel `{name}`");
                    return Err(io::Error::other(message));
                }
                all.0.insert(name, packed);
            }
        }
        Ok(all)
    }

    /// The names of all kernels, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The digest of a kernel, as the index has it.
    pub fn digest(&self, kernel: &str) -> Option<&str> {
        self.0.get(kernel).map(|packed| packed.digest.as_str())
    }

    /// The PTX of a kernel, as [`extract`](ptx_syntax::extract) cuts it out; none if there is no
    /// such kernel.
    ///
    /// # Errors
    /// If its bytes are damaged.
    pub fn kernel(&self, name: &str) -> io::Result<Option<String>> {
        self.0.get(name).map(Packed::text).transpose()
    }
}

impl Packed<'_> {
    fn text(&self) -> io::Result<String> {
        let mut text = String::new();
        XzReader::new(self.stream, false).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Makes an archive of the kernels of a PTX text. The bytes of an unchanged kernel come from
/// `before`.
///
/// # Errors
/// Never in practice: it writes to memory.
#[cfg(feature = "pack")]
pub fn pack(text: &str, before: &Archive<'_>) -> io::Result<Vec<u8>> {
    let (mut index, mut streams) = (String::new(), Vec::new());
    // In the order of their names, so that functions may change places in the source.
    let kernels: BTreeMap<_, _> = ptx_syntax::extract_all(text).into_iter().collect();
    for (name, kernel) in kernels {
        let digest = crate::digest::of_part(&kernel);
        let start = streams.len();
        // What its index says of a stream may be wrong.
        let is_same = |packed: &&Packed<'_>| {
            let digest_of = |text: String| crate::digest::of_part(&text);
            packed.digest == digest && packed.text().is_ok_and(|text| digest_of(text) == digest)
        };
        match before.0.get(name).filter(is_same) {
            Some(packed) => streams.extend(packed.stream),
            None => streams.extend(compressed(&kernel)?),
        }
        index += &format!("// {} {digest} {name}\n", streams.len() - start);
    }
    Ok([compressed(&index)?, streams].concat())
}

#[cfg(feature = "pack")]
fn compressed(text: &str) -> io::Result<Vec<u8>> {
    use std::io::Write;

    let mut options = lzma_rust2::XzOptions::with_preset(6);
    // A reader allocates that much.
    let dictionary = text.len().next_power_of_two().clamp(1 << 12, 1 << 23);
    options.lzma_options.dict_size = dictionary as u32;
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options)?;
    writer.write_all(text.as_bytes())?;
    writer.finish()
}

#[cfg(all(test, feature = "pack"))]
mod tests {
    use super::*;

    const TEXT: &str = ".version 7.0\n.target sm_80\n.address_size 64\n\
        .shared .b8 b_shared_0[64];\n.visible .entry b()\n{\n.reg .b32 %r<9>;\nmov.u32 %r1, b_shared_0;\nret;\n}\n\
        .visible .entry a()\n{\nret;\n}\n";

    #[test]
    fn each_kernel_comes_back_as_it_is_cut_out() {
        let packed = pack(TEXT, &Archive::default()).unwrap();
        let archive = Archive::read(&packed).unwrap();
        assert!(archive.names().eq(["a", "b"]));
        for name in ["a", "b"] {
            assert_eq!(archive.kernel(name).unwrap(), ptx_syntax::extract(TEXT, name));
            assert_eq!(archive.digest(name), crate::digest(TEXT, name).as_deref());
        }
        assert_eq!(archive.kernel("c").unwrap(), None);
        assert_eq!(archive.digest("c"), None);
    }

    #[test]
    fn an_edited_kernel_changes_only_its_own_bytes() {
        let packed = pack(TEXT, &Archive::default()).unwrap();
        let before = Archive::read(&packed).unwrap();
        let edited = TEXT.replace("mov.u32 %r1", "mov.b32 %r1");
        let after = pack(&edited, &before).unwrap();
        let after = Archive::read(&after).unwrap();
        assert_eq!(after.0["a"], before.0["a"]);
        assert_ne!(after.0["b"], before.0["b"]);
        // Moved lines and other numbers of registers are no edit.
        let renamed = TEXT.replace("%r1", "%r7").replace("ret;", "\n ret;");
        assert_eq!(pack(&renamed, &before).unwrap(), packed);
    }

    #[test]
    fn a_stream_that_is_not_what_the_index_says_is_not_taken() {
        let packed = pack(TEXT, &Archive::default()).unwrap();
        let wrong = pack(&TEXT.replace("mov.u32", "mov.b32"), &Archive::default()).unwrap();
        let mut before = Archive::read(&packed).unwrap();
        before.0.get_mut("b").unwrap().stream = Archive::read(&wrong).unwrap().0["b"].stream;
        assert_eq!(pack(TEXT, &before).unwrap(), packed);
    }

    #[test]
    fn two_kernels_of_one_name_are_an_error() {
        let packed = pack(TEXT, &Archive::default()).unwrap();
        let error = Archive::joined([&packed[..]; 2]).unwrap_err().to_string();
        assert_eq!(error, "two archives have a kernel `a`");
        assert_eq!(Archive::joined([&packed[..]]).unwrap(), Archive::read(&packed).unwrap());
    }

    #[test]
    fn what_is_no_archive_is_an_error() {
        let packed = pack(TEXT, &Archive::default()).unwrap();
        assert!(Archive::read(&packed[..packed.len() - 1]).is_err());
        assert!(Archive::read(&[&packed[..], b"more"].concat()).is_err());
        assert!(Archive::read(b"").is_err());
        assert!(Archive::read(&compressed("// a line\n").unwrap()).is_err());
        let mut damaged = packed.clone();
        let last = damaged.len() - 40;
        damaged[last] ^= 1;
        let archive = Archive::read(&damaged).unwrap();
        assert!(archive.kernel("a").is_ok());
        assert!(archive.kernel("b").is_err());
    }
}
