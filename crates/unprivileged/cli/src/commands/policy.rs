//! Stub.
use crate::context::{Context, Ended};
#[derive(Debug, clap::Args)]
pub(crate) struct PolicyArgs { #[arg(long)] pub(crate) json: bool }
impl PolicyArgs { pub(crate) fn json(&self) -> bool { self.json } }
pub(crate) fn run(_args: PolicyArgs, _cx: &Context) -> Ended { Ok(0) }
