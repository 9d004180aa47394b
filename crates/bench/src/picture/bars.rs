//! Lying bars with whiskers from the least to the most.

use pictures::{Anchor, Canvas, Look, Paint, WIDTH, number, short, ticks};

use crate::programs::Role;
use crate::stats::Spread;

const LEFT: f64 = 214.0;
const RIGHT: f64 = 130.0;
const ROW: f64 = 27.0;
const THICK: f64 = 17.0;

/// One bar.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) role: Role,
    /// Drawn one after the other; the second is lighter.
    pub(super) parts: Vec<f64>,
    pub(super) whisker: Option<(f64, f64)>,
    /// Instead of the figure at its end, or where there is no bar at all.
    pub(super) note: Option<String>,
}

impl Bar {
    pub(super) fn of(label: impl Into<String>, role: Role, spread: Spread) -> Bar {
        Bar {
            label: label.into(),
            role,
            parts: vec![spread.median],
            whisker: (spread.count > 1).then_some((spread.min, spread.max)),
            note: None,
        }
    }

    /// A program without a figure, and why.
    pub(super) fn none(label: impl Into<String>, role: Role, why: &str) -> Bar {
        Bar {
            label: label.into(),
            role,
            parts: Vec::new(),
            whisker: None,
            note: Some(why.chars().take(70).collect()),
        }
    }

    fn end(&self) -> f64 {
        let sum: f64 = self.parts.iter().sum();
        self.whisker.map_or(sum, |(_, max)| max.max(sum))
    }
}

/// Bars on one axis.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) unit: String,
    pub(super) bars: Vec<Bar>,
}

/// Draws the panel below what is there.
pub(super) fn draw(canvas: &mut Canvas, panel: &Panel) {
    if panel.bars.is_empty() {
        return;
    }
    let top = canvas.y + 30.0;
    let look = Look {
        size: 14.0,
        bold: true,
        ..Look::plain(Anchor::Start)
    };
    canvas.text(24.0, canvas.y + 16.0, &panel.title, look);
    let bottom = top + panel.bars.len() as f64 * ROW;
    let max = panel.bars.iter().map(Bar::end).fold(0.0, f64::max);
    let marks = ticks(max, 5);
    let far = marks.last().copied().unwrap_or(1.0);
    let x = |value: f64| LEFT + value / far * (WIDTH - LEFT - RIGHT);
    for mark in &marks {
        canvas.line((x(*mark), top - 4.0), (x(*mark), bottom), Paint::Grid, 1.0);
        canvas.text(x(*mark), bottom + 16.0, &short(*mark), Look::quiet(Anchor::Middle));
    }
    canvas.text(
        WIDTH - RIGHT + 22.0,
        bottom + 16.0,
        &panel.unit,
        Look::quiet(Anchor::Start),
    );
    for (row, bar) in panel.bars.iter().enumerate() {
        one(canvas, bar, top + row as f64 * ROW, &x);
    }
    canvas.y = bottom + 34.0;
}

fn one(canvas: &mut Canvas, bar: &Bar, top: f64, x: &dyn Fn(f64) -> f64) {
    let ours = bar.role == Role::Ours;
    let base = top + ROW / 2.0 + 4.0;
    canvas.text(LEFT - 10.0, base, &bar.label, Look::plain(Anchor::End).bold(ours));
    let paints = match bar.role {
        Role::Ours => [Paint::Ours, Paint::OursLight],
        Role::Ceiling => [Paint::Ceiling, Paint::CeilingLight],
        Role::Peer => [Paint::Peer, Paint::PeerLight],
    };
    let mut from = 0.0;
    for (part, paint) in bar.parts.iter().zip(paints.iter().cycle()) {
        canvas.rect(
            x(from),
            top + (ROW - THICK) / 2.0,
            x(from + part) - x(from),
            THICK,
            *paint,
        );
        from += part;
    }
    let mut end = x(from);
    if let Some((min, max)) = bar.whisker {
        canvas.whisker(x(min), x(max), top + ROW / 2.0);
        end = end.max(x(max));
    }
    let figure = bar.note.clone().unwrap_or_else(|| number(from));
    let look = if bar.parts.is_empty() {
        Look::quiet(Anchor::Start)
    } else {
        Look::plain(Anchor::Start).bold(ours)
    };
    canvas.text(end + 8.0, base, &figure, look);
}
