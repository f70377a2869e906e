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
    /// Asks for references in order to fetch, or fetches.
    Fetch,
    /// Asks for references in order to push. Reads only.
    PushRefs {
        /// Path of the repository, without slash at the beginning and without `.git` at the end.
        repository: String,
    },
    /// Pushes.
    Push {
        /// Path of the repository, without slash at the beginning and without `.git` at the end.
        repository: String,
    },
}

/// Content type of a push.
const PUSH_TYPE: &str = "application/x-git-receive-pack-request";

/// What this request is in git's protocol; `None`: it has nothing to do with git.
pub(crate) fn call(
    method: &str,
    path: &str,
    query: Option<&str>,
    content_type: Option<&str>,
) -> Option<Call> {
    let path = decode(path);
    let path = path.trim_end_matches('/');
    let query = decode(query.unwrap_or_default());
    let says = |service: &str| query.split('&').any(|pair| pair == format!("service={service}"));
    let kind = content_type.unwrap_or_default().to_ascii_lowercase();
    if let Some(repository) = path.strip_suffix("/git-receive-pack") {
        return Some(Call::Push {
            repository: name(repository),
        });
    }
    // A push by its content that is not one by its path: whatever the server makes of it, it is judged as a push.
    if kind.starts_with(PUSH_TYPE) {
        return Some(Call::Push {
            repository: name(path),
        });
    }
    if let Some(repository) = path.strip_suffix("/info/refs") {
        return if says("git-receive-pack") {
            Some(Call::PushRefs {
                repository: name(repository),
            })
        } else {
            Some(Call::Fetch)
        };
    }
    (method == "POST" && path.ends_with("/git-upload-pack")).then_some(Call::Fetch)
}

/// The repository and what is asked of it, for a request of Git LFS: `REPOSITORY/info/lfs/…`.
pub(crate) fn lfs_repository(path: &str) -> Option<(String, String)> {
    let (repository, rest) = path.split_once("/info/lfs")?;
    let rest = rest.trim_matches('/');
    Some((name(repository), rest.to_owned()))
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
