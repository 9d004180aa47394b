//! How large a job may be.

/// What is accepted at enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(crate) payload_bytes_max: usize,
    pub(crate) depth_max: usize,
    pub(crate) tags_max: usize,
}

impl Limits {
    /// A payload of 1 MiB that nests 100 deep, and 32 tags.
    pub const fn new() -> Limits {
        Limits {
            payload_bytes_max: 1 << 20,
            depth_max: 100,
            tags_max: 32,
        }
    }

    /// The largest payload, in bytes of JSON.
    pub const fn payload_bytes(mut self, max: usize) -> Limits {
        self.payload_bytes_max = max;
        self
    }

    /// How deep a payload may nest.
    pub const fn depth(mut self, max: usize) -> Limits {
        self.depth_max = max;
        self
    }

    /// How many tags a job may have.
    pub const fn tags(mut self, max: usize) -> Limits {
        self.tags_max = max;
        self
    }

    /// The largest payload that is accepted, in bytes of JSON.
    pub const fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits::new()
    }
}
