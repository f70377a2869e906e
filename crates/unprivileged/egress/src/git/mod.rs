//! Git over HTTP: which repository a request is about, what a push changes, and how a refusal is told to git.
//!
//! **Trust:** reads the agent's requests. A path that a server would read as a push is taken for one, also when it is
//! written with percent-escapes.
mod known;
mod pack;
mod pkt;
mod push;
mod report;
#[cfg(test)]
mod tests;

pub(crate) use known::Known;
pub(crate) use pack::{History, MAX_PACK, Relation, fuzz_pack};
pub(crate) use pkt::{Progress, Sections};
pub(crate) use push::{Head, MAX_COMMANDS, Push, Update, fuzz_push, read};
pub(crate) use report::{CONTENT_TYPE as REPORT_TYPE, refused};

/// What a request is in git's protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Asks for references in order to fetch, or fetches: exactly as git does.
    Fetch,
    /// Asks for references in order to push. Reads only.
    PushRefs {
        /// Path of the repository, without slash at the beginning and without `.git` at the end.
        repository: String,
    },
    /// Pushes: exactly as git does.
    Push {
        /// Path of the repository, without slash at the beginning and without `.git` at the end.
        repository: String,
    },
    /// A push by its path or by its content type, but not one that git sends. What the server makes of it is unknown, so
    /// it is judged as a push and as a write.
    OddPush {
        /// Path of the repository, without slash at the beginning and without `.git` at the end.
        repository: String,
    },
}

/// Content type of a push.
const PUSH_TYPE: &str = "application/x-git-receive-pack-request";
/// Content type of a fetch.
const FETCH_TYPE: &str = "application/x-git-upload-pack-request";

/// What this request is in git's protocol; `None`: it has nothing to do with git. `content_type` holds every value of the
/// field, with commas between them.
///
/// A fetch is recognised narrowly and a push widely: the first passes as a read, the second is judged.
pub(crate) fn call(
    method: &str,
    path: &str,
    query: Option<&str>,
    content_type: Option<&str>,
) -> Option<Call> {
    let kind = content_type.unwrap_or_default().trim().to_ascii_lowercase();
    // Git writes neither escapes nor a slash into this part of a path.
    let exact = |service: &str, content: &str| {
        method == "POST"
            && kind == content
            && path
                .strip_suffix(service)
                .is_some_and(|repository| !is_forge_api(repository))
    };
    if exact("/git-upload-pack", FETCH_TYPE) {
        return Some(Call::Fetch);
    }
    let plain = exact("/git-receive-pack", PUSH_TYPE);
    let path = decode(path);
    let path = path.trim_end_matches('/');
    if let Some(repository) = path.strip_suffix("/git-receive-pack") {
        let repository = name(repository);
        return Some(match plain {
            true => Call::Push { repository },
            false => Call::OddPush { repository },
        });
    }
    // A push by its content that is not one by its path: whatever the server makes of it, it is judged as a push.
    if kind.contains(PUSH_TYPE) {
        return Some(Call::OddPush {
            repository: name(path),
        });
    }
    let repository = path.strip_suffix("/info/refs")?;
    if !matches!(method, "GET" | "HEAD") {
        return None;
    }
    let query = decode(query.unwrap_or_default());
    Some(
        match query.split('&').any(|pair| pair == "service=git-receive-pack") {
            true => Call::PushRefs {
                repository: name(repository),
            },
            false => Call::Fetch,
        },
    )
}

/// The repository and what is asked of it, for a request of Git LFS: `REPOSITORY/info/lfs/…`.
pub(crate) fn lfs_repository(path: &str) -> Option<(String, String)> {
    let (repository, rest) = path.split_once("/info/lfs")?;
    if is_forge_api(repository) {
        return None;
    }
    let rest = rest.trim_matches('/');
    Some((name(repository), rest.to_owned()))
}

/// Whether a path is below an interface of a forge, where no repository is served: REST and GraphQL of GitHub, GitLab,
/// Gitea and Bitbucket, `_apis` of Azure, the pages behind GitLab's `/-/`. Such a path can end in a name that the caller
/// chooses (a file to create), so its end says nothing about what the request does.
pub(crate) fn is_forge_api(path: &str) -> bool {
    let path = decode(path);
    let parts: Vec<String> = path
        .split(['/', '\\'])
        .filter(|part| !part.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    let version = |part: &str| {
        part.strip_prefix('v')
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    };
    // `/repos/OWNER/NAME` may be a repository; what is below it is not.
    let first = match parts.first().map(String::as_str) {
        Some("api" | "rest" | "2.0") => true,
        Some("repos" | "repositories") => parts.len() > 3,
        Some(_) | None => false,
    };
    // A forge may be served below a path of its own.
    let below = parts.windows(2).any(|pair| match pair {
        [one, two] => one == "api" && version(two) || one == "rest" && two == "api",
        _ => false,
    });
    let anywhere = |part: &String| matches!(part.as_str(), "_apis" | "-" | "." | "..");
    first || below || parts.iter().any(anywhere)
}

fn name(path: &str) -> String {
    let path = path.trim_start_matches('/').trim_end_matches('/');
    match path.strip_suffix(".git") {
        // `a.git.git` is another repository than `a.git`, whose name may be written without its end.
        Some(short) if !short.ends_with(".git") => short.to_owned(),
        Some(_) | None => path.to_owned(),
    }
}

/// Percent-decoding; what is no escape stays as it is.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digit = |i: usize| bytes.get(at + i).and_then(|b| char::from(*b).to_digit(16));
        match (byte, digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
