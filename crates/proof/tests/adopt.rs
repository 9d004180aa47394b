//! Tables of the user's own, on real PostgreSQL: what is found of them, the protocol on their rows step by step, workers on
//! them, and what is left when those are killed.

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
