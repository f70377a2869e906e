//! What a plan gets with egress: and what it must not get.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use bastle_contract::egress::MAX_TRANSPARENT;
use bastle_contract::{EnvName, MountKind, Network};
use bastle_policy::{EgressMaterial, LayerKind, Planned};
use common::launch::{at, disk, planned};
use common::{merged, with_default};

fn name(text: &str) -> EnvName {
    EnvName::try_from(text.to_owned()).unwrap()
}

fn variable<'p>(planned: &'p Planned, wanted: &str) -> Option<&'p str> {
    let mut found = planned
        .plan
        .env
        .iter()
        .filter(|(name, _)| name.as_str() == wanted);
    let value = found.next().map(|(_, value)| value.as_str());
    assert!(found.next().is_none(), "{wanted} is set twice");
    value
}

fn with(net: &str, material: EgressMaterial) -> (Planned, Vec<u8>) {
    let policy = merged(&with_default(&[(LayerKind::User, net)]));
    let mut planned = planned(&policy, &disk(&policy, &[])).unwrap();
    let attachments = planned.with_egress(&policy.net, material).unwrap();
    (planned, attachments)
}

#[test]
fn a_run_with_egress_resolves_and_connects_through_it_alone() {
    let (planned, attachments) = with(r#"{"version":1}"#, EgressMaterial::default());
    let Network::Egress(faces) = &planned.plan.network else {
        panic!("{:?}", planned.plan.network);
    };
    assert!(faces.transparent.contains(&443) && faces.transparent.contains(&80));
    let Some(MountKind::File { contents }) = at(&planned, "/etc/resolv.conf") else {
        panic!("no resolver");
    };
    assert!(contents.starts_with("nameserver 127.0.0.1\n"));
    let Some(MountKind::File { contents }) = at(&planned, "/etc/nsswitch.conf") else {
        panic!("no switch");
    };
    assert!(contents.contains("hosts: files dns"));
    for proxy in ["HTTP_PROXY", "https_proxy", "ALL_PROXY", "no_proxy"] {
        assert!(
            variable(&planned, proxy).is_some_and(|value| value.contains("127.0.0.1")),
            "{proxy}"
        );
    }
    // Without an authority of its own the run trusts what the host trusts, and nobody says otherwise.
    assert!(attachments.is_empty() && planned.plan.attachments.is_none());
    assert_eq!(variable(&planned, "SSL_CERT_FILE"), None);
    assert_eq!(variable(&planned, "JAVA_TOOL_OPTIONS"), None);
}

#[test]
fn certificates_lie_in_the_attachments_where_the_plan_says_and_a_set_variable_stays() {
    let material = EgressMaterial {
        bundle: Some(b"PEM".to_vec()),
        trust_store: Some(b"STORE".to_vec()),
        placeholders: Vec::new(),
        decoy: None,
    };
    let policy = r#"{"version":1,"env":{"set":{"PIP_CERT":"/mine.pem"}}}"#;
    let (planned, attachments) = with(policy, material);
    assert_eq!(attachments, b"PEMSTORE");
    assert_eq!(
        at(&planned, "/run/bastle/trust.jks"),
        Some(&MountKind::Attached { offset: 3, length: 5 })
    );
    let digest = blake3::hash(&attachments).to_hex().to_string();
    assert_eq!(planned.plan.attachments.as_ref().unwrap().as_str(), digest);
    assert_eq!(
        variable(&planned, "SSL_CERT_FILE"),
        Some("/run/bastle/ca-bundle.pem")
    );
    assert_eq!(variable(&planned, "PIP_CERT"), Some("/mine.pem"));
    assert!(
        variable(&planned, "JAVA_TOOL_OPTIONS")
            .unwrap()
            .contains("/run/bastle/trust.jks")
    );
    assert!(
        planned
            .plan
            .landlock
            .iter()
            .any(|rule| rule.path.as_str() == "/run/bastle")
    );
    assert!(planned.plan.check().is_ok());
}

#[test]
fn a_placeholder_takes_the_place_of_a_real_value_that_the_policy_passes_on() {
    let material = EgressMaterial {
        placeholders: vec![(name("API_KEY"), "phantom".to_owned())],
        ..EgressMaterial::default()
    };
    let (planned, _) = with(r#"{"version":1,"env":{"set":{"API_KEY":"real"}}}"#, material);
    assert_eq!(variable(&planned, "API_KEY"), Some("phantom"));
    assert!(planned.plan.env.iter().all(|(_, value)| value != "real"));
}

#[test]
fn more_ports_than_there_are_faces_do_not_break_the_plan() {
    let rules: Vec<String> = (1..60)
        .map(|port| format!("\"h.example:{}\"", 2000 + port))
        .collect();
    let policy = format!(r#"{{"version":1,"net":{{"allow":[{}]}}}}"#, rules.join(","));
    let (planned, _) = with(&policy, EgressMaterial::default());
    let Network::Egress(faces) = &planned.plan.network else {
        panic!("{:?}", planned.plan.network);
    };
    assert!(faces.transparent.len() <= MAX_TRANSPARENT);
}
