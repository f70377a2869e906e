//! Pushes as git writes them, and pushes that want to pass for something else.
use super::*;
use proptest::prelude::*;
use std::path::Path;
use std::process::{Command, Stdio};

const OLD: &str = "1111111111111111111111111111111111111111";
const NEW: &str = "2222222222222222222222222222222222222222";
const ZERO: &str = "0000000000000000000000000000000000000000";

fn packets(lines: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines {
        pkt::write(&mut out, line.as_bytes());
    }
    pkt::flush(&mut out);
    out
}

#[test]
fn a_push_is_recognised_however_its_path_is_spelled() {
    let repository = || "acme/x".to_owned();
    let plain = Some(Call::Push {
        repository: repository(),
    });
    let odd = Some(Call::OddPush {
        repository: repository(),
    });
    for path in ["/acme/x.git/git-receive-pack", "/acme/x/git-receive-pack"] {
        assert_eq!(call("POST", path, None, Some(PUSH_TYPE)), plain, "{path}");
        for kind in [
            None,
            Some("application/json"),
            Some("text/plain, application/x-git-receive-pack-request"),
        ] {
            assert_eq!(call("POST", path, None, kind), odd, "{path} {kind:?}");
        }
        assert_eq!(call("PUT", path, None, Some(PUSH_TYPE)), odd, "{path}");
    }
    for path in [
        "/acme/x.git/git%2Dreceive%2dpack",
        "/acme/x.git/%67it-receive-pack",
        "/acme/x.git/git-receive-pack/",
    ] {
        assert_eq!(call("POST", path, None, Some(PUSH_TYPE)), odd, "{path}");
    }
    for path in [
        "/odd",
        "/api/v1/repos/a/b/contents/git-receive-pack",
        "/acme/x/git-upload-pack",
    ] {
        let judged = call("POST", path, None, Some(PUSH_TYPE));
        assert!(matches!(judged, Some(Call::OddPush { .. })), "{path}: {judged:?}");
    }
    for query in ["service=git-receive-pack", "a=b&service=git%2dreceive-pack"] {
        assert!(matches!(
            call("GET", "/acme/x.git/info/refs", Some(query), None),
            Some(Call::PushRefs { .. })
        ));
    }
    assert_eq!(call("GET", "/a/b", None, None), None);
}

#[test]
fn a_fetch_is_only_what_git_itself_sends_for_one() {
    let refs = |method: &str| call(method, "/a/info/refs", Some("service=git-upload-pack"), None);
    assert_eq!(
        (refs("GET"), refs("HEAD")),
        (Some(Call::Fetch), Some(Call::Fetch))
    );
    for method in ["POST", "PUT", "PATCH", "DELETE", "MKCOL", "OPTIONS"] {
        assert_eq!(refs(method), None, "{method}");
    }
    for path in [
        "/a.git/git-upload-pack",
        "/group/a/b.git/git-upload-pack",
        "/repos/a.git/git-upload-pack",
        "/org/My%20Project/_git/a/git-upload-pack",
    ] {
        assert_eq!(
            call("POST", path, None, Some(FETCH_TYPE)),
            Some(Call::Fetch),
            "{path}"
        );
        let kinds = [
            None,
            Some("application/json"),
            Some("application/x-git-upload-pack-request; charset=utf-8"),
            Some("application/x-git-upload-pack-request,application/json"),
            Some("application/x-git-upload-pack-requests"),
        ];
        for kind in kinds {
            assert_eq!(call("POST", path, None, kind), None, "{path} {kind:?}");
        }
        assert_eq!(call("PUT", path, None, Some(FETCH_TYPE)), None, "{path}");
    }
    for path in [
        "/api/v1/repos/a/b/contents/git-upload-pack",
        "/%61pi/v1/repos/a/b/contents/git-upload-pack",
        "//API/v4/projects/1/repository/files/git-upload-pack",
        "/gitea/api/v1/repos/a/b/contents/git-upload-pack",
        "/repos/a/b/contents/git-upload-pack",
        "/2.0/repositories/a/b/src/git-upload-pack",
        "/rest/api/1.0/projects/a/repos/b/browse/git-upload-pack",
        "/org/project/_apis/git/repositories/b/git-upload-pack",
        "/a/b/-/new/main/git-upload-pack",
        "/a.git/git%2Dupload-pack",
        "/a.git/git-upload-pack/",
    ] {
        assert_eq!(call("POST", path, None, Some(FETCH_TYPE)), None, "{path}");
    }
    assert_eq!(
        super::lfs_repository("/api/v1/repos/a/b/contents/x/info/lfs/objects/batch"),
        None
    );
}

#[test]
fn the_head_of_a_push_is_read_wherever_it_is_cut() {
    let mut bytes = packets(&[
        &format!("shallow {OLD}"),
        &format!("{OLD} {NEW} refs/heads/main\0 report-status side-band-64k push-options agent=git/2"),
        &format!("{ZERO} {NEW} refs/heads/agent/x"),
        &format!("{OLD} {ZERO} refs/tags/v1\n"),
    ]);
    bytes.extend(packets(&["ci.skip"]));
    let length = bytes.len();
    bytes.extend_from_slice(b"PACK....");
    for cut in 0..length {
        assert_eq!(read(&bytes[..cut]), Head::More, "cut at {cut}");
    }
    let Head::Whole(push) = read(&bytes) else {
        panic!("not read");
    };
    assert_eq!((push.length, push.reports, push.side_band), (length, true, true));
    let kinds: Vec<(bool, bool, &str)> = push
        .updates
        .iter()
        .map(|u| (u.old.is_some(), u.new.is_some(), u.reference.as_str()))
        .collect();
    let expected = [
        (true, true, "refs/heads/main"),
        (false, true, "refs/heads/agent/x"),
        (true, false, "refs/tags/v1"),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn the_probe_of_git_has_no_commands() {
    assert_eq!(
        read(b"0000"),
        Head::Whole(Push {
            length: 4,
            ..Push::default()
        })
    );
}

#[test]
fn commands_that_cannot_be_judged_are_refused() {
    let twice = [
        format!("{OLD} {NEW} refs/heads/a\0x"),
        format!("{NEW} {OLD} refs/heads/a"),
    ];
    let late = [
        format!("{OLD} {NEW} refs/heads/a\0x"),
        format!("{OLD} {NEW} refs/heads/b\0push-options"),
    ];
    for lines in [&twice, &late] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert!(matches!(read(&packets(&lines)), Head::Refused(_)), "{lines:?}");
    }
    for line in [
        "push-cert\0 report-status".to_owned(),
        format!("{OLD} {NEW} refs/heads/../main"),
        format!("{OLD} {NEW} HEAD"),
        format!("{OLD} {NEW} refs/heads/a b"),
        format!("{OLD} {NEW} refs/heads/a\u{1}"),
        format!("{OLD} {NEW} refs/heads//a"),
        format!("{OLD} {NEW} refs/heads/a.lock"),
        format!("{OLD} {NEW}"),
        format!("{ZERO} {ZERO} refs/heads/a"),
        format!("{} {NEW} refs/heads/a", &OLD[1..]),
        format!("{}X {NEW} refs/heads/a", &OLD[1..]),
        String::new(),
    ] {
        assert!(matches!(read(&packets(&[&line])), Head::Refused(_)), "{line:?}");
    }
    for bytes in [&b"0001"[..], b"0002", b"0003", b"xyz", b"fff1", b"ffff"] {
        assert!(matches!(read(bytes), Head::Refused(_)), "{bytes:?}");
    }
    let endless = packets(&["shallow 1111111111111111111111111111111111111111"; 1][..1])[..52].repeat(30_000);
    assert!(matches!(read(&endless), Head::Refused(_)));
}

#[test]
fn a_refusal_names_every_reference_in_gits_own_framing() {
    let lines = [
        format!("{OLD} {NEW} refs/heads/main\0report-status side-band-64k"),
        format!("{ZERO} {NEW} refs/heads/agent/x"),
    ];
    let Head::Whole(push) = read(&packets(&[&lines[0], &lines[1]])) else {
        panic!("not read");
    };
    let reasons = [(
        "refs/heads/main".to_owned(),
        "bastle: denied d_1\nforged ok".to_owned(),
    )];
    let bytes = refused(&push, &reasons, "bastle: denied").unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert!(
        text.contains("ng refs/heads/main bastle: denied d_1 forged ok\n"),
        "{text}"
    );
    assert!(
        text.contains("ng refs/heads/agent/x bastle: not pushed"),
        "{text}"
    );
    assert!(!text.contains("ok refs/"));
    assert_eq!(
        refused(
            &Push {
                reports: false,
                ..push
            },
            &reasons,
            ""
        ),
        None
    );
}

/// A repository with a line of commits; gives the ids, oldest first.
fn repository(at: &Path, commits: usize) -> Vec<String> {
    git(at, &["init", "-q", "-b", "main", "."], None);
    let mut ids = Vec::new();
    for n in 0..commits {
        std::fs::write(at.join("f"), format!("line {n}\n").repeat(20)).unwrap();
        git(at, &["add", "f"], None);
        let message = format!(
            "commit {n}\n\nparent {OLD}\n{}",
            "a long and similar message\n".repeat(20)
        );
        git(at, &["commit", "-q", "-m", &message], None);
        ids.push(git(at, &["rev-parse", "HEAD"], None).trim().to_owned());
    }
    ids
}

fn git(at: &Path, arguments: &[&str], input: Option<&str>) -> String {
    String::from_utf8_lossy(&git_bytes(at, arguments, input)).into_owned()
}

fn git_bytes(at: &Path, arguments: &[&str], input: Option<&str>) -> Vec<u8> {
    use std::io::Write;
    let mut child = Command::new("git")
        .current_dir(at)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "-c",
            "commit.gpgsign=false",
        ])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.unwrap_or_default().as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "git {arguments:?}");
    output.stdout
}

fn pack(at: &Path, range: &str, extra: &[&str]) -> Vec<u8> {
    let mut arguments = vec!["pack-objects", "--revs", "--stdout", "-q"];
    arguments.extend(extra);
    git_bytes(at, &arguments, Some(&format!("{range}\n")))
}

fn proves_fast_forward(pack: &[u8], old: &str, new: &str) -> bool {
    History::read(pack, old.len()).relation(old, new) == Relation::FastForward
}

#[test]
fn a_fast_forward_is_proved_from_a_real_pack_and_a_rewrite_is_not() {
    let home = tempfile::tempdir().unwrap();
    let ids = repository(home.path(), 12);
    let (old, new) = (&ids[3], &ids[11]);
    for extra in [
        &[][..],
        &["--thin", "--delta-base-offset"],
        &["--window=50", "--depth=50"],
    ] {
        let bytes = pack(home.path(), &format!("{new}\n^{old}"), extra);
        assert!(proves_fast_forward(&bytes, old, new), "{extra:?}");
        assert!(
            !proves_fast_forward(&bytes, OLD, new),
            "a parent line in a message is no parent"
        );
        assert!(
            !proves_fast_forward(&bytes, new, old),
            "backwards is no fast-forward"
        );
        assert!(
            !proves_fast_forward(&bytes[..200], old, new),
            "half a pack proves nothing"
        );
    }
    git(home.path(), &["commit", "-q", "--amend", "-m", "rewritten"], None);
    let rewritten = git(home.path(), &["rev-parse", "HEAD"], None).trim().to_owned();
    let bytes = pack(home.path(), &format!("{rewritten}\n^{}", ids[10]), &[]);
    assert!(!proves_fast_forward(&bytes, new, &rewritten));
    assert!(proves_fast_forward(&bytes, &ids[10], &rewritten));
    let relation = |bytes: &[u8]| History::read(bytes, 40).relation(new, &rewritten);
    assert_eq!(
        relation(&bytes),
        Relation::Unknown,
        "the rest of the history was not sent"
    );
    let whole = pack(home.path(), &rewritten, &[]);
    assert_eq!(relation(&whole), Relation::Rewrite, "the whole history was sent");
}

#[test]
fn a_pack_that_inflates_without_end_is_given_up() {
    use std::io::Write;
    let mut bomb = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&vec![0u8; 2 * MAX_PACK]).unwrap();
    let bomb = bomb.finish().unwrap();
    let mut bytes = b"PACK\0\0\0\x02\0\0\0\x64".to_vec();
    for _ in 0..100 {
        // A blob of 16 MiB.
        bytes.extend([0xb0, 0x80, 0x80, 0x80, 0x01]);
        bytes.extend_from_slice(&bomb);
    }
    let begun = std::time::Instant::now();
    assert!(!proves_fast_forward(&bytes, OLD, NEW));
    assert!(begun.elapsed() < std::time::Duration::from_secs(60));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzz_push(&bytes);
        fuzz_pack(&bytes);
        let mut framed = b"PACK\0\0\0\x02\0\0\0\x02".to_vec();
        framed.extend_from_slice(&bytes);
        fuzz_pack(&framed);
    }
}

#[test]
fn sections_of_packets_are_followed_in_linear_time_however_they_are_cut() {
    let lines: Vec<String> = (0..2_000)
        .map(|n| format!("{OLD} {NEW} refs/heads/b{n}"))
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let bytes = packets(&lines);
    for step in [1, 3, 16_384, bytes.len()] {
        let mut sections = super::Sections::default();
        let ended: Vec<usize> = bytes
            .chunks(step)
            .enumerate()
            .filter(|(_, piece)| sections.feed(piece) != super::Progress::Inside)
            .map(|(at, _)| at)
            .collect();
        assert_eq!(ended, [(bytes.len() - 1) / step], "step {step}");
        assert!(sections.scanned() <= bytes.len() as u64, "step {step}");
    }
    assert_eq!(
        super::Sections::default().feed(b"0003"),
        super::Progress::Malformed
    );
    assert_eq!(
        super::Sections::default().feed(b"zzzz"),
        super::Progress::Malformed
    );
}

#[test]
fn a_twin_with_a_doubled_suffix_is_another_repository() {
    let repository = |path: &str| match call("POST", path, None, Some(PUSH_TYPE)) {
        Some(Call::Push { repository }) => repository,
        other => panic!("{other:?}"),
    };
    assert_eq!(repository("/a/b.git/git-receive-pack"), "a/b", "control");
    assert_eq!(repository("/a/b.git.git/git-receive-pack"), "a/b.git.git");
    assert_eq!(
        super::lfs_repository("/a/b.git/info/lfs/objects/batch"),
        Some(("a/b".to_owned(), "objects/batch".to_owned()))
    );
}
