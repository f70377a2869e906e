//! Git isolation against planted repositories. A canary is a file that exists only if something was executed.
use super::*;
use crate::audit_delta::{Scope, delta};
use crate::testing::{Folder, fingerprint, manifest, path, repository, user_git, write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

struct World {
    stage: tempfile::TempDir,
    git: HostGit,
    branch: BranchName,
}

fn world() -> World {
    let stage = tempfile::tempdir().unwrap();
    for name in ["scratch", "tree", "blobs"] {
        std::fs::create_dir(stage.path().join(name)).unwrap();
    }
    World {
        stage,
        git: HostGit::find().unwrap(),
        branch: BranchName::of_agent("claude", "fix").unwrap(),
    }
}

impl World {
    fn at(&self, name: &str) -> PathBuf {
        self.stage.path().join(name)
    }

    /// A copy of `source` as the workspace makes it: with times, without `.git`.
    fn copy(&self, source: &Path) -> Result<Option<Prepared>, Fault> {
        let script = format!(
            "cd '{}' && tar c --exclude=./.git . | tar x -C '{}'",
            source.display(),
            self.at("tree").display()
        );
        assert!(
            std::process::Command::new("sh")
                .args(["-c", &script])
                .status()
                .unwrap()
                .success()
        );
        self.prepare(source, &[])
    }

    fn prepare(&self, source: &Path, absent: &[crate::path::TreePath]) -> Result<Option<Prepared>, Fault> {
        let (tree, scratch) = (self.at("tree"), self.at("scratch"));
        let request = Prepare {
            source,
            tree: &tree,
            scratch: &scratch,
            branch: &self.branch,
            user_configs: &[],
            absent,
            history: History::Full,
        };
        prepare(&self.git, &request)
    }

    fn commit(
        &self,
        source: &Path,
        files: &[(crate::path::TreePath, Option<crate::manifest::Kind>)],
    ) -> Result<Commit, Fault> {
        let repo = HostRepo::open(source)?.unwrap();
        let identity = Identity {
            name: "Ada".to_owned(),
            email: "ada@example.org".to_owned(),
        };
        let scratch = self.at("scratch");
        let base = crate::manifest::Manifest::default();
        let request = CommitRequest {
            repo: &repo,
            parent: repo.head.commit(),
            branch: &self.branch,
            message: "agent's work",
            identity: &identity,
            seconds: 1_700_000_000,
            files,
            contents: Contents::AsInTree(&base),
            scratch: &scratch,
        };
        commit_to_branch(&self.git, &request, &Folder(self.at("blobs")))
    }
}

/// Every setting and hook that makes git run a program, each leaving a canary.
fn plant(git_dir: &Path, canary: &Path) {
    let script = git_dir.parent().unwrap().join("canary.sh");
    std::fs::write(
        &script,
        format!("#!/bin/sh\necho ran >> '{}'\ncat\n", canary.display()),
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = script.display();
    let config = format!(
        "[core]\n\tfsmonitor = {run}\n\tsshCommand = {run}\n\tpager = {run}\n\teditor = {run}\n\taskPass = {run}\n\thooksPath = {}\n\talternateRefsCommand = {run}\n\
         [diff]\n\texternal = {run}\n[diff \"x\"]\n\ttextconv = {run}\n[filter \"x\"]\n\tclean = {run}\n\tsmudge = {run}\n\tprocess = {run}\n\trequired = true\n\
         [merge \"x\"]\n\tdriver = {run}\n[credential]\n\thelper = {run}\n[gpg]\n\tprogram = {run}\n[commit]\n\tgpgSign = true\n[uploadpack]\n\tpackObjectsHook = {run}\n[include]\n\tpath = {run}\n",
        git_dir.join("hooks").display()
    );
    let mut text = std::fs::read_to_string(git_dir.join("config")).unwrap();
    text.push_str(&config.replace(&format!("[include]\n\tpath = {run}\n"), ""));
    std::fs::write(git_dir.join("config"), text).unwrap();
    std::fs::create_dir_all(git_dir.join("hooks")).unwrap();
    for hook in [
        "pre-commit",
        "post-checkout",
        "reference-transaction",
        "post-index-change",
        "pre-auto-gc",
        "fsmonitor-watchman",
        "post-commit",
    ] {
        std::fs::copy(&script, git_dir.join("hooks").join(hook)).unwrap();
    }
}

#[test]
fn the_copy_knows_its_remotes_but_no_credential_and_no_program_of_theirs() {
    let world = world();
    let host = world.at("host");
    repository(&host);
    let mut text = std::fs::read_to_string(host.join(".git/config")).unwrap();
    text.push_str(
        "[remote \"origin\"]\n\turl = https://ada:HUSH@code.test/shop.git\n\tuploadpack = HUSH\n\
         [remote \"tool\"]\n\turl = ext::HUSH\n[url \"ext::HUSH\"]\n\tinsteadOf = https://code.test\n",
    );
    std::fs::write(host.join(".git/config"), text).unwrap();
    world.copy(&host).unwrap().unwrap();
    let config = std::fs::read_to_string(world.at("tree").join(".git/config")).unwrap();
    assert!(config.contains("url = https://code.test/shop.git\n"), "{config}");
    assert!(!config.contains("HUSH"), "{config}");
}

#[test]
fn no_object_is_lost_to_housekeeping_that_goes_on_during_the_copy() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let world = world();
    let host = world.at("host");
    repository(&host);
    let git = |words: &[&str]| {
        let mut command = std::process::Command::new("git");
        command
            .arg("-C")
            .arg(&host)
            .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0"])
            .args(words);
        let output = command.output().unwrap();
        assert!(output.status.success(), "git {words:?}: {output:?}");
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for _ in 0..5 {
                    git(&["commit", "-q", "--allow-empty", "-m", "more"]);
                }
                git(&["repack", "-a", "-d", "-q"]);
            }
        });
        for _ in 0..20 {
            let copied = world.at("tree").join(".git");
            if copied.exists() {
                std::fs::remove_dir_all(&copied).unwrap();
            }
            let made = world.prepare(&host, &[]);
            let mut check = std::process::Command::new("git");
            check.arg("-C").arg(world.at("tree")).args([
                "-c",
                "safe.directory=*",
                "fsck",
                "--connectivity-only",
            ]);
            let whole = check.output().unwrap();
            if made.is_err() || !whole.status.success() {
                over.store(true, Ordering::Relaxed);
                panic!("{made:?} {whole:?}");
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn planted_hooks_filters_and_helpers_run_nothing_in_prepare_commit_or_ignore_checks() {
    let world = world();
    let (host, canary) = (world.at("host"), world.at("canary"));
    repository(&host);
    write(&host, ".gitattributes", b"* filter=x diff=x merge=x\n");
    plant(&host.join(".git"), &canary);
    world.copy(&host).unwrap().unwrap();
    let blobs = Folder(world.at("blobs"));
    let files = [
        (path("a.txt"), Some(blobs.put(b"changed\n"))),
        (path(".gitattributes"), Some(blobs.put(b"* filter=x\n"))),
    ];
    let commit = world.commit(&host, &files).unwrap();
    let base = manifest(&world.at("tree"), &blobs);
    let scratch = Scratch::new(&world.at("scratch"), ObjectFormat::Sha1, &[]).unwrap();
    let (built, source, magic) = (path("target/x"), path("a.txt"), path(":(top)target/\n\"x"));
    let below = path("sub/target/*\n\"y");
    let ignored = ignored_paths(
        &world.git,
        &scratch,
        None,
        &[&base],
        &blobs,
        &[&built, &source, &magic, &below],
    )
    .unwrap();
    assert_eq!(ignored.into_iter().collect::<Vec<_>>(), [below, built]);
    assert!(
        !canary.exists(),
        "something ran: {}",
        std::fs::read_to_string(&canary).unwrap()
    );
    let shown = user_git(
        &host,
        &[
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "diff.external=",
            "cat-file",
            "-p",
            &format!("{}:a.txt", commit.id.as_str()),
        ],
    );
    assert_eq!(shown, "changed\n");
}

#[test]
fn the_canary_would_have_run_in_an_ordinary_git() {
    let world = world();
    let (host, canary) = (world.at("host"), world.at("canary"));
    repository(&host);
    plant(&host.join(".git"), &canary);
    let status = std::process::Command::new("git")
        .current_dir(&host)
        .args(["status", "--short"])
        .output()
        .unwrap();
    assert!(status.status.success() && canary.exists());
}

#[test]
fn the_host_repository_is_byte_identical_after_copy_work_and_diff() {
    let world = world();
    let host = world.at("host");
    repository(&host);
    write(&host, "a.txt", b"dirty\n");
    let before = fingerprint(&host);
    world.copy(&host).unwrap().unwrap();
    let tree = world.at("tree");
    user_git(&tree, &["add", "-A"]);
    user_git(&tree, &["commit", "-q", "-m", "inside"]);
    let blobs = Folder(world.at("blobs"));
    let (old, new) = (manifest(&host, &blobs), manifest(&tree, &blobs));
    for change in delta(&old, &new, Scope::Work) {
        crate::diff::diff(&change, &blobs).unwrap();
    }
    assert!(fingerprint(&host) == before);
}

#[test]
fn commits_work_inside_on_the_agents_branch_and_status_is_that_of_the_host() {
    let world = world();
    let host = world.at("host");
    repository(&host);
    user_git(&host, &["branch", "other"]);
    user_git(&host, &["tag", "v1"]);
    write(&host, "a.txt", b"dirty\n");
    write(&host, "untracked", b"u\n");
    let expected = user_git(&host, &["status", "--porcelain"]);
    let prepared = world.copy(&host).unwrap().unwrap();
    let tree = world.at("tree");
    assert_eq!(user_git(&tree, &["status", "--porcelain"]), expected);
    assert_eq!(
        user_git(&tree, &["branch", "--show-current"]).trim(),
        "claude/fix"
    );
    assert_eq!(
        user_git(&tree, &["for-each-ref", "--format=%(refname)"]),
        "refs/heads/claude/fix\nrefs/heads/main\nrefs/heads/other\nrefs/tags/v1\n"
    );
    assert_eq!(
        prepared.head.unwrap().as_str(),
        user_git(&host, &["rev-parse", "HEAD"]).trim()
    );
    assert!(prepared.binds.is_empty());
    user_git(&tree, &["commit", "-qam", "inside"]);
    user_git(&tree, &["fsck", "--strict"]);
    assert!(!tree.join(".git/hooks").exists());
}

#[test]
fn the_first_status_inside_reads_no_unchanged_file() {
    let world = world();
    let host = world.at("host");
    repository(&host);
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    for name in ["a.txt", "src/main.c", ".gitignore"] {
        std::fs::File::options()
            .write(true)
            .open(host.join(name))
            .unwrap()
            .set_modified(old)
            .unwrap();
    }
    user_git(&host, &["update-index", "--refresh", "-q"]);
    world.copy(&host).unwrap().unwrap();
    // Unreadable, same size and time: only a look at the content could tell, and that would fail loudly.
    let same = world.at("tree").join("src/main.c");
    let time = std::fs::metadata(&same).unwrap().modified().unwrap();
    std::fs::write(&same, b"int main(void) { return 1; }\n").unwrap();
    std::fs::File::options()
        .write(true)
        .open(&same)
        .unwrap()
        .set_modified(time)
        .unwrap();
    assert_eq!(user_git(&world.at("tree"), &["status", "--porcelain"]), "");
}

#[test]
fn hidden_tracked_files_do_not_look_deleted_inside() {
    let world = world();
    let host = world.at("host");
    repository(&host);
    write(&host, "secret/key", b"k\n");
    user_git(&host, &["add", "-A"]);
    user_git(&host, &["commit", "-qm", "key"]);
    world.copy(&host).unwrap();
    let tree = world.at("tree");
    std::fs::remove_dir_all(tree.join("secret")).unwrap();
    std::fs::remove_dir_all(tree.join(".git")).unwrap();
    world.prepare(&host, &[path("secret")]).unwrap().unwrap();
    assert_eq!(user_git(&tree, &["status", "--porcelain"]), "");
}

#[test]
fn a_pointer_to_a_repository_elsewhere_is_refused() {
    let world = world();
    let (private, evil) = (world.at("private"), world.at("evil"));
    repository(&private);
    std::fs::create_dir(&evil).unwrap();
    let private_git = private.join(".git");
    write(
        &evil,
        ".git",
        format!("gitdir: {}\n", private_git.display()).as_bytes(),
    );
    assert_eq!(world.prepare(&evil, &[]).unwrap_err().code, Code::WorkspaceGit);
    // The worktree of somebody else: it does not point back here.
    user_git(&private, &["worktree", "add", "-q", "../elsewhere"]);
    std::fs::copy(world.at("elsewhere").join(".git"), evil.join(".git")).unwrap();
    assert_eq!(world.prepare(&evil, &[]).unwrap_err().code, Code::WorkspaceGit);
    // A worktree directory of its own whose commondir is the private repository.
    std::fs::remove_file(evil.join(".git")).unwrap();
    std::fs::create_dir_all(evil.join("x/worktrees/w")).unwrap();
    write(&evil, ".git", b"gitdir: x/worktrees/w\n");
    write(
        &evil,
        "x/worktrees/w/gitdir",
        format!("{}/.git\n", evil.display()).as_bytes(),
    );
    write(
        &evil,
        "x/worktrees/w/commondir",
        format!("{}\n", private_git.display()).as_bytes(),
    );
    write(&evil, "x/worktrees/w/HEAD", b"ref: refs/heads/main\n");
    assert_eq!(world.prepare(&evil, &[]).unwrap_err().code, Code::WorkspaceGit);
    for bytes in [&b"gitdir: \0\n"[..], b"gitdir:\n", b"", &[b'a'; 9000]] {
        std::fs::write(evil.join(".git"), bytes).unwrap();
        assert!(world.prepare(&evil, &[]).is_err());
    }
    std::fs::remove_file(evil.join(".git")).unwrap();
    std::os::unix::fs::symlink(&private_git, evil.join(".git")).unwrap();
    assert!(world.prepare(&evil, &[]).is_err());
    std::fs::remove_file(evil.join(".git")).unwrap();
    user_git(&evil, &["init", "-q"]);
    write(
        &evil,
        ".git/commondir",
        format!("{}\n", private_git.display()).as_bytes(),
    );
    assert!(world.prepare(&evil, &[]).is_err());
    std::fs::remove_file(evil.join(".git/commondir")).unwrap();
    std::fs::remove_dir_all(evil.join(".git/objects")).unwrap();
    std::os::unix::fs::symlink(private_git.join("objects"), evil.join(".git/objects")).unwrap();
    assert!(world.prepare(&evil, &[]).is_err());
}

#[test]
fn worktrees_submodules_shallow_detached_unborn_and_sha256_repositories_are_copied() {
    for (name, make) in super::layouts::ALL {
        let world = world();
        let root = world.at("source");
        std::fs::create_dir(&root).unwrap();
        let source = make(&root);
        let expected = user_git(&source, &["status", "--porcelain"]);
        let before = fingerprint(&root);
        world
            .copy(&source)
            .unwrap_or_else(|fault| panic!("{name}: {fault}"))
            .unwrap();
        let tree = world.at("tree");
        assert_eq!(user_git(&tree, &["status", "--porcelain"]), expected, "{name}");
        write(&tree, "made-inside", b"x\n");
        user_git(&tree, &["add", "-A"]);
        user_git(&tree, &["commit", "-qm", "inside"]);
        user_git(&tree, &["fsck"]);
        let blobs = Folder(world.at("blobs"));
        assert!(fingerprint(&root) == before, "{name}");
        let commit = world
            .commit(&source, &[(path("made-inside"), Some(blobs.put(b"x\n")))])
            .unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(
            user_git(&source, &["show", &format!("{}:made-inside", commit.id.as_str())]),
            "x\n",
            "{name}"
        );
        assert_eq!(
            user_git(&source, &["rev-parse", "claude/fix"]).trim(),
            commit.id.as_str(),
            "{name}"
        );
        user_git(&source, &["fsck"]);
    }
}

#[test]
fn a_branch_that_exists_is_never_moved_and_the_work_tree_is_never_touched() {
    let world = world();
    let host = world.at("host");
    repository(&host);
    let blobs = Folder(world.at("blobs"));
    let files = [
        (path("a.txt"), Some(blobs.put(b"x\n"))),
        (path("src/main.c"), None),
        (path("src"), Some(blobs.put(b"file now\n"))),
    ];
    let commit = world.commit(&host, &files).unwrap();
    assert_eq!(user_git(&host, &["status", "--porcelain"]), "");
    assert_eq!(
        user_git(&host, &["ls-tree", "-r", "--name-only", "claude/fix"]),
        ".gitignore\na.txt\nsrc\n"
    );
    assert_eq!(
        world
            .commit(&host, &[(path("b"), Some(blobs.put(b"b\n")))])
            .unwrap_err()
            .code,
        Code::WorkspaceApply
    );
    assert_eq!(
        user_git(&host, &["rev-parse", "claude/fix"]).trim(),
        commit.id.as_str()
    );
    let evil = [(path("sub/.GIT/config"), Some(blobs.put(b"x")))];
    let other = World {
        branch: BranchName::new("other").unwrap(),
        ..world
    };
    assert!(other.commit(&host, &evil).is_err());
}

#[test]
fn every_spelling_of_the_git_directory_is_recognised() {
    for name in [
        ".git",
        ".GIT",
        ".Git ",
        ".git.",
        "GIT~1",
        ".g\u{200c}it",
        ".git::$INDEX_ALLOCATION",
        ".git\\x",
    ] {
        assert!(is_git_name(name.as_bytes()), "{name:?}");
    }
    for name in [".gitignore", ".github", "git", ".gitx", "a.git", "git~2"] {
        assert!(!is_git_name(name.as_bytes()), "{name:?}");
    }
}

#[test]
fn a_content_changed_after_its_review_is_not_committed() {
    let world = world();
    let host = world.at("host");
    repository(&host);
    let blobs = Folder(world.at("blobs"));
    let kind = blobs.put(b"reviewed\n");
    let crate::manifest::Kind::File { digest, .. } = &kind else {
        panic!()
    };
    std::fs::write(world.at("blobs").join(digest.to_string()), b"swapped!\n").unwrap();
    let before = user_git(&host, &["for-each-ref"]);
    let refused = world.commit(&host, &[(path("a.txt"), Some(kind))]).unwrap_err();
    assert_eq!(refused.code, Code::WorkspaceApply);
    assert_eq!(user_git(&host, &["for-each-ref"]), before);
}
