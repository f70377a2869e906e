//! The constructed root: a tmpfs that holds exactly what the plan names, then `pivot_root` into it.
//!
//! Runs in the new mount namespace with capabilities over it, before confinement. Trusts the plan. Host paths
//! are opened without following symlinks and mounted by descriptor; nothing is ever created on a host file system.
mod dev;
mod overlay;
mod place;
mod proc;
mod scratch;

use crate::probes::Outside;
use crate::step::Step;
use bastle_contract::{
    AbsPath, Access, Fault, LandlockPart, LaunchPlan, LimitKind, Mount, MountKind, ProbeResult,
};
use bastle_sys::mount::{Attributes, Depth, set_attributes};
use bastle_sys::tree;
use place::Root;
use rustix::fs::{FileType, Mode};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use std::os::fd::{AsFd, OwnedFd};

pub(crate) use dev::DEVICES;
pub(crate) use proc::{MASKED as PROC_MASKED, READ_ONLY as PROC_READ_ONLY};

/// Bytes and inodes of the root tmpfs itself: made files, mount points and symlinks only.
const ROOT_OPTIONS: &std::ffi::CStr = c"size=8m,nr_inodes=32k,mode=0755";

/// The directory of the scratch space on which the root is mounted while it is built.
const IN_SCRATCH: &str = "root";

/// Where `/proc` and `/dev` of every root are.
const PROC: &str = "/proc";
const DEV: &str = "/dev";

/// A root that has what every plan has, and nothing of the host but device nodes.
pub(crate) struct Unfilled {
    root: Root,
    scratch: scratch::Scratch,
    anchor: &'static str,
    laid: Laid,
}

/// What comes of a root that is filled and is the only one.
pub(crate) struct Finished {
    /// The listener of the file broker, where the plan has one.
    pub(crate) broker: Option<OwnedFd>,
    /// Whether a path socket of the tree before it can be reached, where Landlock does not refuse it.
    pub(crate) path_socket: Option<ProbeResult>,
}

/// How far a root is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Laid {
    Nothing,
    OwnParts,
}

impl Unfilled {
    /// Makes the entries that are wholly the run's own: links, small files, scratch space, in the order of the plan. What
    /// lies at or below a place where something of the host's will be has to wait for that.
    pub(crate) fn lay_out(&mut self, plan: &LaunchPlan) -> Result<(), Fault> {
        self.scratch
            .limit(limit(plan, LimitKind::Disk), limit(plan, LimitKind::Inodes))?;
        let hosts = places_of_hosts(&plan.mounts);
        for entry in &plan.mounts {
            if is_own(entry, &hosts) {
                put_own(&self.root, &self.scratch, entry)?;
            }
        }
        self.laid = Laid::OwnParts;
        Ok(())
    }
}

/// Where something is shown that the root does not have of itself.
fn places_of_hosts(mounts: &[Mount]) -> Vec<&AbsPath> {
    let shown = mounts.iter().filter(|mount| match mount.kind {
        MountKind::Bind { .. } | MountKind::Overlay { .. } | MountKind::Again { .. } | MountKind::Mask => {
            true
        }
        MountKind::Scratch { .. }
        | MountKind::Proc
        | MountKind::Dev
        | MountKind::Symlink { .. }
        | MountKind::File { .. }
        | MountKind::Attached { .. }
        | MountKind::Given { .. } => false,
    });
    shown.map(|mount| &mount.at).collect()
}

/// Whether an entry can be made before anything of the host's is there. Attached files are large: they count as the
/// run's memory, and wait until it is in its cgroup.
fn is_own(entry: &Mount, hosts: &[&AbsPath]) -> bool {
    let kind = match entry.kind {
        MountKind::Scratch { .. } | MountKind::Symlink { .. } | MountKind::File { .. } => true,
        MountKind::Bind { .. }
        | MountKind::Overlay { .. }
        | MountKind::Again { .. }
        | MountKind::Proc
        | MountKind::Dev
        | MountKind::Attached { .. }
        | MountKind::Given { .. }
        | MountKind::Mask => false,
    };
    kind && !hosts.iter().any(|host| entry.at.is_within(host))
}

fn put_own(root: &Root, scratch: &scratch::Scratch, Mount { at, kind }: &Mount) -> Result<(), Fault> {
    match kind {
        MountKind::Scratch { mode } => root.attach_dir(at, scratch.directory(*mode)?),
        MountKind::Symlink { target } => root.symlink(at, target),
        MountKind::File { contents } => root.file(at, contents.as_bytes()),
        MountKind::Bind { .. }
        | MountKind::Overlay { .. }
        | MountKind::Again { .. }
        | MountKind::Proc
        | MountKind::Dev
        | MountKind::Attached { .. }
        | MountKind::Given { .. }
        | MountKind::Mask => Err("it is not the run's own").step("constructed root", at),
    }
}

/// Makes the parts that no plan changes. The host's paths still resolve afterwards, but for the anchor's.
pub(crate) fn begin() -> Result<Unfilled, Fault> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .step("private mounts", "/")?;
    let nodes = dev::open_nodes()?;
    let anchor = anchor()?;
    // Below the root: it goes with the host's tree when that is let go of, and has no name inside.
    let scratch = scratch::Scratch::create(anchor)?;
    scratch.mount_point(IN_SCRATCH)?;
    let anchored = format!("{anchor}/{IN_SCRATCH}");
    rustix::mount::mount(
        "bastle",
        &anchored,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        ROOT_OPTIONS,
    )
    .step("constructed root", &anchored)?;
    let root = Root::open(&anchored)?;
    root.make_mask_sources()?;
    root.owns_also(scratch.top())?;
    let place = |path| AbsPath::new(path).step("constructed root", path);
    dev::mount(&root, &scratch, &place(DEV)?, nodes)?;
    proc::mount(&root, &place(PROC)?)?;
    Ok(Unfilled {
        root,
        scratch,
        anchor,
        laid: Laid::Nothing,
    })
}

/// Fills the root by the plan and makes it the only one. Afterwards no host path can be named.
pub(crate) fn finish(
    unfilled: Unfilled,
    plan: &LaunchPlan,
    made: Vec<OwnedFd>,
    attachments: Option<&OwnedFd>,
) -> Result<Finished, Fault> {
    let mut unfilled = unfilled;
    if unfilled.laid == Laid::Nothing {
        unfilled.lay_out(plan)?;
    }
    let Unfilled {
        root,
        scratch,
        anchor,
        laid: _,
    } = unfilled;
    let sources = if made.is_empty() {
        open_sources(&plan.mounts)?
    } else {
        made
    };
    fill(&root, &scratch, &plan.mounts, Material { sources, attachments })?;
    let broker = crate::broker::listen(root.mount(), plan)?;
    root.close_mask_sources()?;
    if plan.is_without_landlock() && crate::hooks::enforces("read-only-proc") {
        let proc = AbsPath::new(PROC).step("constructed root", PROC)?;
        let mount = root
            .existing(&proc)?
            .ok_or("is missing")
            .step("read-only /proc", PROC)?;
        set_attributes(mount.as_fd(), Attributes::READ_ONLY, Depth::One).step("read-only /proc", PROC)?;
    }
    if crate::hooks::enforces("read-only-root") {
        set_attributes(root.mount(), Attributes::READ_ONLY, Depth::One).step("read-only root", "/")?;
    }
    let outside = (!plan.landlock_parts.has(LandlockPart::Unix)).then(|| Outside::make(anchor));
    pivot(&root)?;
    let path_socket = outside.map(|outside| outside.again(scratch.top().as_fd()));
    scratch.remove(IN_SCRATCH)?;
    Ok(Finished { broker, path_socket })
}

fn limit(plan: &LaunchPlan, kind: LimitKind) -> Option<u64> {
    plan.limit(kind).map(|rule| rule.value)
}

fn open_sources(mounts: &[Mount]) -> Result<Vec<OwnedFd>, Fault> {
    let mut sources = Vec::new();
    for mount in mounts {
        for (source, access) in mount.kind.sources().into_iter().flatten() {
            let path = tree::open_exactly(source.as_path()).step("bind", source)?;
            sources.push(tree::detach(&path, attributes(access)).step("bind", source)?);
        }
    }
    Ok(sources)
}

fn attributes(access: Access) -> Attributes {
    match access {
        Access::ReadOnly if crate::hooks::enforces("read-only-binds") => Attributes::READ_ONLY,
        Access::ReadOnly | Access::ReadWrite => Attributes::default(),
    }
}

/// A directory to mount the new root on while it is built. Covered only in this namespace; one that no plan binds
/// from, because binds are opened after it is covered.
fn anchor() -> Result<&'static str, Fault> {
    ["/sys", "/boot"]
        .into_iter()
        .find(|path| std::fs::symlink_metadata(path).is_ok_and(|m| m.is_dir()))
        .ok_or("neither /sys nor /boot is a directory")
        .step("constructed root", "anchor")
}

/// What the entries of the root are made of.
struct Material<'a> {
    sources: Vec<OwnedFd>,
    attachments: Option<&'a OwnedFd>,
}

fn fill(
    root: &Root,
    scratch: &scratch::Scratch,
    mounts: &[Mount],
    material: Material<'_>,
) -> Result<(), Fault> {
    let mut sources = material.sources.into_iter();
    let hosts = places_of_hosts(mounts);
    let mut read_only = Vec::new();
    for entry in mounts.iter().filter(|entry| !is_own(entry, &hosts)) {
        let Mount { at, kind } = entry;
        match kind {
            MountKind::Bind {
                source,
                access: _,
                owned: _,
            } => {
                let tree = sources.next().ok_or("no descriptor left").step("bind", source)?;
                bind(root, at, tree)?;
            }
            MountKind::Overlay {
                lower: _,
                layer: _,
                access,
                owned: _,
            } => {
                let mut next = || sources.next().ok_or("no descriptor left").step("overlay", at);
                let layers = overlay::Layers {
                    lower: next()?,
                    layer: next()?,
                };
                let made = overlay::make(root, scratch, layers)?;
                if *access == Access::ReadOnly {
                    read_only.push((at, made.try_clone().step("overlay", at)?));
                }
                root.attach_dir(at, made)?;
            }
            MountKind::Again { of, access } if has_writable_parts(mounts, at) => {
                let shown = again(root, at, of, Access::ReadWrite)?;
                if *access == Access::ReadOnly {
                    read_only.extend(shown.map(|mount| (at, mount)));
                }
            }
            MountKind::Again { of, access } => drop(again(root, at, of, *access)?),
            // Made ahead, always there.
            MountKind::Proc if at.as_str() == PROC => {}
            MountKind::Dev if at.as_str() == DEV => {}
            MountKind::Proc | MountKind::Dev => {
                return Err(format!("only {PROC} and {DEV} can be")).step("constructed root", at);
            }
            MountKind::Scratch { .. } | MountKind::Symlink { .. } | MountKind::File { .. } => {
                put_own(root, scratch, entry)?
            }
            MountKind::Attached { offset, length } => {
                root.file(at, &attached(material.attachments, at, *offset, *length)?)?
            }
            MountKind::Given { offset, length } => {
                root.given(at, &attached(material.attachments, at, *offset, *length)?)?
            }
            MountKind::Mask => mask(root, at)?,
        }
    }
    // Last: a part that is shown again for writing is a copy of the mount, and has its attributes.
    for (at, mount) in read_only {
        if crate::hooks::enforces("read-only-overlays") {
            set_attributes(mount.as_fd(), Attributes::READ_ONLY, Depth::One).step("read-only overlay", at)?;
        }
    }
    Ok(())
}

/// Whether something below a place is shown again for writing.
fn has_writable_parts(mounts: &[Mount], place: &AbsPath) -> bool {
    mounts.iter().any(|mount| {
        let MountKind::Again {
            of,
            access: Access::ReadWrite,
        } = &mount.kind
        else {
            return false;
        };
        of != place && of.is_within(place)
    })
}

/// Most bytes of one attached file: a system's certificate bundle is a quarter of a megabyte.
const MOST_ATTACHED: u64 = 4 << 20;

/// A part of the attachments.
fn attached(from: Option<&OwnedFd>, at: &AbsPath, offset: u64, length: u64) -> Result<Vec<u8>, Fault> {
    let what = "attached file";
    let from = from.ok_or("the plan came without attachments").step(what, at)?;
    if length > MOST_ATTACHED {
        return Err(format!("{length} bytes are more than {MOST_ATTACHED}")).step(what, at);
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(from, &mut bytes[done..], offset + done as u64).step(what, at)? {
            0 => return Err("the attachments end before it does").step(what, at),
            read => done += read,
        }
    }
    Ok(bytes)
}

fn bind(root: &Root, at: &AbsPath, tree: OwnedFd) -> Result<(), Fault> {
    let stat = rustix::fs::fstat(&tree).step("bind", at)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        root.attach_dir(at, tree)
    } else {
        root.attach_file(at, tree)
    }
}

/// Shows what is at `of` at `at` too, and gives back that mount. A name that is not there is no hole: the write guard
/// keeps it from coming into being.
fn again(root: &Root, at: &AbsPath, of: &AbsPath, access: Access) -> Result<Option<OwnedFd>, Fault> {
    let Some(there) = root.existing(of)? else {
        return Ok(None);
    };
    let tree = tree::detach(&there, attributes(access)).step("bind", of)?;
    let mount = tree.try_clone().step("bind", of)?;
    bind(root, at, tree)?;
    Ok(Some(mount))
}

/// Covers what is at `at`. A name that is gone since the plan was made is no hole: the write guard keeps it from coming back.
fn mask(root: &Root, at: &AbsPath) -> Result<(), Fault> {
    if !crate::hooks::enforces("masks") {
        return Ok(());
    }
    let Some(target) = root.existing(at)? else {
        return Ok(());
    };
    let stat = rustix::fs::fstat(&target).step("mask", at)?;
    let cover = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => root.empty_directory()?,
        _ => root.empty_file()?,
    };
    place::attach(&cover, &target).step("mask", at)
}

/// Makes the new root the root and lets go of the old one.
fn pivot(root: &Root) -> Result<(), Fault> {
    rustix::process::fchdir(root.mount()).step("pivot_root", "/")?;
    rustix::process::pivot_root(".", ".").step("pivot_root", "/")?;
    // The old root is stacked on the new one now; "." is the old one.
    if crate::hooks::enforces("host-root") {
        rustix::mount::unmount(".", UnmountFlags::DETACH).step("pivot_root", "detach the host's root")?;
    }
    rustix::process::chdir("/").step("pivot_root", "/")?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_at_or_below_a_place_of_the_hosts_is_not_laid_out_before_it_is_there() {
        let at = |path: &str| AbsPath::new(path).unwrap();
        let mount = |path: &str, kind: MountKind| Mount { at: at(path), kind };
        let bind = |path: &str| MountKind::Bind {
            source: at(path),
            access: Access::ReadOnly,
            owned: false,
        };
        let file = || MountKind::File {
            contents: "x".to_owned(),
        };
        let link = || MountKind::Symlink {
            target: "x".to_owned(),
        };
        let mounts = [
            mount("/etc/hosts", file()),
            mount("/srv", bind("/srv")),
            mount("/srv/made", file()),
            mount("/srv-too", link()),
            mount("/tmp", MountKind::Scratch { mode: 0o1777 }),
            mount("/tmp/work", bind("/tmp/work")),
            mount("/tmp/work/link", link()),
            mount("/tmp/hidden", MountKind::Mask),
            mount("/tmp/hidden/below", MountKind::Scratch { mode: 0o700 }),
            mount("/var/large", MountKind::Attached { offset: 0, length: 1 }),
            mount("/proc", MountKind::Proc),
        ];
        let hosts = places_of_hosts(&mounts);
        let own: Vec<&str> = mounts
            .iter()
            .filter(|entry| is_own(entry, &hosts))
            .map(|entry| entry.at.as_str())
            .collect();
        assert_eq!(own, ["/etc/hosts", "/srv-too", "/tmp"]);
    }
}
