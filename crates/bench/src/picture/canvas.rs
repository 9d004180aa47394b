//! The few shapes the pictures are made of, and the scales they stand on.

use std::fmt::Write;

pub(super) const WIDTH: f64 = 860.0;
pub(super) const INK: &str = "#1f2933";
pub(super) const QUIET: &str = "#66727f";
pub(super) const GRID: &str = "#e6eaee";
pub(super) const OURS: &str = "#0b62c4";
pub(super) const OURS_LIGHT: &str = "#7fb2ea";
pub(super) const PEER: &str = "#aab6c2";
pub(super) const PEER_LIGHT: &str = "#d5dce3";
pub(super) const CEILING: &str = "#f0b849";
pub(super) const CEILING_LIGHT: &str = "#f8dda6";

/// Where a text is tied to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) size: f64,
    pub(super) bold: bool,
    pub(super) colour: &'static str,
    pub(super) anchor: Anchor,
}

impl Look {
    pub(super) fn plain(anchor: Anchor) -> Look {
        Look {
            size: 13.0,
            bold: false,
            colour: INK,
            anchor,
        }
    }

    pub(super) fn quiet(anchor: Anchor) -> Look {
        Look {
            size: 12.0,
            colour: QUIET,
            ..Look::plain(anchor)
        }
    }

    pub(super) fn bold(self, bold: bool) -> Look {
        Look { bold, ..self }
    }

    pub(super) fn colour(self, colour: &'static str) -> Look {
        Look { colour, ..self }
    }
}

/// A picture in the making; shapes come on top of those before.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    body: String,
    /// Where the next part begins.
    pub(super) y: f64,
}

impl Canvas {
    /// Begins with the title, and what holds for the whole picture below it.
    pub(super) fn titled(title: &str, below: &str) -> Canvas {
        let mut canvas = Canvas::default();
        let look = Look {
            size: 18.0,
            bold: true,
            ..Look::plain(Anchor::Start)
        };
        canvas.text(24.0, 34.0, title, look);
        canvas.text(24.0, 55.0, below, Look::quiet(Anchor::Start));
        canvas.y = 74.0;
        canvas
    }

    pub(super) fn text(&mut self, x: f64, y: f64, text: &str, look: Look) {
        let anchor = match look.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if look.bold { " font-weight=\"600\"" } else { "" };
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{}\" fill=\"{}\" text-anchor=\"{anchor}\"{weight}>{}</text>",
            look.size,
            look.colour,
            escape(text)
        ));
    }

    pub(super) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" rx=\"1.5\" fill=\"{colour}\"/>",
            width.max(0.5)
        ));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
        ));
    }

    pub(super) fn dot(&mut self, x: f64, y: f64, radius: f64, fill: &str, stroke: &str) {
        self.put(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"1.5\"/>"
        ));
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], colour: &str, width: f64) {
        let mut list = String::new();
        for (x, y) in points {
            // Writing to a String cannot fail.
            let _ = write!(list, "{x:.1},{y:.1} ");
        }
        self.put(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"/>",
            list.trim_end()
        ));
    }

    /// A whisker from one value to another, lying.
    pub(super) fn whisker(&mut self, from: f64, to: f64, y: f64) {
        self.line((from, y), (to, y), INK, 1.2);
        for x in [from, to] {
            self.line((x, y - 4.0), (x, y + 4.0), INK, 1.2);
        }
    }

    fn put(&mut self, shape: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.body, "{shape}");
    }

    /// The finished file.
    pub(super) fn finish(self) -> String {
        let height = self.y + 14.0;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
             height=\"{height:.0}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.body
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Round values from zero to at least `max`, about `count` of them.
pub(super) fn ticks(max: f64, count: usize) -> Vec<f64> {
    if max <= 0.0 || !max.is_finite() {
        return vec![0.0, 1.0];
    }
    let rough = max / count.max(1) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .find(|step| step * power >= rough)
        .unwrap_or(10.0)
        * power;
    let last = (max / step - 1e-9).ceil() as usize;
    (0..=last).map(|place| place as f64 * step).collect()
}

/// An axis label: thousands as k, and no digits without meaning.
pub(super) fn short(value: f64) -> String {
    let (value, end) = match value.abs() {
        large if large >= 1e6 => (value / 1e6, "M"),
        large if large >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_maximum() {
        assert_eq!(
            ticks(47_000.0, 5),
            [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0, 50_000.0]
        );
        assert_eq!(ticks(0.9, 4).last(), Some(&1.0));
        assert_eq!(ticks(0.0, 4), [0.0, 1.0]);
        assert_eq!(ticks(100.0, 5).len(), 6);
    }

    #[test]
    fn axis_labels_are_short() {
        assert_eq!(
            (short(0.0), short(12_500.0), short(2e6), short(0.25)),
            ("0".into(), "12.5k".into(), "2M".into(), "0.25".into())
        );
    }

    #[test]
    fn text_is_escaped() {
        let mut canvas = Canvas::titled("a < b & c", "");
        canvas.y += 10.0;
        let svg = canvas.finish();
        assert!(svg.contains("a &lt; b &amp; c") && svg.starts_with("<svg "));
    }
}
