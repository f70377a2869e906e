//! The daemon as a service of systemd. Everything that is written is shown, and nothing is started unasked.
use super::failed;
use crate::client::place::config_dir;
use crate::context::{Context, Ended, Format};
use crate::render::clean;
use bastle_contract::Fault;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The system's units, as they are packaged: where they go, and their texts.
const SYSTEM: [(&str, &str); 6] = [
    (
        "/etc/systemd/system/bastle-spawner.socket",
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../packaging/systemd/bastle-spawner.socket"
        )),
    ),
    (
        "/etc/systemd/system/bastle-spawner.service",
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../packaging/systemd/bastle-spawner.service"
        )),
    ),
    (
        "/etc/systemd/system/bastle.socket",
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../packaging/systemd/bastle.socket"
        )),
    ),
    (
        "/etc/systemd/system/bastle.service",
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../packaging/systemd/bastle.service"
        )),
    ),
    (
        "/etc/sysusers.d/bastle.conf",
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../packaging/systemd/bastle.sysusers"
        )),
    ),
    (
        "/etc/tmpfiles.d/bastle.conf",
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../packaging/systemd/bastle.tmpfiles"
        )),
    ),
];

/// The unit of one user. Hardening that only root can set up is left to the system's.
const USER: &str = "\
[Unit]
Description=bastle daemon: queue, records and API of runs

[Service]
Type=notify
NotifyAccess=main
ExecStart=/usr/bin/bastle serve
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=1s
# Every run is kept by a process of its own. Only the daemon itself ends; the next one finds the runs again.
KillMode=process
UMask=0077
LimitCORE=0
NoNewPrivileges=yes

[Install]
WantedBy=default.target
";

/// Where the program is in the texts.
const PACKAGED: &str = "/usr/bin/bastle";

/// Whether files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// They are.
    Write,
    /// They are only shown.
    Show,
}

/// Whose service it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The system's.
    System,
    /// One user's.
    User,
}

/// Writes the units, or shows them.
pub(super) fn run(doing: Doing, format: Format, cx: &Context) -> Ended {
    let owner = if rustix::process::geteuid().is_root() {
        Owner::System
    } else {
        Owner::User
    };
    let dry_run = doing == Doing::Show;
    let files = files(owner)?;
    if !dry_run {
        for (path, text) in &files {
            write(path, text)?;
        }
    }
    let next = next(owner);
    if format == Format::Json {
        let listed: Vec<Value> = files
            .iter()
            .map(|(path, text)| json!({ "path": path, "text": text }))
            .collect();
        cx.print_json(&json!({
            "schema": "bastle.daemon-install/v1", "written": !dry_run, "files": listed, "next": next,
        }))?;
        return Ok(0);
    }
    for (path, text) in &files {
        if dry_run {
            cx.print(&format!("# {}\n{text}\n", clean(&path.display().to_string())))?;
        } else {
            cx.print(&format!("{}\n", clean(&path.display().to_string())))?;
        }
    }
    let word = if dry_run {
        "nothing was written; then:"
    } else {
        "written; nothing was started; next:"
    };
    cx.note(word);
    for line in next {
        cx.note(&format!("  {line}"));
    }
    Ok(0)
}

/// What is written where, with this program's own path.
fn files(owner: Owner) -> Result<Vec<(PathBuf, String)>, Fault> {
    let program = std::env::current_exe()
        .map_err(|error| failed("where this program is is unknown", error.to_string()))?;
    let program = program.display().to_string();
    // systemd reads spaces, quotes, dollars and percents of a path in its own way.
    if !program
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c))
    {
        return Err(failed(
            format!("{} cannot stand in a unit", clean(&program)),
            "its path has characters that systemd reads in its own way",
        )
        .help("install bastle to /usr/local/bin/bastle"));
    }
    let put = |text: &str| text.replace(PACKAGED, &program);
    if owner == Owner::System {
        return Ok(SYSTEM
            .iter()
            .map(|(path, text)| (PathBuf::from(path), put(text)))
            .collect());
    }
    let config = config_dir()?;
    let base = config.parent().unwrap_or(&config).to_owned();
    Ok(vec![(base.join("systemd/user/bastle.service"), put(USER))])
}

fn next(owner: Owner) -> Vec<&'static str> {
    if owner == Owner::System {
        vec![
            "systemd-sysusers && systemd-tmpfiles --create",
            "systemctl daemon-reload",
            "systemctl enable --now bastle-spawner.socket bastle.socket bastle.service",
        ]
    } else {
        vec![
            "bastle daemon stop",
            "systemctl --user daemon-reload",
            "systemctl --user enable --now bastle.service",
        ]
    }
}

/// Writes one file whole.
fn write(path: &Path, text: &str) -> Result<(), Fault> {
    let fault = |error: std::io::Error| failed(format!("cannot write {}", path.display()), error.to_string());
    let directory = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory).map_err(fault)?;
    let beside = directory.join(format!(".bastle-{}.new", std::process::id()));
    let written = std::fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&beside)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_data()))
        .and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        drop(std::fs::remove_file(&beside));
    }
    written.map_err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_start_this_program_and_keep_runs_alive() {
        let program = std::env::current_exe().unwrap().display().to_string();
        for owner in [Owner::System, Owner::User] {
            let files = files(owner).unwrap();
            let service = files
                .iter()
                .find(|(path, _)| path.ends_with("bastle.service"))
                .unwrap();
            assert!(
                service.1.contains(&format!("ExecStart={program} serve")),
                "{}",
                service.1
            );
            assert!(service.1.contains("KillMode=process"), "{}", service.1);
            assert!(
                files
                    .iter()
                    .all(|(path, text)| path.is_absolute() && !text.contains(PACKAGED))
            );
        }
    }
}
