//! What must hold of every table before it takes effect, asked of the table itself.
use super::{ConnectVerdict, NetPolicy, NetRequest};
use crate::decide::Outcome;
use crate::host::Host;
use bastle_contract::egress::CANARY_NAME;
use std::net::IpAddr;

/// Names no table opens.
const FORBIDDEN_NAMES: &[&str] = &[
    CANARY_NAME,
    "localhost",
    "a.localhost",
    "metadata.google.internal",
    "169.254.169.254",
    "127.0.0.1",
];

/// Addresses no table opens.
const FORBIDDEN_ADDRESSES: &[&str] = &[
    "169.254.169.254",
    "100.100.100.200",
    "fd00:ec2::254",
    "0.0.0.0",
    "::",
    "224.0.0.1",
    "255.255.255.255",
    "::ffff:169.254.169.254",
    "64:ff9b::169.254.169.254",
];

impl NetPolicy {
    /// Asks what must be refused. A table that fails is not used; the one before it stays.
    pub fn selftest(&self) -> Result<(), String> {
        if self.tiers.is_empty() {
            return Err("the table has no tier that grants, so nobody made it".to_owned());
        }
        for name in FORBIDDEN_NAMES {
            let host = Host::new(name).map_err(|e| e.to_string())?;
            for port in [0, 443, 80, 22] {
                if !matches!(self.connect(&host, port), ConnectVerdict::Deny(_)) {
                    return Err(format!("the table lets {host}:{port} be reached"));
                }
            }
            let request = NetRequest {
                method: "GET",
                host: &host,
                port: 443,
                path: "/",
                body_len: None,
                operation: None,
                websocket: false,
            };
            if self.request(&request).outcome != Outcome::Deny {
                return Err(format!("the table lets {host} be asked"));
            }
        }
        for text in FORBIDDEN_ADDRESSES {
            let address: IpAddr = text.parse().map_err(|_| format!("{text} is no address"))?;
            if self.address(address).is_ok() {
                return Err(format!("the table lets names resolve to {address}"));
            }
        }
        let open = self.secrets.iter().find(|secret| secret.hosts.is_empty());
        match open {
            Some(secret) => Err(format!("secret {} is for no host", secret.name.as_str())),
            None => Ok(()),
        }
    }
}
