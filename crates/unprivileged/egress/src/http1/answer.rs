//! Our own answers.
//!
//! **Trust:** everything in them was cleaned by whoever made it; values are refused a line end all the same.
/// Whether the connection goes on after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persist {
    /// It may.
    Keep,
    /// It is closed.
    Close,
}

/// A small answer of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    status: u16,
    fields: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    /// An answer with a JSON body.
    pub(crate) fn json(status: u16, body: Vec<u8>) -> Self {
        Self {
            status,
            fields: vec![("Content-Type", "application/json".to_owned())],
            body,
        }
    }

    /// Adds a field. Line ends in the value become spaces.
    pub(crate) fn field(mut self, name: &'static str, value: &str) -> Self {
        let clean = value
            .chars()
            .map(|c| if c.is_control() || !c.is_ascii() { ' ' } else { c })
            .collect();
        self.fields.push((name, clean));
        self
    }

    /// The bytes of the whole answer.
    pub(crate) fn bytes(&self, persist: Persist) -> Vec<u8> {
        let phrase = http::StatusCode::from_u16(self.status)
            .ok()
            .and_then(|status| status.canonical_reason())
            .unwrap_or("Refused");
        let mut head = format!("HTTP/1.1 {} {phrase}\r\n", self.status);
        for (name, value) in &self.fields {
            head.push_str(name);
            head.push_str(": ");
            head.push_str(value);
            head.push_str("\r\n");
        }
        head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        head.push_str("Cache-Control: no-store\r\n");
        if persist == Persist::Close {
            head.push_str("Connection: close\r\n");
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}
