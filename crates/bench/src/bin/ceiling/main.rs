//! What the database itself can do: the same work in raw SQL, without a framework.
fn main() {}
