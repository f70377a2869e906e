//! Stub.
use crate::context::Context;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {}

pub(crate) fn run(_args: DoctorArgs, _cx: &Context) -> u8 {
    125
}
