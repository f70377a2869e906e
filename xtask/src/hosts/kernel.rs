//! A kernel of a guest: Debian's own for clouds or Ubuntu's for virtual machines, with the few modules that a guest needs, unpacked once below
//! `target/hosts/kernels`.
use super::archive::{Arch, Archive, Publisher, make};
use crate::sh::{self, Failed};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a guest loads, in this order; what a kernel has built in has no file. The packages hold no list of dependencies.
const MODULES: &[&str] = &[
    "virtio",
    "virtio_ring",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "autofs4",
    "overlay",
];

/// One kernel, unpacked.
pub(super) struct Kernel {
    directory: PathBuf,
}

impl Kernel {
    /// The newest one of a suite, downloaded unless it is there: remove the directory for a newer one.
    pub(super) fn fetch(hosts: &Path, suite: &str, arch: Arch) -> Result<Self, Failed> {
        let name = format!("{suite}-{}", arch.debian());
        let directory = hosts.join("kernels").join(&name);
        if directory.join("vmlinuz").exists() {
            return Ok(Self { directory });
        }
        let archive = Archive::open(hosts, suite, arch)?;
        let newest = match Publisher::of(suite) {
            Publisher::Debian => format!("linux-image-cloud-{}", arch.debian()),
            Publisher::Ubuntu => "linux-image-virtual".to_owned(),
        };
        let image = first(&archive.depends(&newest)?, "linux-image-")
            .ok_or_else(|| Failed::new(&newest, format!("depends on no kernel in {suite}")))?;
        let mut packages: Vec<String> = archive
            .depends(&image)?
            .into_iter()
            .filter(|name| {
                ["linux-binary-", "linux-modules-"]
                    .iter()
                    .any(|part| name.starts_with(part))
            })
            .collect();
        packages.push(image);
        let partial = directory.with_extension("partial");
        if partial.exists() {
            std::fs::remove_dir_all(&partial).map_err(Failed::io(partial.display()))?;
        }
        let tree = partial.join("tree");
        make(&tree)?;
        archive.unpack(&packages, &tree)?;
        collect(hosts, &tree, &partial)?;
        std::fs::remove_dir_all(&tree).map_err(Failed::io(tree.display()))?;
        // In place at once: what is there is whole.
        std::fs::rename(&partial, &directory).map_err(Failed::io(directory.display()))?;
        Ok(Self { directory })
    }

    pub(super) fn image(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    /// The modules in the order in which they are loaded.
    pub(super) fn modules(&self) -> Result<Vec<PathBuf>, Failed> {
        let directory = self.directory.join("modules");
        let mut found = files(&directory)?;
        found.sort();
        Ok(found)
    }
}

/// A static busybox for an architecture, unpacked once.
pub(super) fn busybox(hosts: &Path, arch: Arch) -> Result<PathBuf, Failed> {
    let directory = hosts.join("busybox").join(arch.debian());
    let program = directory.join("usr/bin/busybox");
    if program.exists() {
        return Ok(program);
    }
    let archive = Archive::open(hosts, "bookworm", arch)?;
    let partial = directory.with_extension("partial");
    make(&partial.join("usr/bin"))?;
    archive.unpack(&["busybox-static".to_owned()], &partial)?;
    // The package has it in /bin, which is no link to /usr/bin here.
    let old = partial.join("bin/busybox");
    if old.exists() {
        let new = partial.join("usr/bin/busybox");
        std::fs::rename(&old, &new).map_err(Failed::io(new.display()))?;
    }
    std::fs::rename(&partial, &directory).map_err(Failed::io(directory.display()))?;
    Ok(program)
}

fn first(names: &[String], prefix: &str) -> Option<String> {
    names.iter().find(|name| name.starts_with(prefix)).cloned()
}

/// Takes the image and the modules out of the unpacked packages.
fn collect(hosts: &Path, tree: &Path, into: &Path) -> Result<(), Failed> {
    let all = walk(tree)?;
    let named = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let image = all
        .iter()
        .find(|path| named(path).is_some_and(|name| name == "vmlinuz" || name.starts_with("vmlinuz-")))
        .ok_or_else(|| Failed::new(tree.display().to_string(), "there is no vmlinuz in the packages"))?;
    let modules = into.join("modules");
    make(&modules)?;
    for (index, module) in MODULES.iter().enumerate() {
        let target = modules.join(format!("{index:02}-{module}.ko"));
        let plain = format!("{module}.ko");
        let packed = |how: &str| format!("{module}.ko.{how}");
        for path in &all {
            let name = named(path).unwrap_or_default();
            if name == plain {
                std::fs::copy(path, &target).map_err(Failed::io(path.display()))?;
            } else if name == packed("xz") {
                let own = Arch::own().unwrap_or(Arch::Amd64);
                let mut xz = Command::new(busybox(hosts, own)?);
                xz.arg("xz");
                unpack(xz, path, &target)?;
            } else if name == packed("zst") {
                unpack(Command::new("zstd"), path, &target)?;
            }
        }
    }
    let kept = into.join("vmlinuz");
    std::fs::copy(image, &kept)
        .map(drop)
        .map_err(Failed::io(kept.display()))
}

/// Has a program with the options of gzip unpack a file.
fn unpack(mut command: Command, from: &Path, to: &Path) -> Result<(), Failed> {
    command.arg("-dc").arg(from);
    let what = sh::shown(&command);
    let file = std::fs::File::create(to).map_err(Failed::io(to.display()))?;
    let status = command
        .stdin(Stdio::null())
        .stdout(file)
        .status()
        .map_err(Failed::io(&what))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failed::new(what, status.to_string()))
    }
}

fn files(directory: &Path) -> Result<Vec<PathBuf>, Failed> {
    let entries = std::fs::read_dir(directory).map_err(Failed::io(directory.display()))?;
    entries
        .map(|entry| {
            entry
                .map(|entry| entry.path())
                .map_err(Failed::io(directory.display()))
        })
        .collect()
}

fn walk(directory: &Path) -> Result<Vec<PathBuf>, Failed> {
    let mut found = Vec::new();
    for path in files(directory)? {
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            found.extend(walk(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}
