//! The greedy program of these tests.
use crate::support::{Lab, compiled};

/// Where every run of the lab can execute it.
pub(crate) fn hog(lab: &Lab) -> String {
    compiled(lab, "tests/faults/hog.c")
}
