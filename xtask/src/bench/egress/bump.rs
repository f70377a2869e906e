//! Squid that looks into TLS (`ssl-bump`). The packaged Squid cannot; its sister `squid-openssl` can, and as the two
//! exclude each other it is only unpacked, below the target directory.
use super::load::{HOST, Load};
use super::peers::{Peer, squid_rules, write};
use super::process::{Running, free_port};
use crate::sh::{self, Failed};
use crate::test::stage::Stage;
use crate::test::tools;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// As it is called in the table.
pub(super) const NAME: &str = "squid_bump";
const PACKAGE: &str = "squid-openssl";

fn unpacked() -> Result<PathBuf, Failed> {
    Ok(tools::target_directory()?.join("bench").join(PACKAGE))
}

/// The program and the helper that signs certificates.
fn programs() -> Result<(PathBuf, PathBuf), Failed> {
    let place = unpacked()?;
    let (squid, signer) = (
        place.join("usr/sbin/squid"),
        place.join("usr/lib/squid/security_file_certgen"),
    );
    if squid.is_file() && signer.is_file() {
        Ok((squid, signer))
    } else {
        Err(Failed::new(PACKAGE, "not unpacked; --install does it"))
    }
}

/// Unpacks the package. Needs the packaged Squid beside it, which brings the libraries and texts that both share.
pub(super) fn install() -> Result<(), Failed> {
    if programs().is_ok() {
        return Ok(());
    }
    let place = unpacked()?;
    println!("  unpacking {PACKAGE} into {}", place.display());
    std::fs::create_dir_all(&place).map_err(Failed::io(place.display()))?;
    let mut download = Command::new("apt-get");
    download
        .args(["--quiet", "download", PACKAGE])
        .current_dir(&place);
    sh::stdout_of(&mut download)?;
    let package = std::fs::read_dir(&place)
        .map_err(Failed::io(place.display()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|ending| ending == "deb"))
        .ok_or_else(|| Failed::new(PACKAGE, "nothing was downloaded"))?;
    sh::stdout_of(Command::new("dpkg").arg("-x").arg(&package).arg(&place))?;
    programs().map(drop)
}

/// Starts it: everything is looked into, with an authority of its own and one certificate for the one name.
pub(super) fn start(stage: &Stage, load: &Load) -> Result<Peer, Failed> {
    let (squid, signer) = programs()?;
    let port = free_port()?;
    let place = stage.path().join(NAME);
    std::fs::create_dir(&place).map_err(Failed::io(place.display()))?;
    let (authority, key) = (place.join("authority.pem"), place.join("authority.key"));
    certify(&authority, &key)?;
    let certificates = place.join("certificates");
    let mut prepare = Command::new(&signer);
    prepare.args(["-c", "-s"]).arg(&certificates).args(["-M", "4MB"]);
    sh::stdout_of(&mut prepare)?;
    // Started by root it becomes a user of its own, who must be able to write here.
    sh::stdout_of(Command::new("chmod").args(["-R", "a+rwX"]).arg(&place))?;
    std::fs::set_permissions(&place, Permissions::from_mode(0o777)).map_err(Failed::io(place.display()))?;
    write(&place.join("hosts"), &format!("127.0.0.1 {HOST}\n"))?;
    let config = place.join("squid.conf");
    write(&config, &configuration(&place, &signer, port, load))?;
    let mut command = Command::new(squid);
    command.args(["-N", "-f"]).arg(&config);
    Ok(Peer::inside_only(
        NAME,
        port,
        Running::start(&mut command)?.listening(port)?,
    ))
}

fn configuration(place: &Path, signer: &Path, port: u16, load: &Load) -> String {
    let (here, signer, server) = (place.display(), signer.display(), load.certificate.display());
    format!(
        "http_port 127.0.0.1:{port} ssl-bump generate-host-certificates=on dynamic_cert_mem_cache_size=4MB \
         tls-cert={here}/authority.pem tls-key={here}/authority.key\n\
         sslcrtd_program {signer} -s {here}/certificates -M 4MB\n\
         sslcrtd_children 1\n\
         tls_outgoing_options cafile={server}\n\
         ssl_bump bump all\n\
         {}",
        squid_rules(place)
    )
}

fn certify(certificate: &Path, key: &Path) -> Result<(), Failed> {
    let mut command = Command::new("openssl");
    command
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ])
        .args(["-days", "1", "-subj", "/CN=bench authority", "-addext"])
        .args(["basicConstraints=critical,CA:TRUE", "-keyout"])
        .arg(key)
        .arg("-out")
        .arg(certificate);
    sh::stdout_of(&mut command).map(drop)
}
