//! Every race that the protocol names, forced: two or three sessions on a real PostgreSQL, the product's own
//! statements, and a test that decides who goes next. That a step waits is read from the server, never guessed from the
//! time.

/// Makes a test of each race, run on every PostgreSQL of the run.
macro_rules! races {
    ($($name:ident),* $(,)?) => {
        mod tests {
            $(
                #[tokio::test(flavor = "current_thread")]
                async fn $name() {
                    let case = concat!(module_path!(), "::", stringify!($name));
                    crate::steps::session::on_each_server(case, super::$name).await;
                }
            )*
        }
    };
}

mod batch;
mod body_lock;
mod breaker;
mod claim;
mod commit;
mod effect;
mod group;
mod guard;
mod hooks;
mod isolation;
mod keys;
mod library;
mod once;
mod partitions;
mod recover;
mod settle;
mod strangers;
mod verbs;
mod version;
mod waits;
