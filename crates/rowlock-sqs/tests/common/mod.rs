//! Makes a test of each case, run on every emulator with every database of the run.

/// `fifo:` cases get a FIFO queue.
macro_rules! cases {
    ($($name:ident),* ; fifo: $($fifo:ident),* $(,)?) => {
        $(crate::common::cases!(@one $name false);)*
        $(crate::common::cases!(@one $fifo true);)*
    };
    (@one $name:ident $fifo:literal) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn $name() -> anyhow::Result<()> {
            for server in [proof::bed::sqlite_server(), proof::bed::postgres_servers()].concat() {
                for emulator in proof_sqs::emulators() {
                    let case = concat!("sqs::", stringify!($name));
                    let bed = proof_sqs::bed::Bed::new(&server, &emulator, case, $fifo).await?;
                    super::$name(&bed).await?;
                    bed.remove().await?;
                }
            }
            Ok(())
        }
    };
}
pub(crate) use cases;
