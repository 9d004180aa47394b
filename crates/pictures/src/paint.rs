//! Colours by purpose, each for a light and for a dark background.

/// What a colour is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paint {
    /// The background.
    Paper,
    /// Text and axes.
    Ink,
    /// Text of less weight.
    Quiet,
    /// Lines of a scale.
    Grid,
    /// Rowlock.
    Ours,
    /// The second part of a Rowlock bar.
    OursLight,
    /// Another job queue.
    Peer,
    /// The second part of a peer's bar.
    PeerLight,
    /// Plain SQL without a job queue.
    Ceiling,
    /// The second part of a ceiling's bar.
    CeilingLight,
    /// Something was killed.
    Alarm,
    /// A promise was kept.
    Good,
    /// One of several lines, each with its own hue. There are [`Paint::SERIES`] of them; higher numbers start again.
    Series(u8),
}

/// The lines of a chart with several series, light and dark.
const SERIES: [(&str, &str); 8] = [
    ("#d1495b", "#f07a8a"),
    ("#3f8f5f", "#62b985"),
    ("#8f5fbf", "#b48ae0"),
    ("#c98a1b", "#dfa540"),
    ("#2c9fb3", "#4fc0d4"),
    ("#7a6a58", "#b3a08b"),
    ("#d774b4", "#e796c9"),
    ("#8895a3", "#a3afbb"),
];

impl Paint {
    /// How many different [`Paint::Series`] there are.
    pub const SERIES: u8 = SERIES.len() as u8;

    /// The colour on a light and on a dark background.
    fn colours(self) -> (&'static str, &'static str) {
        match self {
            Paint::Paper => ("#ffffff", "#0d1117"),
            Paint::Ink => ("#1f2933", "#e6edf3"),
            Paint::Quiet => ("#5b6773", "#9aa7b4"),
            Paint::Grid => ("#e6eaee", "#2a313a"),
            Paint::Ours => ("#0b62c4", "#58a6ff"),
            Paint::OursLight => ("#7fb2ea", "#2b639f"),
            Paint::Peer => ("#aab6c2", "#66727f"),
            Paint::PeerLight => ("#d5dce3", "#3d4650"),
            Paint::Ceiling => ("#f0b849", "#d29b2f"),
            Paint::CeilingLight => ("#f8dda6", "#6f5822"),
            Paint::Alarm => ("#d1242f", "#ff7b72"),
            Paint::Good => ("#1a7f37", "#3fb950"),
            Paint::Series(number) => SERIES[usize::from(number % Paint::SERIES)],
        }
    }

    fn name(self) -> String {
        match self {
            Paint::Series(number) => format!("series-{}", number % Paint::SERIES),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    /// The class of a shape that is filled with this paint.
    pub(crate) fn fill(self) -> String {
        format!("f-{}", self.name())
    }

    /// The class of a shape that is outlined with this paint.
    pub(crate) fn stroke(self) -> String {
        format!("s-{}", self.name())
    }
}

/// How a class uses its paint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    Fill,
    Stroke,
}

/// The style sheet for these paints, with the dark colours for readers who prefer them.
pub(crate) fn sheet(used: impl Iterator<Item = (Paint, Use)> + Clone) -> String {
    let rules = |dark: bool| -> String {
        let rule = |(paint, by): (Paint, Use)| {
            let colours = paint.colours();
            let colour = if dark { colours.1 } else { colours.0 };
            match by {
                Use::Fill => format!(".{}{{fill:{colour}}}", paint.fill()),
                Use::Stroke => format!(".{}{{stroke:{colour}}}", paint.stroke()),
            }
        };
        used.clone().map(rule).collect()
    };
    format!(
        "<style>\n{}\n@media (prefers-color-scheme: dark){{{}}}\n</style>\n",
        rules(false),
        rules(true)
    )
}
