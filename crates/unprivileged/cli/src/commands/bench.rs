//! Stub.
use crate::context::{Context, Ended};
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs { #[arg(long)] pub(crate) json: bool }
impl BenchArgs { pub(crate) fn json(&self) -> bool { self.json } }
pub(crate) fn run(_args: &BenchArgs, _cx: &Context) -> Ended { Ok(0) }
