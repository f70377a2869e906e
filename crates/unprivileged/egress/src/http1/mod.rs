//! Strict HTTP/1.x: one reading of every byte, or none.
//!
//! **Trust:** reads the agent's bytes. What two readers could understand differently (bare LF, folded lines, doubled
//! or disguised lengths) is refused, never repaired, so that nothing can be smuggled to whoever reads after us.
mod answer;
mod body;
mod head;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use answer::{Answer, Persist};
pub(crate) use body::{BodyDecoder, Decoded};
pub(crate) use head::{Authority, Framing, Head, HeadError, Target, Version, parse_head};
pub(crate) use reader::RequestReader;
