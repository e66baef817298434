//! The rungs of both ladders, as the book has them.

use kernels_gpu::{LADDER, TENSOR_CORE_LADDER};

/// A rung.
#[derive(Clone)]
pub struct Rung {
    pub name: &'static str,
    pub summary: &'static str,
    pub source: &'static str,
    /// The lines of its header, as Markdown.
    pub header: Vec<&'static str>,
    /// Whether its page is there in both languages.
    pub is_translated: bool,
}

/// The ladder in f32, and that of tensor cores.
pub fn ladders() -> [Vec<Rung>; 2] {
    let in_f32 = LADDER.iter().map(|rung| Rung {
        name: rung.name(),
        summary: rung.summary(),
        source: rung.source(),
        header: rung.header().collect(),
        is_translated: true,
    });
    let of_tensor_cores = TENSOR_CORE_LADDER.iter().map(|rung| Rung {
        name: rung.name(),
        summary: rung.summary(),
        source: rung.source(),
        header: rung.header().collect(),
        is_translated: false,
    });
    [in_f32.collect(), of_tensor_cores.collect()]
}
