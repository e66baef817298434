//! Runs as pictures, in SVG.
//!
//! Each picture has the run that it shows in it, and its own colours for light and dark. The
//! modules lie in layers: a module for each picture, then `axes` and `roofs`, then `svg`
//! with `theme`, and `scale`.

mod axes;
mod errors;
mod ladder;
mod roofline;
mod roofs;
mod scale;
mod shapes;
mod sizes;
mod svg;
pub mod theme;

pub use errors::errors;
pub use ladder::ladder;
pub use roofline::rung_roofline;
pub use roofs::Roofs;
pub use shapes::shapes;
pub use sizes::sizes;
pub use svg::{Picture, SVG_START, escape};
