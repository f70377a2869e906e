//! The files of the package: what lies in the repository, and what the binary says about itself.
use super::Package;
use crate::sh::{self, Failed};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// From `packaging/` to where it is installed.
const FILES: &[(&str, &str)] = &[
    ("systemd/bastle.service", "lib/systemd/system/bastle.service"),
    ("systemd/bastle.socket", "lib/systemd/system/bastle.socket"),
    (
        "systemd/bastle-spawner.service",
        "lib/systemd/system/bastle-spawner.service",
    ),
    (
        "systemd/bastle-spawner.socket",
        "lib/systemd/system/bastle-spawner.socket",
    ),
    (
        "systemd/bastle-spawner-rootless.service",
        "lib/systemd/system/bastle-spawner-rootless.service",
    ),
    (
        "systemd/bastle-spawner-rootless.socket",
        "lib/systemd/system/bastle-spawner-rootless.socket",
    ),
    (
        "systemd/bastle-egress@.service",
        "lib/systemd/system/bastle-egress@.service",
    ),
    ("systemd/bastle.sysusers", "usr/lib/sysusers.d/bastle.conf"),
    ("systemd/bastle.tmpfiles", "usr/lib/tmpfiles.d/bastle.conf"),
    ("ceiling.json", "etc/bastle/ceiling.json"),
    ("config/serve.json", "etc/bastle/serve.json"),
    ("config/policy.json", "etc/bastle/policy.json"),
    // The script of the installation copies it to where AppArmor reads it, if this AppArmor knows its rule.
    ("apparmor/bastle", "usr/share/bastle/apparmor/bastle"),
    ("container/seccomp.json", "usr/share/bastle/seccomp.json"),
    ("debian/copyright", "usr/share/doc/bastle/copyright"),
    ("debian/overrides", "usr/share/lintian/overrides/bastle"),
];

/// Where the shells look for completions.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/bastle"),
    ("zsh", "usr/share/zsh/vendor-completions/_bastle"),
    ("fish", "usr/share/fish/vendor_completions.d/bastle.fish"),
];

/// Readable by all, writable by root.
const PLAIN: u32 = 0o644;
/// The same, and executable.
pub(super) const PROGRAM: u32 = 0o755;

/// Makes the whole tree below `root`.
pub(super) fn lay_out(package: &Package<'_>, root: &Path) -> Result<(), Failed> {
    let binary = std::fs::read(package.binary).map_err(Failed::io(package.binary.display()))?;
    put(root, "usr/bin/bastle", &binary, PROGRAM)?;
    let packaging = sh::root().join("packaging");
    for (from, to) in FILES {
        let from = packaging.join(from);
        let bytes = std::fs::read(&from).map_err(Failed::io(from.display()))?;
        put(root, to, &bytes, PLAIN)?;
    }
    // For instances of the egress unit; what is in it is the administrator's.
    make_dir(&root.join("etc/bastle/egress"))?;
    for (shell, to) in COMPLETIONS {
        let text = sh::stdout_of(Command::new(package.binary).args(["completions", shell]))?;
        put(root, to, text.as_bytes(), PLAIN)?;
    }
    manuals(package, root)?;
    documents(root)?;
    put(
        root,
        "usr/share/doc/bastle/changelog.gz",
        &gzip(&super::control::changelog(package)?)?,
        PLAIN,
    )
}

/// The pages that the binary writes, compressed as Debian has them.
fn manuals(package: &Package<'_>, root: &Path) -> Result<(), Failed> {
    let pages = root.join("usr/share/man/man1");
    make_dir(&pages)?;
    sh::stdout_of(Command::new(package.binary).args(["man", "--dir"]).arg(&pages))?;
    for page in names(&pages)? {
        let path = pages.join(&page);
        let text = std::fs::read(&path).map_err(Failed::io(path.display()))?;
        std::fs::remove_file(&path).map_err(Failed::io(path.display()))?;
        put(&pages, &format!("{page}.gz"), &gzip(&text)?, PLAIN)?;
    }
    Ok(())
}

fn documents(root: &Path) -> Result<(), Failed> {
    let docs = sh::root().join("docs");
    for name in names(&docs)?.into_iter().filter(|name| name.ends_with(".md")) {
        let from = docs.join(&name);
        let bytes = std::fs::read(&from).map_err(Failed::io(from.display()))?;
        put(root, &format!("usr/share/doc/bastle/{name}"), &bytes, PLAIN)?;
    }
    Ok(())
}

/// Names in a directory, sorted: the order of a directory is not the same everywhere.
pub(super) fn names(directory: &Path) -> Result<Vec<String>, Failed> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(Failed::io(directory.display()))? {
        let entry = entry.map_err(Failed::io(directory.display()))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Writes one file with its directories and its mode, whatever the umask.
pub(super) fn put(root: &Path, to: &str, bytes: &[u8], mode: u32) -> Result<(), Failed> {
    let path = root.join(to);
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    std::fs::write(&path, bytes).map_err(Failed::io(path.display()))?;
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(Failed::io(path.display()))
}

fn make_dir(path: &Path) -> Result<(), Failed> {
    let missing: Vec<&Path> = path.ancestors().take_while(|dir| !dir.exists()).collect();
    for directory in missing.into_iter().rev() {
        std::fs::create_dir(directory).map_err(Failed::io(directory.display()))?;
        std::fs::set_permissions(directory, Permissions::from_mode(PROGRAM))
            .map_err(Failed::io(directory.display()))?;
    }
    Ok(())
}

/// Compressed without name and time.
fn gzip(bytes: &[u8]) -> Result<Vec<u8>, Failed> {
    use std::io::Write;
    use std::process::Stdio;
    let failed = || Failed::io("gzip");
    let mut child = Command::new("gzip")
        .args(["-9", "--no-name", "--stdout"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed())?;
    let input = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // Beside the reading: a pipe holds little, and both would wait for each other.
        let writer = scope.spawn(move || input.map_or(Ok(()), |mut input| input.write_all(bytes)));
        let output = child.wait_with_output();
        writer.join().unwrap_or(Ok(())).and(output)
    })
    .map_err(failed())?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(Failed::new("gzip", output.status.to_string()))
    }
}
