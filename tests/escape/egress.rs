//! Ways past the rules of egress as an attacker inside writes them. What counts is what reached the server, byte by byte:
//! nothing but what the controls asked for. HTTP/2 and injected credentials are attacked in `tests/net`, which has TLS.
use crate::support::{Fence, Lab, Limit, Output, for_each_identity};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(180));
const GO: &str = "go() { curl -s -m 20 --path-as-is -o /dev/null -w '%{http_code}\\n' \"$@\"; }\n";

/// A web server on loopback that keeps the head of every request, and a name server that leads every name to it.
struct Outside {
    web: u16,
    names: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Outside {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let resolver = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let (web, names) = (
            listener.local_addr().expect("bound").port(),
            resolver.local_addr().expect("bound").port(),
        );
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || serve(stream, &kept));
            }
        });
        std::thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((length, from)) = resolver.recv_from(&mut question) {
                drop(resolver.send_to(&answer(&question[..length]), from));
            }
        });
        Self { web, names, heads }
    }

    /// A run that may do what `allow` says, with `{p}` for the port of the server.
    fn fence<'l>(&self, lab: &'l Lab, allow: &[&str], rest: &Value) -> Fence<'l> {
        let rules: Vec<String> = allow
            .iter()
            .map(|rule| rule.replace("{p}", &self.web.to_string()))
            .collect();
        let mut document = json!({ "version": 1, "net": {
            "allow": rules, "addresses": ["127.0.0.1/32"], "resolvers": [format!("127.0.0.1:{}", self.names)],
        }});
        for (key, value) in rest.as_object().into_iter().flatten() {
            document[key] = value.clone();
        }
        let policy = lab.plant(
            format!("home/policy-{}.json", self.web).as_ref(),
            &document.to_string(),
        );
        lab.fence()
            .flags(["--policy", policy.to_str().expect("UTF-8")])
            .within(SLOW)
    }

    fn run(&self, lab: &Lab, allow: &[&str], rest: &Value, script: &str) -> Output {
        let script = script.replace("{p}", &self.web.to_string());
        self.fence(lab, allow, rest).sh(&format!("{GO}{script}"))
    }

    /// The heads that came.
    fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("nobody fails while holding it").clone()
    }

    /// Their first lines.
    fn lines(&self) -> Vec<String> {
        let first = |head: &String| head.lines().next().unwrap_or_default().to_owned();
        self.heads().iter().map(first).collect()
    }
}

fn serve(mut stream: std::net::TcpStream, kept: &Mutex<Vec<String>>) {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        all.extend_from_slice(&buffer[..count]);
        let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        kept.lock()
            .expect("nobody fails while holding it")
            .push(String::from_utf8_lossy(&all[..end]).into_owned());
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"));
        return;
    }
}

/// 127.0.0.1 for every question about an IPv4 address, nothing for any other.
fn answer(question: &[u8]) -> Vec<u8> {
    let end = question
        .iter()
        .skip(12)
        .position(|byte| *byte == 0)
        .map_or(question.len(), |at| 12 + at + 5);
    let is_ipv4 = question.get(end - 4..end - 2) == Some(&[0, 1]);
    let mut told = question[..2].to_vec();
    told.extend([0x81, 0x80, 0, 1, 0, u8::from(is_ipv4), 0, 0, 0, 0]);
    told.extend(&question[12..end]);
    if is_ipv4 {
        told.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    told
}

fn last(output: &Output) -> &str {
    output.said().lines().last().unwrap_or_default()
}

#[test]
fn no_spelling_of_a_path_or_method_reaches_what_the_rule_does_not_name() {
    for_each_identity(|lab| {
        let outside = Outside::start();
        let output = outside.run(
            lab,
            &["GET spelled.test:{p}/public/**"],
            &json!({}),
            "for path in /public/../private /public/./../private /public/x/../../private /public//../private \
               '/public/;/../private' '/public/x;a=b/../../private' '/public/..%5cprivate' '/public/%2E%2E/private' \
               /PUBLIC/x //public/x /public%2f../private /public/%2e%2e%2fprivate '/private?/public/x' '/private#/public/x'; do\n\
             go \"http://spelled.test:{p}$path\"; done\n\
             for method in POST DELETE PATCH get gEt GETT TRACE OPTIONS; do go -X $method http://spelled.test:{p}/public/x; done\n\
             go -H 'Host: other.test' http://spelled.test:{p}/public/host\n\
             go http://SPELLED.test.:{p}/private\n\
             go http://spelled.test:{p}/public/control",
        );
        assert_eq!(last(&output), "200", "control: {output:?}");
        let lines = outside.lines();
        assert!(
            lines.iter().any(|line| line.contains("/public/control")),
            "{lines:?}"
        );
        for line in &lines {
            assert!(
                line.starts_with("GET /public/") && !line.contains(".."),
                "{line}: {output:?}"
            );
        }
        assert!(
            !outside
                .heads()
                .iter()
                .any(|head| head.to_lowercase().contains("host: other.test")),
            "{output:?}"
        );
    });
}

#[test]
fn no_header_or_query_turns_an_allowed_request_into_another() {
    for_each_identity(|lab| {
        let outside = Outside::start();
        let output = outside.run(
            lab,
            &["GET,POST over.test:{p}/x"],
            &json!({}),
            "b=http://over.test:{p}/x\n\
             go -d a=b -H 'x-http-method-override: DELETE' -H 'x-http-method-override: POST' $b\n\
             go -d a=b -H 'X-Http-Method-Override: delete' -H 'Connection: x-http-method-override' $b\n\
             go -d a=b -H 'X-HTTP-Method-Override:  DELETE ' $b\n\
             go -d a=b -H 'X_HTTP_METHOD_OVERRIDE: DELETE' $b\n\
             go -d a=b -H 'X-Original-Url: /private' -H 'X-Rewrite-Url: /private' $b\n\
             go -d a=b \"$b?%5fmethod=DELETE\"\n\
             go -d 'a=b&%5Fmethod=DELETE' $b\n\
             go -d a=b $b",
        );
        assert_eq!(last(&output), "200", "control: {output:?}");
        assert_eq!(outside.lines(), ["POST /x HTTP/1.1"], "{output:?}");
    });
}

#[test]
fn an_authorization_that_the_agent_makes_reaches_no_server_in_any_spelling() {
    for_each_identity(|lab| {
        let outside = Outside::start();
        let output = outside.run(
            lab,
            &["GET auth.test:{p}/**"],
            &json!({}),
            "b=http://auth.test:{p}/x\n\
             go -H 'Authorization: Bearer attacker' $b\n\
             go -H 'authorization: Basic attacker' -H 'AUTHORIZATION: Bearer attacker' $b\n\
             go -u attacker:attacker $b\n\
             go http://attacker:attacker@auth.test:{p}/x\n\
             go -H 'X-Of-Its-Own: kept' $b",
        );
        assert_eq!(last(&output), "200", "control: {output:?}");
        let heads = outside.heads();
        assert!(
            heads
                .iter()
                .any(|head| head.to_lowercase().contains("x-of-its-own: kept")),
            "control: {heads:?}"
        );
        for head in &heads {
            let head = head.to_lowercase();
            assert!(
                !head.contains("attacker") && !head.contains("\nauthorization:"),
                "{head}: {output:?}"
            );
        }
    });
}

#[test]
fn no_ambiguous_path_of_a_repository_carries_a_push() {
    for_each_identity(|lab| {
        let outside = Outside::start();
        let git = json!({ "git": { "push": "deny", "hosts": ["git.test"] } });
        let output = outside.run(
            lab,
            &["GET,POST git.test:{p}/git/**"],
            &git,
            "for path in project.git/git-receive-pack ./project.git/git-receive-pack project.git//git-receive-pack \
               project.git/%67it-receive-pack project.git/git-receive-pack/ 'project.git/git-receive-pack;x' \
               project.git/git-receive-pack%00 other.git/../project.git/git-receive-pack project.git%2fgit-receive-pack \
               project.git/GIT-RECEIVE-PACK 'project.git/x?/../git-receive-pack' project.git/info/../git-receive-pack; do\n\
             go -H 'Content-Type: text/plain' -d 0000 \"http://git.test:{p}/git/$path\"\n\
             done\n\
             go 'http://git.test:{p}/git/project.git/info/refs?service=git-upload-pack'",
        );
        assert_eq!(last(&output), "200", "control: {output:?}");
        let lines = outside.lines();
        assert!(
            lines.iter().all(|line| line.starts_with("GET ")),
            "{lines:?}: {output:?}"
        );
    });
}
