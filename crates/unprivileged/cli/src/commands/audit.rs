//! Stub.
use crate::context::{Context, Ended};
#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs { #[arg(long)] pub(crate) json: bool }
impl AuditArgs { pub(crate) fn json(&self) -> bool { self.json } }
pub(crate) fn run(_args: AuditArgs, _cx: &Context) -> Ended { Ok(0) }
