//! One error shape for every step of building the fence: the control, the object, the cause, the fix.
use bastle_contract::{Code, Fault};
use std::fmt::Display;

/// Names the control a result belongs to, so that a failure stops the run and says which one failed.
pub(crate) trait Step<T> {
    /// `control` is what could not be set up, `object` on what.
    fn step(self, control: &str, object: impl Display) -> Result<T, Fault>;
}

impl<T, E: Display> Step<T> for Result<T, E> {
    fn step(self, control: &str, object: impl Display) -> Result<T, Fault> {
        self.map_err(|cause| {
            Fault::new(
                Code::FenceStep,
                format!("cannot set up {control} ({object})"),
                cause.to_string(),
            )
            .help("bastle doctor")
        })
    }
}
