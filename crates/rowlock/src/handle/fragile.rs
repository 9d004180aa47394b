//! User code's futures, which may panic when polled and when dropped.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::Poll,
};

/// A future that may panic at any time without affecting other code.
pub(crate) struct Fragile<T>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T> Fragile<T> {
    pub(crate) fn new(future: Pin<Box<dyn Future<Output = T> + Send>>) -> Fragile<T> {
        Fragile(Some(future))
    }

    /// Runs the future until it ends or panics; then drops it like any other.
    pub(crate) async fn caught(mut self) -> Result<T, String> {
        std::future::poll_fn(move |cx| {
            let Some(future) = &mut self.0 else {
                return Poll::Pending;
            };
            match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
                Err(panic) => Poll::Ready(Err(panic_text(&*panic))),
            }
        })
        .await
    }
}

impl<T> Drop for Fragile<T> {
    fn drop(&mut self) {
        let future = self.0.take();
        if catch_unwind(AssertUnwindSafe(|| drop(future))).is_err() {
            tracing::error!("a handler panicked while it was being dropped");
        }
    }
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no text".to_owned())
}
