//! The project's pictures, written as SVG: one file each, no script, no external resource.
//!
//! A shape names a [`Paint`], not a colour. The finished file holds a style sheet with both colours of each paint, and
//! the reader's browser chooses between light and dark.
//!
//! `bench` draws its benchmarks with [`Canvas`]. [`demo`] and [`speed`] draw the two pictures of the README from
//! recorded runs, and [`map`] the picture of ARCHITECTURE.md. A test of `rowlock-cli` compares the result with the
//! files in `docs/pictures`.

mod canvas;
pub mod demo;
pub mod map;
mod paint;
mod scale;
pub mod speed;

pub use canvas::{Anchor, Canvas, Look, WIDTH};
pub use paint::Paint;
pub use scale::{number, short, ticks};
