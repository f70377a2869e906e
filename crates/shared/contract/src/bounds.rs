//! What holds a run to the authority of whoever asked for it, as it travels with the request.
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The bounds of a run that somebody without an admin's authority asked for. Both are read strictly before the run starts:
/// bounds that cannot be read refuse it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// The authority ceiling, every default filled in.
    pub ceiling: Value,
    /// The policy document of the request. It only narrows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Value>,
}
