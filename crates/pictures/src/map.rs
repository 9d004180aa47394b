//! The picture of ARCHITECTURE.md: the layers of the library on the left, the road of a job through tables and modules
//! on the right.

use crate::{Anchor, Canvas, Look, Paint};

const WIDTH: f64 = 860.0;
const TOP: f64 = 84.0;
/// The column of layers.
const LAYERS: (f64, f64) = (24.0, 236.0);
const LAYER_HEIGHT: f64 = 58.0;
const LAYER_STEP: f64 = 74.0;
/// The height of a table's box.
const TABLE: f64 = 42.0;

/// The layers, from the outside to the inside; each uses only those below it.
const LAYERS_TEXT: [(&str, &str); 6] = [
    ("crates around it", "cli, axum, otel, redis, sqs"),
    ("handle and tools", "Rowlock, admin, TestRig"),
    ("the loop", "worker, adopt"),
    ("attempt", "begin to resolve"),
    ("verbs", "enqueue, claim, … operate"),
    ("store", "contract, postgres, sqlite, sql"),
];

/// The finished file.
pub fn draw() -> String {
    let mut canvas = Canvas::new(
        WIDTH,
        "The layers of the library, and the road of a job from enqueue to its outcome",
    );
    let title = Look::plain(Anchor::Start).size(20.0).bold(true);
    canvas.text(LAYERS.0, 36.0, "Layers", title);
    canvas.text(
        LAYERS.0,
        58.0,
        "each uses only those below",
        Look::quiet(Anchor::Start).size(14.0),
    );
    canvas.text(300.0, 36.0, "The road of a job", title);
    let quiet = Look::quiet(Anchor::Start).size(14.0);
    canvas.text(
        300.0,
        58.0,
        "blue: tables in your database; plain: modules that move a job",
        quiet,
    );
    layers(&mut canvas);
    road(&mut canvas);
    canvas.y = TOP + 6.0 * LAYER_STEP + LAYER_HEIGHT;
    canvas.finish()
}

fn layers(canvas: &mut Canvas) {
    let (left, right) = LAYERS;
    let nouns = ("nouns", "job, key, lease, case, state, error");
    for (n, (name, parts)) in (0..).zip(LAYERS_TEXT.into_iter().chain([nouns])) {
        let y = TOP + f64::from(n) * LAYER_STEP;
        frame(canvas, (left, y), (right - left, LAYER_HEIGHT), Paint::Grid);
        let name_look = Look::plain(Anchor::Middle).size(16.0).bold(true);
        let middle = f64::midpoint(left, right);
        canvas.text(middle, y + 25.0, name, name_look);
        canvas.text(middle, y + 45.0, parts, Look::quiet(Anchor::Middle).size(13.0));
        if n < 6 {
            arrow(
                canvas,
                &[(middle, y + LAYER_HEIGHT), (middle, y + LAYER_STEP)],
                Paint::Quiet,
            );
        }
    }
}

fn road(canvas: &mut Canvas) {
    let step = |n: f64| TOP + n * LAYER_STEP;
    application(canvas, step(0.0));
    let ready = table(canvas, 330.0, step(1.6), "job, ready");
    let waiting = table(canvas, 640.0, step(1.6), "waiting");
    let lease = table(canvas, 330.0, step(3.1), "lease");
    let finished = table(canvas, 330.0, step(6.05), "outcome");
    let case = table(canvas, 640.0, step(6.05), "case_file");

    arrow(canvas, &[(400.0, step(0.0) + 58.0), (400.0, ready)], Paint::Ours);
    label(canvas, (410.0, step(1.25)), "enqueue", "in your transaction");
    arrow(canvas, &[(700.0, step(0.0) + 58.0), (700.0, waiting)], Paint::Ours);
    arrow(canvas, &[(640.0, waiting + 21.0), (472.0, waiting + 21.0)], Paint::Ours);
    canvas.text(556.0, waiting + 13.0, "complete, or its time", small(Anchor::Middle));

    arrow(canvas, &[(400.0, ready + TABLE), (400.0, lease)], Paint::Ours);
    label(canvas, (410.0, step(2.55)), "claim", "epoch + 1, attempt + 1");

    arrow(canvas, &[(400.0, lease + TABLE), (400.0, step(4.05))], Paint::Ours);
    attempt(canvas, step(4.05));
    arrow(canvas, &[(400.0, step(4.05) + 92.0), (400.0, finished)], Paint::Ours);
    label(canvas, (410.0, step(5.72)), "settle", "only with the token");
    arrow(canvas, &[(700.0, step(4.05) + 92.0), (700.0, case)], Paint::Alarm);
    canvas.text(710.0, step(5.72), "attempts used up,", small(Anchor::Start));
    canvas.text(710.0, step(5.72) + 17.0, "or a call in doubt", small(Anchor::Start));

    // Back to ready, on the left of the road.
    let back = [
        (330.0, step(4.05) + 46.0),
        (286.0, step(4.05) + 46.0),
        (286.0, ready + 21.0),
        (330.0, ready + 21.0),
    ];
    arrow(canvas, &back, Paint::Ours);
    canvas.text(292.0, step(3.0) - 4.0, "again", small(Anchor::Start));
    // A lease whose worker is silent.
    let lost = [
        (472.0, lease + 21.0),
        (560.0, lease + 21.0),
        (560.0, ready + 34.0),
        (472.0, ready + 34.0),
    ];
    arrow(canvas, &lost, Paint::Alarm);
    label(
        canvas,
        (570.0, step(2.82)),
        "recover",
        "its worker is silent: outcome lost,",
    );
    canvas.text(570.0, step(2.82) + 34.0, "then ready, or a case", small(Anchor::Start));
}

/// The code of the user, which holds the transaction.
fn application(canvas: &mut Canvas, y: f64) {
    frame(canvas, (330.0, y), (500.0, 58.0), Paint::Quiet);
    canvas.text(
        346.0,
        y + 25.0,
        "your application",
        Look::plain(Anchor::Start).size(16.0).bold(true),
    );
    let code = "begin; insert the order; enqueue the job; commit";
    canvas.text(346.0, y + 45.0, code, Look::quiet(Anchor::Start).size(14.0));
}

/// The box of an attempt with its steps.
fn attempt(canvas: &mut Canvas, y: f64) {
    frame(canvas, (330.0, y), (500.0, 92.0), Paint::Quiet);
    let bold = Look::plain(Anchor::Start).size(16.0).bold(true);
    canvas.text(346.0, y + 25.0, "attempt, one per slot of the worker", bold);
    let steps = ["begin", "guard", "conclude", "close", "resolve"];
    for (n, step) in (0..).zip(steps) {
        let x = 346.0 + f64::from(n) * 97.0;
        canvas.text(
            x,
            y + 53.0,
            step,
            Look::plain(Anchor::Start).size(15.0).paint(Paint::Ours),
        );
        if n < 4 {
            arrow(canvas, &[(x + 70.0, y + 48.0), (x + 90.0, y + 48.0)], Paint::Quiet);
        }
    }
    let below = "your handler runs in guard; close commits its writes with the outcome";
    canvas.text(346.0, y + 78.0, below, Look::quiet(Anchor::Start).size(14.0));
}

/// A table's box; where its top is.
fn table(canvas: &mut Canvas, x: f64, y: f64, name: &str) -> f64 {
    canvas.rect(x, y, 142.0, TABLE, Paint::Ours);
    let look = Look::plain(Anchor::Middle).size(16.0).bold(true).paint(Paint::Paper);
    canvas.text(x + 71.0, y + 27.0, name, look);
    y
}

/// The module that moves the job along an arrow, and the rule of that move.
fn label(canvas: &mut Canvas, at: (f64, f64), module: &str, rule: &str) {
    canvas.text(at.0, at.1, module, Look::plain(Anchor::Start).size(15.0).bold(true));
    canvas.text(at.0, at.1 + 17.0, rule, small(Anchor::Start));
}

fn small(anchor: Anchor) -> Look {
    Look::quiet(anchor).size(13.0)
}

fn frame(canvas: &mut Canvas, at: (f64, f64), size: (f64, f64), paint: Paint) {
    let ((x, y), (width, height)) = (at, size);
    let corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)];
    canvas.area(&corners, Paint::Quiet);
    canvas.path(&corners, paint, 1.2);
}

/// A line through these places with a head at its end; the last part is horizontal or vertical.
fn arrow(canvas: &mut Canvas, points: &[(f64, f64)], paint: Paint) {
    canvas.path(points, paint, 1.8);
    let [.., (x1, y1), (x2, y2)] = points else { return };
    let (dx, dy) = (
        (x2 - x1).signum() * f64::from(x1 != x2),
        (y2 - y1).signum() * f64::from(y1 != y2),
    );
    let wing = |side: f64| (x2 - 7.0 * dx + 4.5 * side * dy, y2 - 7.0 * dy + 4.5 * side * dx);
    canvas.path(&[wing(1.0), (*x2, *y2), wing(-1.0)], paint, 1.8);
}
