//! The rungs of both ladders, as the book has them.

use kernels_gpu::abi::KernelDescriptor;
use kernels_gpu::{LADDER, TENSOR_CORE_LADDER};

/// A rung.
#[derive(Clone)]
pub struct Rung {
    pub name: &'static str,
    pub summary: &'static str,
    pub source: &'static str,
    /// The folder of the ladder, from the root of the checkout.
    folder: &'static str,
    /// The lines of its header, as Markdown.
    pub header: Vec<&'static str>,
    /// Whether its page is there in both languages.
    pub is_translated: bool,
}

impl Rung {
    /// The rung's file, from the root of the checkout.
    pub fn path(&self) -> String {
        let Rung { folder, name, .. } = self;
        let hopper = format!("{folder}/sm_90a/{name}.rs");
        if crate::root().join(&hopper).exists() { hopper } else { format!("{folder}/{name}.rs") }
    }
}

/// The ladder in f32, and that of tensor cores.
pub fn ladders() -> [Vec<Rung>; 2] {
    let rungs = |kernels: &[&'static KernelDescriptor], folder, is_translated| {
        let rung = |kernel: &&'static KernelDescriptor| Rung {
            name: kernel.name(),
            summary: kernel.summary(),
            source: kernel.source(),
            folder,
            header: kernel.header().collect(),
            is_translated,
        };
        kernels.iter().map(rung).collect()
    };
    [
        rungs(LADDER, "kernels-gpu/src/ladder/f32", true),
        rungs(TENSOR_CORE_LADDER, "kernels-gpu/src/ladder/tensor", false),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rung_has_a_file_of_its_name() {
        for rung in ladders().concat() {
            let text = std::fs::read_to_string(crate::root().join(rung.path())).unwrap();
            assert_eq!(text, rung.source, "{}", rung.name);
        }
    }
}
