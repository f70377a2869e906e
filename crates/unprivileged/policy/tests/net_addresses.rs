//! Every special-purpose range, at its edges, is refused; beside it the internet is not.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use LayerKind::User;
use bastle_policy::{Cidr, LayerKind, NetPolicy};
use common::{merged, with_default};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn table(ranges: &str) -> NetPolicy {
    let user = format!(r#"{{"version": 1, "net": {{"addresses": [{ranges}]}}}}"#);
    merged(&with_default(&[(User, &user)])).net
}

/// First, last, and the neighbours outside that are public (or nothing, where the neighbour is special too).
const RANGES: &[(&str, &str, &[&str])] = &[
    ("0.0.0.0", "0.255.255.255", &["1.0.0.0"]),
    ("10.0.0.0", "10.255.255.255", &["9.255.255.255", "11.0.0.0"]),
    (
        "100.64.0.0",
        "100.127.255.255",
        &["100.63.255.255", "100.128.0.0"],
    ),
    ("127.0.0.0", "127.255.255.255", &["126.255.255.255", "128.0.0.0"]),
    (
        "169.254.0.0",
        "169.254.255.255",
        &["169.253.255.255", "169.255.0.0"],
    ),
    ("172.16.0.0", "172.31.255.255", &["172.15.255.255", "172.32.0.0"]),
    ("192.0.0.0", "192.0.0.255", &["191.255.255.255", "192.0.1.0"]),
    ("192.0.2.0", "192.0.2.255", &["192.0.1.255", "192.0.3.0"]),
    (
        "192.31.196.0",
        "192.31.196.255",
        &["192.31.195.255", "192.31.197.0"],
    ),
    (
        "192.52.193.0",
        "192.52.193.255",
        &["192.52.192.255", "192.52.194.0"],
    ),
    ("192.88.99.0", "192.88.99.255", &["192.88.98.255", "192.88.100.0"]),
    (
        "192.168.0.0",
        "192.168.255.255",
        &["192.167.255.255", "192.169.0.0"],
    ),
    (
        "192.175.48.0",
        "192.175.48.255",
        &["192.175.47.255", "192.175.49.0"],
    ),
    ("198.18.0.0", "198.19.255.255", &["198.17.255.255", "198.20.0.0"]),
    (
        "198.51.100.0",
        "198.51.100.255",
        &["198.51.99.255", "198.51.101.0"],
    ),
    ("203.0.113.0", "203.0.113.255", &["203.0.112.255", "203.0.114.0"]),
    ("224.0.0.0", "239.255.255.255", &["223.255.255.255"]),
    ("240.0.0.0", "255.255.255.255", &[]),
    (
        "168.63.129.16",
        "168.63.129.16",
        &["168.63.129.15", "168.63.129.17"],
    ),
    ("::", "::ffff:ffff", &[]),
    ("::ffff:0:0", "::ffff:ffff:ffff", &[]),
    ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", &[]),
    ("100::", "100::ffff:ffff:ffff:ffff", &[]),
    ("100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff", &[]),
    (
        "2001::",
        "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
        &["2000:ffff::1", "2001:200::1"],
    ),
    (
        "2001:db8::",
        "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
        &["2001:db7::1", "2001:db9::1"],
    ),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &["2003::1"]),
    (
        "2620:4f:8000::",
        "2620:4f:8000:ffff:ffff:ffff:ffff:ffff",
        &["2620:4f:7fff::1", "2620:4f:8001::1"],
    ),
    (
        "3fff::",
        "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
        &["3ffe:ffff::1", "3fff:1000::1"],
    ),
    ("4000::", "5eff::", &[]),
    ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[]),
    ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[]),
    ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[]),
    ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[]),
    ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[]),
];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn no_special_address_is_reachable_and_its_public_neighbours_are() {
    let table = table("");
    for (first, last, outside) in RANGES {
        for inside in [first, last] {
            assert!(table.address(ip(inside)).is_err(), "{inside}");
        }
        for neighbour in *outside {
            assert_eq!(table.address(ip(neighbour)), Ok(()), "{neighbour}");
        }
    }
    for public in [
        "1.1.1.1",
        "93.184.216.34",
        "2606:2800:220:1::1",
        "2a00:1450::1",
        "64:ff9b::1.1.1.1",
    ] {
        assert_eq!(table.address(ip(public)), Ok(()), "{public}");
    }
}

#[test]
fn an_ipv4_address_in_disguise_is_judged_by_what_it_leads_to() {
    let table = table("\"10.0.0.0/8\", \"2002::/16\"");
    for hidden in [
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "::10.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::a00:1",
        "64:ff9b::169.254.169.254",
        "2002:7f00:1::1",
        "2002:a9fe:a9fe::1",
        "2002:c0a8:1::1",
        "2001:0:7f00:1::1",
        "2001:0:101:101::5601:5601",
        "::ffff:0:127.0.0.1",
    ] {
        assert!(table.address(ip(hidden)).is_err(), "{hidden}");
    }
    assert_eq!(
        table.address(ip("2002:a00:1::1")),
        Ok(()),
        "both ranges are granted"
    );
    assert_eq!(
        table.address(ip("2002:808:808::1")),
        Ok(()),
        "6to4 to a public address, granted"
    );
}

#[test]
fn a_grant_opens_its_range_alone_and_metadata_never() {
    let table = table(
        "\"169.254.0.0/16\", \"100.64.0.0/10\", \"127.0.0.1\", \"fd00::/16\", \"192.0.0.0/24\", \"::ffff:a9fe:a9fe\"",
    );
    for open in ["169.254.1.1", "100.64.0.1", "127.0.0.1", "fd00::1", "192.0.0.8"] {
        assert_eq!(table.address(ip(open)), Ok(()), "{open}");
    }
    for shut in [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "fd00:ec2::254",
        "192.0.0.192",
        "127.0.0.2",
        "10.0.0.1",
        "fd01::1",
        "fd20:ce::254",
        "::ffff:169.254.169.254",
    ] {
        assert!(table.address(ip(shut)).is_err(), "{shut}");
    }
}

#[test]
fn a_range_that_is_too_wide_or_never_reachable_is_refused() {
    for bad in [
        "",
        "10.0.0.0/7",
        "0.0.0.0/0",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0.0/08",
        "10.0.0.0/+8",
        "10.0.0.0/",
        "/8",
        "010.0.0.0/8",
        "fc00::/7",
        "::/0",
        "fd00::1/16",
        "fd00::/129",
        "224.0.0.0/8",
        "239.1.0.0/16",
        "ff02::/16",
        "169.254.169.254",
        "169.254.169.254/32",
        "0.0.0.0/8",
        "0.1.0.0/16",
        "100.100.100.200/32",
        "fd00:ec2::254/128",
        "255.255.255.255/32",
        "a.com",
        "10.0.0.0/8 ",
    ] {
        assert!(Cidr::new(bad).is_err(), "{bad:?}");
    }
    for good in ["10.0.0.0/8", "192.168.1.1", "fd00::/16", "::1", "127.0.0.0/8"] {
        let range = Cidr::new(good).unwrap();
        assert_eq!(Cidr::new(&range.to_string()), Ok(range), "{good}");
    }
}

proptest! {
    #[test]
    fn what_std_calls_private_or_local_is_never_reachable(bits in any::<u32>(), wide in any::<u128>()) {
        let table = table("");
        let v4 = Ipv4Addr::from(bits);
        let local = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_broadcast()
            || v4.is_documentation() || v4.is_unspecified() || v4.is_multicast();
        prop_assert!(!local || table.address(IpAddr::V4(v4)).is_err());
        for v6 in [Ipv6Addr::from(wide), v4.to_ipv6_mapped(), v4.to_ipv6_compatible()] {
            let local = v6.is_loopback() || v6.is_unspecified() || v6.is_multicast() || v6.is_unique_local()
                || v6.is_unicast_link_local() || v6.to_ipv4().is_some();
            prop_assert!(!local || table.address(IpAddr::V6(v6)).is_err(), "{v6}");
        }
    }

    #[test]
    fn a_granted_range_opens_nothing_outside_it(base in any::<u32>(), prefix in 8u8..=32, probe in any::<u32>()) {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        let text = format!("{}/{prefix}", Ipv4Addr::from(base & mask));
        if let Ok(range) = Cidr::new(&text) {
            let (open, shut) = (table(&format!("\"{text}\"")), table(""));
            let address = IpAddr::V4(Ipv4Addr::from(probe));
            if !range.contains(address) {
                prop_assert_eq!(open.address(address), shut.address(address));
            }
        }
    }
}
