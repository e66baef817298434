//! Findings in JSON.

use serde::{Serialize, Serializer};

use crate::fault::Earlier;

use super::{Finding, Findings};

impl Findings {
    /// A JSON array with an object for each, of the fields that apply: `kind`, `message`, `kernel`,
    /// `ptx_line`, `instruction`, `file` and `line` (of the source), `block`, `thread`, `space`,
    /// `address`, `count`, `ended`, `earlier` (the other access, with such fields of its own;
    /// `kernel` if it was the launch in front).
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers alone")
    }
}

impl Serialize for Findings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

/// A [`Finding`] in JSON.
#[derive(Default, Serialize)]
struct Line<'a> {
    kind: &'static str,
    message: String,
    #[serde(flatten)]
    place: Option<PlaceLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<String>,
    /// In hexadecimal: JSON's numbers are not exact enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    earlier: Option<EarlierLine<'a>>,
}

#[derive(Serialize)]
struct EarlierLine<'a> {
    access: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<&'a str>,
    #[serde(flatten)]
    place: PlaceLine<'a>,
}

/// An instruction and who executed it.
#[derive(Serialize)]
struct PlaceLine<'a> {
    ptx_line: u32,
    instruction: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
    block: [u32; 3],
    thread: [u32; 3],
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let line = Line { kind: self.name(), message: self.to_string(), ..Line::default() };
        let hexadecimal = |address: u64| format!("{address:#x}");
        match self {
            Finding::Kernel { fault, count, ended } => Line {
                kernel: Some(&fault.kernel),
                place: Some(PlaceLine {
                    ptx_line: fault.line,
                    instruction: &fault.instruction,
                    file: fault.source.as_ref().map(|source| source.file.as_str()),
                    line: fault.source.as_ref().map(|source| source.line),
                    block: fault.block,
                    thread: fault.thread,
                }),
                space: fault.kind.space().map(|space| space.to_string()),
                address: fault.kind.address().map(hexadecimal),
                count: Some(*count),
                ended: Some(*ended),
                earlier: fault.kind.earlier().map(|earlier: &Earlier| EarlierLine {
                    access: earlier.access.to_string(),
                    kernel: earlier.kernel.as_deref(),
                    place: PlaceLine {
                        ptx_line: earlier.line,
                        instruction: &earlier.instruction,
                        file: earlier.source.as_ref().map(|source| source.file.as_str()),
                        line: earlier.source.as_ref().map(|source| source.line),
                        block: earlier.block,
                        thread: earlier.thread,
                    },
                }),
                ..line
            },
            Finding::Leak { address, bytes, .. } => {
                Line { address: Some(hexadecimal(*address)), bytes: Some(*bytes), ..line }
            }
        }
        .serialize(serializer)
    }
}
