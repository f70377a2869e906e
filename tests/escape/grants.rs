//! Being shown more than was granted, and credentials or caches for whoever only looks like the
//! program they are for.
use crate::agent::{Agent, inside, shown};
use crate::support::{Fence, Lab, Output, bastle, for_each_identity};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};

const KEY: &str = "sk-ant-api03-escape-0123456789abcdef0123456789abcdef";

#[test]
fn the_place_of_everybodys_temporary_files_is_granted_in_no_spelling_and_a_link_shows_no_secret() {
    for_each_identity(|lab| {
        lab.plant(&lab.home().join(".ssh/id_ed25519"), "PRIVATE KEY");
        let place = lab.outside().join("shared");
        lab.plant(&place.join("file"), "harmless");
        symlink(lab.home().join(".ssh"), place.join("keys")).expect("a fresh link");
        symlink(lab.home().join(".ssh/id_ed25519"), place.join("key")).expect("a fresh link");
        let agent = Agent::start(lab);
        // It holds the workspace, and what every other program of this user keeps there.
        let temporary = std::env::temp_dir().canonicalize().expect("is there");
        let temporary = temporary.display();
        for spelled in [
            format!("{temporary}"),
            format!("{temporary}/."),
            format!("{temporary}/"),
            format!("/{temporary}"),
            format!("{temporary}/../{temporary}"),
            format!("{}/..", lab.workspace().display()),
        ] {
            for way in ["--ro", "--rw", "--file"] {
                let told = agent.told("grant", &[way, &spelled]);
                assert_ne!(told.code, 0, "{way} {spelled}: {told:?}");
            }
        }
        assert_eq!(agent.does("os.listdir('/grants')"), "['README']");
        agent.gets("grant", &["--ro", &shown(&place)]);
        let at = inside(&place);
        for path in ["keys/id_ed25519", "key", "keys/../keys/id_ed25519"] {
            let read = agent.does(&format!("read('{at}/{path}')"));
            assert!(read.starts_with("'E"), "{path}: {read}");
        }
        assert_eq!(agent.does(&format!("read('{at}/file')")), "'harmless'", "control");
    });
}

fn executable(lab: &Lab, name: &str, text: &str) {
    let file = lab.plant(name.as_ref(), text);
    std::fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("own file");
}

/// A run in an environment with a key and the person's own `claude` on its `PATH`, behind `before`.
fn with_key<'l>(lab: &'l Lab, before: &str) -> Fence<'l> {
    let package = "home/npm/lib/node_modules/@anthropic-ai/claude-code";
    let text = r#"{ "name": "@anthropic-ai/claude-code", "version": "2.1.100" }"#;
    lab.plant(format!("{package}/package.json").as_ref(), text);
    let script = "#!/bin/sh\necho key: ${ANTHROPIC_API_KEY:-none}\n";
    executable(lab, &format!("{package}/cli.sh"), script);
    let bin = lab.home().join("npm/bin");
    if !bin.exists() {
        lab.plant(&bin.join(".keep"), "");
        symlink(
            "../lib/node_modules/@anthropic-ai/claude-code/cli.sh",
            bin.join("claude"),
        )
        .expect("a fresh link");
        let uid = lab.identity.uid();
        std::os::unix::fs::lchown(bin.join("claude"), Some(uid), Some(uid)).expect("own link");
    }
    let path = format!("{before}{}:/usr/local/bin:/usr/bin:/bin", bin.display());
    lab.fence().env("PATH", &path).env("ANTHROPIC_API_KEY", KEY)
}

fn got_a_credential(output: &Output) -> bool {
    let told = format!("{}{}", output.ended.stdout, output.ended.stderr);
    assert!(!told.contains(KEY), "the key itself is seen: {told}");
    told.contains("a placeholder inside") || output.said().contains("key: bastle")
}

#[test]
fn no_wrapper_or_search_path_gives_a_program_of_the_project_a_credential() {
    for_each_identity(|lab| {
        let script = "#!/bin/sh\necho key: ${ANTHROPIC_API_KEY:-none}\n";
        for name in ["ws/node_modules/.bin/claude", "ws/claude", "ws/tools/npx"] {
            executable(lab, name, script);
        }
        let shims = lab.workspace().join("node_modules/.bin").display().to_string();
        let path = format!("PATH={shims}:/usr/bin:/bin");
        for command in [
            vec!["env", path.as_str(), "claude"],
            vec!["env", "-u", "PATH", path.as_str(), "claude"],
            vec!["env", "-i", path.as_str(), "claude"],
            vec!["env", "env", path.as_str(), "claude"],
            vec!["nohup", "./claude"],
            vec!["setsid", "./claude"],
            vec!["./tools/npx", "claude"],
            vec!["./node_modules/../node_modules/.bin/claude"],
        ] {
            let output = with_key(lab, "").run(&command);
            assert!(!got_a_credential(&output), "{command:?}: {output:?}");
        }
        for before in [
            format!("{shims}:"),
            "node_modules/.bin:".to_owned(),
            ".:".to_owned(),
            ":".to_owned(),
        ] {
            let output = with_key(lab, &before).run(["claude"]);
            let own = output.said().contains("key: none") || output.ended.code != 0;
            let found_the_persons = !own && got_a_credential(&output);
            // Where the search goes past the project it finds the person's own, which has it.
            assert!(
                own || (found_the_persons && !before.starts_with(&shims)),
                "{before}: {output:?}"
            );
        }
        let output = with_key(lab, "").run(["claude"]);
        assert!(got_a_credential(&output), "control: {output:?}");
    });
}

#[test]
fn no_repository_with_hooks_comes_into_the_shared_cache() {
    for_each_identity(|lab| {
        let run = |script: &str| {
            let fence = lab.fence().flags(["--cache", "cargo"]);
            let name = fence.name().to_owned();
            (name, fence.sh(script))
        };
        let merge = |name: &str| {
            let mut command = lab.command(bastle());
            command
                .args(["cache", "merge", name, "--json"])
                .output()
                .expect("bastle runs")
        };
        let (good, _) =
            run("d=$CARGO_HOME/registry/cache/mirror; mkdir -p $d && printf ok > $d/good-1.0.0.crate");
        assert!(merge(&good).status.success(), "control");
        let (evil, output) = run(
            "hook() { mkdir -p \"$1/hooks\" \"$1/objects\" \"$1/refs\" && echo 'ref: refs/heads/main' > \"$1/HEAD\" && \
             echo x > \"$1/objects/a\" && echo x > \"$1/refs/b\" && printf '#!/bin/sh\\ntouch pwned\\n' > \"$1/hooks/post-checkout\" && chmod 755 \"$1/hooks/post-checkout\"; }\n\
             hook $CARGO_HOME/git/db/evil-1\nhook $CARGO_HOME/git/checkouts/evil/abc/.git\n\
             hook $CARGO_HOME/registry/cache/mirror/bare.crate\nhook $CARGO_HOME/registry/src/mirror/evil-1.0.0/.git\n\
             hook $CARGO_HOME/registry/index/mirror/.GIT\n\
             mkdir -p $CARGO_HOME/registry/cache/mirror/linked && echo 'gitdir: ../../../../git/db/evil-1' > $CARGO_HOME/registry/cache/mirror/linked/.git",
        );
        assert_eq!(output.ended.code, 0, "{output:?}");
        let merged = merge(&evil);
        // One half now, which is no repository yet, the other half with the next merge.
        let (half, _) = run(
            "d=$CARGO_HOME/registry/index/split; mkdir -p $d/hooks && echo 'ref: refs/heads/main' > $d/HEAD && echo x > $d/hooks/post-checkout",
        );
        merge(&half);
        let (rest, _) = run(
            "d=$CARGO_HOME/registry/index/split; mkdir -p $d/objects $d/refs && echo x > $d/objects/a && echo x > $d/refs/b",
        );
        merge(&rest);
        let (_, output) = run(
            "d=$CARGO_HOME/registry/index/split; test -e $d/HEAD && test -e $d/objects && echo assembled; echo looked",
        );
        assert_eq!(output.said(), "looked", "{output:?}");
        let (_, output) = run(
            "find $CARGO_HOME/ \\( -path '*mirror*hooks*' -o -path '*evil*hooks*' -o -iname .git \\) -print; ls $CARGO_HOME/registry/cache/mirror",
        );
        assert_eq!(output.said(), "good-1.0.0.crate", "{merged:?} {output:?}");
    });
}
