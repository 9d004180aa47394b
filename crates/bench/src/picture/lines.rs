//! Values over time, or over a growing number: one line per series, named at its end.

use pictures::{Anchor, Canvas, Look, Paint, WIDTH, number, short, ticks};

const LEFT: f64 = 76.0;
const RIGHT: f64 = 150.0;
const HEIGHT: f64 = 250.0;
const NAME_GAP: f64 = 15.0;

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) label: String,
    pub(super) ours: bool,
    pub(super) points: Vec<(f64, f64)>,
    /// Least and most at each point, where there are several rounds.
    pub(super) spread: Vec<(f64, f64)>,
}

/// Lines on common axes.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x_label: String,
    pub(super) y_label: String,
    pub(super) series: Vec<Series>,
    /// The values to mark on the lower axis, at equal distances; empty for a plain axis.
    pub(super) steps: Vec<f64>,
}

/// Draws the panel below what is there.
pub(super) fn draw(canvas: &mut Canvas, panel: &Panel) {
    if panel.series.iter().all(|series| series.points.is_empty()) {
        return;
    }
    let look = Look {
        size: 14.0,
        bold: true,
        ..Look::plain(Anchor::Start)
    };
    canvas.text(24.0, canvas.y + 16.0, &panel.title, look);
    let bottom = canvas.y + 48.0 + HEIGHT;
    canvas.text(24.0, canvas.y + 36.0, &panel.y_label, Look::quiet(Anchor::Start));
    let highest = panel.series.iter().flat_map(|series| {
        let spread = series.spread.iter().map(|(_, max)| *max);
        series.points.iter().map(|(_, y)| *y).chain(spread)
    });
    let y_marks = ticks(highest.fold(0.0, f64::max), 5);
    let y_far = y_marks.last().copied().unwrap_or(1.0);
    let y = |value: f64| bottom - value / y_far * HEIGHT;
    for mark in &y_marks {
        canvas.line((LEFT, y(*mark)), (WIDTH - RIGHT, y(*mark)), Paint::Grid, 1.0);
        canvas.text(LEFT - 8.0, y(*mark) + 4.0, &short(*mark), Look::quiet(Anchor::End));
    }
    let x = x_scale(panel);
    let x_far = panel
        .series
        .iter()
        .flat_map(|series| &series.points)
        .map(|(x, _)| *x)
        .fold(0.0, f64::max);
    let mut x_marks = if panel.steps.is_empty() {
        ticks(x_far, 6)
    } else {
        panel.steps.clone()
    };
    x_marks.retain(|mark| *mark <= x_far);
    for mark in x_marks {
        canvas.line((x(mark), bottom), (x(mark), bottom + 4.0), Paint::Ink, 1.0);
        canvas.text(x(mark), bottom + 19.0, &short(mark), Look::quiet(Anchor::Middle));
    }
    canvas.line((LEFT, bottom), (WIDTH - RIGHT, bottom), Paint::Ink, 1.0);
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    canvas.text(middle, bottom + 37.0, &panel.x_label, Look::quiet(Anchor::Middle));
    series(canvas, panel, &x, &y);
    canvas.y = bottom + 54.0;
}

/// From a value to its place: equal steps if there are any, else even.
fn x_scale(panel: &Panel) -> Box<dyn Fn(f64) -> f64> {
    let width = WIDTH - RIGHT - LEFT;
    if panel.steps.is_empty() {
        let far = panel
            .series
            .iter()
            .flat_map(|series| &series.points)
            .map(|(x, _)| *x)
            .fold(1.0, f64::max);
        return Box::new(move |value| LEFT + value / far * width);
    }
    let steps = panel.steps.clone();
    Box::new(move |value| {
        let place = steps.iter().position(|step| *step >= value).unwrap_or(steps.len() - 1);
        LEFT + 30.0 + place as f64 / (steps.len() - 1).max(1) as f64 * (width - 60.0)
    })
}

fn series(canvas: &mut Canvas, panel: &Panel, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) {
    let mut names: Vec<(f64, &str, Paint, bool)> = Vec::new();
    // Ours last, so that it lies on top.
    let mut order: Vec<(usize, &Series)> = panel.series.iter().enumerate().collect();
    order.sort_by_key(|(_, series)| series.ours);
    for (place, series) in order {
        // Ours has its own paint and is twice as wide.
        let paint = if series.ours {
            Paint::Ours
        } else {
            Paint::Series((place % usize::from(Paint::SERIES)) as u8)
        };
        let points: Vec<(f64, f64)> = series.points.iter().map(|(at, value)| (x(*at), y(*value))).collect();
        canvas.path(&points, paint, if series.ours { 3.0 } else { 1.6 });
        for ((at, _), (min, max)) in series.points.iter().zip(&series.spread) {
            canvas.line((x(*at), y(*min)), (x(*at), y(*max)), Paint::Ink, 1.2);
        }
        if !panel.steps.is_empty() {
            for ((px, py), (_, value)) in points.iter().zip(&series.points) {
                canvas.dot(*px, *py, 4.0, paint, Paint::Paper);
                canvas.text(
                    *px + 8.0,
                    *py - 9.0,
                    &number(*value),
                    Look::plain(Anchor::Start).bold(series.ours),
                );
            }
        }
        // A line alone is named by the title.
        if let Some((_, last)) = points.last().filter(|_| panel.series.len() > 1) {
            names.push((*last, &series.label, paint, series.ours));
        }
    }
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let places = apart(&names.iter().map(|(y, ..)| *y).collect::<Vec<_>>(), NAME_GAP);
    for ((_, label, paint, ours), place) in names.iter().zip(places) {
        let look = Look::plain(Anchor::Start).bold(*ours).paint(*paint);
        canvas.text(WIDTH - RIGHT + 10.0, place + 4.0, label, look);
    }
}

/// Moves sorted places apart to at least `gap`, about where they were.
fn apart(places: &[f64], gap: f64) -> Vec<f64> {
    let mut moved = places.to_vec();
    for at in 1..moved.len() {
        moved[at] = moved[at].max(moved[at - 1] + gap);
    }
    // What was pushed down comes back up as far as there is space.
    for at in (0..moved.len()).rev() {
        let below = if at + 1 < moved.len() {
            moved[at + 1] - gap
        } else {
            places[at].max(moved[at] - gap * 2.0)
        };
        moved[at] = moved[at].min(below.max(places[at].min(moved[at])));
        if at + 1 < moved.len() {
            moved[at] = moved[at].min(moved[at + 1] - gap);
        }
    }
    moved
}

/// The mean of the last few values at each place: a second's noise hides the course.
pub(super) fn smooth(values: &[f64], window: usize) -> Vec<(f64, f64)> {
    (0..values.len())
        .map(|at| {
            let part = &values[at.saturating_sub(window - 1)..=at];
            (at as f64 + 1.0, part.iter().sum::<f64>() / part.len() as f64)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_lie_on_each_other() {
        let moved = apart(&[10.0, 11.0, 12.0, 100.0], 15.0);
        assert!(moved.windows(2).all(|pair| pair[1] - pair[0] >= 14.999), "{moved:?}");
    }

    #[test]
    fn smoothing_is_a_mean_of_what_came_before() {
        assert_eq!(smooth(&[1.0, 3.0, 5.0], 2), [(1.0, 1.0), (2.0, 2.0), (3.0, 4.0)]);
    }
}
