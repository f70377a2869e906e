//! Directories and files mounted into a living run, and taken out again.
use crate::agent::{Agent, inside, shown};
use crate::support::{Identity, Limit, eventually, for_each_identity};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

#[test]
fn a_directory_granted_for_reading_is_read_and_not_written_and_gone_when_it_is_revoked() {
    for_each_identity(|lab| {
        let data = lab.outside().join("data");
        lab.plant(&data.join("f"), "public");
        lab.plant(&data.join("below/g"), "deeper");
        lab.plant(&data.join(".env"), "SECRET");
        let agent = Agent::start(lab);
        let at = inside(&data);
        assert_eq!(agent.does(&format!("read('{at}/f')")), "'ENOENT'", "before");
        agent.gets("grant", &["--ro", &shown(&data)]);
        assert_eq!(agent.does(&format!("read('{at}/f')")), "'public'");
        assert_eq!(agent.does(&format!("read('{at}/below/g')")), "'deeper'");
        assert_eq!(agent.does(&format!("write('{at}/f', 'x')")), "'EROFS'");
        assert_eq!(agent.does(&format!("write('{at}/new', 'x')")), "'EROFS'");
        assert_eq!(
            agent.does(&format!("outcome(lambda: os.remove('{at}/f'))")),
            "'EROFS'"
        );
        assert_eq!(
            agent.does(&format!("outcome(lambda: os.chmod('{at}/f', 0o777))")),
            "'EROFS'"
        );
        assert_eq!(
            agent.does(&format!("read('{at}/.env')")),
            "'EACCES'",
            "hidden names stay hidden"
        );
        // The parent of what was granted is not reached from it.
        let up = format!("sorted(os.listdir('{at}/..'))");
        assert_eq!(agent.does(&up), "['data']");
        let revoked = agent.gets("revoke", &[&shown(&data)]);
        assert!(
            !revoked.stdout.contains("hold"),
            "nobody held anything: {revoked:?}"
        );
        assert_eq!(agent.does(&format!("read('{at}/f')")), "'ENOENT'", "after");
        assert_eq!(
            agent.does("os.listdir('/grants')"),
            "['README']",
            "nothing is left"
        );
        assert_eq!(std::fs::read_to_string(data.join("f")).unwrap(), "public");
        assert_eq!(agent.events("granted").len(), 1);
        assert_eq!(agent.events("grant-ended")[0]["why"], "revoked");
    });
}

#[test]
fn what_is_written_through_a_grant_belongs_to_the_owner_and_guarded_names_cannot_be_made() {
    for_each_identity(|lab| {
        let shared = lab.outside().join("shared");
        lab.plant(&shared.join("old"), "old");
        let agent = Agent::start(lab);
        let at = inside(&shared);
        agent.gets("grant", &["--rw", &shown(&shared)]);
        assert_eq!(agent.does(&format!("write('{at}/new', 'made inside')")), "11");
        assert_eq!(
            std::fs::read_to_string(shared.join("new")).unwrap(),
            "made inside"
        );
        assert_eq!(
            std::fs::metadata(shared.join("new")).unwrap().uid(),
            lab.identity.uid()
        );
        assert_eq!(
            agent.does(&format!("write('{at}/old', 'changed')")),
            "7",
            "control"
        );
        assert_eq!(agent.does(&format!("write('{at}/.env', 'x')")), "'EACCES'");
        assert_eq!(
            agent.does(&format!(
                "outcome(lambda: os.rename('{at}/new', '{at}/.env.local'))"
            )),
            "'EACCES'"
        );
        assert!(!shared.join(".env").exists() && !shared.join(".env.local").exists());
        assert_eq!(
            agent.does(&format!("outcome(lambda: os.link('{at}/old', '/tmp/out'))")),
            "'EXDEV'"
        );
    });
}

#[test]
fn a_grant_with_a_time_ends_by_itself_and_the_run_goes_on() {
    for_each_identity(|lab| {
        let data = lab.outside().join("data");
        lab.plant(&data.join("f"), "public");
        let mut agent = Agent::start(lab);
        agent.gets("grant", &["--ro", &shown(&data), "--for", "2s"]);
        let seen = format!("read('{}/f')", inside(&data));
        assert_eq!(agent.does(&seen), "'public'", "at first");
        let over = || {
            agent
                .events("grant-ended")
                .iter()
                .any(|event| event["why"] == "expired")
        };
        assert!(eventually(Limit::HANG, over), "it ends");
        assert_eq!(agent.does(&seen), "'ENOENT'");
        assert!(agent.is_alive());
    });
}

#[test]
fn a_directory_that_is_held_open_opens_nothing_more_after_it_was_revoked() {
    for_each_identity(|lab| {
        let data = lab.outside().join("data");
        lab.plant(&data.join("f"), "public");
        let mut agent = Agent::start(lab);
        agent.gets("grant", &["--rw", &shown(&data)]);
        let open = format!("held.append(os.open('{}', os.O_RDONLY))", inside(&data));
        assert_eq!(agent.does(&open), "None");
        assert_eq!(agent.does("os.fchdir(held[0])"), "None");
        let through = "outcome(lambda: os.close(os.open('f', os.O_RDONLY, dir_fd=held[0])))";
        assert_eq!(agent.does(through), "None", "control");
        assert!(agent.is_alive(), "control");
        agent.gets("revoke", &[&shown(&data)]);
        // The agent itself could still reach it: it is ended, and the run with it.
        assert!(eventually(Limit::HANG, || !agent.is_alive()), "the run is over");
        assert_eq!(std::fs::read_to_string(data.join("f")).unwrap(), "public");
    });
}

#[test]
fn the_agent_cannot_change_what_is_granted_or_where() {
    for_each_identity(|lab| {
        let data = lab.outside().join("data");
        lab.plant(&data.join("f"), "public");
        let agent = Agent::start(lab);
        agent.gets("grant", &["--ro", &shown(&data)]);
        let at = inside(&data);
        // umount2, a remount for writing, a bind elsewhere, a move: the filter refuses each.
        for attempt in [
            format!("call('umount2', b'{at}', 2)"),
            format!("call('mount', None, b'{at}', None, 32, None)"),
            format!("call('mount', b'{at}', b'/tmp', None, 4096, None)"),
            format!("call('mount', b'{at}', b'/tmp', None, 8192, None)"),
        ] {
            assert_eq!(agent.does(&attempt), "'EPERM'", "{attempt}");
        }
        for attempt in [
            "os.mkdir('/grants/x')",
            "os.symlink('/etc', '/grants/x')",
            "os.rename('/grants/README', '/grants/x')",
            "os.remove('/grants/README')",
            "os.mkdir('/x')",
        ] {
            let result = agent.does(&format!("outcome(lambda: {attempt})"));
            assert!(
                ["'EROFS'", "'EACCES'"].contains(&result.as_str()),
                "{attempt}: {result}"
            );
        }
        assert_eq!(agent.does(&format!("read('{at}/f')")), "'public'", "control");
    });
}

#[test]
fn a_grant_is_reached_under_its_own_path_where_nothing_stands_in_the_way() {
    for_each_identity(|lab| {
        if lab.identity == Identity::Current {
            crate::support::skip(
                "a_grant_is_reached_under_its_own_path",
                "needs root to make a directory in /srv",
            );
            return;
        }
        let place = Place::new(lab.identity.uid());
        let agent = Agent::start(lab);
        let path = shown(&place.0.join("f"));
        assert_eq!(agent.does(&format!("read('{path}')")), "'ENOENT'");
        let told = agent.gets("grant", &["--ro", &shown(&place.0)]);
        assert!(
            told.stdout.contains(&format!("at {}", shown(&place.0))),
            "{told:?}"
        );
        assert_eq!(agent.does(&format!("read('{path}')")), "'public'");
        agent.gets("revoke", &[&shown(&place.0)]);
        assert_eq!(agent.does(&format!("read('{path}')")), "'ENOENT'");
        // And again: nothing of the first time is in the way.
        agent.gets("grant", &["--ro", &shown(&place.0)]);
        assert_eq!(agent.does(&format!("read('{path}')")), "'public'");
    });
}

/// A directory outside the usual places for temporary files, which every sandbox has of its own.
struct Place(PathBuf);

impl Place {
    fn new(uid: u32) -> Self {
        let path = PathBuf::from(format!("/srv/bastle-test-{}-{uid}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("f"), "public").unwrap();
        for each in [&path, &path.join("f")] {
            std::os::unix::fs::chown(each, Some(uid), Some(uid)).unwrap();
        }
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_single_file_and_a_directory_with_many_hidden_names_can_be_granted_again_and_again() {
    for_each_identity(|lab| {
        let data = lab.outside().join("data");
        let one = lab.plant(&lab.outside().join("one"), "one");
        for number in 0..40 {
            lab.plant(&data.join(format!("d{number}/.env")), "SECRET");
            lab.plant(&data.join(format!("d{number}/f")), "public");
        }
        let agent = Agent::start(lab);
        for round in 0..5 {
            agent.gets("grant", &["--ro", &shown(&data)]);
            agent.gets("grant", &["--rw", &shown(&one)]);
            let at = inside(&data);
            let all = format!("{{read(f'{at}/d{{n}}/.env') for n in range(40)}}");
            assert_eq!(agent.does(&all), "{'EACCES'}", "round {round}");
            let all = format!("{{read(f'{at}/d{{n}}/f') for n in range(40)}}");
            assert_eq!(agent.does(&all), "{'public'}", "control, round {round}");
            assert_eq!(agent.does(&format!("write('{}', 'two')", inside(&one))), "3");
            agent.gets("revoke", &[&shown(&data)]);
            agent.gets("revoke", &[&shown(&one)]);
            assert_eq!(agent.does("os.listdir('/grants')"), "['README']");
        }
        assert_eq!(std::fs::read_to_string(&one).unwrap(), "two");
    });
}

#[test]
fn what_one_run_is_granted_no_other_run_sees() {
    for_each_identity(|lab| {
        lab.share();
        let data = lab.outside().join("data");
        let file = lab.plant(&data.join("f"), "public");
        let (first, second) = (Agent::start(lab), Agent::start(lab));
        first.gets("grant", &["--ro", &shown(&data)]);
        let seen = format!("read('{}')", inside(&file));
        assert_eq!(first.does(&seen), "'public'", "control");
        assert_eq!(second.does(&seen), "'ENOENT'");
    });
}

#[test]
fn what_is_hidden_or_protected_below_a_grant_stays_so() {
    for_each_identity(|lab| {
        let local = lab.home().join(".local");
        lab.plant(&local.join("share/f"), "public");
        let hooks = lab.outside().join("project");
        lab.plant(&hooks.join(".git/hooks/pre-commit"), "#!/bin/sh\n");
        lab.plant(&hooks.join("src/main.rs"), "fn main() {}\n");
        let agent = Agent::start(lab);
        agent.gets("grant", &["--ro", &shown(&local)]);
        let at = inside(&local);
        assert_eq!(
            agent.does(&format!("read('{at}/share/f')")),
            "'public'",
            "control"
        );
        let state = agent.does(&format!("outcome(lambda: os.listdir('{at}/state/bastle'))"));
        assert_eq!(state, "'EACCES'", "the records of runs are not shown");
        agent.gets("grant", &["--rw", &shown(&hooks)]);
        let at = inside(&hooks);
        assert_eq!(
            agent.does(&format!("write('{at}/src/main.rs', 'x')")),
            "1",
            "control"
        );
        let hook = agent.does(&format!("write('{at}/.git/hooks/pre-commit', 'x')"));
        assert!(["'EROFS'", "'EACCES'"].contains(&hook.as_str()), "{hook}");
        let hook = agent.does(&format!("write('{at}/.git/hooks/post-checkout', 'x')"));
        assert!(["'EROFS'", "'EACCES'"].contains(&hook.as_str()), "{hook}");
        let text = std::fs::read_to_string(hooks.join(".git/hooks/pre-commit"));
        assert_eq!(text.unwrap(), "#!/bin/sh\n");
        assert!(!hooks.join(".git/hooks/post-checkout").exists());
    });
}

#[test]
fn what_the_host_mounts_or_makes_below_a_grant_later_is_bounded_by_it() {
    for_each_identity(|lab| {
        let data = lab.outside().join("data");
        lab.plant(&data.join("f"), "public");
        let agent = Agent::start(lab);
        agent.gets("grant", &["--ro", &shown(&data)]);
        let at = inside(&data);
        lab.plant(&data.join("later"), "later");
        assert_eq!(
            agent.does(&format!("read('{at}/later')")),
            "'later'",
            "it is the directory itself"
        );
        // A link that leads out leads nowhere inside.
        std::os::unix::fs::symlink("/etc/shadow", data.join("out")).expect("own directory");
        std::os::unix::fs::symlink("../../outside", data.join("up")).expect("own directory");
        assert_eq!(agent.does(&format!("read('{at}/out')")), "'ENOENT'");
        let up = agent.does(&format!("outcome(lambda: sorted(os.listdir('{at}/up')))"));
        assert_eq!(up, "['data']", "only the way to what is granted");
        // Device nodes and set-uid bits have no effect there.
        let flags = agent.does(&format!("os.statvfs('{at}').f_flag & 7"));
        assert_eq!(flags, "7", "read-only, without set-uid and device nodes");
    });
}
