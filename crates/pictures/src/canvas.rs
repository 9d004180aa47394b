//! The few shapes that the pictures are made of.

use std::{collections::BTreeSet, fmt::Write};

use crate::paint::{Paint, Use, sheet};

/// The width of a benchmark's picture.
pub const WIDTH: f64 = 860.0;

/// Which end of a text is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text starts there.
    Start,
    /// The text is centred there.
    Middle,
    /// The text ends there.
    End,
}

/// How a text looks.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Font size in units of the picture.
    pub size: f64,
    /// Whether the text is bold.
    pub bold: bool,
    /// The text's colour.
    pub paint: Paint,
    /// Which end of the text is at its place.
    pub anchor: Anchor,
}

impl Look {
    /// Ordinary text.
    pub fn plain(anchor: Anchor) -> Look {
        Look {
            size: 13.0,
            bold: false,
            paint: Paint::Ink,
            anchor,
        }
    }

    /// Text of less weight: units, remarks, axis labels.
    pub fn quiet(anchor: Anchor) -> Look {
        Look {
            size: 12.0,
            paint: Paint::Quiet,
            ..Look::plain(anchor)
        }
    }

    /// The same, bold or not.
    pub fn bold(self, bold: bool) -> Look {
        Look { bold, ..self }
    }

    /// The same in another colour.
    pub fn paint(self, paint: Paint) -> Look {
        Look { paint, ..self }
    }

    /// The same in another size.
    pub fn size(self, size: f64) -> Look {
        Look { size, ..self }
    }
}

/// A picture in the making; shapes come on top of those before.
#[derive(Debug)]
pub struct Canvas {
    body: String,
    width: f64,
    /// What screen readers say.
    label: String,
    used: BTreeSet<(Paint, Use)>,
    /// Where the next part begins.
    pub y: f64,
}

impl Canvas {
    /// An empty picture of this width; `label` is what a screen reader says.
    pub fn new(width: f64, label: &str) -> Canvas {
        Canvas {
            body: String::new(),
            width,
            label: label.to_owned(),
            used: BTreeSet::from([(Paint::Paper, Use::Fill)]),
            y: 0.0,
        }
    }

    /// A benchmark's picture: starts with the title, and below the title what holds for the whole picture.
    pub fn titled(title: &str, below: &str) -> Canvas {
        let mut canvas = Canvas::new(WIDTH, title);
        let look = Look::plain(Anchor::Start).size(18.0).bold(true);
        canvas.text(24.0, 34.0, title, look);
        canvas.text(24.0, 55.0, below, Look::quiet(Anchor::Start));
        canvas.y = 74.0;
        canvas
    }

    fn fill(&mut self, paint: Paint) -> String {
        self.used.insert((paint, Use::Fill));
        paint.fill()
    }

    fn stroke(&mut self, paint: Paint) -> String {
        self.used.insert((paint, Use::Stroke));
        paint.stroke()
    }

    /// One line of text; `y` is its base line.
    pub fn text(&mut self, x: f64, y: f64, text: &str, look: Look) {
        let anchor = match look.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if look.bold { " font-weight=\"600\"" } else { "" };
        let (class, text) = (self.fill(look.paint), escape(text));
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{}\" class=\"{class}\" text-anchor=\"{anchor}\"{weight}>{text}</text>",
            look.size,
        ));
    }

    /// A filled rectangle, never narrower than can be seen.
    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, paint: Paint) {
        let class = self.fill(paint);
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" rx=\"1.5\" class=\"{class}\"/>",
            width.max(0.5)
        ));
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), paint: Paint, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let class = self.stroke(paint);
        self.put(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\" stroke-width=\"{width}\"/>"
        ));
    }

    /// A circle with an outline.
    pub fn dot(&mut self, x: f64, y: f64, radius: f64, fill: Paint, stroke: Paint) {
        let (fill, stroke) = (self.fill(fill), self.stroke(stroke));
        self.put(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{fill} {stroke}\" stroke-width=\"1.5\"/>"
        ));
    }

    /// A cross of two strokes around a place.
    pub fn cross(&mut self, x: f64, y: f64, arm: f64, paint: Paint, width: f64) {
        let class = self.stroke(paint);
        let both = 2.0 * arm;
        self.put(format_args!(
            "<path d=\"M{:.1} {:.1}l{both:.1} {both:.1}m0 -{both:.1}l-{both:.1} {both:.1}\" fill=\"none\" class=\"{class}\" \
             stroke-width=\"{width}\" stroke-linecap=\"round\"/>",
            x - arm,
            y - arm
        ));
    }

    /// A line through all these places.
    pub fn path(&mut self, points: &[(f64, f64)], paint: Paint, width: f64) {
        let (class, list) = (self.stroke(paint), list(points));
        self.put(format_args!(
            "<polyline points=\"{list}\" fill=\"none\" class=\"{class}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"/>",
        ));
    }

    /// A see-through area with these corners.
    pub fn area(&mut self, points: &[(f64, f64)], paint: Paint) {
        let (class, list) = (self.fill(paint), list(points));
        self.put(format_args!(
            "<polygon points=\"{list}\" class=\"{class}\" fill-opacity=\"0.14\"/>"
        ));
    }

    /// A horizontal whisker from one value to another.
    pub fn whisker(&mut self, from: f64, to: f64, y: f64) {
        self.line((from, y), (to, y), Paint::Ink, 1.2);
        for x in [from, to] {
            self.line((x, y - 4.0), (x, y + 4.0), Paint::Ink, 1.2);
        }
    }

    fn put(&mut self, shape: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.body, "{shape}");
    }

    /// The finished file.
    pub fn finish(self) -> String {
        let (width, height) = (self.width, self.y + 14.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" width=\"{width}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{}\" \
             font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n{}\
             <rect width=\"100%\" height=\"100%\" class=\"{}\"/>\n{}</svg>\n",
            escape(&self.label),
            sheet(self.used.iter().copied()),
            Paint::Paper.fill(),
            self.body
        )
    }
}

fn list(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    points.join(" ")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut canvas = Canvas::titled("a < b & c", "");
        canvas.y += 10.0;
        let svg = canvas.finish();
        assert!(svg.contains("a &lt; b &amp; c") && svg.starts_with("<svg "));
    }

    #[test]
    fn every_class_has_a_light_and_a_dark_colour() {
        let mut canvas = Canvas::new(100.0, "a test");
        canvas.rect(0.0, 0.0, 9.0, 9.0, Paint::Ours);
        canvas.dot(5.0, 5.0, 2.0, Paint::Paper, Paint::Series(9));
        let svg = canvas.finish();
        let (light, dark) = svg.split_once("@media (prefers-color-scheme: dark)").unwrap();
        for part in svg.split("class=\"").skip(1) {
            for class in part.split('"').next().unwrap().split(' ') {
                let rule = format!(".{class}{{");
                assert!(light.contains(&rule) && dark.contains(&rule), "{class}: {svg}");
            }
        }
        assert!(svg.contains(".s-series-1{stroke:#3f8f5f}") && svg.contains(".s-series-1{stroke:#62b985}"));
    }
}
