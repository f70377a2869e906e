//! The bastle binary.
fn main() {}
