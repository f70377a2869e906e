//! Tests of the log through its public interface, on real files.
#[cfg(test)]
mod committer;
#[cfg(test)]
mod common;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod index;
#[cfg(test)]
mod setup;
#[cfg(test)]
mod tamper;
#[cfg(test)]
mod text;
#[cfg(test)]
mod torn;
