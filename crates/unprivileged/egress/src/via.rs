//! Where a connection goes and how it came: one value for policy, resolver, dialler, SNI check and log.
use bastle_contract::egress::Face;
use bastle_policy::Host;

/// A connection's canonical destination and its face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Via {
    /// The one name.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// Through which face it came.
    pub face: Face,
}

impl Via {
    /// `host:port`, as in a Host header or a CONNECT line.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}
