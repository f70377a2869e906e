//! Names: one canonical form for rule, log, resolver and dial; patterns that match what they say and nothing else.
use crate::support::{Limit, for_each_identity, run};
use crate::world::{Scripts, codes, decisions, host, requests, says, world};
use serde_json::json;

#[test]
fn an_address_instead_of_a_name_is_denied() {
    for_each_identity(|lab| {
        let name = host("pass");
        let script = r#"
for target in ("93.184.216.34:443", "10.0.0.1:443", "127.0.0.1:{tls}", "[::1]:443", "2130706433:{tls}", "0x7f.1:{tls}",
               "127.1:{tls}", "017700000001:{tls}", "[::ffff:127.0.0.1]:{tls}"):
    raw = target.encode()
    print(status(ask(b"CONNECT " + raw + b" HTTP/1.1\r\nHost: " + raw + b"\r\n\r\n")) in (400, 403))
print(socks("127.0.0.1", {tls}, kind=1)[1] not in (0, -1))
print(socks("127.0.0.1", {tls})[1] not in (0, -1))
print(socks("93.184.216.34", 443, kind=1)[1] not in (0, -1))
"#;
        let output = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .python(lab, script);
        says(&output, &["True"; 12].join("\n"));
        assert!(
            codes(&output, "93.184.216.34").contains(&"BST-NET-003".to_owned()),
            "{output:?}"
        );
        let control = world().fence(lab, &[&format!("{name}:{{tls}}")]).python(
            lab,
            &format!("print(status(connect({name:?}, {{tls}})[1]), socks({name:?}, {{tls}})[1])"),
        );
        says(&control, "200 0");
    });
}

#[test]
fn case_and_a_trailing_dot_are_one_name_everywhere() {
    for_each_identity(|lab| {
        let name = host("pass");
        let odd = format!("{}.", name.to_uppercase());
        let output = world().fence(lab, &[&format!("{name}:{{tls}}")]).shell(&format!(
            "curl -sS --cacert $LAB_CA https://{odd}:{{tls}}/\n\
             curl -sS --noproxy '*' --cacert $LAB_CA https://{odd}:{{tls}}/\n"
        ));
        // A client may leave the dot in the name it puts into TLS; then it is another spelling of the same name.
        says(&output, "hello from the lab\nhello from the lab");
        for event in requests(&output) {
            assert_eq!(event["host"], name.as_str(), "one form in the log: {output:?}");
        }
        assert!(
            world().looked_up(&name),
            "and one in the question to the name server"
        );
        let document = world().document(
            &json!({ "allow": [format!("{name}:{{tls}}")], "deny": [format!("{name}:{{tls}}")] }),
            &json!({}),
        );
        let policy = world().policy(lab, &document);
        let denied = world().under(lab, &policy).shell(&format!(
            "curl -s -o /dev/null -w '%{{http_connect}}\\n' --cacert $LAB_CA https://{odd}:{{tls}}/; true"
        ));
        says(&denied, "403");
    });
}

#[test]
fn a_name_that_only_resembles_an_allowed_one_is_denied() {
    for_each_identity(|lab| {
        let name = host("api");
        let stem = name.strip_suffix(".lab.test").expect("a name of the lab");
        let lookalikes = [
            format!("evil-{name}"),
            format!("x{name}"),
            format!("{name}.evil.lab.test"),
            format!("{name}.evil"),
            format!("{stem}-lab.test"),
            format!("{stem}.lab.testx"),
            format!("sub.{name}"),
            "lab.test".to_owned(),
            format!("{stem}.lab.tést"),
            name.replace('a', "\u{0430}"),
        ];
        let list = serde_json::to_string(&lookalikes).expect("strings");
        let script = format!(
            r#"
for name in {list}:
    raw = name.encode() + b":{{tls}}"
    print(status(ask(b"CONNECT " + raw + b" HTTP/1.1\r\nHost: " + raw + b"\r\n\r\n")) in (400, 403))
print(status(connect({name:?}, {{tls}})[1]))
"#
        );
        let output = world()
            .fence(lab, &[&format!("{name}:{{tls}}")])
            .python(lab, &script);
        says(&output, &format!("{}\n200", ["True"; 10].join("\n")));
        for lookalike in &lookalikes {
            assert!(decisions(&output, lookalike, "allowed").is_empty(), "{output:?}");
            assert!(!world().looked_up(lookalike), "{lookalike}");
        }
    });
}

#[test]
fn a_wildcard_does_not_match_the_apex_and_a_global_one_is_refused_at_load() {
    for_each_identity(|lab| {
        let apex = host("apex");
        let output = world().fence(lab, &[&format!("*.{apex}:{{tls}}")]).python(
            lab,
            &format!(
                "for name in ('sub.{apex}', 'a.b.{apex}', '{apex}', 'x{apex}'):\n    print(status(connect(name, {{tls}})[1]))"
            ),
        );
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(
            (lines[0], lines[2], lines[3]),
            ("200", "403", "403"),
            "{output:?}"
        );
        for pattern in [
            "*",
            "**",
            "[*]",
            "*.com",
            "a*b.lab.test",
            "*.*",
            "https://x.lab.test",
            "x.lab.test/*?q",
            "",
        ] {
            let document = world().document(&json!({ "allow": [pattern] }), &json!({}));
            let policy = world().policy(lab, &document);
            let mut command = world().under(lab, &policy).command(["true"]);
            let ended = run(&mut command, b"", Limit::HANG);
            assert_eq!(ended.code, 125, "{pattern:?} was accepted: {ended:?}");
        }
    });
}

#[test]
fn a_deny_rule_beats_an_allow_rule_however_it_is_spelled() {
    for_each_identity(|lab| {
        let apex = host("zone");
        let net = json!({ "allow": [format!("*.{apex}:{{tls}}")], "deny": [format!("bad.{apex}"), format!("*.worse.{apex}")] });
        let policy = world().policy(lab, &world().document(&net, &json!({})));
        let output = world().under(lab, &policy).python(
            lab,
            &format!(
                "for name in ('good.{apex}', 'bad.{apex}', 'BAD.{apex}', 'bad.{apex}.', 'x.worse.{apex}'):\n    \
                 print(status(connect(name, {{tls}})[1]))"
            ),
        );
        says(&output, "200\n403\n403\n403\n403");
    });
}

#[test]
fn a_project_file_in_the_workspace_cannot_widen_the_network() {
    for_each_identity(|lab| {
        let (yes, no) = (host("pass"), host("wanted"));
        lab.project(
            "agent-permissions.json",
            &world().fill(&format!(
                r#"{{"version":1,"net":{{"allow":["{yes}:{{tls}}","{no}:{{tls}}"],"addresses":["127.0.0.1/32","10.0.0.0/8"],"resolvers":["127.0.0.1:9"]}}}}"#
            )),
        );
        let output = world().fence(lab, &[&format!("{yes}:{{tls}}")]).python(
            lab,
            &format!("print(status(connect({yes:?}, {{tls}})[1]), status(connect({no:?}, {{tls}})[1]))"),
        );
        says(&output, "200 403");
    });
}

#[test]
fn flags_allow_and_deny_a_host_for_one_run() {
    for_each_identity(|lab| {
        let (one, two) = (host("one"), host("two"));
        let ask =
            format!("print(status(connect({one:?}, {{tls}})[1]), status(connect({two:?}, {{tls}})[1]))");
        let output = world()
            .fence(lab, &[&format!("{one}:{{tls}}")])
            .flags(["--allow-net", &world().fill(&format!("{two}:{{tls}}"))])
            .flags(["--deny-net", &one])
            .python(lab, &ask);
        says(&output, "403 200");
        let again = world().fence(lab, &[&format!("{one}:{{tls}}")]).python(lab, &ask);
        says(&again, "200 403");
    });
}
