//! Latencies: p50, p95 and p99 of each program on one logarithmic axis.

use pictures::{Anchor, Canvas, Look, Paint, WIDTH, short};

const LEFT: f64 = 250.0;
const RIGHT: f64 = 170.0;
const ROW: f64 = 29.0;

/// One program's latencies in milliseconds.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) label: String,
    pub(super) ours: bool,
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
}

/// Draws the rows below what is there.
pub(super) fn draw(canvas: &mut Canvas, title: &str, rows: &[Range]) {
    if rows.is_empty() {
        return;
    }
    let look = Look {
        size: 14.0,
        bold: true,
        ..Look::plain(Anchor::Start)
    };
    canvas.text(24.0, canvas.y + 16.0, title, look);
    let top = canvas.y + 44.0;
    let bottom = top + rows.len() as f64 * ROW;
    let values = || {
        rows.iter()
            .flat_map(|row| [row.p50, row.p95, row.p99])
            .filter(|value| *value > 0.0)
    };
    let low = values().fold(1.0, f64::min).log10().floor();
    let high = values().fold(1.0, f64::max).log10().ceil().max(low + 1.0);
    let x = |value: f64| {
        let at = (value.max(1e-3).log10() - low) / (high - low);
        LEFT + at.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    };
    let mut power = low;
    while power <= high + 1e-9 {
        let value = 10_f64.powf(power);
        canvas.line((x(value), top - 4.0), (x(value), bottom), Paint::Grid, 1.0);
        canvas.text(x(value), bottom + 16.0, &short(value), Look::quiet(Anchor::Middle));
        power += 1.0;
    }
    let end = WIDTH - RIGHT + 14.0;
    canvas.text(
        (LEFT + WIDTH - RIGHT) / 2.0,
        bottom + 33.0,
        "ms, logarithmic",
        Look::quiet(Anchor::Middle),
    );
    canvas.text(end, top - 10.0, "p50 / p95 / p99 ms", Look::quiet(Anchor::Start));
    for (place, row) in rows.iter().enumerate() {
        let (y, paint) = (
            top + place as f64 * ROW + ROW / 2.0,
            if row.ours { Paint::Ours } else { Paint::Peer },
        );
        canvas.text(
            LEFT - 14.0,
            y + 4.0,
            &row.label,
            Look::plain(Anchor::End).bold(row.ours),
        );
        canvas.line(
            (x(row.p50), y),
            (x(row.p99), y),
            paint,
            if row.ours { 4.0 } else { 3.0 },
        );
        canvas.dot(x(row.p99), y, 4.5, Paint::Paper, paint);
        canvas.dot(x(row.p95), y, 3.0, paint, paint);
        canvas.dot(x(row.p50), y, 5.5, paint, paint);
        let figures = format!("{:.1} / {:.1} / {:.1}", row.p50, row.p95, row.p99);
        canvas.text(end, y + 4.0, &figures, Look::plain(Anchor::Start).bold(row.ours));
    }
    canvas.y = bottom + 46.0;
}
