//! Secrets that are revoked while the run lives.
use super::Relay;
use bastle_audit::AuditEvent;
use bastle_contract::Fault;
use serde_json::{Value, json};

impl Relay<'_> {
    /// What comes from this value of the store is injected no more, from the next request on. Requests under way are not cut.
    pub(super) fn revoke_secret(&mut self, stored: &str) -> Result<Value, Fault> {
        let Some(net) = &mut self.net else {
            return Ok(json!({ "revoked": [] }));
        };
        let names = net.setup.secrets.revoke(stored);
        if names.is_empty() {
            return Ok(json!({ "revoked": [] }));
        }
        // One that takes the place of a lost egress gets the same values.
        if let Some(egress) = &net.egress {
            egress.secrets(net.setup.secrets.values())?;
        }
        let text = format!("revoked while the run lives: {}", names.join(", "));
        self.record.durable(&AuditEvent::Note {
            topic: "secret".to_owned(),
            text: text.clone(),
        })?;
        self.voice.happened("note", json!({ "text": text }));
        Ok(json!({ "revoked": names }))
    }
}
