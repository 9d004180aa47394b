//! The functions that any language calls make the same transitions as the library: each scene is played twice, on a
//! fresh database each, and what every table holds afterwards is compared.

mod claiming;
mod ending;
mod entering;
mod meeting;
mod programs;
mod recovering;
mod refusing;
mod stage;
