//! Text for people: faults, tables, sizes, times. What an agent or a file said is escaped before it is shown.
mod fault;
mod json;
mod style;
mod table;
mod units;

pub(crate) use fault::{fault, fault_json};
pub(crate) use json::{escaped, json};
pub(crate) use style::{Letters, Paint, Style};
pub(crate) use table::Table;
pub(crate) use units::{ago, bytes, duration_ms, now_ms, timestamp};

/// One line of untrusted text, safe for a terminal.
pub(crate) fn clean(text: &str) -> String {
    bastle_audit::sanitize(text)
}

/// Several lines of text of our own making that may quote untrusted text.
pub(crate) fn clean_lines(text: &str) -> String {
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}
