//! The control part of the package: who it is, what runs at installation, which files are the administrator's.
use super::Package;
use super::tree::{PROGRAM, names, put};
use crate::sh::{self, Failed};
use std::path::Path;
use std::process::Command;

const MAINTAINER: &str = "The bastle contributors <maintainers@bastle.invalid>";
/// Scripts of `packaging/debian` that dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Writes `DEBIAN/` into the tree that is otherwise complete.
pub(super) fn write(package: &Package<'_>, root: &Path) -> Result<(), Failed> {
    let files = files(root, "")?;
    let conffiles: String = files
        .iter()
        .filter(|file| file.starts_with("etc/"))
        .map(|file| format!("/{file}\n"))
        .collect();
    let mut sums = Command::new("md5sum");
    sums.current_dir(root)
        .args(files.iter().filter(|file| !file.starts_with("etc/")));
    let sums = sh::stdout_of(&mut sums)?;
    let mut kibibytes = 0;
    for file in &files {
        let path = root.join(file);
        let size = path.metadata().map_err(Failed::io(path.display()))?.len();
        kibibytes += size.div_ceil(1024);
    }
    put(
        root,
        "DEBIAN/control",
        control(package, kibibytes).as_bytes(),
        0o644,
    )?;
    put(root, "DEBIAN/conffiles", conffiles.as_bytes(), 0o644)?;
    put(root, "DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        let from = sh::root().join("packaging/debian").join(script);
        let bytes = std::fs::read(&from).map_err(Failed::io(from.display()))?;
        put(root, &format!("DEBIAN/{script}"), &bytes, PROGRAM)?;
    }
    Ok(())
}

fn control(package: &Package<'_>, kibibytes: u64) -> String {
    let Package {
        version,
        architecture,
        ..
    } = package;
    format!(
        "\
Package: bastle
Version: {version}
Architecture: {architecture}
Maintainer: {MAINTAINER}
Installed-Size: {kibibytes}
Depends: systemd | systemd-standalone-sysusers | systemd-sysusers
Recommends: ca-certificates, git
Section: admin
Priority: optional
Description: run AI coding agents inside a kernel-enforced fence
 bastle runs a command in a sandbox that the kernel enforces, gives it only
 what a policy names, and keeps a record that cannot be quietly changed.
 .
 The program is one static file. Installing the package starts nothing: the
 daemon, the process that builds sandboxes for it and the egress proxy are
 systemd units that an administrator enables.
"
    )
}

/// Debian's form of a change log; what changed is told by the project's own.
pub(super) fn changelog(package: &Package<'_>) -> Result<Vec<u8>, Failed> {
    let mut date = Command::new("date");
    date.args(["--utc", "-R", "-d", &format!("@{}", package.epoch)])
        .env("LC_ALL", "C");
    let date = sh::stdout_of(&mut date)?;
    Ok(format!(
        "bastle ({}) unstable; urgency=medium\n\n  * Built from the project's own tree; see its CHANGELOG.md.\n\n -- {MAINTAINER}  {date}",
        package.version
    )
    .into_bytes())
}

/// Every regular file below `root`, as a path without a leading slash, sorted.
fn files(root: &Path, below: &str) -> Result<Vec<String>, Failed> {
    let mut found = Vec::new();
    for name in names(&root.join(below))? {
        let path = if below.is_empty() {
            name
        } else {
            format!("{below}/{name}")
        };
        if root.join(&path).is_dir() {
            found.extend(files(root, &path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_file_has_what_dpkg_needs_and_no_line_that_is_too_long() {
        let package = Package {
            binary: Path::new("/nonexistent"),
            version: "1.2.3".to_owned(),
            architecture: "amd64",
            epoch: 0,
            kind: super::super::Kind::Shipped,
        };
        let text = control(&package, 7);
        for line in [
            "Package: bastle",
            "Version: 1.2.3",
            "Architecture: amd64",
            "Installed-Size: 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}");
        }
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let log = String::from_utf8(changelog(&package).unwrap()).unwrap();
        assert!(log.ends_with("Thu, 01 Jan 1970 00:00:00 +0000\n"), "{log}");
    }
}
