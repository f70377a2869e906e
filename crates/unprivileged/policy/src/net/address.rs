//! Addresses that names may not resolve to: every special-purpose range, and metadata services always.
//!
//! **Trust:** addresses come from answers of name servers, which whoever owns a name controls.
use super::NetPolicy;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses: at least /8 for IPv4, /16 for IPv6, host bits zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

/// Never reachable, whatever a policy says.
const NEVER_V4: &[([u8; 4], u8, &str)] = &[
    ([0, 0, 0, 0], 8, "it is an address of this machine itself"),
    ([169, 254, 169, 254], 32, METADATA),
    ([169, 254, 170, 2], 32, METADATA),
    ([100, 100, 100, 200], 32, METADATA),
    ([168, 63, 129, 16], 32, METADATA),
    ([192, 0, 0, 192], 32, METADATA),
    ([224, 0, 0, 0], 4, "it is a multicast address"),
    ([255, 255, 255, 255], 32, "it is the broadcast address"),
];

/// Reachable only where `net.addresses` says so: the registry of special-purpose addresses.
const SPECIAL_V4: &[([u8; 4], u8, &str)] = &[
    ([10, 0, 0, 0], 8, PRIVATE),
    (
        [100, 64, 0, 0],
        10,
        "it is an address shared behind a carrier's NAT",
    ),
    ([127, 0, 0, 0], 8, "it is a loopback address"),
    ([169, 254, 0, 0], 16, LINK_LOCAL),
    ([172, 16, 0, 0], 12, PRIVATE),
    ([192, 0, 0, 0], 24, RESERVED),
    ([192, 0, 2, 0], 24, DOCUMENTATION),
    ([192, 31, 196, 0], 24, RESERVED),
    ([192, 52, 193, 0], 24, RESERVED),
    ([192, 88, 99, 0], 24, RESERVED),
    ([192, 168, 0, 0], 16, PRIVATE),
    ([192, 175, 48, 0], 24, RESERVED),
    ([198, 18, 0, 0], 15, "it is an address for benchmarks"),
    ([198, 51, 100, 0], 24, DOCUMENTATION),
    ([203, 0, 113, 0], 24, DOCUMENTATION),
    ([240, 0, 0, 0], 4, RESERVED),
];

/// Never reachable, whatever a policy says.
const NEVER_V6: &[([u16; 8], u8, &str)] = &[
    (
        [0, 0, 0, 0, 0, 0, 0, 0],
        128,
        "it is an address of this machine itself",
    ),
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, METADATA),
    ([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, METADATA),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "it is a multicast address"),
];

/// Reachable only where `net.addresses` says so.
const SPECIAL_V6: &[([u16; 8], u8, &str)] = &[
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "it is the loopback address"),
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, EMBEDDED),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, EMBEDDED),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, RESERVED),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64, "it is an address that discards"),
    ([0x100, 0, 0, 1, 0, 0, 0, 0], 64, RESERVED),
    // Covers Teredo, benchmarks, ORCHID and the other assignments inside.
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, RESERVED),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, DOCUMENTATION),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, EMBEDDED),
    ([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48, RESERVED),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, DOCUMENTATION),
    ([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, RESERVED),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, PRIVATE),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, LINK_LOCAL),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, PRIVATE),
];

/// Translated by the network to the IPv4 address in its last bits.
const NAT64: ([u16; 8], u8) = ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
/// What the internet hands out; beyond it nothing is public.
const GLOBAL_V6: ([u16; 8], u8) = ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

const METADATA: &str = "it is a metadata service";
const PRIVATE: &str = "it is a private address";
const LINK_LOCAL: &str = "it is a link-local address";
const RESERVED: &str = "it is reserved for special use";
const DOCUMENTATION: &str = "it is an address for documentation";
const EMBEDDED: &str = "it is an IPv4 address in disguise";

impl NetPolicy {
    /// Whether a name that is allowed may resolve to `address`.
    pub fn address(&self, address: IpAddr) -> Result<(), &'static str> {
        if let Some(why) = never(address) {
            return Err(why);
        }
        if self.is_granted(address) {
            return Ok(());
        }
        special(address).map_or(Ok(()), Err)
    }

    fn is_granted(&self, address: IpAddr) -> bool {
        let granted = |address: &IpAddr| self.addresses.iter().any(|range| range.value.contains(*address));
        // An address that leads to another needs both.
        granted(&address)
            && embedded(address)
                .iter()
                .all(|inner| special(IpAddr::V4(*inner)).is_none() || granted(&IpAddr::V4(*inner)))
    }
}

/// Why no policy opens `address`.
pub(super) fn never(address: IpAddr) -> Option<&'static str> {
    let own = match address {
        IpAddr::V4(v4) => find_v4(NEVER_V4, v4),
        IpAddr::V6(v6) => find_v6(NEVER_V6, v6),
    };
    own.or_else(|| {
        embedded(address)
            .into_iter()
            .find_map(|inner| find_v4(NEVER_V4, inner))
    })
}

/// Why `address` is no place on the public internet.
fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => find_v4(SPECIAL_V4, v4),
        IpAddr::V6(v6) => find_v6(SPECIAL_V6, v6).or_else(|| {
            if within_v6(v6, NAT64.0, NAT64.1) {
                return embedded(address)
                    .into_iter()
                    .find_map(|inner| find_v4(SPECIAL_V4, inner));
            }
            (!within_v6(v6, GLOBAL_V6.0, GLOBAL_V6.1)).then_some(RESERVED)
        }),
    }
}

/// IPv4 addresses that an IPv6 address leads to: mapped, compatible, NAT64, 6to4, and both of Teredo.
fn embedded(address: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(v6) = address else {
        return Vec::new();
    };
    let parts = v6.segments();
    let pair = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    let last = pair(parts[6], parts[7]);
    match parts {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Vec::new(),
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => vec![last],
        [0x64, 0xff9b, ..] => vec![last],
        [0x2002, high, low, ..] => vec![pair(high, low)],
        [0x2001, 0, high, low, ..] => vec![pair(high, low), Ipv4Addr::from(!u32::from(last))],
        _ => Vec::new(),
    }
}

fn find_v4(table: &[([u8; 4], u8, &'static str)], address: Ipv4Addr) -> Option<&'static str> {
    let within = |(base, prefix): ([u8; 4], u8)| {
        u32::from(address) & mask_v4(prefix) == u32::from(Ipv4Addr::from(base))
    };
    table
        .iter()
        .find(|(base, prefix, _)| within((*base, *prefix)))
        .map(|(_, _, why)| *why)
}

fn find_v6(table: &[([u16; 8], u8, &'static str)], address: Ipv6Addr) -> Option<&'static str> {
    table
        .iter()
        .find(|(base, prefix, _)| within_v6(address, *base, *prefix))
        .map(|(_, _, why)| *why)
}

fn within_v6(address: Ipv6Addr, base: [u16; 8], prefix: u8) -> bool {
    u128::from(address) & mask_v6(prefix) == u128::from(Ipv6Addr::from(base))
}

fn mask_v4(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

fn mask_v6(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

impl Cidr {
    /// Widest IPv4 range: 10.0.0.0/8 is the widest that anybody owns privately.
    const WIDEST_V4: u8 = 8;
    /// Widest IPv6 range.
    const WIDEST_V6: u8 = 16;

    /// Reads `ADDRESS/PREFIX`, or one address.
    pub fn new(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| format!("{text:?} is not a range of addresses: {why}");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| refuse("write it like 10.0.0.0/8 or fd00::/16"))?;
        let (widest, longest) = match address {
            IpAddr::V4(_) => (Self::WIDEST_V4, 32),
            IpAddr::V6(_) => (Self::WIDEST_V6, 128),
        };
        let prefix = match prefix {
            None => longest,
            Some(digits) => digits
                .parse::<u8>()
                .ok()
                .filter(|n| *n <= longest && n.to_string() == digits)
                .ok_or_else(|| refuse("the prefix is no number of bits"))?,
        };
        if prefix < widest {
            return Err(refuse(&format!("at most /{widest} is granted at once")));
        }
        let range = Self { address, prefix };
        if range.base() != address {
            return Err(refuse("bits after the prefix must be 0"));
        }
        if range.is_never() {
            return Err(refuse("no policy opens these"));
        }
        Ok(range)
    }

    /// Whether `address` lies inside.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
                Self {
                    address,
                    prefix: self.prefix,
                }
                .base()
                    == self.address
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// Whether everything in `other` lies inside.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    fn base(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask_v4(self.prefix))),
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask_v6(self.prefix))),
        }
    }

    /// Whether it lies in one range that is never reachable.
    fn is_never(&self) -> bool {
        match self.address {
            IpAddr::V4(v4) => NEVER_V4.iter().any(|(base, prefix, why)| {
                self.prefix >= *prefix && find_v4(&[(*base, *prefix, why)], v4).is_some()
            }),
            IpAddr::V6(v6) => NEVER_V6
                .iter()
                .any(|(base, prefix, _)| self.prefix >= *prefix && within_v6(v6, *base, *prefix)),
        }
    }
}

impl TryFrom<String> for Cidr {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::new(&text)
    }
}

impl From<Cidr> for String {
    fn from(range: Cidr) -> Self {
        range.to_string()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}
