//! Claim on PostgreSQL: one statement, `sql/postgres/claim/take.sql`.

use std::collections::HashMap;

use jiff_sqlx::ToSqlx;
use sqlx::PgConnection;

use super::{Inner, rows};
use crate::{
    error::Result,
    store::{ClaimAsk, ClaimReply, Stretch},
};

pub async fn claim(inner: &Inner, ask: &ClaimAsk) -> Result<ClaimReply> {
    let claim = inner.run_lent(inner.limit(), "claim", async |lent| {
        if !inner.hosts.is_home(ask.worker, lent.timeline()) {
            return Ok(ClaimReply::Moved);
        }
        Ok(claim_on(inner, lent.pg(), ask).await?)
    });
    claim.await
}

/// The same on this connection.
pub async fn claim_on(inner: &Inner, pg: &mut PgConnection, ask: &ClaimAsk) -> sqlx::Result<ClaimReply> {
    let asked: i32 = ask.queues.iter().map(|(_, places)| places).sum();
    let (stretches, ends) = by_queue(ask);
    let column = |f: fn(&Stretch) -> i64| stretches.iter().map(|p| f(p)).collect::<Vec<_>>();
    let text = match ask.bound.is_empty() {
        true => &inner.sql.claim,
        false => &inner.sql.claim_bound,
    };
    let mut query = inner
        .query(text)
        .bind(ask.worker.0)
        .bind(ends.iter().map(|(first, _)| *first).collect::<Vec<_>>())
        .bind(ask.queues.iter().map(|(_, places)| *places).collect::<Vec<_>>())
        .bind(column(|p| p.queue_no))
        .bind(column(|p| p.kind_no))
        .bind(stretches.iter().map(|p| p.priority).collect::<Vec<_>>())
        .bind(stretches.iter().map(|p| p.from.due_at.to_sqlx()).collect::<Vec<_>>())
        .bind(column(|p| p.from.id))
        .bind(inner.now())
        .bind(ask.alone)
        .bind(ends.iter().map(|(_, last)| *last).collect::<Vec<_>>());
    if !ask.bound.is_empty() {
        let (kinds, names): (Vec<i64>, Vec<&str>) = ask.bound.iter().map(|(kind, name)| (*kind, name.as_str())).unzip();
        query = query.bind(kinds).bind(names);
    }
    let rows = query.fetch_all(pg).await?;
    let Some(last) = rows.last() else {
        return Ok(ClaimReply::Dead);
    };
    let now = rows::claimed_at(last)?.ok_or(sqlx::Error::RowNotFound)?;
    let mut jobs = Vec::with_capacity(rows.len() - 1);
    for row in &rows {
        jobs.extend(rows::claimed(row, ask.worker, ask.alone, now)?);
    }
    debug_assert!(
        jobs.len() <= asked as usize,
        "claimed {} of {asked} asked for",
        jobs.len()
    );
    Ok(ClaimReply::Jobs(jobs))
}

/// The stretches sorted by queue, in their order, and the positions of each queue's first and last stretch, counted
/// from one. A queue must not scan the ranges of all the others.
fn by_queue(ask: &ClaimAsk) -> (Vec<&Stretch>, Vec<(i32, i32)>) {
    let mut lanes: HashMap<i64, Vec<&Stretch>> = HashMap::with_capacity(ask.queues.len());
    for stretch in &ask.stretches {
        lanes.entry(stretch.queue_no).or_default().push(stretch);
    }
    let mut stretches = Vec::with_capacity(ask.stretches.len());
    let mut ends = Vec::with_capacity(ask.queues.len());
    for (queue_no, _) in &ask.queues {
        let first = stretches.len() + 1;
        stretches.extend(lanes.remove(queue_no).unwrap_or_default());
        ends.push((first as i32, stretches.len() as i32));
    }
    (stretches, ends)
}

pub fn lanes(stretches: &[Stretch]) -> [Vec<i64>; 2] {
    [
        stretches.iter().map(|p| p.queue_no).collect(),
        stretches.iter().map(|p| p.kind_no).collect(),
    ]
}
