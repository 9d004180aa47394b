//! The signals that ask a command to end: Ctrl-C, SIGTERM, and the SIGHUP of a terminal that was closed.

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit code after a second signal, as shells report an interrupted program.
pub(crate) const INTERRUPTED: i32 = 130;

/// Signals that ask this process to end, from now on. The process no longer ends by itself when one arrives.
pub(crate) struct Signals {
    #[cfg(unix)]
    heard: Vec<Signal>,
}

impl Signals {
    pub(crate) fn listen() -> Signals {
        Signals {
            #[cfg(unix)]
            heard: [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
                .into_iter()
                .filter_map(|kind| signal(kind).ok())
                .collect(),
        }
    }

    /// Waits for the next signal. Cancel-safe.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) {
        std::future::poll_fn(|cx| {
            let arrived = |signal: &mut Signal| signal.poll_recv(cx).is_ready();
            match self.heard.iter_mut().any(arrived) {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
    }

    /// Waits for the next signal. Cancel-safe.
    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Waits for a signal. A second one ends the process immediately.
pub(crate) async fn interrupted() {
    let mut signals = Signals::listen();
    signals.next().await;
    tokio::spawn(async move {
        signals.next().await;
        std::process::exit(INTERRUPTED);
    });
}
