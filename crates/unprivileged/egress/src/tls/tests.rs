//! The authority of a run: whom it convinces, and of what.
use super::*;
use crate::via::Via;
use bastle_contract::RunId;
use bastle_contract::egress::Face;
use bastle_policy::Host;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

fn authority(run: &str) -> Authority {
    Authority::new(&RunId::try_from(run.to_owned()).unwrap()).unwrap()
}

fn via(host: &str) -> Via {
    Via {
        host: Host::new(host).unwrap(),
        port: 443,
        face: Face::Connect,
    }
}

/// A handshake over a pipe: what the client and what the server made of it.
async fn handshake(
    served: &Authority,
    trusted: &Authority,
    host: &str,
    sni: &str,
) -> (bool, Result<bool, Declined>) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let connector = TlsConnector::from(testing::client(trusted.pem(), &[H2, HTTP11]));
    let name = ServerName::try_from(sni.to_owned()).unwrap();
    let via = via(host);
    let (client, server) = tokio::join!(connector.connect(name, ours), accept(served, &via, theirs));
    (client.is_ok(), server.map(|accepted| accepted.h2))
}

#[tokio::test]
async fn only_the_own_run_trusts_its_authority() {
    let (one, two) = (authority("calm-otter"), authority("red-finch"));
    assert_eq!(
        handshake(&one, &one, "a.example", "a.example").await,
        (true, Ok(true))
    );
    let (client, _) = handshake(&one, &two, "a.example", "a.example").await;
    assert!(!client);
}

#[tokio::test]
async fn a_process_that_takes_anothers_place_is_trusted_as_the_first_one_was() {
    let first = authority("calm-otter");
    let kept = first.sealed().unwrap();
    let second = Authority::restored(&kept).unwrap();
    assert_eq!(first.pem(), second.pem());
    assert_eq!(
        handshake(&second, &first, "a.example", "a.example").await,
        (true, Ok(true))
    );
    let nonsense = bastle_contract::seal("x", br#"{"name":"x","certificate":"x","key":"HUSH"}"#).unwrap();
    let why = Authority::restored(&nonsense).unwrap_err().to_string();
    assert!(!why.contains("HUSH"), "{why}");
}

#[tokio::test]
async fn nothing_is_signed_for_a_name_that_was_not_judged() {
    let one = authority("calm-otter");
    let (client, server) = handshake(&one, &one, "a.example", "b.example").await;
    assert!(!client);
    assert_eq!(server, Err(Declined::Name("b.example".to_owned())));
    let (_, server) = handshake(&one, &one, "a.example", "192.0.2.1").await;
    assert_eq!(
        server,
        Err(Declined::Name("no host".to_owned())),
        "an address sends no name"
    );
    let (client, server) = handshake(&one, &one, "192.0.2.1", "192.0.2.1").await;
    assert!(client && server.is_ok(), "for an address none is needed");
}

#[test]
fn a_flood_of_names_does_not_grow_the_list_and_no_key_is_shown() {
    let one = authority("calm-otter");
    for n in 0..1_100 {
        one.server(&Host::new(&format!("h{n}.example")).unwrap()).unwrap();
    }
    assert!(one.kept() <= 1_024);
    assert_eq!(format!("{one:?}"), "Authority { .. }");
}
