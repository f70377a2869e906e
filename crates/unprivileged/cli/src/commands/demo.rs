//! Stub.
use crate::context::Context;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {}

pub(crate) fn run(_args: DemoArgs, _cx: &Context) -> u8 {
    125
}
