//! Packages of another release or architecture of this machine's distribution, or of Ubuntu, by an apt configuration of its own
//! below `target/hosts`. The machine's packages and package lists are not changed.
//!
//! Trust: the archive's address, keys and proxy settings are the machine's own; Ubuntu's keys are from a package of Debian's. apt
//! checks every signature.
use crate::sh::{self, Failed};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which processor a guest has, as Debian names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    Amd64,
    Arm64,
}

/// Whose suite it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Publisher {
    Debian,
    Ubuntu,
}

/// One suite of the archive for one architecture.
pub(super) struct Archive {
    directory: PathBuf,
    arch: Arch,
}

/// Where Debian's packages put the keys of its archive.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where the package with Ubuntu's keys has them.
const UBUNTU_KEYS: &str = "usr/share/keyrings/ubuntu-archive-keyring.gpg";

/// The package with Ubuntu's keys, and the suite of Debian's that has it.
const UBUNTU_KEYRING: (&str, &str) = ("ubuntu-keyring", "trixie");

/// Names an archive of Ubuntu's, where that of Debian's has none beside it.
const UBUNTU_ARCHIVE: &str = "BASTLE_UBUNTU_ARCHIVE";

/// Releases of Ubuntu's that guests are made of.
const UBUNTU: [&str; 2] = ["noble", "resolute"];

/// Components of the archive that are asked for.
const COMPONENT: &str = "main";

impl Arch {
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Arch::Amd64 => "amd64",
            Arch::Arm64 => "arm64",
        }
    }

    /// The architecture of this machine, where a guest can be made for it.
    pub(crate) fn own() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Arch::Amd64),
            "aarch64" => Some(Arch::Arm64),
            _ => None,
        }
    }
}

impl Publisher {
    pub(super) fn of(suite: &str) -> Self {
        if UBUNTU.contains(&suite) {
            Self::Ubuntu
        } else {
            Self::Debian
        }
    }

    /// Where its archive is.
    pub(super) fn address(self, hosts: &Path) -> Result<String, Failed> {
        let debian = address(&hosts.join("apt/own"))?;
        Ok(match (self, std::env::var(UBUNTU_ARCHIVE)) {
            (Self::Debian, _) => debian,
            (Self::Ubuntu, Ok(named)) => named,
            (Self::Ubuntu, Err(_)) => beside(&debian),
        })
    }

    /// The file with its keys; none where apt's own are meant.
    pub(super) fn keys(self, hosts: &Path) -> Result<Option<PathBuf>, Failed> {
        match self {
            Self::Debian => Ok(Some(PathBuf::from(KEYS)).filter(|file| file.exists())),
            Self::Ubuntu => {
                let directory = hosts.join("apt/keys");
                let file = directory.join(UBUNTU_KEYS);
                if !file.exists() {
                    let (package, suite) = UBUNTU_KEYRING;
                    let archive = Archive::open(hosts, suite, Arch::Amd64)?;
                    make(&directory)?;
                    archive.unpack(&[package.to_owned()], &directory)?;
                }
                Ok(Some(file))
            }
        }
    }
}

impl Archive {
    /// Fetches the package lists of `suite`, unless an earlier run did.
    pub(super) fn open(hosts: &Path, suite: &str, arch: Arch) -> Result<Self, Failed> {
        let directory = hosts.join("apt").join(format!("{suite}-{}", arch.debian()));
        let archive = Self { directory, arch };
        let ready = archive.directory.join("ready");
        if ready.exists() {
            return Ok(archive);
        }
        for part in ["lists/partial", "cache/archives/partial"] {
            make(&archive.directory.join(part))?;
        }
        let publisher = Publisher::of(suite);
        let keys = publisher
            .keys(hosts)?
            .map_or_else(String::new, |file| format!("[signed-by={}] ", file.display()));
        let address = publisher.address(hosts)?;
        write(
            &archive.sources(),
            &format!("deb {keys}{address} {suite} {COMPONENT}\n"),
        )?;
        write(&archive.directory.join("status"), "")?;
        println!("  fetching the package lists of {suite} for {}", arch.debian());
        sh::stdout_of(archive.apt("apt-get").arg("update"))?;
        write(&ready, "")?;
        Ok(archive)
    }

    fn sources(&self) -> PathBuf {
        self.directory.join("sources.list")
    }

    /// An apt program that uses these lists alone.
    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let below = |name: &str| self.directory.join(name).display().to_string();
        for setting in [
            format!("Dir::Etc::sourcelist={}", below("sources.list")),
            "Dir::Etc::sourceparts=/nonexistent".to_owned(),
            "Dir::Etc::preferences=/nonexistent".to_owned(),
            "Dir::Etc::preferencesparts=/nonexistent".to_owned(),
            format!("Dir::State={}", below("")),
            format!("Dir::State::lists={}", below("lists")),
            format!("Dir::State::status={}", below("status")),
            format!("Dir::Cache={}", below("cache")),
            format!("APT::Architecture={}", self.arch.debian()),
            format!("APT::Architectures={}", self.arch.debian()),
            // Its own user could not write below a developer's home.
            "APT::Sandbox::User=".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::Retries=2".to_owned(),
        ] {
            command.arg("-o").arg(setting);
        }
        command
    }

    /// The packages that this one depends on, without versions; of alternatives the first.
    pub(super) fn depends(&self, package: &str) -> Result<Vec<String>, Failed> {
        let shown = sh::stdout_of(self.apt("apt-cache").args(["show", "--no-all-versions", package]))?;
        Ok(depends_of(&shown))
    }

    /// Downloads packages and unpacks them; their scripts are not run.
    pub(super) fn unpack(&self, packages: &[String], into: &Path) -> Result<(), Failed> {
        let files = self.directory.join("packages");
        for package in packages {
            let own = files.join(package);
            make(&own)?;
            println!("  downloading {package} ({})", self.arch.debian());
            let mut download = self.apt("apt-get");
            sh::stdout_of(download.arg("download").arg(package).current_dir(&own))?;
            for entry in std::fs::read_dir(&own).map_err(Failed::io(own.display()))? {
                let file = entry.map_err(Failed::io(own.display()))?.path();
                sh::stdout_of(Command::new("dpkg").arg("-x").args([file.as_path(), into]))?;
            }
            std::fs::remove_dir_all(&own).map_err(Failed::io(own.display()))?;
        }
        Ok(())
    }
}

/// The address of the Debian archive that this machine is configured with.
fn address(lists: &Path) -> Result<String, Failed> {
    if sh::which("apt-get").is_none() || sh::which("dpkg").is_none() {
        return Err(Failed::new(
            "apt-get",
            "this machine has none: kernels cannot be had",
        ));
    }
    if let Some(address) = debian(&targets(None)?) {
        return Ok(address);
    }
    // A machine that never fetched package lists names no archive: fetch them, beside its own.
    make(&lists.join("partial"))?;
    let mut update = Command::new("apt-get");
    update.args(own_lists(lists)).arg("update");
    sh::stdout_of(&mut update)?;
    debian(&targets(Some(lists))?).ok_or_else(|| {
        Failed::new(
            "apt configuration",
            "it names no archive of Debian: kernels cannot be had",
        )
    })
}

/// The archive that most mirrors of Debian's have beside it.
fn beside(debian: &str) -> String {
    let above = debian.trim_end_matches('/').rsplit_once('/');
    format!("{}/ubuntu/", above.map_or(debian, |(above, _)| above))
}

fn own_lists(lists: &Path) -> [String; 4] {
    [
        "-o".to_owned(),
        format!("Dir::State::lists={}", lists.display()),
        "-o".to_owned(),
        "APT::Sandbox::User=".to_owned(),
    ]
}

fn targets(lists: Option<&Path>) -> Result<String, Failed> {
    let mut command = Command::new("apt-get");
    if let Some(lists) = lists {
        command.args(own_lists(lists));
    }
    command.args([
        "indextargets",
        "--format",
        "$(LABEL) $(COMPONENT) $(REPO_URI)",
        "Created-By: Packages",
    ]);
    sh::stdout_of(&mut command)
}

/// The first archive labelled `Debian`: security updates and other publishers have labels of their own.
fn debian(targets: &str) -> Option<String> {
    targets
        .lines()
        .find_map(|line| line.strip_prefix(&format!("Debian {COMPONENT} ")))
        .map(str::to_owned)
}

fn depends_of(shown: &str) -> Vec<String> {
    let list = shown.lines().find_map(|line| line.strip_prefix("Depends: "));
    list.unwrap_or_default()
        .split(',')
        .filter_map(|one| one.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

pub(super) fn make(directory: &Path) -> Result<(), Failed> {
    std::fs::create_dir_all(directory).map_err(Failed::io(directory.display()))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Failed> {
    std::fs::write(path, text).map_err(Failed::io(path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_debians_own_and_not_that_of_security_updates_or_of_somebody_else() {
        let targets = "Other main http://other.invalid/\nDebian-Security main http://security.invalid/\n\
                       Debian contrib http://archive.invalid/x\nDebian main http://archive.invalid/debian/\n";
        assert_eq!(debian(targets).as_deref(), Some("http://archive.invalid/debian/"));
        assert_eq!(debian("Ubuntu main http://archive.invalid/ubuntu/\n"), None);
        assert_eq!(
            beside("http://archive.invalid/debian/"),
            "http://archive.invalid/ubuntu/"
        );
    }

    #[test]
    fn of_a_package_that_is_needed_the_name_is_taken_and_of_alternatives_the_first() {
        let shown = "Package: x\nVersion: 1\nDepends: linux-image-1-cloud-amd64 (= 1-1), kmod, dracut | initramfs-tools\n";
        assert_eq!(depends_of(shown), ["linux-image-1-cloud-amd64", "kmod", "dracut"]);
        assert_eq!(depends_of("Package: x\n"), Vec::<String>::new());
    }
}
