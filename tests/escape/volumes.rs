//! Attacks on a file system that has subvolumes: a snapshot is a copy of the project with the hidden files in it, and a
//! subvolume a directory that no call has named. By the filter's answer on any file system, and on a real btrfs.
use crate::support::{Identity, Lab, for_each_identity, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Requests that make a subvolume.
const MAKING: [&str; 4] = ["create", "create-v2", "snapshot", "snapshot-v2"];
/// Requests that remove or change one.
const CHANGING: [&str; 3] = ["destroy", "destroy-v2", "flags"];

/// A btrfs in a file, mounted below the lab, with a project that is a subvolume; taken down when dropped.
struct Disk {
    at: PathBuf,
}

impl Disk {
    /// `None` where this host cannot make one.
    fn new(lab: &Lab) -> Option<Self> {
        if lab.identity == Identity::Current {
            return None;
        }
        let (image, at) = (lab.outside().join("image"), lab.outside().join("disk"));
        std::fs::create_dir(&at).expect("a fresh place");
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(256 << 20))
            .expect("a fresh file");
        let worked = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let made = worked(Command::new("mkfs.btrfs").arg("-q").arg(&image))
            && worked(
                Command::new("mount")
                    .args(["-o", "loop,user_subvol_rm_allowed"])
                    .args([&image, &at]),
            );
        // Made only where it is mounted: dropping it takes the mount down.
        let disk = made.then(|| Self { at })?;
        let project = disk.project();
        let created = worked(Command::new("btrfs").args(["subvolume", "create"]).arg(&project));
        assert!(created, "a subvolume can be made on a fresh btrfs");
        lab.hand_over(&project);
        lab.plant(&project.join(".env"), "TOKEN=canary\n");
        lab.plant(&project.join("README"), "read me\n");
        Some(disk)
    }

    fn project(&self) -> PathBuf {
        self.at.join("project")
    }

    fn has(&self, name: &str) -> bool {
        self.project().join(name).symlink_metadata().is_ok()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let down = Command::new("umount").arg("-l").arg(&self.at).status();
        assert!(down.is_ok_and(|status| status.success()), "{}", self.at.display());
    }
}

/// The attacks outside the fence, by the same identity.
fn unfenced(lab: &Lab, directory: &Path, attack: &[&str]) -> String {
    let mut command = lab.command(&lab.attacker());
    command.current_dir(directory).args(attack);
    crate::support::run(&mut command, b"", crate::support::Limit::HANG)
        .stdout
        .trim()
        .to_owned()
}

#[test]
fn requests_for_subvolumes_are_refused_by_the_filter_on_every_file_system() {
    for_each_identity(|lab| {
        lab.project("README", "read me\n");
        let requests = MAKING.iter().chain(&CHANGING);
        let mut attacks: Vec<[&str; 3]> = requests.map(|how| ["volume", how, "x"]).collect();
        let refused = attacks.len();
        attacks.push(["volume", "unknown", "x"]);
        let attacks: Vec<&[&str]> = attacks.iter().map(|attack| &attack[..]).collect();
        let mut expected = vec!["EPERM"; refused];
        // Beside them a request of the same family that no file system knows: only the listed ones are refused.
        expected.push("ENOTTY");
        for mode in ["in-place", "copy"] {
            let (seen, output) = lab.fence().flags(["--workspace", mode]).attack(&attacks);
            assert_eq!(seen, expected, "{mode}: {output:?}");
        }
        // EPERM is the filter's answer and not the file system's: without a fence a request is judged by the file system.
        let unfenced = lab.unfenced(&attacks);
        assert!(unfenced.iter().all(|answer| answer != "EPERM"), "{unfenced:?}");
        let allowed: &[&[&str]] = &[&["waiting", "README"]];
        assert_eq!(
            lab.fenced(allowed),
            ["OK"],
            "control: another request is carried out"
        );
    });
}

#[test]
fn no_subvolume_or_snapshot_of_the_project_is_made_or_removed_and_ordinary_requests_work() {
    for_each_identity(|lab| {
        let Some(disk) = Disk::new(lab) else {
            skip(
                "no_subvolume_or_snapshot_of_the_project_is_made_or_removed_and_ordinary_requests_work",
                "needs root, loop devices and mkfs.btrfs",
            );
            return;
        };
        let project = disk.project();
        // Of the host's own, for the attempts to remove one.
        assert_eq!(unfenced(lab, &project, &["volume", "create", "kept"]), "OK");
        let mut attacks: Vec<[&str; 3]> = MAKING.iter().map(|how| ["volume", how, *how]).collect();
        attacks.extend(CHANGING.iter().map(|how| ["volume", how, "kept"]));
        let mut attacks: Vec<&[&str]> = attacks.iter().map(|attack| &attack[..]).collect();
        let refused = attacks.len();
        attacks.extend([
            &["share", "README", "shared"][..],
            &["inode-flags", "README"],
            &["volume-info"],
            &["read", "snapshot/.env"],
            &["read", ".env"],
        ]);
        let (seen, output) = lab
            .fence()
            .cwd(&project)
            .flags(["--workspace", "in-place"])
            .attack(&attacks);
        let mut expected = vec!["EPERM"; refused];
        expected.extend(["OK", "OK", "OK", "ENOENT", "EACCES"]);
        assert_eq!(seen, expected, "{output:?}");
        assert!(MAKING.iter().all(|name| !disk.has(name)) && disk.has("kept") && disk.has("shared"));
        for how in MAKING {
            let came = unfenced(lab, &project, &["volume", how, how]);
            assert_eq!(came, "OK", "control: {how} works without a fence");
            assert!(disk.has(how));
        }
        assert!(
            project.join("snapshot/.env").exists(),
            "control: a snapshot has the hidden file"
        );
        assert_eq!(unfenced(lab, &project, &["volume", "destroy", "kept"]), "OK");
    });
}
