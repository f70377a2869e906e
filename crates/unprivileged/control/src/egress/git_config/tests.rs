//! Every place and every form in which a configuration names a remote, and everything that must not pass for "none".
use super::*;
use bastle_policy::Host;
use proptest::prelude::*;
use std::os::unix::fs::symlink;

/// A home with a project in it.
struct Ground(tempfile::TempDir);

impl Ground {
    fn new() -> Self {
        let ground = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir_all(ground.at("home/w/.git")).unwrap();
        ground
    }

    fn at(&self, below: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(below)
    }

    fn write(&self, below: &str, bytes: impl AsRef<[u8]>) -> &Self {
        let path = self.at(below);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
        self
    }

    fn read(&self) -> Result<Found, Fault> {
        self.read_at("home/w")
    }

    fn read_at(&self, workspace: &str) -> Result<Found, Fault> {
        super::read(&Sources {
            workspace: &self.at(workspace),
            home: &self.at("home"),
            own: vec![self.at("system"), self.at("home/.gitconfig")],
        })
    }

    fn judged(&self, host: &str) -> bool {
        names(&self.read().unwrap(), host)
    }

    fn refused(&self) -> String {
        let fault = self.read().unwrap_err();
        assert_eq!(fault.code, Code::WorkspaceGit, "{fault:?}");
        format!("{fault:?}")
    }
}

fn names(found: &Found, host: &str) -> bool {
    let host = Host::new(host).unwrap();
    found.hosts.iter().any(|pattern| pattern.matches(&host))
}

fn remote(host: &str) -> String {
    format!("[remote \"o\"]\nurl = https://{host}/a/b\n")
}

#[test]
fn every_file_that_git_reads_for_a_workspace_counts() {
    for file in [
        "home/w/.git/config",
        "home/w/.git/config.worktree",
        "home/w/.gitmodules",
        "home/.gitconfig",
        "system",
    ] {
        let ground = Ground::new();
        assert!(!ground.judged("git.example"), "control");
        ground.write(file, remote("git.example"));
        assert!(ground.judged("git.example"), "{file}");
    }
    let bare = Ground::new();
    std::fs::create_dir_all(bare.at("home/b/objects")).unwrap();
    std::fs::create_dir_all(bare.at("home/b/refs")).unwrap();
    bare.write("home/b/HEAD", "ref: refs/heads/main\n")
        .write("home/b/config", remote("git.example"));
    assert!(names(&bare.read_at("home/b").unwrap(), "git.example"));
}

#[test]
fn an_include_is_followed_from_wherever_it_stands_and_whatever_its_condition() {
    let ground = Ground::new();
    let outside = ground.at("else/absolute");
    ground
        .write(
            "home/w/.git/config",
            format!(
                "[include]\npath = more\npath = ../shared\npath = missing\npath = /dev/null\npath = {}\n[includeIf \"onbranch:no\"]\npath = ~/cond\n",
                outside.display()
            ),
        )
        .write("home/w/.git/more", remote("more.example"))
        .write("home/w/shared", remote("shared.example"))
        .write("home/cond", format!("[include]\npath = deep/x\n{}", remote("cond.example")))
        .write("home/deep/x", remote("deep.example"))
        .write("else/absolute", format!("[include]\npath = absolute\n{}", remote("absolute.example")));
    for host in ["more", "shared", "cond", "deep", "absolute"] {
        assert!(ground.judged(&format!("{host}.example")), "{host}");
    }
}

#[test]
fn remotes_in_files_of_their_own_count() {
    let ground = Ground::new();
    ground
        .write(
            "home/w/.git/remotes/old",
            "URL: https://old.example/a/b.git\nPush: refs/heads/main\n",
        )
        .write("home/w/.git/branches/older", "https://older.example/c#main\n");
    let found = ground.read().unwrap();
    assert!(names(&found, "old.example") && names(&found, "older.example"));
    let shown: Vec<_> = found
        .remotes
        .iter()
        .map(|one| (one.name.as_str(), one.path.as_str()))
        .collect();
    assert_eq!(shown, [("old", "a/b"), ("older", "c")]);
}

#[test]
fn a_rewrite_of_the_person_leads_to_a_host_of_the_project() {
    let ground = Ground::new();
    ground
        .write("home/w/.git/config", "[remote \"o\"]\nurl = corp:example/a\n")
        .write("home/.gitconfig", "[url \"https://git.\"]\ninsteadOf = corp:\n");
    assert!(ground.judged("git.example"));
}

#[test]
fn the_configuration_behind_a_worktree_or_a_linked_directory_is_read() {
    let ground = Ground::new();
    std::fs::create_dir_all(ground.at("home/main/.git/worktrees/w")).unwrap();
    ground
        .write(
            "home/v/.git",
            format!("gitdir: {}\n", ground.at("home/main/.git/worktrees/w").display()),
        )
        .write("home/main/.git/worktrees/w/commondir", "../..\n")
        .write("home/main/.git/config", remote("git.example"))
        .write("home/main/.git/remotes/old", "URL: https://old.example/a\n");
    let found = ground.read_at("home/v").unwrap();
    assert!(names(&found, "git.example") && names(&found, "old.example"));
    std::fs::create_dir_all(ground.at("home/l")).unwrap();
    symlink(ground.at("home/main/.git"), ground.at("home/l/.git")).unwrap();
    assert!(names(&ground.read_at("home/l").unwrap(), "git.example"));
}

#[test]
fn what_cannot_be_read_is_a_fault_and_never_no_remotes() {
    for text in [
        "[remote \"o\"",
        "[remote \"o\"]\nurl = \"https://git.example\n",
        "[remote \"o\"]\nurl = https://git.example\0/x\n",
        "[include]\npath = ~other/x\n",
        "[include]\npath = %(prefix)/x\n",
        "[include]\npath = ../folder\n",
    ] {
        let ground = Ground::new();
        std::fs::create_dir_all(ground.at("home/w/folder")).unwrap();
        ground.write("home/w/.git/config", text);
        ground.refused();
    }
    let ground = Ground::new();
    ground.write("home/w/.git/config", "# x\n".repeat(300_000));
    assert!(ground.refused().contains("larger"));
    ground.write("home/w/.git/config", "[include]\npath = 0\n");
    for number in 0..12 {
        ground.write(
            &format!("home/w/.git/{number}"),
            format!("[include]\npath = {}\n", number + 1),
        );
    }
    assert!(ground.refused().contains("too deeply"));
    let many: String = (0..300)
        .map(|number| format!("path = missing-{number}\n"))
        .collect();
    ground.write("home/w/.git/config", format!("[include]\n{many}"));
    assert!(ground.refused().contains("256 files"));
    let file = Ground::new();
    std::fs::remove_dir(file.at("home/w/.git")).unwrap();
    file.write("home/w/.git", "nothing\n");
    file.refused();
}

#[test]
fn a_file_of_the_project_that_is_a_link_or_a_fifo_is_refused_without_its_content() {
    let ground = Ground::new();
    ground.write("secret", "token-of-the-person");
    symlink(ground.at("secret"), ground.at("home/w/.git/config")).unwrap();
    let said = ground.refused();
    assert!(
        said.contains("symbolic link") && !said.contains("token-of"),
        "{said}"
    );
    std::fs::remove_file(ground.at("home/w/.git/config")).unwrap();
    ground.write(
        "home/w/.git/config",
        format!("[include]\npath = {}\n", ground.at("secret").display()),
    );
    assert!(!ground.refused().contains("token-of"));
    for file in ["home/w/.git/config", "home/w/.git/remotes"] {
        let ground = Ground::new();
        std::fs::create_dir(ground.at("far")).unwrap();
        symlink(ground.at("far"), ground.at(file)).unwrap();
        ground.refused();
    }
    let ground = Ground::new();
    let fifo = |path: PathBuf| {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
    };
    fifo(ground.at("pipe"));
    ground.write(
        "home/w/.git/config",
        format!("[include]\npath = {}\n", ground.at("pipe").display()),
    );
    ground.refused();
    fifo(ground.at("home/w/.gitmodules"));
    ground.refused();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_bytes_in_any_file_panic(bytes: Vec<u8>, text in "(\\[include\\]|\\[remote \"o\"\\]|path|url| = |\n|~/|\\.\\./|config|https://h/|\"|\\\\){0,12}") {
        let ground = Ground::new();
        for file in ["home/w/.git/config", "home/w/.gitmodules", "home/w/.git/remotes/a", "home/w/.git/branches/a", "home/.gitconfig"] {
            for content in [bytes.as_slice(), text.as_bytes()] {
                ground.write(file, content);
                drop(ground.read());
            }
        }
        std::fs::remove_dir_all(ground.at("home/w/.git")).unwrap();
        ground.write("home/w/.git", [b"gitdir: ".as_slice(), bytes.as_slice()].concat());
        drop(ground.read());
    }
}
