//! Answers of a server that was given a credential, packed in every way: it does not come back.
use crate::support::{Limit, for_each_identity};
use crate::world::{Scripts, codes, host, world};
use serde_json::json;
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(120));
const REAL: &str = "sk-lab-4c1d9e7b2a6f4830bcde51f7a9c3e5d1";

#[test]
fn a_credential_does_not_come_back_compressed_wrapped_split_or_in_a_name() {
    for_each_identity(|lab| {
        let holder = host("holder");
        let secret =
            json!({ "name": "LAB_TOKEN", "from": "env:LAB_REAL", "hosts": [holder], "ports": [world().tls] });
        let net = json!({ "allow": [format!("GET {holder}:{{tls}}/**")] });
        let policy = world().policy(lab, &world().document(&net, &json!({ "secrets": [secret] })));
        let output = world().under(lab, &policy).env("LAB_REAL", REAL).within(SLOW).shell(&format!(
            "for version in --http1.1 --http2; do\n\
             for how in gzip br wrapped unicode events name plain; do\n\
             echo \"== $how\"; curl -s -i $version -r 3- https://{holder}:{{tls}}/reflect/$how; echo; done\n\
             for how in ranges unknown; do curl -s -o /dev/null -w \"refused %{{http_code}}\\n\" $version https://{holder}:{{tls}}/reflect/$how; done; done"
        ));
        let said = output.said();
        for part in [REAL, &REAL[9..20], &REAL[20..]] {
            assert!(!said.contains(part), "{part}: {output:?}");
        }
        let decoded: String = said.replace("\\u00", "");
        let hex: String = REAL.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!decoded.contains(&hex), "{output:?}");
        assert!(
            !said.contains("c2stbGFi") && !said.contains("stbGFiLT") && !said.contains("ay1sYWIt"),
            "{output:?}"
        );
        assert_eq!(
            said.matches("end").count(),
            10,
            "controls: the rest is there: {output:?}"
        );
        assert_eq!(
            said.to_ascii_lowercase().matches("x-kept").count(),
            2,
            "{output:?}"
        );
        assert_eq!(said.matches("refused 502").count(), 4, "{output:?}");
        assert!(
            codes(&output, &holder).iter().all(|code| code == "BST-NET-011"),
            "{output:?}"
        );
        for request in world().seen(&holder) {
            let headers = request["headers"].to_string();
            assert!(headers.contains(REAL), "control: it was sent");
            assert!(!headers.to_ascii_lowercase().contains("\"range\""), "{headers}");
        }
    });
}
