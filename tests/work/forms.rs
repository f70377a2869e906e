//! The forms in which work comes back hold the same bytes: line ends by the project's attributes, contents that are not text,
//! and a word for what a form cannot hold.
use super::review::{git, git_anywhere, json, paths, repository, says, tree, work};
use super::support::{Limit, bastle, for_each_identity, run as run_command};
use std::path::Path;

#[test]
fn line_ends_are_those_of_the_projects_attributes_in_every_mode() {
    for_each_identity(|lab| {
        lab.project(".gitattributes", "*.txt text eol=crlf\n");
        lab.project("dos.txt", "one\r\ntwo\r\n");
        repository(lab);
        git(lab, &["config", "core.autocrlf", "true"]);
        // As the user's own git checks them out.
        std::fs::remove_file(lab.workspace().join("src/main.c")).expect("is there");
        git(lab, &["checkout", "-q", "src/main.c"]);
        assert_eq!(git(lab, &["status", "--porcelain"]), "");
        for mode in ["copy", "overlay", "worktree"] {
            let fence = lab.fence().flags(["--workspace", mode]);
            let run = fence.name().to_owned();
            let output = fence.sh("test -z \"$(git status --porcelain)\" || exit 3
                printf 'three\\r\\n' >> dos.txt; printf 'more\\r\\n' >> src/main.c; printf 'x\\r\\ny\\r\\n' > new.txt");
            assert_eq!(output.ended.code, 0, "{mode}: {output:?}");
            let branch = format!("agent/{mode}");
            json(lab, &format!("apply {run} --branch {branch}"), 0);
            let blob = |path: &str| git(lab, &["show", &format!("{branch}:{path}")]);
            assert_eq!(blob("dos.txt"), "one\ntwo\nthree\n", "{mode}");
            assert_eq!(blob("new.txt"), "x\ny\n", "{mode}");
            assert_eq!(
                blob("src/main.c"),
                "int main(void) {\n\treturn 0;\n}\nmore\n",
                "{mode}"
            );
            // Nobody touched these files on the host: nothing conflicts.
            json(lab, &format!("apply {run}"), 0);
            json(lab, &format!("apply {run} --undo"), 0);
        }
    });
}

#[test]
fn a_patch_makes_every_byte_and_names_what_it_cannot_hold() {
    for_each_identity(|lab| {
        lab.project("src/logo.png", "old\u{0}logo");
        lab.project("src/same.png", "old\u{0}same");
        repository(lab);
        let run = work(
            lab,
            "printf 'n\\0w\\r\\nlogo' > src/logo.png; rm src/same.png; head -c 100000 /dev/urandom > src/new.png
             ln -s main.c src/link.c; mkdir -p src/empty/inner; printf 'no newline' > src/n.c",
        );
        let hash = json(lab, &format!("apply {run} --dry-run"), 0)["approval"]
            .as_str()
            .expect("a hash")
            .to_owned();
        let file = lab.home().join("work.patch");
        let value = json(
            lab,
            &format!("apply {run} --approve {hash} --patch {}", file.display()),
            1,
        );
        let lacking: Vec<&str> = value["not_in_patch"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|one| one["shown"].as_str())
            .collect();
        assert_eq!(lacking, ["src/empty", "src/empty/inner"], "{value:#}");
        let text = std::fs::read(&file).expect("is there");
        assert!(
            text.is_ascii(),
            "bytes that are not text stand in the patch as they are"
        );
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(text.matches("GIT binary patch\n").count(), 3, "{text}");
        let told = says(lab, &format!("diff {run} --patch"), 1);
        assert!(
            told.stderr
                .contains("not in the patch: src/empty/inner: an empty directory"),
            "{told:?}"
        );

        let patch = file.to_str().expect("UTF-8");
        let there = ["apply", "--index", patch];
        let applied = git_anywhere(lab, &lab.workspace(), &there);
        assert_eq!(applied.code, 0, "{applied:?}");
        for name in ["src/logo.png", "src/new.png", "src/link.c", "src/n.c"] {
            let read = |root: &Path| std::fs::read(root.join(name)).expect("is there");
            assert_eq!(read(&lab.workspace()), read(&tree(lab, &run)), "{name}");
        }
        assert!(lab.workspace().join("src/link.c").is_symlink());
        assert!(!lab.workspace().join("src/same.png").exists());
        let back = git_anywhere(lab, &lab.workspace(), &["apply", "--index", "-R", patch]);
        assert_eq!(back.code, 0, "{back:?}");
        assert_eq!(git(lab, &["status", "--porcelain"]), "");
    });
}

#[test]
fn a_branch_names_what_a_commit_cannot_hold_and_the_run_that_holds_it_is_not_removed() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, "echo 'int n;' > src/n.c; mkdir -p src/empty");
        let value = json(lab, &format!("apply {run} --branch agent"), 0);
        assert_eq!(paths(&value["paths"]), ["src/n.c"], "{value:#}");
        assert_eq!(value["not_in_branch"][0]["shown"], "src/empty", "{value:#}");
        let refused = says(lab, &format!("rm {run}"), 1);
        assert!(refused.stderr.contains("BST-WS-005"), "{refused:?}");
        let told = says(lab, &format!("apply {run} --branch second"), 0);
        let line = "not in the branch: src/empty: an empty directory";
        assert!(told.stderr.contains(line), "{told:?}");
        let archive = lab.home().join("all.tar");
        says(lab, &format!("export {run} {}", archive.display()), 0);
        says(lab, &format!("rm {run}"), 0);

        let run = work(lab, "echo 'int m;' > src/m.c");
        let value = json(lab, &format!("apply {run} --branch whole"), 0);
        assert_eq!(value["not_in_branch"], serde_json::json!([]), "{value:#}");
        says(lab, &format!("rm {run}"), 0);
    });
}

#[test]
fn the_hash_that_diff_prints_for_all_is_the_one_that_apply_takes() {
    for_each_identity(|lab| {
        repository(lab);
        // Names that turn text around are held, directories too.
        let run = work(lab, "mkdir -p \"$(printf 'src/a\\342\\200\\256b')/inner\"");
        let value = json(lab, &format!("diff {run}"), 0);
        let hash = value["approval"].as_str().expect("a hash").to_owned();
        let value = json(lab, &format!("apply {run} --approve {hash}"), 0);
        assert_eq!(
            value["left_out"],
            serde_json::Value::Array(Vec::new()),
            "{value:#}"
        );
        assert_eq!(value["paths"].as_array().map(Vec::len), Some(2), "{value:#}");
    });
}

#[test]
fn a_branch_that_fails_on_a_full_disk_leaves_no_file_in_the_repository() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, "head -c 3000000 /dev/urandom > src/new.png");
        // A disk of one megabyte under the packs, for this command alone.
        let script = format!(
            "mount -t tmpfs -o size=1m none .git/objects/pack || exit 9
             {} apply {run} --branch full; code=$?; ls -A .git/objects/pack; exit $code",
            bastle().display()
        );
        let mut command = lab.command(Path::new("unshare"));
        command.args(["-Urm", "sh", "-c", &script]);
        let ended = run_command(&mut command, b"", Limit::HANG);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.stderr.contains("objects/pack"), "{ended:?}");
        assert_eq!(ended.stdout, "", "something was left in the repository");
        json(lab, &format!("apply {run} --branch full"), 0);
        git(lab, &["fsck", "--strict"]);
    });
}

#[test]
fn a_directory_that_stays_for_the_users_files_is_not_told_as_removed() {
    for_each_identity(|lab| {
        lab.project("c/one.c", "1\n");
        repository(lab);
        let run = work(lab, "rm -r c");
        lab.project("c/mine.txt", "mine\n");
        let planned = json(lab, &format!("apply {run} --dry-run"), 0);
        assert_eq!(paths(&planned["paths"]), ["c/one.c"]);
        let ended = says(lab, &format!("apply {run}"), 0);
        assert_eq!(ended.stdout, "D c/one.c\n", "{ended:?}");
        assert!(ended.stderr.contains("c/ stays: "), "{ended:?}");
        assert!(ended.stderr.contains("1 path written to"), "{ended:?}");
        assert!(lab.workspace().join("c/mine.txt").exists() && !lab.workspace().join("c/one.c").exists());
        // Without such a file it goes, and is told.
        json(lab, &format!("apply {run} --undo"), 0);
        std::fs::remove_file(lab.workspace().join("c/mine.txt")).expect("own file");
        let ended = says(lab, &format!("apply {run}"), 0);
        assert_eq!(ended.stdout, "D c\nD c/one.c\n", "{ended:?}");
        assert!(!lab.workspace().join("c").exists());
    });
}
