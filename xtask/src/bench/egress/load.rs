//! The load: C programs of our own, because a client in a scripting language would be the slowest part.
use super::peers::Peer;
use super::process::{Running, free_port};
use crate::sh::{self, Failed};
use crate::test::stage::Stage;
use crate::test::tools;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name that clients ask for; only we know it.
pub(super) const HOST: &str = "bench.test";

/// How long one sample takes, by what it measures: long enough to leave the start behind, short enough for turns.
const THROUGHPUT_MS: u32 = 150;
const TUNNELS_MS: u32 = 200;
const LATENCY_MS: u32 = 80;
const TERMINATED_MS: u32 = 300;
/// Clients at once.
const TUNNEL_CLIENTS: usize = 16;
const TERMINATED_CLIENTS: usize = 8;

/// The servers, and the programs that ask them.
pub(super) struct Load {
    client: PathBuf,
    tls: PathBuf,
    /// The lower bound.
    pub(super) proxy: PathBuf,
    pub(super) port: u16,
    pub(super) tls_port: u16,
    pub(super) dns_port: u16,
    /// The certificate of the TLS server, which is its own authority.
    pub(super) certificate: PathBuf,
    _servers: [Running; 2],
}

/// What `load` prints of a rate.
#[derive(Deserialize)]
pub(super) struct Rate {
    pub(super) per_second: f64,
    #[serde(alias = "bytes", alias = "tunnels", alias = "requests")]
    pub(super) count: f64,
}

#[derive(Deserialize)]
struct RoundTrip {
    p50_us: f64,
}

/// Tunnels that stay open.
pub(super) struct Held(Running);

impl Held {
    /// Lets them go.
    pub(super) fn release(self) {
        drop(self.0);
    }
}

impl Load {
    /// Compiles the programs and starts the servers.
    pub(super) fn start(stage: &Stage) -> Result<Self, Failed> {
        let (client, proxy) = (compile("load", &["-static"])?, compile("proxy", &["-static"])?);
        let tls = compile("tls", &["-lssl", "-lcrypto"])?;
        let (certificate, key) = certify(stage)?;
        let (port, dns_port, tls_port) = (free_port()?, free_port()?, free_port()?);
        let numbers = [port, dns_port].map(|port| port.to_string());
        let plain = Running::start_and_hear(Command::new(&client).arg("server").args(numbers), "ready")?;
        let mut command = Command::new(&tls);
        command
            .arg("server")
            .arg(tls_port.to_string())
            .args([&certificate, &key]);
        let secure = Running::start_and_hear(&mut command, "ready")?;
        Ok(Self {
            client,
            tls,
            proxy,
            port,
            tls_port,
            dns_port,
            certificate,
            _servers: [plain, secure],
        })
    }

    /// Bytes per second, server to client.
    pub(super) fn throughput(&self, peer: &Peer, connections: usize) -> Result<Rate, Failed> {
        self.ask("throughput", peer, connections, THROUGHPUT_MS)
    }

    /// Tunnels per second.
    pub(super) fn tunnels(&self, peer: &Peer) -> Result<Rate, Failed> {
        self.ask("tunnels", peer, TUNNEL_CLIENTS, TUNNELS_MS)
    }

    /// Microseconds of one byte there and back.
    pub(super) fn latency(&self, peer: &Peer) -> Result<f64, Failed> {
        let seen: RoundTrip = self.ask("latency", peer, 1, LATENCY_MS)?;
        Ok(seen.p50_us)
    }

    /// Requests per second inside TLS.
    pub(super) fn terminated(&self, peer: &Peer) -> Result<f64, Failed> {
        let words = words("requests", peer, self.tls_port, TERMINATED_CLIENTS, TERMINATED_MS);
        let rate: Rate = printed(Command::new(&self.tls).args(words))?;
        Ok(rate.per_second)
    }

    /// Opens tunnels that stay.
    pub(super) fn hold(&self, peer: &Peer, count: usize) -> Result<Held, Failed> {
        let words = words("hold", peer, self.port, count, 0);
        Running::start_and_hear(Command::new(&self.client).args(words), "held").map(Held)
    }

    fn ask<T: for<'a> Deserialize<'a>>(
        &self,
        mode: &str,
        peer: &Peer,
        connections: usize,
        milliseconds: u32,
    ) -> Result<T, Failed> {
        printed(Command::new(&self.client).args(words(mode, peer, self.port, connections, milliseconds)))
    }
}

fn words(mode: &str, peer: &Peer, port: u16, connections: usize, milliseconds: u32) -> [String; 6] {
    [
        mode.to_owned(),
        peer.port.to_string(),
        peer.host.to_owned(),
        port.to_string(),
        connections.to_string(),
        milliseconds.to_string(),
    ]
}

fn printed<T: for<'a> Deserialize<'a>>(command: &mut Command) -> Result<T, Failed> {
    let text = sh::stdout_of(command)?;
    serde_json::from_str(&text).map_err(|error| Failed::new(sh::shown(command), error.to_string()))
}

fn compile(name: &str, flags: &[&str]) -> Result<PathBuf, Failed> {
    let build = tools::target_directory()?.join("bench/egress");
    std::fs::create_dir_all(&build).map_err(Failed::io(build.display()))?;
    let program = build.join(name);
    let source = sh::root().join("bench/egress").join(format!("{name}.c"));
    let mut command = Command::new("cc");
    command
        .args(["-O2", "-Wall", "-Wextra", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .args(flags);
    sh::stdout_of(&mut command).map(|_| program)
}

/// A certificate for [`HOST`] that is its own authority, for a day.
fn certify(stage: &Stage) -> Result<(PathBuf, PathBuf), Failed> {
    let at = |name: &str| -> PathBuf { Path::join(stage.path(), name) };
    let (certificate, key) = (at("certificate.pem"), at("key.pem"));
    let mut command = Command::new("openssl");
    command
        .args(["req", "-x509", "-nodes", "-days", "1", "-newkey", "ec"])
        .args(["-pkeyopt", "ec_paramgen_curve:P-256", "-subj"])
        .arg(format!("/CN={HOST}"))
        // A server's own certificate: one that may certify others is refused as a server's by those who check.
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-addext"])
        .arg(format!("subjectAltName=DNS:{HOST},DNS:localhost"))
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate);
    sh::stdout_of(&mut command).map(|_| (certificate, key))
}
