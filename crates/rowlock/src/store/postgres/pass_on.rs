//! One string that settles a job, commits it, and opens the transaction of the job that follows.
//!
//! A commit that waits for nothing but its own string costs a round trip, and so does a begin; for small jobs round trips
//! are most of the time. The settlement goes as text, since only text carries several statements: every number and name
//! stands in it as a literal. Where the token no longer holds, `rowlock.settle_done` raises, and a string ends at its first
//! error: the commit behind it is never run.

use std::fmt::Write;

use sqlx::AssertSqlSafe;
use sqlx_core::transaction::TransactionManager;

use super::{BY_KEY, Inner, Pm, begin_text, conns::Lent, settle};
use crate::{
    job::Draft,
    store::{Fut, Isolation, Opening, SettledIn, Settlement},
};

/// What is longer goes as parameters, which are not parsed.
const TEXT_MAX: usize = 32 * 1024;

/// Whether [`pass_on`] can be expected to do it.
pub fn passes_on(inner: &Inner, held: &Lent, settlement: &Settlement) -> bool {
    let Some(next) = settle::plain_next(settlement) else {
        return false;
    };
    let texts = [
        settlement.result.as_deref(),
        next.map(|d| d.payload.as_str()),
        next.and_then(|d| d.if_retired.as_deref()),
    ];
    let length: usize = texts.iter().flatten().map(|text| text.len()).sum();
    settle::is_done(settlement)
        && settlement.turn.is_none()
        // The next transaction may be on another server.
        && inner.hosts.pooler.is_none()
        && length <= TEXT_MAX
        && inner.now().is_none()
        // A transaction that user code nested and forgot about is still open, for sqlx.
        && Pm::get_transaction_depth(held.pg_ref()) == 1
        // Whoever waits for a connection comes first.
        && !inner.handlers.wanted()
}

/// See [`InTx::pass_on`](crate::store::InTx::pass_on).
pub fn pass_on<'a>(
    inner: &'a Inner,
    held: &'a mut Lent,
    settlement: &'a Settlement,
    next: Opening,
) -> Option<Fut<'a, SettledIn>> {
    let link = settle::plain_next(settlement)?;
    let mut text = String::with_capacity(1024);
    if held.serializable {
        text.push_str(BY_KEY);
        text.push_str("; ");
    }
    call(&mut text, &inner.sql.schema, settlement, link)?;
    if text.contains('\0') {
        return None;
    }
    text.push_str("; commit; ");
    text.push_str(&begin_text(next));
    Some(Box::pin(async move {
        let passed = sqlx::raw_sql(AssertSqlSafe(text)).execute(held.pg()).await;
        held.serializable = next.level == Isolation::Serializable;
        settle::settled_one(passed.map(|_| Vec::new()), link)
    }))
}

/// `settle/one.sql` with its parameters written out; `None` where a text has no mark to stand between.
fn call(sql: &mut String, schema: &str, settlement: &Settlement, link: Option<&Draft>) -> Option<()> {
    let token = settlement.token;
    // Writing to a string does not fail.
    let _ = write!(
        sql,
        "select {schema}.settle_done({}, {}, {}, '{token}', ",
        token.id, token.epoch, token.worker.0
    );
    quoted(sql, settlement.result.as_deref())?;
    sql.push_str(", null, ");
    let next = link.map(Draft::to_json).transpose().ok()?;
    quoted(sql, next.as_deref())?;
    sql.push_str(", null)");
    Some(())
}

/// What encloses a text. One is enough unless somebody means harm.
const MARKS: [&str; 3] = ["$rl$", "$rl1$", "$rl2$"];

/// Any text, between two marks that do not occur in it: whatever the session makes of quotes and backslashes.
fn quoted(sql: &mut String, text: Option<&str>) -> Option<()> {
    let Some(text) = text else {
        sql.push_str("null");
        return Some(());
    };
    // A text that ends with all of a mark but its last sign would end with the mark one sign too early.
    let fits = |mark: &&&str| !text.contains(**mark) && !text.ends_with(&mark[..mark.len() - 1]);
    let mark = MARKS.iter().find(fits)?;
    for part in [mark, text, mark] {
        sql.push_str(part);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::quoted;

    fn literal(text: &str) -> Option<String> {
        let mut sql = String::new();
        quoted(&mut sql, Some(text))?;
        Some(sql)
    }

    #[test]
    fn a_mark_never_occurs_in_what_it_encloses() {
        let is = |text: &str, wanted: &str| assert_eq!(literal(text).as_deref(), Some(wanted));
        is("it's \\ fine", "$rl$it's \\ fine$rl$");
        is("a $rl$ b", "$rl1$a $rl$ b$rl1$");
        is("$rl$$rl1$", "$rl2$$rl$$rl1$$rl2$");
        is("ends $rl", "$rl1$ends $rl$rl1$");
        is("ends $", "$rl$ends $$rl$");
        assert_eq!(literal("$rl$ $rl1$ $rl2$"), None);
    }
}
