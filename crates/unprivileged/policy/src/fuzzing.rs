//! Entries for fuzzers: arbitrary bytes through every parser of this crate that egress or control feeds.
//!
//! **Trust:** none in the bytes. An entry returns normally whatever they are; what it finds out is checked inside.
use crate::groups::{GroupSources, HostGroup, hosts_of};
use crate::host::Host;
use crate::net::{Cidr, ConnectVerdict, NetPolicy, SecretHeader, UpstreamProxy};
use crate::netrule::NetRule;

/// A table as it comes to egress: read or refused; what is read and passes its self-test holds what must hold.
pub fn fuzz_table(bytes: &[u8]) {
    let Ok(table) = serde_json::from_slice::<NetPolicy>(bytes) else {
        return;
    };
    if let (Ok(()), Ok(host)) = (table.selftest(), Host::new("localhost")) {
        assert!(matches!(table.connect(&host, 443), ConnectVerdict::Deny(_)));
    }
}

/// Settings of other tools: imported or refused; what is imported reads as a policy.
pub fn fuzz_import(bytes: &[u8]) {
    use crate::import::{ImportFile, ImportTool, Standing, import};
    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let (tool, name) = match first % 5 {
        0 => (ImportTool::Claude, "settings.json"),
        1 => (ImportTool::Codex, "config.toml"),
        2 => (ImportTool::Codex, "default.rules"),
        3 => (ImportTool::Opencode, "opencode.json"),
        _ => (ImportTool::Srt, "srt-settings.json"),
    };
    let file = ImportFile {
        name: name.to_owned(),
        standing: Standing::Project,
        bytes: rest.to_vec(),
    };
    if let Ok(imported) = import(tool, &[file]) {
        assert!(crate::document::parse("import", imported.text.as_bytes()).is_ok());
    }
}

/// Configuration of package managers, in every format.
pub fn fuzz_groups(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    for group in HostGroup::ALL {
        for name in ["x.toml", "x.conf"] {
            let sources = GroupSources {
                files: vec![(name.to_owned(), text.clone())],
                environment: vec![("PIP_INDEX_URL".to_owned(), text.clone())],
                answers: vec![text.clone()],
            };
            if let Ok(hosts) = hosts_of(group, &sources) {
                assert!(hosts.iter().all(|place| !place.host.is_forbidden()));
            }
        }
    }
}

/// Rules, ranges, headers and proxies as text: what is read prints as something that reads as the same.
pub fn fuzz_net_texts(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(rule) = NetRule::new(text) {
        assert!(NetRule::new(&rule.to_string()).is_ok_and(|again| again == rule));
    }
    if let Ok(range) = Cidr::new(text) {
        assert!(Cidr::new(&range.to_string()).is_ok_and(|again| again == range));
    }
    if let Ok(header) = SecretHeader::new(text) {
        assert!(SecretHeader::new(&header.to_string()).is_ok_and(|again| again == header));
    }
    if let Ok(upstream) = UpstreamProxy::new(text) {
        assert!(UpstreamProxy::new(&upstream.to_string()).is_ok_and(|again| again == upstream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_make_an_entry_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[-A-Za-z0-9.:/*{} ,%]{0,40}") {
            for bytes in [bytes.as_slice(), text.as_bytes()] {
                fuzz_table(bytes);
                fuzz_groups(bytes);
                fuzz_net_texts(bytes);
            }
        }
    }
}
