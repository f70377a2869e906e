//! What of a layer may be shared, and what its content must be.
//!
//! **Trust:** names and bytes are the agent's. Digests to compare with come from the project's lock file as it was
//! before the run.
use aws_lc_rs::digest::{Context, Digest, SHA256, SHA512};
use bastle_policy::caches::{Cache, Check, Shared};
use bastle_workspace::path::TreePath;
use bastle_workspace::project::read_project_file;
use std::collections::BTreeMap;
use std::path::Path;

/// Largest lock file that is read.
const MOST_LOCK: u64 = 16 << 20;

/// Names under which tools keep credentials: never shared, wherever they are.
const SECRET_NAMES: &[&str] = &[
    "credentials",
    "credentials.toml",
    "credentials.json",
    ".npmrc",
    "npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pypirc",
    "pip.conf",
    ".netrc",
    "_netrc",
    "auth.json",
    ".git-credentials",
    "token",
    "token.json",
    "config.json",
    ".ssh",
    ".gnupg",
    ".aws",
    ".docker",
];
const SECRET_ENDS: &[&str] = &[".pem", ".key", ".p12", ".pfx", ".keystore"];
const SECRET_STARTS: &[&str] = &[".env", "id_rsa", "id_ed25519", "id_ecdsa", "id_dsa"];

/// Whether a component of the path is one under which credentials are kept.
pub(super) fn looks_secret(path: &TreePath) -> bool {
    path.components().any(|part| {
        let name = String::from_utf8_lossy(part).to_ascii_lowercase();
        SECRET_NAMES.contains(&name.as_str())
            || SECRET_ENDS.iter().any(|end| name.ends_with(end))
            || SECRET_STARTS.iter().any(|start| name.starts_with(start))
    })
}

/// The rule under which a path may be shared.
pub(super) fn shared<'c>(cache: &'c Cache, path: &TreePath) -> Option<&'c Shared> {
    cache.merge.iter().find(|shared| {
        path.as_bytes()
            .strip_prefix(shared.below.as_bytes())
            .is_some_and(|rest| rest.first() == Some(&b'/'))
    })
}

/// Digests by the name of the file, as stated before the run.
pub(super) type Stated = BTreeMap<String, String>;

/// `NAME-VERSION.crate SHA256` lines of the project's lock file; empty where there is none that can be read. A link is not
/// followed: without stated digests nothing of this run is shared, which is the safe side.
pub(super) fn lock_file(project: &Path) -> String {
    let read = read_project_file(project, Path::new("Cargo.lock"), MOST_LOCK);
    let Some(text) = read
        .ok()
        .flatten()
        .and_then(|bytes| String::from_utf8(bytes).ok())
    else {
        return String::new();
    };
    let mut lines = String::new();
    let (mut name, mut version) = ("", "");
    for line in text.lines() {
        let value = |key: &str| {
            line.strip_prefix(key)
                .and_then(|rest| rest.strip_prefix(" = \""))
                .and_then(|rest| rest.strip_suffix('"'))
        };
        if line == "[[package]]" {
            (name, version) = ("", "");
        } else if let Some(found) = value("name") {
            name = found;
        } else if let Some(found) = value("version") {
            version = found;
        } else if let Some(digest) = value("checksum")
            && !name.is_empty()
            && !version.is_empty()
        {
            lines.push_str(&format!("{name}-{version}.crate {digest}\n"));
        }
    }
    lines
}

/// Reads back what [`lock_file`] gave.
pub(super) fn stated(lines: &str) -> Stated {
    let pair = |line: &str| {
        let (name, digest) = line.split_once(' ')?;
        Some((name.to_owned(), digest.to_owned()))
    };
    lines.lines().filter_map(pair).collect()
}

/// What a check comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The content is what it must be.
    Good,
    /// It is not.
    Bad,
    /// Nothing says what it must be.
    Unknown,
}

/// A check under way: fed while the content is copied.
pub(super) struct Checking {
    expected: Option<String>,
    context: Context,
}

impl Checking {
    pub(super) fn new(check: Check, path: &TreePath, stated: &Stated) -> Option<Self> {
        match check {
            Check::None => None,
            Check::CargoLock => Some(Self {
                expected: std::str::from_utf8(path.name())
                    .ok()
                    .and_then(|name| stated.get(name).cloned()),
                context: Context::new(&SHA256),
            }),
            Check::Sha512Path => Some(Self {
                // …/sha512/ab/cd/the rest. A path of another form spells nothing that a content could have.
                expected: Some(spelled(path)),
                context: Context::new(&SHA512),
            }),
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    pub(super) fn outcome(self) -> Outcome {
        let Some(expected) = self.expected else {
            return Outcome::Unknown;
        };
        if hex(&self.context.finish()) == expected {
            Outcome::Good
        } else {
            Outcome::Bad
        }
    }
}

fn spelled(path: &TreePath) -> String {
    let parts: Vec<&[u8]> = path.components().collect();
    let last = parts.len().saturating_sub(3);
    String::from_utf8_lossy(&parts[last..].concat()).into_owned()
}

fn hex(digest: &Digest) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
