//! `rowlock bridge`: messages of an external queue trigger jobs. SQS is a feature, as the AWS client takes long to
//! build; without it the command is still there, and says how to get it.

#[cfg(feature = "sqs")]
mod sqs;

use anyhow::Result;

use super::Place;

#[cfg(feature = "sqs")]
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    to: To,
}

#[cfg(feature = "sqs")]
#[derive(clap::Subcommand)]
enum To {
    /// Let pointers in an SQS queue trigger jobs, and make jobs of other messages, until stopped
    Sqs(Box<sqs::Args>),
}

#[cfg(feature = "sqs")]
pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let To::Sqs(args) = args.to;
    sqs::run(place, *args).await
}

#[cfg(not(feature = "sqs"))]
#[derive(clap::Args)]
pub(crate) struct Args {
    /// sqs and its options; this binary was built without the feature `sqs`
    #[arg(value_name = "sqs", trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<std::ffi::OsString>,
}

#[cfg(not(feature = "sqs"))]
pub(crate) async fn run(_: &Place, _: Args) -> Result<()> {
    Err(crate::output::Advice::error(
        "this binary was built without the feature `sqs`, so it has no `bridge sqs`",
        "cargo install --path crates/rowlock-cli --features sqs   installs one that has it; \
         from the source: cargo run --features sqs -- bridge sqs …",
    ))
}
