//! Pushes by a real git, through the proxy, to a real git server.
use super::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn git(at: &Path, arguments: &[&str]) -> Output {
    Command::new("git")
        .current_dir(at)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", at)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "-c",
            "http.postBuffer=65536",
        ])
        .args(arguments)
        .output()
        .unwrap()
}

fn done(at: &Path, arguments: &[&str]) -> String {
    let output = git(at, arguments);
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn commit(at: &Path, text: &str) {
    std::fs::write(at.join("f"), text).unwrap();
    done(at, &["add", "f"]);
    done(at, &["commit", "-q", "-m", text]);
}

/// Runs git's own server program for one request.
fn backend(root: &Path, seen: &Seen) -> Answer {
    use std::io::Write;
    let uri: http::Uri = seen.uri.parse().unwrap();
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", root)
        .env("REMOTE_USER", "t")
        .env("PATH_INFO", uri.path())
        .env("QUERY_STRING", uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", &seen.method)
        .env(
            "CONTENT_TYPE",
            seen.headers
                .get("content-type")
                .map_or("", |v| v.to_str().unwrap()),
        )
        .env("CONTENT_LENGTH", seen.body.len().to_string())
        .env(
            "HTTP_CONTENT_ENCODING",
            seen.headers
                .get("content-encoding")
                .map_or("", |v| v.to_str().unwrap()),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&seen.body).unwrap();
    let output = child.wait_with_output().unwrap().stdout;
    let end = output.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let mut response = text(output[end + 4..].to_vec());
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let (name, value) = line.split_once(':').unwrap();
        if name.eq_ignore_ascii_case("status") {
            *response.status_mut() = value.trim()[..3].parse().unwrap();
        } else {
            let name: http::HeaderName = name.parse().unwrap();
            response.headers_mut().insert(name, value.trim().parse().unwrap());
        }
    }
    response
}

struct Fixture {
    _home: tempfile::TempDir,
    work: PathBuf,
    bare: PathBuf,
    origin: Origin,
}

async fn fixture() -> Fixture {
    let home = tempfile::tempdir().unwrap();
    let (root, work) = (home.path().join("root"), home.path().join("work"));
    let bare = root.join("acme/x.git");
    std::fs::create_dir_all(&bare).unwrap();
    std::fs::create_dir_all(&work).unwrap();
    done(&bare, &["init", "-q", "--bare", "-b", "main", "."]);
    done(&bare, &["config", "http.receivepack", "true"]);
    done(&work, &["init", "-q", "-b", "main", "."]);
    commit(&work, "one");
    done(
        &work,
        &["push", "-q", bare.to_str().unwrap(), "main", "main:agent/x"],
    );
    let origin = origin(Speaks::One, move |seen| backend(&root, seen)).await;
    Fixture {
        _home: home,
        work,
        bare,
        origin,
    }
}

impl Fixture {
    async fn push(&self, egress: &Egress, refs: &[&str]) -> Output {
        let ca = self.work.join(".git/ca.pem");
        std::fs::write(&ca, egress.state.authority.as_ref().unwrap().pem()).unwrap();
        let (ca, proxy) = (
            format!("http.sslCAInfo={}", ca.display()),
            format!("http.proxy=http://{}", egress.http),
        );
        let url = format!("https://{NAME}:{}/acme/x.git", self.origin.port);
        let work = self.work.clone();
        let refs: Vec<String> = refs.iter().map(|r| (*r).to_owned()).collect();
        let running = tokio::task::spawn_blocking(move || {
            let mut arguments = vec!["-c", &ca, "-c", &proxy, "push", &url];
            arguments.extend(refs.iter().map(String::as_str));
            git(&work, &arguments)
        });
        running.await.unwrap()
    }

    fn at(&self, reference: &str) -> String {
        done(&self.bare, &["rev-parse", reference])
    }
}

fn sections(git: &str) -> String {
    format!(
        r#"{}, "git": {git}"#,
        net(r#""GET,POST api.example:PORT/acme/**""#)
    )
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_to_main_is_denied_in_gits_own_words_and_one_to_the_agents_branch_arrives() {
    let fixture = fixture().await;
    let rules = r#"{"push": "allow", "forcePush": "deny", "branches": ["agent/*"], "remotes": ["api.example/acme/*"]}"#;
    let egress = egress_for(fixture.origin.port, &sections(rules)).await;
    let before = fixture.at("main");
    commit(&fixture.work, "two");
    let refused = fixture.push(&egress, &["main"]).await;
    let words = said(&refused);
    assert!(!refused.status.success());
    assert!(
        words.contains("remote rejected") && words.contains("bastle: denied d_"),
        "{words}"
    );
    assert!(
        words.contains("git.branches does not name refs/heads/main"),
        "{words}"
    );
    assert_eq!(fixture.at("main"), before);
    // A fast-forward is proved from the pack, so that nobody needs to be asked.
    let passed = fixture.push(&egress, &["main:agent/x", "main:agent/new"]).await;
    assert!(passed.status.success(), "{}", said(&passed));
    assert_eq!(fixture.at("agent/x"), fixture.at("agent/new"));
    // One refused reference refuses the whole push.
    let mixed = fixture.push(&egress, &["main:agent/third", "main"]).await;
    assert!(
        said(&mixed).contains("not pushed, because another reference was denied"),
        "{}",
        said(&mixed)
    );
    assert!(
        !git(&fixture.bare, &["rev-parse", "--verify", "-q", "agent/third"])
            .status
            .success()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_push_and_a_deletion_do_not_pass_unasked() {
    let fixture = fixture().await;
    let rules = r#"{"push": "allow", "forcePush": "deny", "branches": ["agent/*"]}"#;
    let egress = egress_for(fixture.origin.port, &sections(rules)).await;
    commit(&fixture.work, "two");
    let bare = fixture.bare.to_str().unwrap().to_owned();
    done(&fixture.work, &["push", "-q", &bare, "main:agent/x"]);
    let before = fixture.at("agent/x");
    // Only the last commit is rewritten: what was sent does not tell, so a person would be asked.
    done(&fixture.work, &["commit", "-q", "--amend", "-m", "rewritten"]);
    let unknown = fixture.push(&egress, &["+main:agent/x"]).await;
    assert!(
        !unknown.status.success() && said(&unknown).contains("cannot be told"),
        "{}",
        said(&unknown)
    );
    // A history of its own: what was sent tells that nothing of the old one is in it.
    done(&fixture.work, &["checkout", "-q", "--orphan", "fresh"]);
    commit(&fixture.work, "a new beginning");
    let forced = fixture.push(&egress, &["+fresh:agent/x"]).await;
    assert!(
        !forced.status.success() && said(&forced).contains("it is forced"),
        "{}",
        said(&forced)
    );
    let deleted = fixture.push(&egress, &[":agent/x"]).await;
    assert!(
        !deleted.status.success() && said(&deleted).contains("bastle: denied"),
        "{}",
        said(&deleted)
    );
    assert_eq!(fixture.at("agent/x"), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_push_is_judged_before_any_of_it_leaves() {
    let fixture = fixture().await;
    let egress = egress_for(
        fixture.origin.port,
        &sections(r#"{"push": "allow", "branches": ["agent/*"]}"#),
    )
    .await;
    let mut noise = vec![0u8; 3_000_000];
    let mut state = 1u64;
    for byte in &mut noise {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = (state >> 56) as u8;
    }
    std::fs::write(fixture.work.join("big"), noise).unwrap();
    done(&fixture.work, &["add", "big"]);
    done(&fixture.work, &["commit", "-q", "-m", "big"]);
    let refused = fixture.push(&egress, &["main"]).await;
    assert!(
        !refused.status.success() && said(&refused).contains("bastle: denied"),
        "{}",
        said(&refused)
    );
    let sent: usize = fixture
        .origin
        .seen()
        .iter()
        .filter(|seen| seen.method == "POST")
        .map(|seen| seen.body.len())
        .sum();
    assert!(sent < 100, "{sent} bytes left");
    let passed = fixture.push(&egress, &["main:agent/x"]).await;
    assert!(passed.status.success(), "{}", said(&passed));
    assert_eq!(fixture.at("agent/x"), done(&fixture.work, &["rev-parse", "main"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_a_person_is_asked_and_without_one_it_is_denied() {
    let fixture = fixture().await;
    commit(&fixture.work, "two");
    let alone = egress_for(
        fixture.origin.port,
        &net(r#""GET,POST api.example:PORT/acme/**""#),
    )
    .await;
    let refused = fixture.push(&alone, &["main:agent/x"]).await;
    assert!(said(&refused).contains("needs a person"), "{}", said(&refused));
    let sections = net(r#""GET,POST api.example:PORT/acme/**""#);
    let asked = egress_with_a_person(fixture.origin.port, &sections).await;
    let passed = fixture.push(&asked, &["main:agent/x"]).await;
    assert!(passed.status.success(), "{}", said(&passed));
    let pushes: Vec<_> = asked
        .decisions()
        .into_iter()
        .filter(|d| d.method.as_deref() == Some("push"))
        .collect();
    assert_eq!(pushes.len(), 1, "{pushes:#?}");
    assert_eq!(pushes[0].operation.as_deref(), Some("update refs/heads/agent/x"));
    assert!(pushes[0].held);
}

/// What the last push was judged to be, reference by reference.
fn judged(egress: &Egress) -> Vec<String> {
    let operations = egress
        .decisions()
        .into_iter()
        .filter_map(|decision| decision.operation);
    operations.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_moves_to_a_commit_pushed_before_is_no_force_and_one_that_moves_back_is() {
    let fixture = fixture().await;
    let rules = r#"{"push": "allow", "forcePush": "deny", "branches": ["agent/*"]}"#;
    let egress = egress_for(fixture.origin.port, &sections(rules)).await;
    commit(&fixture.work, "two");
    commit(&fixture.work, "three");
    // Brings both commits; the server has them from here on, and git sends them no more.
    let first = fixture.push(&egress, &["main:agent/first"]).await;
    assert!(first.status.success(), "{}", said(&first));
    let second = fixture.push(&egress, &["main:agent/x"]).await;
    assert!(second.status.success(), "{}", said(&second));
    assert_eq!(fixture.at("agent/x"), fixture.at("agent/first"));
    assert_eq!(
        judged(&egress),
        ["create refs/heads/agent/first", "update refs/heads/agent/x"]
    );
    // Back to an older commit that was pushed before: what is remembered does not make this a step forward.
    let before = fixture.at("agent/x");
    let back = fixture.push(&egress, &["+main~1:agent/x"]).await;
    assert!(
        !back.status.success() && said(&back).contains("bastle: denied"),
        "{}",
        said(&back)
    );
    assert_eq!(fixture.at("agent/x"), before);
    // A run that never saw the commits cannot know.
    let bare = fixture.bare.to_str().unwrap().to_owned();
    done(&fixture.work, &["push", "-q", &bare, "main~2:refs/heads/agent/y"]);
    let other = egress_for(fixture.origin.port, &sections(rules)).await;
    let unknown = fixture.push(&other, &["main:agent/y"]).await;
    assert!(
        !unknown.status.success() && said(&unknown).contains("cannot be told"),
        "{}",
        said(&unknown)
    );
}
