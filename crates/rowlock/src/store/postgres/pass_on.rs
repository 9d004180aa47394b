//! One string that settles a job, commits it, and opens the transaction of the job that follows.
//!
//! A separate commit costs a round trip, and so does a begin; for small jobs, round trips take most of the time. The
//! settlement is sent as text, because only text can contain several statements. Every number and name in it is a
//! literal. If the token no longer holds, `rowlock.settle_done` raises an error. A string ends at its first error, so
//! the commit after it never runs.

use std::fmt::Write;

use sqlx::AssertSqlSafe;
use sqlx_core::transaction::TransactionManager;

use super::{BY_KEY, Inner, Pm, begin_text, conns::Lent, settle};
use crate::{
    job::Draft,
    store::{Fut, Isolation, Opening, SettledIn, Settlement},
};

/// Longer settlements are sent as parameters, which are not parsed.
const TEXT_MAX: usize = 32 * 1024;

/// Whether [`pass_on`] is likely to succeed.
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
        // Behind a pooler, the next transaction may be on another server.
        && inner.hosts.pooler.is_none()
        && length <= TEXT_MAX
        && inner.now().is_none()
        // For sqlx, a nested transaction that user code did not end is still open.
        && Pm::get_transaction_depth(held.pg_ref()) == 1
        // A caller that waits for a connection comes first.
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

/// `settle/one.sql` with its parameters written out; `None` if no quoting mark fits one of the texts.
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

/// The quoting marks. The first is enough, except for hostile texts.
const MARKS: [&str; 3] = ["$rl$", "$rl1$", "$rl2$"];

/// Any text, between two marks that do not occur in it. This works with every session setting for quotes and
/// backslashes.
fn quoted(sql: &mut String, text: Option<&str>) -> Option<()> {
    let Some(text) = text else {
        sql.push_str("null");
        return Some(());
    };
    // A text that ends with all of a mark but its last character would close the quote one character too early.
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
