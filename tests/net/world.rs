//! The outside world on loopback, one for all tests of a process, and runs of bastle that are allowed parts of it.
//!
//! The servers are real programs; what they were asked is in their logs. They end when this process ends, because
//! they watch their standard input.
use crate::support::{Fence, Lab, Output};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

static WORLD: LazyLock<World> = LazyLock::new(World::start);

/// The world.
pub(crate) struct World {
    place: PathBuf,
    /// Port of the TLS server; it is the same machine under every name of the lab.
    pub(crate) tls: u16,
    /// Port of the plain web server.
    pub(crate) plain: u16,
    /// Port of a server that speaks first and neither HTTP nor TLS.
    pub(crate) sink: u16,
    /// Port of dnsmasq.
    pub(crate) dns: u16,
    /// Whether names below `usual.test` lead to a server on port 80; only root can have one.
    pub(crate) usual: bool,
    /// Port of Squid.
    pub(crate) squid: Option<u16>,
    /// Port of the SSH server.
    pub(crate) ssh: Option<u16>,
    /// Holds the standard input of the servers open as long as this process lives.
    _servers: Child,
}

/// The world, started on first use.
pub(crate) fn world() -> &'static World {
    &WORLD
}

/// A name of the lab that no other test uses.
pub(crate) fn host(label: &str) -> String {
    format!("{label}-{}.lab.test", number())
}

/// A name whose answers misbehave as its first word says.
pub(crate) fn odd(kind: &str) -> String {
    format!("{kind}-{}.odd.test", number())
}

fn number() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

impl World {
    fn start() -> Self {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/net/servers");
        let place = std::env::temp_dir().join(format!("bastle-world-{}", std::process::id()));
        std::fs::create_dir(&place).expect("a fresh place");
        let mut servers = Command::new("/usr/bin/python3")
            .arg("-B")
            .arg(sources.join("lab.py"))
            .arg(&place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("python3 can be started");
        let mut line = String::new();
        let out = servers.stdout.take().expect("is piped");
        BufReader::new(out).read_line(&mut line).expect("can be read");
        let ports: Value = serde_json::from_str(&line).expect("the servers say where they are");
        let port = |name: &str| ports[name].as_u64().and_then(|port| u16::try_from(port).ok());
        let must = |name: &str| port(name).expect("every server but two is needed");
        Self {
            tls: must("tls"),
            plain: must("plain"),
            sink: must("sink"),
            dns: must("dns"),
            usual: ports["usual"].is_string(),
            squid: port("squid"),
            ssh: port("ssh"),
            place,
            _servers: servers,
        }
    }

    /// A file of the world.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Puts the ports into a text: `{tls}`, `{plain}`, `{sink}`, `{ssh}`.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace("{tls}", &self.tls.to_string())
            .replace("{plain}", &self.plain.to_string())
            .replace("{sink}", &self.sink.to_string())
            .replace("{ssh}", &self.ssh.unwrap_or(9).to_string())
    }

    /// Requests that reached a server under this name.
    pub(crate) fn seen(&self, host: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.file("requests.jsonl")).expect("the log is there");
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("one request per line"))
            .filter(|request| {
                let named = request["host"].as_str().unwrap_or_default();
                named == host || named.starts_with(&format!("{host}:"))
            })
            .collect()
    }

    /// Requests whose path begins so, under any name.
    pub(crate) fn seen_path(&self, path: &str) -> usize {
        let text = std::fs::read_to_string(self.file("requests.jsonl")).expect("the log is there");
        text.lines()
            .filter(|line| line.contains(&format!("\"path\": \"{path}")))
            .count()
    }

    /// Whether anybody asked the name server for this name.
    pub(crate) fn looked_up(&self, name: &str) -> bool {
        let text = std::fs::read_to_string(self.file("queries.log")).unwrap_or_default();
        text.contains(&format!("] {name} from"))
    }

    /// A policy document: `net` with the lab's resolver and the lab's address granted, and other sections.
    pub(crate) fn document(&self, net: &Value, rest: &Value) -> Value {
        let mut whole = json!({
            "version": 1,
            "net": { "addresses": ["127.0.0.1/32"], "resolvers": [format!("127.0.0.1:{}", self.dns)] },
        });
        for (target, source) in [(&["net"][..], net), (&[], rest)] {
            let mut place = &mut whole;
            for step in target {
                place = &mut place[*step];
            }
            for (key, value) in source.as_object().into_iter().flatten() {
                place[key] = value.clone();
            }
        }
        whole
    }

    /// Writes a policy outside the workspace.
    pub(crate) fn policy(&self, lab: &Lab, document: &Value) -> PathBuf {
        let text = self.fill(&document.to_string());
        lab.plant(Path::new(&format!("home/net-{}.json", number())), &text)
    }

    /// A run under a policy, with the world's authority trusted by bastle and readable inside as `$LAB_CA`.
    pub(crate) fn under<'a>(&self, lab: &'a Lab, policy: &Path) -> Fence<'a> {
        let authority = lab.tools().join("lab-ca.pem");
        if !authority.exists() {
            copy(&self.file("ca.pem"), &authority);
            let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/net/clients");
            copy(&clients.join("wire.py"), &lab.tools().join("wire.py"));
        }
        let shown = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        lab.fence()
            .env("SSL_CERT_FILE", &shown(&authority))
            .flags(["--policy", &shown(policy)])
            .flags(["--env", &format!("LAB_CA={}", shown(&authority))])
    }

    /// A run that may reach what `allow` says.
    pub(crate) fn fence<'a>(&self, lab: &'a Lab, allow: &[&str]) -> Fence<'a> {
        let document = self.document(&json!({ "allow": allow }), &json!({}));
        self.under(lab, &self.policy(lab, &document))
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    std::fs::set_permissions(to, Permissions::from_mode(0o644)).expect("own file");
}

/// What runs are asked to do here.
pub(crate) trait Scripts {
    /// A shell script, with the world's ports put in.
    fn shell(self, script: &str) -> Output;
    /// A Python script with everything of `clients/wire.py`, with the world's ports put in.
    fn python(self, lab: &Lab, script: &str) -> Output;
}

impl Scripts for Fence<'_> {
    fn shell(self, script: &str) -> Output {
        self.sh(&world().fill(script))
    }

    fn python(self, lab: &Lab, script: &str) -> Output {
        let file = python_file(lab, self.name(), script);
        self.run(["python3", "-B", file.as_str()])
    }
}

/// Writes the script where the run can read it.
pub(crate) fn python_file(lab: &Lab, name: &str, script: &str) -> String {
    let file = lab.tools().join(format!("{name}.py"));
    let text = format!("from wire import *\n{}", world().fill(script));
    std::fs::write(&file, text).expect("can be written");
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("own file");
    file.to_str().expect("UTF-8").to_owned()
}

/// What network decisions a run's audit holds: those about `host` with this verdict.
pub(crate) fn decisions<'a>(output: &'a Output, host: &str, verdict: &str) -> Vec<&'a Value> {
    let mut events = output.events("net");
    events.retain(|event| event["host"] == host && event["verdict"] == verdict);
    events
}

/// Everything that was judged but the question every run begins with, which must be denied.
pub(crate) fn requests(output: &Output) -> Vec<&Value> {
    let mut events = output.events("net");
    events.retain(|event| event["host"] != bastle_contract::egress::CANARY_NAME);
    events
}

/// The codes of a run's denials about `host`.
pub(crate) fn codes(output: &Output, host: &str) -> Vec<String> {
    decisions(output, host, "denied")
        .iter()
        .map(|event| event["code"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// How many denials about `host` have this code, those counted together included.
pub(crate) fn denials(output: &Output, host: &str, code: &str) -> u64 {
    decisions(output, host, "denied")
        .iter()
        .filter(|event| event["code"] == code)
        .filter_map(|event| event["count"].as_u64())
        .sum()
}

/// Asserts that a run printed exactly this and ended well.
#[track_caller]
pub(crate) fn says(output: &Output, expected: &str) {
    assert_eq!(output.said(), expected.trim(), "{output:?}");
    assert_eq!(output.ended.code, 0, "{output:?}");
}
