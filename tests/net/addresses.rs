//! Where an allowed name leads: every address of every answer is checked, and the checked one is dialled.
use crate::support::{Limit, for_each_identity};
use crate::world::{Scripts, codes, decisions, odd, says, world};
use std::time::Duration;

/// A name server that stays silent is given up within this.
const RESOLVER: Limit = Limit(Duration::from_secs(90));

#[test]
fn an_allowed_name_that_leads_to_a_forbidden_address_is_denied() {
    for_each_identity(|lab| {
        for kind in [
            "private",
            "link",
            "metadata",
            "zero",
            "other",
            "multicast",
            "six",
            "mapped",
        ] {
            let name = odd(kind);
            let output = world().fence(lab, &[&format!("{name}:{{tls}}")]).within(RESOLVER).python(
                lab,
                &format!(
                    "print(status(connect({name:?}, {{tls}}, 30)[1]) in (403, 502, 504), socks({name:?}, {{tls}}, 30)[1] not in (0, -1))"
                ),
            );
            says(&output, "True True");
            assert!(
                codes(&output, &name).contains(&"BST-NET-002".to_owned()),
                "{kind}: {output:?}"
            );
            assert!(world().seen(&name).is_empty());
        }
        let name = odd("public");
        let control = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .shell(&format!("curl -sS --cacert $LAB_CA https://{name}:{{tls}}/"));
        says(&control, "hello from the lab");
    });
}

#[test]
fn a_private_address_is_denied_also_without_tls_and_without_a_proxy() {
    for_each_identity(|lab| {
        let name = odd("private");
        let output = world()
            .fence(lab, &[&format!("{name}:{{tls}}"), &format!("{name}:{{plain}}")])
            .within(RESOLVER)
            .shell(&format!(
                "curl -s -o /dev/null -w '%{{http_code}}\\n' http://{name}:{{plain}}/\n\
                 curl -s -m 30 --noproxy '*' -o /dev/null -w '%{{http_code}}\\n' http://{name}:{{plain}}/\n\
                 curl -s -m 30 --noproxy '*' -o /dev/null --cacert $LAB_CA https://{name}:{{tls}}/; echo $(($? != 0))"
            ));
        says(&output, "403\n403\n1");
    });
}

#[test]
fn an_answer_that_mixes_good_and_bad_addresses_is_denied_as_a_whole() {
    for_each_identity(|lab| {
        let name = odd("mixed");
        let output = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .within(RESOLVER)
            .python(
                lab,
                &format!("for _ in range(6):\n    print(status(connect({name:?}, {{tls}}, 30)[1]))"),
            );
        says(&output, &["403"; 6].join("\n"));
        assert!(world().seen(&name).is_empty(), "{output:?}");
    });
}

#[test]
fn a_name_that_changes_its_address_never_reaches_the_forbidden_one() {
    for_each_identity(|lab| {
        let name = odd("flip");
        let output = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .within(RESOLVER)
            .python(
                lab,
                &format!("print([status(connect({name:?}, {{tls}}, 30)[1]) for _ in range(8)])"),
            );
        assert_eq!(output.ended.code, 0, "{output:?}");
        assert!(
            output.said().contains("200"),
            "control: the good answer works: {output:?}"
        );
        assert!(
            output.said().contains("403"),
            "the bad one is seen and denied: {output:?}"
        );
        for event in decisions(&output, &name, "allowed") {
            assert_eq!(
                event["address"], "127.0.0.1",
                "dialled is what was checked: {output:?}"
            );
        }
        assert!(
            codes(&output, &name).contains(&"BST-NET-002".to_owned()),
            "{output:?}"
        );
    });
}

#[test]
fn a_name_server_that_fails_or_is_silent_denies() {
    for_each_identity(|lab| {
        for kind in ["servfail", "refused", "empty", "silent"] {
            let name = odd(kind);
            let output = world()
                .fence(lab, &[&format!("{name}:{{tls}}")])
                .within(RESOLVER)
                .python(
                    lab,
                    &format!("print(status(connect({name:?}, {{tls}}, 60)[1]) in (403, 502, 504))"),
                );
            says(&output, "True");
            assert!(
                codes(&output, &name).contains(&"BST-NET-007".to_owned()),
                "{kind}: {output:?}"
            );
        }
    });
}

#[test]
fn special_addresses_need_a_grant_and_metadata_never_gets_one() {
    for_each_identity(|lab| {
        let (name, other) = (odd("public"), odd("metadata"));
        let resolvers = [format!("127.0.0.1:{}", world().dns)];
        let without = serde_json::json!({ "version": 1, "net": {
            "allow": [format!("{name}:{{tls}}")], "resolvers": resolvers } });
        let policy = world().policy(lab, &without);
        let output = world()
            .under(lab, &policy)
            .python(lab, &format!("print(status(connect({name:?}, {{tls}})[1]))"));
        says(&output, "403");
        assert_eq!(
            codes(&output, &name),
            ["BST-NET-002"],
            "loopback is special too: {output:?}"
        );
        for grant in ["169.254.169.254/32", "0.0.0.0/0", "169.254.0.0/16"] {
            let net = serde_json::json!({ "allow": [format!("{other}:80")], "addresses": [grant] });
            let policy = world().policy(lab, &world().document(&net, &serde_json::json!({})));
            let output = world().under(lab, &policy).within(RESOLVER).shell(&format!(
                "curl -s -o /dev/null -w '%{{http_code}}\\n' http://{other}/latest/meta-data/"
            ));
            assert!(
                output.ended.code == 125 || output.said() == "403",
                "{grant} opened the metadata service: {output:?}"
            );
        }
    });
}
