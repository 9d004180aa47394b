//! `rowlock delay`, `rowlock run-now` and `rowlock cancel`: what people do to single jobs.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::{Actor, Place, duration};
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Delay {
    #[command(flatten)]
    what: What,
    /// This long from now, such as 10m, 2h or 1d
    #[arg(long, value_parser = duration, value_name = "TIME", required_unless_present = "until")]
    by: Option<Duration>,
    /// Until then, such as 2030-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "by")]
    until: Option<Timestamp>,
}

#[derive(clap::Args)]
pub(crate) struct What {
    /// The jobs' ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<i64>,
    #[command(flatten)]
    actor: Actor,
}

#[derive(clap::Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    what: What,
    /// Why; kept with the job
    #[arg(long)]
    reason: Option<String>,
}

pub(crate) async fn delay(place: &Place, args: Delay) -> Result<()> {
    let operate = place.checked().await?.operate();
    let until = match (args.until, args.by) {
        (Some(until), _) => until,
        (None, by) => {
            let until = Timestamp::now().checked_add(by.unwrap_or_default());
            until.context("--by reaches beyond all time")?
        }
    };
    for id in &args.what.ids {
        operate.delay(*id, until, place.actor(&args.what.actor)).await?;
        output::print(&format!("job {id} is due at {until}\n"))?;
    }
    Ok(())
}

pub(crate) async fn run_now(place: &Place, args: What) -> Result<()> {
    let operate = place.checked().await?.operate();
    for id in &args.ids {
        operate.run_now(*id, place.actor(&args.actor)).await?;
        output::print(&format!("job {id} is due now\n"))?;
    }
    Ok(())
}

pub(crate) async fn cancel(place: &Place, args: Cancel) -> Result<()> {
    let operate = place.checked().await?.operate();
    for id in &args.what.ids {
        operate.cancel(*id, args.reason.as_deref(), place.actor(&args.what.actor)).await?;
        output::print(&format!("job {id} is cancelled\n"))?;
    }
    Ok(())
}
