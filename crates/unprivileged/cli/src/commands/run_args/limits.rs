//! Limits of the command line as a policy document.
use super::LimitArgs;
use serde_json::{Map, Value, json};

impl LimitArgs {
    /// The limits of the command line as a policy writes them.
    pub(super) fn document(&self) -> Map<String, Value> {
        let texts = [
            ("memory", &self.mem),
            ("disk", &self.disk),
            ("timeout", &self.timeout),
            ("bytesWritten", &self.max_written),
            ("output", &self.max_output),
        ];
        let numbers = [
            ("pids", self.pids),
            ("files", self.max_files),
            ("inodes", self.max_inodes),
            ("openFiles", self.open_files),
        ];
        let texts = texts
            .into_iter()
            .filter_map(|(key, value)| Some((key, Value::String(value.clone()?))));
        let numbers = numbers
            .into_iter()
            .filter_map(|(key, value)| Some((key, json!(value?))));
        let cpu = self.cpu.map(|cpu| ("cpu", json!(cpu)));
        texts
            .chain(numbers)
            .chain(cpu)
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }
}
