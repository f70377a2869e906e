//! Secrets that are revoked while the run lives.
use super::Relay;
use bastle_audit::AuditEvent;
use bastle_contract::Fault;
use serde_json::{Value, json};

impl Relay<'_> {
    /// What comes from this value of the store is injected no more, from the next request on. Requests under way are not cut.
    pub(super) fn revoke_secret(&mut self, stored: &str) -> Result<Value, Fault> {
        let names = match &mut self.net {
            Some(net) => net.setup.secrets.revoke(stored),
            None => Vec::new(),
        };
        self.revoked(&names, "revoked while the run lives")?;
        Ok(json!({ "revoked": names }))
    }

    /// Looks into the store again, before the agent starts. The values were fetched before the run had its socket: who
    /// removed one in between found no run to tell.
    pub(super) fn recheck_secrets(&mut self) -> Result<(), Fault> {
        let names = match &mut self.net {
            Some(net) => net.setup.secrets.recheck()?,
            None => Vec::new(),
        };
        self.revoked(&names, "removed or set anew while the run started, and revoked")
    }

    /// Tells egress and the record of secrets that are revoked.
    fn revoked(&mut self, names: &[String], how: &str) -> Result<(), Fault> {
        let Some(net) = self.net.as_ref().filter(|_| !names.is_empty()) else {
            return Ok(());
        };
        // One that takes the place of a lost egress gets the same values.
        if let Some(egress) = &net.egress {
            egress.secrets(net.setup.secrets.values())?;
        }
        let text = format!("{how}: {}", names.join(", "));
        self.record.durable(&AuditEvent::Note {
            topic: "secret".to_owned(),
            text: text.clone(),
        })?;
        self.voice.happened("note", json!({ "text": text }));
        Ok(())
    }
}
