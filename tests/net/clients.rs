//! Real programs inside the fence: with and without knowledge of proxies, all under the same rules.
use crate::support::{Limit, for_each_identity, skip};
use crate::world::{Scripts, codes, decisions, host, says, world};
use std::path::Path;
use std::time::Duration;

const SLOW_TOOLS: Limit = Limit(Duration::from_secs(120));

#[test]
fn curl_is_allowed_and_denied_by_the_same_rule_through_every_face() {
    for_each_identity(|lab| {
        let (pass, seen, no) = (host("pass"), host("looked-into"), host("denied"));
        let rules = [
            format!("{pass}:{{tls}}"),
            format!("GET {seen}:{{tls}}/public/**"),
            format!("{pass}:{{plain}}"),
        ];
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let ways = [
            "",
            "--noproxy *",
            "-x socks5h://127.0.0.1:1080",
            "-x http://127.0.0.1:3128",
        ];
        for way in ways {
            let way = if way.is_empty() {
                String::new()
            } else {
                way.replace('*', "'*'")
            };
            let output = world().fence(lab, &rules).within(SLOW_TOOLS).shell(&format!(
                "curl -sS {way} --cacert $LAB_CA https://{pass}:{{tls}}/\n\
                 curl -sS {way} https://{seen}:{{tls}}/public/a\n\
                 curl -sS {way} http://{pass}:{{plain}}/\n\
                 curl -sS {way} -o /dev/null -w '%{{http_code}}\\n' https://{seen}:{{tls}}/private\n\
                 curl -sS {way} -o /dev/null -w '%{{http_code}}\\n' -d x https://{seen}:{{tls}}/public/a\n\
                 curl -s {way} -m 20 --cacert $LAB_CA https://{no}:{{tls}}/; echo $(($? != 0))"
            ));
            says(
                &output,
                "hello from the lab\nhello from the lab\nhello from the lab\n403\n403\n1",
            );
            assert_eq!(decisions(&output, &seen, "denied").len(), 2, "{way}: {output:?}");
            assert!(!codes(&output, &no).is_empty(), "{way}: {output:?}");
        }
        assert!(world().seen(&no).is_empty() && !world().looked_up(&no));
        assert_eq!(world().seen(&pass).len(), 2 * ways.len());
        assert_eq!(
            world().seen(&seen).len(),
            ways.len(),
            "what was denied did not arrive"
        );
    });
}

#[test]
fn http_two_is_judged_like_http_one() {
    for_each_identity(|lab| {
        let name = host("looked-into");
        let output = world().fence(lab, &[&format!("GET {name}:{{tls}}/public/**")]).shell(&format!(
            "curl -sS --http2 -o /dev/null -w '%{{http_version}} %{{http_code}}\\n' https://{name}:{{tls}}/public/a\n\
             curl -sS --http2 -o /dev/null -w '%{{http_version}} %{{http_code}}\\n' https://{name}:{{tls}}/private\n\
             curl -sS --http2 -o /dev/null -w '%{{http_code}}\\n' -X DELETE https://{name}:{{tls}}/public/a\n\
             curl -sS --http2 -H 'Host: other.lab.test' -o /dev/null -w '%{{http_code}}\\n' https://{name}:{{tls}}/public/a"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[..3], ["2 200", "2 403", "403"], "{output:?}");
        assert!(["421", "400", "403"].contains(&lines[3]), "{output:?}");
        assert_eq!(world().seen(&name).len(), 1, "{output:?}");
        assert!(world().seen("other.lab.test").is_empty());
    });
}

#[test]
fn python_works_or_is_denied_by_the_rules_alone() {
    for_each_identity(|lab| {
        let (yes, no) = (host("looked-into"), host("denied"));
        let script = format!(
            r#"
import urllib.request, urllib.error, http.client
def fetch(url, **more):
    with urllib.request.urlopen(urllib.request.Request(url, **more), timeout=20) as answer:
        return answer.read().decode().strip()
def refused(url, **more):
    try:
        return fetch(url, **more)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return "refused"
print(fetch("https://{yes}:{{tls}}/public/a"))
print(refused("https://{yes}:{{tls}}/public/a", method="POST", data=b"x"))
print(refused("https://{no}:{{tls}}/"))
# As a program does that never heard of proxies.
for name in list(os.environ):
    if "proxy" in name.lower():
        del os.environ[name]
print(fetch("https://{yes}:{{tls}}/public/a"))
print(refused("https://{no}:{{tls}}/"))
direct = http.client.HTTPSConnection({yes:?}, {{tls}}, timeout=20)
direct.request("GET", "/private")
print(direct.getresponse().status)
"#
        );
        let output = world()
            .fence(lab, &[&format!("GET {yes}:{{tls}}/public/**")])
            .python(lab, &script);
        says(
            &output,
            "hello from the lab\n403\nrefused\nhello from the lab\nrefused\n403",
        );
        assert_eq!(world().seen(&yes).len(), 2);
        assert!(world().seen(&no).is_empty());
    });
}

#[test]
fn node_without_knowledge_of_proxies_works_or_is_denied() {
    if !Path::new("/usr/bin/node").exists() {
        return skip("node_without_knowledge_of_proxies_works_or_is_denied", "no node");
    }
    for_each_identity(|lab| {
        let (yes, no) = (host("looked-into"), host("denied"));
        let script = lab.tools().join("client.mjs");
        let text = world().fill(&format!(
            "const say = async (url, more) => {{ try {{ const a = await fetch(url, more); \
             console.log(a.status, (await a.text()).trim().slice(0, 18)); }} catch (e) {{ console.log('refused'); }} }};\n\
             await say('https://{yes}:{{tls}}/public/a');\n\
             await say('https://{yes}:{{tls}}/public/a', {{ method: 'POST', body: 'x' }});\n\
             await say('https://{no}:{{tls}}/');\n"
        ));
        std::fs::write(&script, text).expect("can be written");
        let output = world()
            .fence(lab, &[&format!("GET {yes}:{{tls}}/public/**")])
            .within(SLOW_TOOLS)
            .run(["node", script.to_str().expect("UTF-8")]);
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[0], "200 hello from the lab", "{output:?}");
        assert!(lines[1].starts_with("403 "), "{output:?}");
        assert_eq!(lines[2..], ["refused"], "{output:?}");
        assert_eq!(world().seen(&yes).len(), 1);
        assert!(world().seen(&no).is_empty());
    });
}

#[test]
fn java_trusts_the_runs_authority_and_nothing_more_is_allowed_to_it() {
    if !Path::new("/usr/bin/java").exists() {
        return skip(
            "java_trusts_the_runs_authority_and_nothing_more_is_allowed_to_it",
            "no java",
        );
    }
    for_each_identity(|lab| {
        let (yes, no) = (host("looked-into"), host("denied"));
        let source = lab.tools().join("Client.java");
        let text = world().fill(&format!(
            "import java.net.*;\n\
             public class Client {{\n\
               static void say(String url) {{\n\
                 try {{ var c = (HttpURLConnection) new URL(url).openConnection(); System.out.println(c.getResponseCode()); }}\n\
                 catch (Exception e) {{ System.out.println(e instanceof javax.net.ssl.SSLException ? \"tls\" : \"refused\"); }}\n\
               }}\n\
               public static void main(String[] a) {{\n\
                 say(\"https://{yes}:{{tls}}/public/a\"); say(\"https://{yes}:{{tls}}/private\"); say(\"https://{no}:{{tls}}/\");\n\
               }}\n}}\n"
        ));
        std::fs::write(&source, text).expect("can be written");
        let output = world()
            .fence(lab, &[&format!("GET {yes}:{{tls}}/public/**")])
            .within(SLOW_TOOLS)
            .run(["java", source.to_str().expect("UTF-8")]);
        says(&output, "200\n403\nrefused");
        assert!(world().seen(&no).is_empty());
    });
}

#[test]
fn ssh_reaches_a_granted_port_and_no_other() {
    let Some(port) = world().ssh else {
        return skip("ssh_reaches_a_granted_port_and_no_other", "no SSH server");
    };
    for_each_identity(|lab| {
        let (yes, no) = (host("shell"), host("denied"));
        let document = world().document(
            &serde_json::json!({ "allow": [{ "rule": format!("{yes}:{port}"), "opaque": true }] }),
            &serde_json::json!({}),
        );
        let policy = world().policy(lab, &document);
        let ssh = "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=20";
        let output = world().under(lab, &policy).within(SLOW_TOOLS).shell(&format!(
            "{ssh} -p {port} someone@{yes} true 2>&1 | grep -o 'Permission denied'\n\
             {ssh} -p {port} someone@{no} true 2>/dev/null; echo $?\n\
             {ssh} -p {{sink}} someone@{yes} true 2>/dev/null; echo $?"
        ));
        // The server was reached, and it refused the key: that is its word, not ours.
        says(&output, "Permission denied\n255\n255");
        assert!(!codes(&output, &no).is_empty(), "{output:?}");
    });
}

#[test]
fn a_resolver_of_the_c_library_sees_allowed_names_only() {
    for_each_identity(|lab| {
        let (yes, no) = (host("pass"), host("denied"));
        let output = world().fence(lab, &[&format!("{yes}:{{tls}}")]).shell(&format!(
            "getent ahostsv4 {yes} >/dev/null; echo $?; getent ahosts {no}; echo $?; getent hosts localhost >/dev/null; echo $?\n\
             cat /etc/resolv.conf"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[..3], ["0", "2", "0"], "{output:?}");
        assert!(lines.contains(&"nameserver 127.0.0.1"), "{output:?}");
        assert!(!world().looked_up(&no), "a denied name is asked of nobody");
        assert!(
            !world().looked_up(&yes),
            "an allowed name is resolved when it is dialled, not when it is asked for"
        );
    });
}

#[test]
fn a_denial_tells_the_agent_and_the_person_the_same_thing() {
    for_each_identity(|lab| {
        let (seen, no) = (host("looked-into"), host("denied"));
        let output = world()
            .fence(lab, &[&format!("GET {seen}:{{tls}}/public/**")])
            .shell(&format!(
                "curl -sS -D /dev/stderr http://{no}:{{plain}}/some/path?token=hunter2 2>$TMPDIR/head\n\
             grep -ci '^x-bastle-denied: d_' $TMPDIR/head"
            ));
        let lines: Vec<&str> = output.said().lines().collect();
        let body: serde_json::Value =
            serde_json::from_str(lines[0]).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        assert_eq!(lines[1..], ["1"], "{output:?}");
        assert_eq!(body["error"], "policy_denied", "{body}");
        assert_eq!(body["host"], no.as_str(), "{body}");
        assert_eq!(
            (&body["method"], &body["path"]),
            (&"GET".into(), &"/some/path".into()),
            "{body}"
        );
        assert_eq!(
            (&body["deliberate"], &body["retry"]),
            (&true.into(), &false.into()),
            "{body}"
        );
        let id = body["id"].as_str().expect("an id");
        assert!(
            output.ended.stderr.contains(id),
            "the person sees the same id: {output:?}"
        );
        assert!(output.ended.stderr.contains(&no), "{output:?}");
        let denials = decisions(&output, &no, "denied");
        assert_eq!(denials.len(), 1, "{output:?}");
        assert_eq!(denials[0]["id"], id, "and so does the audit log");
        assert!(
            !body.to_string().contains("hunter2") && !output.ended.stderr.contains("hunter2"),
            "{output:?}"
        );
        let mut why = lab.command(crate::support::bastle());
        why.args(["why", id]);
        let why = crate::support::run(&mut why, b"", Limit::HANG);
        assert_eq!(why.code, 0, "{why:?}");
        assert!(why.stdout.contains(&no), "and so does why: {why:?}");
    });
}
