//! The picture of a demo run under kills, from the file that `rowlock demo --record FILE` writes: one row per worker,
//! a cross for each kill, and the finished jobs below.

use serde::Deserialize;

use crate::{Anchor, Canvas, Look, Paint, number, ticks};

const WIDTH: f64 = 800.0;
const LEFT: f64 = 118.0;
const RIGHT: f64 = WIDTH - 28.0;
/// Height of a worker's row, and of the bar in it.
const ROW: f64 = 34.0;
const BAR: f64 = 16.0;
/// Height of the chart of finished jobs.
const CHART: f64 = 130.0;
/// The smallest text: still legible when a phone shows the picture at half its width.
const SMALL: f64 = 18.0;

/// A recorded run of the orders scene.
#[derive(Clone, Debug, Deserialize)]
pub struct Recorded {
    /// The database's name for people.
    pub database: String,
    /// Orders placed.
    pub orders: i64,
    /// Worker processes at a time.
    pub workers: usize,
    /// The final count.
    pub result: Counted,
    /// What was seen while the run went on, oldest first.
    pub samples: Vec<Sample>,
    /// Starts and ends of workers, oldest first.
    pub events: Vec<Event>,
}

/// The final count.
#[derive(Clone, Debug, Deserialize)]
pub struct Counted {
    /// Jobs enqueued.
    pub jobs: i64,
    /// Jobs done.
    pub done: i64,
    /// Orders without one of their effects.
    pub lost: i64,
    /// Orders with one of their effects twice.
    pub doubled: i64,
    /// Workers killed.
    pub kills: i64,
    /// How long the run took.
    pub seconds: f64,
}

/// One look at the tables.
#[derive(Clone, Debug, Deserialize)]
pub struct Sample {
    /// Milliseconds since the first worker started.
    pub t_ms: u64,
    /// Jobs done so far.
    pub done: i64,
    /// Orders with two rows in one table so far.
    pub doubled_rows: i64,
    /// Finished jobs without their row so far.
    pub missing_rows: i64,
}

/// What happened to a worker.
#[derive(Clone, Debug, Deserialize)]
pub struct Event {
    /// Milliseconds since the first worker started.
    pub t_ms: u64,
    /// The worker's number, from 1. A successor has the same number.
    pub worker: usize,
    /// What happened.
    pub event: What,
}

/// What can happen to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A process started.
    Started,
    /// The demo sent SIGKILL.
    Killed,
    /// The process ended by itself.
    Ended,
    /// The demo ended the process after the run.
    Stopped,
}

impl Recorded {
    /// Reads a recorded run.
    ///
    /// # Errors
    /// The text is not the record of an orders scene.
    pub fn read(json: &str) -> serde_json::Result<Recorded> {
        serde_json::from_str(json)
    }

    fn end_ms(&self) -> u64 {
        let samples = self.samples.iter().map(|sample| sample.t_ms);
        samples
            .chain(self.events.iter().map(|event| event.t_ms))
            .max()
            .unwrap_or(1)
            .max(1)
    }

    /// From a time to its place.
    fn x(&self, t_ms: u64) -> f64 {
        LEFT + t_ms as f64 / self.end_ms() as f64 * (RIGHT - LEFT)
    }

    /// The lives of the processes in one worker's place, from start to end.
    fn lives(&self, worker: usize) -> Vec<(u64, u64)> {
        let (mut lives, mut since) = (Vec::new(), None);
        for event in self.events.iter().filter(|event| event.worker == worker) {
            match event.event {
                What::Started => since = Some(event.t_ms),
                _ => lives.extend(since.take().map(|since| (since, event.t_ms))),
            }
        }
        lives.extend(since.map(|since| (since, self.end_ms())));
        lives
    }
}

/// The picture as an SVG file.
pub fn draw(run: &Recorded) -> String {
    let Counted {
        kills, lost, doubled, ..
    } = run.result;
    let label = format!("A run of rowlock demo: {kills} workers killed, {lost} orders lost, {doubled} doubled");
    let mut canvas = Canvas::new(WIDTH, &label);
    head(&mut canvas, run);
    workers(&mut canvas, run);
    jobs(&mut canvas, run);
    canvas.finish()
}

/// Title and the four numbers that matter.
fn head(canvas: &mut Canvas, run: &Recorded) {
    let found = &run.result;
    let title = if found.lost + found.doubled == 0 {
        "Workers get killed. No order is lost or doubled."
    } else {
        "Workers get killed. Orders were lost or doubled."
    };
    canvas.text(24.0, 42.0, title, Look::plain(Anchor::Start).size(27.0).bold(true));
    let below = format!(
        "A recorded run of rowlock demo: {} orders, {} worker processes on {}, {:.1} s",
        number_of(run.orders),
        run.workers,
        run.database,
        found.seconds
    );
    canvas.text(24.0, 72.0, &below, Look::quiet(Anchor::Start).size(SMALL));
    let promise = |broken: i64| if broken == 0 { Paint::Good } else { Paint::Alarm };
    let counters = [
        (found.kills, "workers killed", Paint::Alarm),
        (found.done, "jobs done", Paint::Ours),
        (found.lost, "lost", promise(found.lost)),
        (found.doubled, "doubled", promise(found.doubled)),
    ];
    for ((value, what, paint), x) in counters.into_iter().zip([24.0, 244.0, 464.0, 624.0]) {
        let look = Look::plain(Anchor::Start).size(44.0).bold(true).paint(paint);
        canvas.text(x, 124.0, &number_of(value), look);
        canvas.text(x, 150.0, what, Look::plain(Anchor::Start).size(20.0));
    }
    canvas.y = 172.0;
}

/// One row per worker: a bar for each process, a cross where it was killed.
fn workers(canvas: &mut Canvas, run: &Recorded) {
    canvas.line((24.0, canvas.y), (RIGHT, canvas.y), Paint::Grid, 1.0);
    canvas.cross(LEFT + 8.0, canvas.y + 20.0, 6.0, Paint::Alarm, 3.5);
    let legend = "killed with SIGKILL; a new process takes over";
    canvas.text(
        LEFT + 24.0,
        canvas.y + 26.0,
        legend,
        Look::quiet(Anchor::Start).size(SMALL),
    );
    let top = canvas.y + 38.0;
    for worker in 1..=run.workers {
        let middle = top + (worker as f64 - 0.5) * ROW;
        let look = Look::plain(Anchor::Start).size(SMALL);
        canvas.text(24.0, middle + 6.0, &format!("worker {worker}"), look);
        for (from, to) in run.lives(worker) {
            let (from, to) = (run.x(from), run.x(to));
            canvas.rect(from, middle - BAR / 2.0, to - from, BAR, Paint::OursLight);
        }
        let killed = run.events.iter().filter(|event| event.event == What::Killed);
        for event in killed.filter(|event| event.worker == worker) {
            // The wider cross below cuts the bar, so that the mark is visible on it.
            canvas.cross(run.x(event.t_ms), middle, 7.0, Paint::Paper, 8.0);
            canvas.cross(run.x(event.t_ms), middle, 7.0, Paint::Alarm, 3.5);
        }
    }
    canvas.y = top + run.workers as f64 * ROW;
}

/// The finished jobs over time, and what was wrong at each sample.
fn jobs(canvas: &mut Canvas, run: &Recorded) {
    let quiet = |anchor| Look::quiet(anchor).size(SMALL);
    let (top, bottom) = (canvas.y + 24.0, canvas.y + 24.0 + CHART);
    let far = run.result.jobs.max(1) as f64;
    let y = |value: i64| bottom - value as f64 / far * CHART;
    for third in 0..=3 {
        let value = run.result.jobs * third / 3;
        canvas.line((LEFT, y(value)), (RIGHT, y(value)), Paint::Grid, 1.0);
        canvas.text(LEFT - 10.0, y(value) + 6.0, &number_of(value), quiet(Anchor::End));
    }
    let mut line = vec![(LEFT, y(0))];
    line.extend(run.samples.iter().map(|sample| (run.x(sample.t_ms), y(sample.done))));
    let end = line.last().map_or(LEFT, |(x, _)| *x);
    canvas.area(&[&line[..], &[(end, bottom)]].concat(), Paint::Ours);
    canvas.path(&line, Paint::Ours, 3.5);
    let wrong = |sample: &Sample| sample.doubled_rows + sample.missing_rows;
    let mut wrong_line = vec![(LEFT, y(0))];
    wrong_line.extend(run.samples.iter().map(|sample| (run.x(sample.t_ms), y(wrong(sample)))));
    canvas.path(&wrong_line, Paint::Good, 3.5);
    let worst = run.samples.iter().map(wrong).max().unwrap_or(0);
    let bold = |paint| Look::plain(Anchor::End).size(SMALL).bold(true).paint(paint);
    canvas.text(RIGHT - 10.0, bottom - 40.0, "jobs done", bold(Paint::Ours));
    let says = format!("rows missing or doubled: {worst}");
    canvas.text(RIGHT - 10.0, bottom - 12.0, &says, bold(Paint::Good));
    let seconds = run.end_ms() as f64 / 1000.0;
    for second in ticks(seconds, 6).into_iter().filter(|second| *second <= seconds) {
        let x = run.x((second * 1000.0) as u64);
        canvas.line((x, bottom), (x, bottom + 5.0), Paint::Quiet, 1.0);
        let unit = if second == 0.0 { " s" } else { "" };
        canvas.text(x, bottom + 24.0, &format!("{second}{unit}"), quiet(Anchor::Middle));
    }
    canvas.line((LEFT, top - 8.0), (LEFT, bottom), Paint::Grid, 1.0);
    canvas.y = bottom + 26.0;
}

/// A whole number, with a comma at each thousand.
fn number_of(value: i64) -> String {
    match value {
        0..1000 => value.to_string(),
        large => number(large as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> Recorded {
        Recorded::read(
            r#"{"scene":"orders","database":"SQLite","orders":2,"workers":2,"seed":1,
                "result":{"jobs":6,"done":6,"effects":4,"lost":0,"doubled":0,"kills":1,"seconds":1.0},
                "samples":[{"t_ms":500,"done":3,"doubled_rows":0,"missing_rows":0},
                           {"t_ms":1000,"done":6,"doubled_rows":0,"missing_rows":0}],
                "events":[{"t_ms":0,"worker":1,"event":"started"},{"t_ms":1,"worker":2,"event":"started"},
                          {"t_ms":400,"worker":1,"event":"killed"},{"t_ms":401,"worker":1,"event":"started"},
                          {"t_ms":1000,"worker":1,"event":"stopped"}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn a_killed_worker_has_two_lives_and_an_open_life_lasts_to_the_end() {
        let run = recorded();
        assert_eq!(run.lives(1), [(0, 400), (401, 1000)]);
        assert_eq!(run.lives(2), [(1, 1000)]);
    }

    #[test]
    fn a_broken_promise_is_not_drawn_as_kept() {
        let mut run = recorded();
        let svg = draw(&run);
        assert!(svg.contains("No order is lost or doubled.") && svg.contains("missing or doubled: 0"));
        run.result.lost = 1;
        run.samples[0].missing_rows = 2;
        let svg = draw(&run);
        assert!(svg.contains("Orders were lost or doubled.") && svg.contains("missing or doubled: 2"));
    }
}
