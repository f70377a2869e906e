//! Who is compared: a direct connection, the lower bound, bastle, Squid (plain, and looking into TLS), tinyproxy and
//! mitmproxy.
use super::bump;
use super::load::{HOST, Load};
use super::process::{Running, cpu_seconds, free_port, resident_kib};
use crate::sh::{self, Failed};
use crate::test::stage::Stage;
use crate::test::tools;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rows of the table, in this order.
pub(super) const NAMES: &[&str] = &[
    "direct",
    "limit",
    "bastle",
    "squid",
    bump::NAME,
    "tinyproxy",
    "mitmproxy",
];

/// One way to the server.
pub(super) struct Peer {
    pub(super) name: &'static str,
    /// The proxy's port, 0 for none.
    pub(super) port: u16,
    /// Name of the server as this proxy can resolve it.
    pub(super) host: &'static str,
    /// Whether it looks into TLS, or is the measure for those who do.
    pub(super) terminates: bool,
    /// Whether it passes bytes on that it does not understand.
    pub(super) passes: bool,
    process: Option<Running>,
}

impl Peer {
    /// One that takes part only where TLS is looked into.
    pub(super) fn inside_only(name: &'static str, port: u16, process: Running) -> Self {
        Self {
            name,
            port,
            host: HOST,
            terminates: true,
            passes: false,
            process: Some(process),
        }
    }

    /// Seconds its threads spent so far.
    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        cpu_seconds(self.process.as_ref()?.pid())
    }

    /// Resident memory in KiB.
    pub(super) fn resident_kib(&self) -> Option<f64> {
        resident_kib(self.process.as_ref()?.pid())
    }
}

/// Starts everybody. Who is missing or refuses one tunnel is left out, with the reason.
pub(super) fn start(
    stage: &Stage,
    load: &Load,
    bastle: &Path,
    not_installed: &BTreeMap<String, String>,
) -> Result<(Vec<Peer>, BTreeMap<String, String>), Failed> {
    let mut absent = BTreeMap::new();
    let mut running = Vec::new();
    let candidates = [
        Ok(Peer {
            name: "direct",
            port: 0,
            host: HOST,
            terminates: true,
            passes: true,
            process: None,
        }),
        limit(load).map_err(|failed| ("limit", failed)),
        ours(stage, load, bastle).map_err(|failed| ("bastle", failed)),
        squid(stage).map_err(|failed| ("squid", failed)),
        bump::start(stage, load).map_err(|failed| (bump::NAME, failed)),
        tinyproxy(stage, load).map_err(|failed| ("tinyproxy", failed)),
        mitmproxy(stage, load).map_err(|failed| ("mitmproxy", failed)),
    ];
    for candidate in candidates {
        let tried = candidate.and_then(|peer| match works(load, &peer) {
            Ok(()) => Ok(peer),
            Err(failed) => Err((peer.name, failed)),
        });
        match tried {
            Ok(peer) => running.push(peer),
            Err((name, failed)) => {
                let why = why_absent(name, &failed, not_installed);
                println!("{name} is not measured: {why}");
                absent.insert(name.to_owned(), why);
            }
        }
    }
    Ok((running, absent))
}

/// Why somebody is not there: that installing failed says more than that nothing was found.
fn why_absent(name: &str, failed: &Failed, not_installed: &BTreeMap<String, String>) -> String {
    not_installed.get(name).map_or_else(
        || failed.to_string(),
        |why| format!("it could not be installed: {why}"),
    )
}

/// One tunnel. What looks into TLS shows that in [`look_inside`], after memory was looked at: it makes a process grow.
fn works(load: &Load, peer: &Peer) -> Result<(), Failed> {
    if peer.passes {
        load.latency(peer).map(drop)
    } else {
        Ok(())
    }
}

/// Takes those out of the measure inside TLS who cannot do it, with the reason.
pub(super) fn look_inside(load: &Load, peers: &mut [Peer], absent: &mut BTreeMap<String, String>) {
    for peer in peers.iter_mut().filter(|peer| peer.terminates) {
        if let Err(failed) = load.terminated(peer) {
            println!("{} is not measured inside TLS: {failed}", peer.name);
            absent.insert(format!("{}_terminated", peer.name), failed.to_string());
            peer.terminates = false;
        }
    }
}

fn limit(load: &Load) -> Result<Peer, Failed> {
    let port = free_port()?;
    let mut command = Command::new(&load.proxy);
    command.arg(port.to_string());
    Ok(Peer {
        name: "limit",
        port,
        host: HOST,
        terminates: false,
        passes: true,
        process: Some(Running::start_and_hear(&mut command, "ready")?),
    })
}

/// bastle with everything on: names decided, addresses checked, ClientHello read, each tunnel in the audit log; TLS is
/// looked into on the port of the TLS server, because a rule there speaks of methods and paths.
fn ours(stage: &Stage, load: &Load, bastle: &Path) -> Result<Peer, Failed> {
    let port = free_port()?;
    let policy = stage.path().join("policy.json");
    let text = format!(
        r#"{{"version":1,"net":{{"allow":["{HOST}:{}","GET {HOST}:{}/**"],"addresses":["127.0.0.1/32"],"resolvers":["127.0.0.1:{}"]}}}}"#,
        load.port, load.tls_port, load.dns_port
    );
    write(&policy, &text)?;
    let mut command = Command::new(bastle);
    command
        .args(["egress", "--listen", &format!("127.0.0.1:{port}"), "--policy"])
        .arg(&policy)
        .arg("--authority")
        .arg(stage.path().join("authority.pem"))
        .env("XDG_STATE_HOME", stage.path().join("state"))
        .env("SSL_CERT_FILE", &load.certificate);
    Ok(Peer {
        name: "bastle",
        port,
        host: HOST,
        terminates: true,
        passes: true,
        process: Some(Running::start(&mut command)?.listening(port)?),
    })
}

fn squid(stage: &Stage) -> Result<Peer, Failed> {
    let program = found("squid")?;
    let port = free_port()?;
    // Started by root it becomes a user of its own, who must be able to write here.
    let place = stage.path().join("squid");
    std::fs::create_dir(&place).map_err(Failed::io(place.display()))?;
    std::fs::set_permissions(&place, Permissions::from_mode(0o777)).map_err(Failed::io(place.display()))?;
    write(&place.join("hosts"), &format!("127.0.0.1 {HOST}\n"))?;
    let config = place.join("squid.conf");
    let text = format!("http_port 127.0.0.1:{port}\n{}", squid_rules(&place));
    write(&config, &text)?;
    let mut command = Command::new(program);
    command.args(["-N", "-f"]).arg(&config);
    Ok(Peer {
        name: "squid",
        port,
        host: HOST,
        terminates: false,
        passes: true,
        process: Some(Running::start(&mut command)?.listening(port)?),
    })
}

/// What every Squid here is told besides its port: one rule, no cache, its access log.
pub(super) fn squid_rules(place: &Path) -> String {
    let here = place.display();
    format!(
        "acl ours dstdomain {HOST}\n\
         http_access allow ours\n\
         http_access deny all\n\
         hosts_file {here}/hosts\n\
         cache deny all\n\
         cache_mem 8 MB\n\
         access_log stdio:{here}/access.log\n\
         cache_log {here}/cache.log\n\
         pid_filename none\n\
         coredump_dir {here}\n\
         max_filedescriptors 16384\n"
    )
}

fn tinyproxy(stage: &Stage, load: &Load) -> Result<Peer, Failed> {
    let program = found("tinyproxy")?;
    let port = free_port()?;
    let config = stage.path().join("tinyproxy.conf");
    let text = format!(
        "Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 2000\nConnectPort {}\nLogLevel Connect\nLogFile \"{}\"\n",
        load.port,
        stage.path().join("tinyproxy.log").display()
    );
    write(&config, &text)?;
    let mut command = Command::new(program);
    command.args(["-d", "-c"]).arg(&config);
    Ok(Peer {
        name: "tinyproxy",
        port,
        // It has no table of names of its own.
        host: "localhost",
        terminates: false,
        passes: true,
        process: Some(Running::start(&mut command)?.listening(port)?),
    })
}

/// mitmproxy passes the plain load on and looks into TLS; that is how bastle is set up too.
fn mitmproxy(stage: &Stage, load: &Load) -> Result<Peer, Failed> {
    let program = mitmdump().ok_or_else(|| Failed::new("mitmproxy", "not installed; --install does it"))?;
    let port = free_port()?;
    let mut command = Command::new(program);
    command
        .args(["-q", "--listen-host", "127.0.0.1", "--listen-port"])
        .arg(port.to_string())
        .args(["--ssl-insecure", "--ignore-hosts"])
        .arg(format!(":{}$", load.port))
        .arg("--set")
        .arg(format!("confdir={}", stage.path().join("mitmproxy").display()));
    Ok(Peer {
        name: "mitmproxy",
        port,
        host: "localhost",
        terminates: true,
        passes: true,
        process: Some(Running::start(&mut command)?.listening(port)?),
    })
}

/// mitmproxy's program: on PATH or where [`install_mitmproxy`] puts it.
pub(super) fn mitmdump() -> Option<PathBuf> {
    let ours = tools::target_directory()
        .ok()?
        .join("bench/mitmproxy/bin/mitmdump");
    sh::which("mitmdump").or_else(|| ours.is_file().then_some(ours))
}

/// The version that is compared with, as it was tried with Python 3.11.
const MITMPROXY: &str = "mitmproxy==11.0.2";

/// Into a virtual environment below the target directory. Half of one, left by an earlier try, is made anew.
pub(super) fn install_mitmproxy() -> Result<(), Failed> {
    if mitmdump().is_some() {
        return Ok(());
    }
    let place = tools::target_directory()?.join("bench/mitmproxy");
    println!("  installing {MITMPROXY} into {}", place.display());
    sh::stdout_of(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&place),
    )?;
    sh::stdout_of(Command::new(place.join("bin/pip")).args(["install", "--quiet", MITMPROXY]))?;
    match mitmdump() {
        Some(program) => {
            println!("  installed {}", program.display());
            Ok(())
        }
        None => Err(Failed::new(MITMPROXY, "installed, but its program is not there")),
    }
}

fn found(program: &str) -> Result<PathBuf, Failed> {
    sh::which(program).ok_or_else(|| Failed::new(program, "not installed; --install does it"))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Failed> {
    std::fs::write(path, text).map_err(Failed::io(path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_could_not_be_installed_is_absent_with_that_reason() {
        let failed = Failed::new("mitmproxy", "not installed; --install does it");
        let tried = BTreeMap::from([("mitmproxy".to_owned(), "pip said no".to_owned())]);
        let why = why_absent("mitmproxy", &failed, &tried);
        assert_eq!(why, "it could not be installed: pip said no");
        assert_eq!(why_absent("squid", &failed, &tried), failed.to_string());
    }
}
