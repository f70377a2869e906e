//! Letting go end to end: no work goes unnamed, what went comes back, and a full disk stops neither.
use super::review::{EDIT, everything, files, git, json, leave, repository, says, tree, verb, work};
use super::review_recover::{interrupt_at, markers};
use super::support::{Ended, Identity, Lab, Limit, bastle, for_each_identity, run};
use std::path::{Path, PathBuf};
use std::process::Command;

fn state(lab: &Lab) -> PathBuf {
    lab.home().join(".local/state/bastle")
}

/// The command of a refusal that begins so.
fn command(refused: &Ended, beginning: &str) -> String {
    let line = refused.stderr.lines().find_map(|line| line.split_once(beginning));
    let (_, rest) = line.unwrap_or_else(|| panic!("no {beginning}: {refused:?}"));
    format!("{beginning}{rest}")
}

/// Runs a line as a person who pastes it into a shell.
#[track_caller]
fn paste(lab: &Lab, line: &str) -> Ended {
    let line = line.replacen("bastle", &bastle().display().to_string(), 1);
    let mut shell = lab.command(Path::new("/bin/sh"));
    let ended = run(shell.args(["-c", &line]), b"", Limit::HANG);
    assert_eq!(ended.code, 0, "{line}: {ended:?}");
    ended
}

#[test]
fn work_that_only_a_snapshot_holds_is_named_saved_and_only_then_removed() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, EDIT);
        json(lab, &format!("snapshot {run} precious"), 0);
        json(lab, &format!("rollback {run} base"), 0);
        let refused = says(lab, &format!("rm {run}"), 1);
        assert!(
            refused
                .stderr
                .contains("(precious) has 4 changed paths (README, out, "),
            "{refused:?}"
        );
        let value = json(lab, "prune --older-than 0s", 0);
        assert_eq!(value["kept"][0]["run"], run.as_str(), "{value:#}");
        // The word of the refusal, and then the command that saves it.
        let word = command(&refused, "bastle rm ");
        assert!(
            word.rsplit(' ').next().is_some_and(|word| word.len() == 8),
            "{word}"
        );
        paste(lab, &command(&refused, "bastle export "));
        json(lab, &format!("rm {run}"), 0);

        let run = work(lab, EDIT);
        json(lab, &format!("snapshot {run} precious"), 0);
        json(lab, &format!("rollback {run} base"), 0);
        paste(lab, &command(&says(lab, &format!("rm {run}"), 1), "bastle rm "));
        assert!(!tree(lab, &run).exists());
        // Thrown away, and still there for a week.
        json(lab, &format!("restore {run}"), 0);
        json(lab, &format!("rollback {run} precious"), 0);
        assert!(tree(lab, &run).join("src/new.c").exists());
    });
}

#[test]
fn an_archive_or_a_branch_of_later_work_does_not_forget_what_was_applied() {
    for_each_identity(|lab| {
        repository(lab);
        for later in [
            "export {} {}.tar",
            "apply {} --branch {}",
            "apply {} --patch {}.patch",
        ] {
            let run = work(lab, EDIT);
            json(lab, &format!("apply {run}"), 0);
            json(lab, &format!("rollback {run} base"), 0);
            leave(lab, &run, b"src/later.c", b"later\n");
            says(lab, &format!("rm {run}"), 1);
            json(lab, &later.replace("{}", &run), 0);
            says(lab, &format!("rm {run}"), 0);
            for name in ["tar", "patch"] {
                let left = lab.workspace().join(format!("{run}.{name}"));
                assert!(!left.exists() || std::fs::remove_file(left).is_ok());
            }
            git(lab, &["checkout", "-q", "--", "."]);
            git(lab, &["clean", "-qfd"]);
        }
    });
}

#[test]
fn a_stash_is_named_and_the_printed_command_brings_it_out() {
    for_each_identity(|lab| {
        repository(lab);
        let git = "git -c user.name=a -c user.email=a@example.org";
        let run = work(
            lab,
            &format!("echo stashed >> README; {git} stash -q; git status --short"),
        );
        let refused = says(lab, &format!("rm {run}"), 1);
        assert!(
            refused.stderr.contains("the git stash has 1 entry (WIP on"),
            "{refused:?}"
        );
        let line = command(&refused, "bastle run --from ");
        paste(lab, &line.replacen("run --from", "run --name saved --from", 1));
        let names = std::fs::read_dir(tree(lab, "saved")).expect("can be listed");
        let patch = names
            .map(|entry| entry.expect("can be read").path())
            .find(|path| path.extension().is_some_and(|end| end == "patch"))
            .expect("the patch is there");
        let patch = std::fs::read_to_string(patch).expect("can be read");
        assert!(patch.contains("+stashed"), "{patch}");
    });
}

#[test]
fn a_removed_run_is_listed_comes_back_whole_and_leaves_the_trash_by_age() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, EDIT);
        let worked = files(&tree(lab, &run));
        json(lab, &format!("apply {run}"), 0);
        assert_eq!(json(lab, &format!("rm {run}"), 0)["trashed"], true);
        let listed = json(lab, "ls --trash", 0);
        assert_eq!(listed["trash"][0]["run"], run.as_str(), "{listed:#}");
        assert!(
            listed["trash"][0]["bytes"]
                .as_u64()
                .is_some_and(|bytes| bytes > 0)
        );
        assert!(says(lab, "ls --trash", 0).stdout.contains(&run));
        assert_eq!(json(lab, "prune", 0)["emptied"].as_array().map(Vec::len), Some(0));
        json(lab, &format!("restore {run}"), 0);
        assert_eq!(files(&tree(lab, &run)), worked);
        assert_eq!(
            json(lab, "ls --trash", 0)["trash"].as_array().map(Vec::len),
            Some(0)
        );
        says(lab, &format!("restore {run}"), 3);
        says(lab, &format!("diff {run}"), 0);

        json(lab, &format!("rm {run}"), 0);
        let value = json(lab, "prune --trash-older-than 0s", 0);
        assert_eq!(value["emptied"][0], run.as_str(), "{value:#}");
        says(lab, &format!("restore {run}"), 3);
        let run = work(lab, "true\n");
        assert_eq!(json(lab, &format!("rm {run} --now"), 0)["trashed"], false);
        says(lab, &format!("restore {run}"), 3);
    });
}

#[test]
fn a_name_that_was_used_says_so() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, "true\n");
        json(lab, &format!("rm {run}"), 0);
        let refused = says(lab, &format!("run --name {run} --workspace copy -- true"), 125);
        assert!(
            refused
                .stderr
                .contains(&format!("the name {run} was used before")),
            "{refused:?}"
        );
        assert!(!refused.stderr.contains("disk"), "{refused:?}");
    });
}

#[test]
fn another_project_at_the_path_of_the_first_gets_nothing_and_a_clone_of_it_does() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, EDIT);
        let (here, moved) = (lab.workspace(), lab.outside().join("moved"));
        std::fs::rename(&here, &moved).expect("can be moved");
        std::fs::create_dir(&here).expect("can be made");
        lab.hand_over(&here);
        lab.project("README", "another project\n");
        git(lab, &["init", "-q"]);
        git(lab, &["add", "-A"]);
        git(lab, &["commit", "-qm", "another project"]);
        let before = everything(&here);
        for line in ["apply", "apply --branch agent/work", "apply --undo"] {
            let words = line.replacen("apply", &format!("apply {run}"), 1);
            let refused = says(lab, &words, 1);
            assert!(
                refused.stderr.contains("is not the project that run"),
                "{refused:?}"
            );
        }
        assert!(everything(&here) == before, "the other project was written");
        let refused = says(lab, &format!("apply {run}"), 1);
        paste(lab, &command(&refused, "bastle apply "));
        std::fs::remove_file(here.join(format!("{run}.patch"))).expect("was written");

        // The first one again, as another directory with the same history.
        std::fs::remove_dir_all(&here).expect("can be removed");
        std::fs::create_dir(&here).expect("can be made");
        lab.hand_over(&here);
        let clone = ["clone", "-q", &moved.display().to_string(), "."].map(str::to_owned);
        let mut clone_it = lab.command(Path::new("git"));
        clone_it.current_dir(&here);
        let ended = run_words(&mut clone_it, &clone);
        assert_eq!(ended.code, 0, "{ended:?}");
        json(lab, &format!("apply {run}"), 0);
        assert!(here.join("src/new.c").exists());
    });
}

fn run_words(command: &mut Command, words: &[String]) -> Ended {
    run(command.args(words), b"", Limit::HANG)
}

/// A small disk below the state directory, of the identity's own.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where none can be mounted.
    fn mount(lab: &Lab) -> Option<Self> {
        let at = state(lab);
        let keep = lab.plant(&at.join("keep"), "");
        std::fs::remove_file(keep).expect("own file");
        let uid = lab.identity.uid();
        let options = format!("size=24m,mode=700,uid={uid},gid={uid}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "none"]).arg(&at);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then_some(Self(at))
    }

    /// Takes every byte that is left.
    fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.0.join("ballast")).expect("a fresh file");
        let mut piece = vec![1_u8; 64 << 10];
        while !piece.is_empty() {
            if file.write_all(&piece).is_err() {
                piece.truncate(piece.len() / 2);
            }
        }
        assert_eq!(self.room(), 0, "the disk is not full");
    }

    fn room(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.0).expect("is there");
        found.f_bavail * found.f_frsize
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let down = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(down.is_ok_and(|status| status.success()), "{}", self.0.display());
    }
}

#[test]
fn on_a_full_disk_a_removal_is_judged_recorded_and_frees_room() {
    for_each_identity(|lab| {
        if lab.identity == Identity::Current {
            return;
        }
        let Some(disk) = SmallDisk::mount(lab) else {
            eprintln!("skipped: no tmpfs can be mounted");
            return;
        };
        repository(lab);
        lab.project("large", &"x".repeat(2 << 20));
        git(lab, &["add", "-A"]);
        git(lab, &["commit", "-qm", "large"]);
        let (held, applied) = (work(lab, EDIT), work(lab, EDIT));
        json(lab, &format!("apply {applied}"), 0);
        // Nobody has looked at this change yet.
        leave(lab, &held, b"src/more.c", &vec![b'y'; 100_000]);
        disk.fill();
        let refused = says(lab, &format!("rm {held}"), 1);
        assert!(refused.stderr.contains("BST-WS-005"), "{refused:?}");
        let word = command(&refused, "bastle rm ");
        // To the trash: nothing is freed but the room for the record, and that is said.
        let ended = paste(lab, &word);
        assert!(ended.stderr.contains("the disk is full"), "{ended:?}");
        assert!(disk.room() <= 1 << 20);
        disk.fill();
        let value = json(lab, "prune --older-than 0s", 0);
        assert_eq!(value["runs"][0], applied.as_str(), "{value:#}");
        assert_eq!(value["trashed"], false, "{value:#}");
        assert!(disk.room() > 2 << 20, "{} bytes", disk.room());
        disk.fill();
        let value = json(lab, "prune --now", 0);
        assert_eq!(value["emptied"][0], held.as_str(), "{value:#}");
        assert!(disk.room() > 2 << 20, "{} bytes", disk.room());
        let told = verb(lab, ["audit", "ls"]);
        assert!(
            told.stdout.contains("after-"),
            "the removal is on record: {told:?}"
        );
    });
}

#[test]
fn an_interrupted_apply_is_ended_on_a_full_disk() {
    for_each_identity(|lab| {
        if lab.identity == Identity::Current {
            return;
        }
        let Some(disk) = SmallDisk::mount(lab) else {
            eprintln!("skipped: no tmpfs can be mounted");
            return;
        };
        repository(lab);
        let run = work(lab, EDIT);
        json(lab, &format!("apply {run}"), 0);
        let new = files(&lab.workspace());
        // Killed before its last record.
        interrupt_at(lab, &run, r#"{"state":"settling"}"#);
        disk.fill();
        let ended = verb(lab, ["ls"]);
        assert!(
            ended
                .stderr
                .contains("an interrupted change of the project was finished"),
            "{ended:?}"
        );
        assert_eq!(markers(lab), 0);
        assert_eq!(files(&lab.workspace()), new);
    });
}
