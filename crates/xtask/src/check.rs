//! Single checks, each a separate command; some are also steps of `test`.

pub(crate) mod api;
pub(crate) mod claims;
pub(crate) mod counts;
pub(crate) mod coverage;
pub(crate) mod docs;
pub(crate) mod features;
pub(crate) mod lint;
