//! `#[derive(Job)]`: fills in the associated constants of `rowlock::Job`, and nothing else.
//!
//! Whatever the library would refuse when the job is enqueued is refused here, where the compiler can point at it.
//! Only options that were given become constants, so the defaults live in one place: the trait. The expansion is one
//! small `impl` that names nothing but `::rowlock::Job` and `::core`. Use it through `rowlock`, which re-exports it.

mod expand;
mod name;
mod options;

use proc_macro::TokenStream;
use syn::{DeriveInput, Error, parse_macro_input};

/// Implements `rowlock::Job` for a struct or an enum.
///
/// The type must also be `Serialize` and `DeserializeOwned`, because it is the payload.
///
/// ```text
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(kind = "reserve-inventory", queue = "orders", attempts = 8, time_limit = "30s")]
/// struct ReserveInventory {
///     order_id: i64,
///     item_id: i64,
/// }
/// ```
///
/// | option | sets | accepts | if absent |
/// |---|---|---|---|
/// | `kind = "…"` | `KIND` | 1 to 100 of `a-z`, `A-Z`, `0-9` and `-_.:/` | the type's name: `SendHTTPRequest` is `send-http-request` |
/// | `version = 2` | `VERSION` | 1 and up | the trait's default |
/// | `queue = "…"` | `QUEUE` | as `kind` | the trait's default |
/// | `attempts = 8` | `ATTEMPTS_MAX` | 1 to 10000 | the trait's default |
/// | `priority = 1` | `PRIORITY` | 1 to 5, 1 runs first | the trait's default |
/// | `time_limit = "30s"` | `TIME_LIMIT` | a whole number of `ms`, `s`, `m` or `h`, from 1 ms to 30 days | the trait's default |
/// | `time_limit_ms = 30000` | `TIME_LIMIT` | the same, in milliseconds | the trait's default |
///
/// The kind is stored with every job: give it by hand before you rename a type whose jobs may still be waiting.
///
/// # Errors
/// It does not compile, with the place marked, if an option is unknown, given twice or out of range; if `#[job]` is
/// on a field or a variant; if the type is a union; or if it is generic or borrows. Values are literals. For a
/// computed value, a generic type, or your own `decode`, write the `impl` by hand.
#[proc_macro_derive(Job, attributes(job))]
pub fn derive_job(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}
