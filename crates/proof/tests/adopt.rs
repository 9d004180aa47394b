//! Adopted tables on real PostgreSQL: the check of their columns, the protocol on their rows step by step, workers on
//! them, and the state after a kill of those workers.

/// Makes a test of each case, run on every PostgreSQL of the run.
macro_rules! on_postgresql {
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

pub(crate) mod bed;
mod cases;
mod effects;
mod inspect;
mod kill;
mod locked;
mod plans;
mod races;
mod refused;
mod turns;
mod worker;
