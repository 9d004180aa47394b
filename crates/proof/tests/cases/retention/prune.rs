//! Prune: the retention by hand, immediately and to the end, and noted.

use rowlock::{Error, Hold, Retention, State};

use super::{
    Bed, Note,
    policy::{DAY, Rigged},
};

const WEEK: Retention = Retention::new()
    .history(std::time::Duration::from_secs(7 * 24 * 3600))
    .cases_for_ever()
    .keys_for_ever()
    .audit_for_ever();

async fn finished(rigged: &Rigged, text: &str) -> i64 {
    let put = rigged.rig.rowlock().enqueue_now(Note::new(text)).key(text);
    let id = put.hold(Hold::WhileOpen).await.unwrap().id();
    rigged.rig.run_once().await.unwrap().expect_done();
    id
}

async fn a_prune_removes_what_is_over_tells_how_much_and_is_noted(bed: &Bed) {
    let rigged = Rigged::new(bed).await;
    let old = finished(&rigged, "old").await;
    rigged.rig.advance(10 * DAY);
    let young = finished(&rigged, "young").await;
    let open = rigged.rig.rowlock().enqueue_now(Note::new("open")).await.unwrap().id();
    let operate = rigged.rig.rowlock().operate();

    let too_short = WEEK.history(std::time::Duration::from_secs(60));
    let refused = operate.prune(&too_short, "tess", |_| {}).await;
    assert!(matches!(refused, Err(Error::Config(_))), "{refused:?}");
    assert_eq!(rigged.state(old).await, Some(State::Finished));

    let told = std::sync::Mutex::new(Vec::new());
    let removed = operate
        .prune(&WEEK, "tess", |so_far| told.lock().unwrap().push(so_far.jobs))
        .await;
    let removed = removed.unwrap();
    assert_eq!((removed.jobs, removed.cases, removed.keys), (1, 0, 1));
    assert_eq!(told.into_inner().unwrap(), [1]);
    assert_eq!(rigged.state(old).await, None);
    assert_eq!(rigged.state(young).await, Some(State::Finished));
    assert_eq!(rigged.state(open).await, Some(State::Ready));
    let again = operate.prune(&WEEK, "tess", |_| {}).await.unwrap();
    assert_eq!((again.jobs, again.keys), (0, 0));
    let noted = "select count(*) from rowlock.audit where actor = 'tess' and verb = 'pruned' and jobs = 1";
    assert_eq!(rigged.count(noted).await, 1);
    let noted = "select count(*) from rowlock.audit where actor = 'tess' and verb = 'prune'";
    assert_eq!(rigged.count(noted).await, 2);
    rigged.rig.close().await.unwrap();
}

mod tests {
    // A rig brings its own tables.
    super::super::cases!(bare: a_prune_removes_what_is_over_tells_how_much_and_is_noted);
}
