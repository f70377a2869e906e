//! Which credential headers of the agent's own pass, and where nobody can tell.
//!
//! **Trust:** the request comes from the agent. Every tier that has rules about the host must name the header.
use super::request::TierRole;
use super::{ConnectVerdict, NetMode, NetPolicy, NetRequest};
use crate::host::Host;
use crate::netrule::Asked;

/// Said where a connection is passed on unopened.
pub(crate) const UNREAD: &str =
    "TLS to it is passed on unopened: credential headers that the agent adds itself are not held";

impl NetPolicy {
    /// Whether a credential header that the agent added itself passes with this request.
    #[must_use]
    pub fn passes_header(&self, request: &NetRequest<'_>, name: &str) -> bool {
        let asked = Asked {
            method: Some(request.method),
            host: request.host,
            port: request.port,
            path: Some(request.path),
            operation: request.operation,
            websocket: request.websocket,
        };
        !self.tiers.is_empty()
            && self.tiers.iter().enumerate().all(|(index, tier)| {
                let grants = index == 0;
                let role = if grants {
                    TierRole::Grants
                } else {
                    TierRole::Narrows
                };
                let rules = || {
                    let fits = |rule: &&crate::netrule::NetRule| {
                        rule.allows(&asked) && self.port_fits(tier, rule, asked.port, role)
                    };
                    tier.allow.iter().flatten().map(|rule| &rule.value).filter(fits)
                };
                // Where no rule speaks: the person opened everything, or this tier does not narrow.
                let silent = if grants {
                    self.mode == NetMode::Open && rules().next().is_none()
                } else {
                    tier.allow.is_none()
                };
                silent || rules().any(|rule| rule.terms.headers.iter().any(|own| own == name))
            })
    }

    /// Whether connections to this host are passed on unread, so that headers inside cannot be held.
    #[must_use]
    pub fn passes_unread(&self, host: &Host, port: u16) -> bool {
        match self.connect(host, port) {
            ConnectVerdict::Pass(_) => true,
            ConnectVerdict::Deny(_) | ConnectVerdict::Ask(_) | ConnectVerdict::Inspect(_) => false,
        }
    }
}
