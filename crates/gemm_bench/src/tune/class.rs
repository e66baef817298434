//! Kinds of products, from which a validation draws.

use std::fmt;

use crate::shape::{self, Shape};

/// The kind of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// [`shape::random`]: single products of any sizes.
    Plain,
    /// [`shape::random_layers`]: layers of language models.
    Layers,
    /// [`shape::random_batches`]: batches of middling products.
    Batches,
}

impl Class {
    /// All classes, in the order of their turns.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Layers, Self::Batches];

    /// The name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Layers => "layers",
            Self::Batches => "batches",
        }
    }

    fn shapes(self, count: usize, seed: u64) -> Vec<Shape> {
        match self {
            Self::Plain => shape::random(count, seed),
            Self::Layers => shape::random_layers(count, seed),
            Self::Batches => shape::random_batches(count, seed),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// `count` random shapes, one of each [`Class`] in turn.
///
/// ```
/// use gemm_bench::shape::random_layers;
/// use gemm_bench::tune::{Class, draw};
///
/// let drawn = draw(7, 42);
/// assert_eq!((drawn.len(), drawn[6].0), (7, Class::Plain));
/// assert_eq!(drawn[4], (Class::Layers, random_layers(2, 42)[1]));
/// ```
pub fn draw(count: usize, seed: u64) -> Vec<(Class, Shape)> {
    let turns = count.div_ceil(Class::ALL.len());
    let shapes = Class::ALL.map(|class| (class, class.shapes(turns, seed)));
    let turn = |turn: usize| shapes.iter().map(move |(class, shapes)| (*class, shapes[turn]));
    (0..turns).flat_map(turn).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_take_turns() {
        let drawn = draw(8, 3);
        let classes: Vec<_> = drawn.iter().map(|(class, _)| class.name()).collect();
        assert_eq!(classes[..4], ["plain", "layers", "batches", "plain"]);
        assert_eq!((draw(8, 3), drawn.len()), (drawn.clone(), 8));
        assert_eq!(draw(5, 3), drawn[..5]);
        assert_ne!(draw(8, 4), drawn);
        let plain: Vec<_> = drawn.iter().step_by(3).map(|(_, shape)| *shape).collect();
        assert_eq!(plain, shape::random(3, 3));
        assert!(draw(0, 3).is_empty());
    }
}
