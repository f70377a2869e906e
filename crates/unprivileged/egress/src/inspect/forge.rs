//! Writes to a git host that are no push: judged by the rules about pushing.
//!
//! **Trust:** reads the agent's request. Whatever is not known to read counts as a write.
use super::Site;
use super::body::BodyError;
use super::canonical::{CanonicalRequest, Media};
use super::operation::{Begun, is_plain};
use crate::git::{Call, lfs_repository};
use crate::rpc::MAX_BODY;
use bastle_policy::{Decision, ForgeWrite, NetPolicy, Operation, WriteKind};
use serde::Deserialize;

/// What a request to a git host does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Reads, or is judged as a push.
    Reads,
    /// Writes in this way, to this repository where the path tells.
    Writes(WriteKind, Option<String>),
}

/// Whether a POST to this path of a git host may be a GraphQL query, which reads.
pub(super) fn is_graphql(request: &CanonicalRequest) -> bool {
    request.method == http::Method::POST && request.path.trim_end_matches('/').ends_with("graphql")
}

/// What the request does; reads a body of LFS to tell.
pub(super) async fn effect(
    request: &CanonicalRequest,
    call: Option<&Call>,
    operation: Option<&Operation>,
    body: &mut Begun,
) -> Result<Effect, BodyError> {
    if request.reads() {
        return Ok(Effect::Reads);
    }
    match call {
        // A push is judged by its references; asking for references or a pack by POST changes nothing.
        Some(Call::Push { .. } | Call::PushRefs { .. } | Call::Fetch) => return Ok(Effect::Reads),
        None => {}
    }
    if let Some((repository, rest)) = lfs_repository(&request.path) {
        let batch = request.method == http::Method::POST && rest == "objects/batch";
        if batch && downloads(request, body).await? {
            return Ok(Effect::Reads);
        }
        return Ok(Effect::Writes(WriteKind::Lfs, Some(repository)));
    }
    if is_graphql(request)
        && let Some(Operation::GraphQl(names)) = operation
        && names.iter().all(|name| name.starts_with("query:"))
    {
        return Ok(Effect::Reads);
    }
    Ok(Effect::Writes(WriteKind::Other, repository(&request.path)))
}

/// Whether a batch request of LFS asks for downloads, and says so in one way only.
async fn downloads(request: &CanonicalRequest, body: &mut Begun) -> Result<bool, BodyError> {
    #[derive(Deserialize)]
    struct Batch {
        operation: String,
    }
    if request.media != Media::Json || !is_plain(&request.headers) {
        return Ok(false);
    }
    body.read_to(MAX_BODY).await?;
    // A key that stands twice is an error of the reader.
    let batch = body
        .whole()
        .and_then(|text| serde_json::from_slice::<Batch>(&text).ok());
    Ok(batch.is_some_and(|batch| batch.operation == "download"))
}

/// The repository that a path of a forge's interface is about: `/repos/OWNER/NAME/…` (GitHub, Gitea, Bitbucket), with or
/// without the prefix of the interface.
fn repository(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let at = parts
        .iter()
        .position(|part| matches!(*part, "repos" | "repositories"))?;
    // Only behind the known prefixes: elsewhere the word is a name like any other.
    let prefix = parts.get(..at)?.join("/");
    if !matches!(prefix.as_str(), "" | "api/v1" | "api/v3" | "2.0") {
        return None;
    }
    match parts.get(at + 1..at + 3)? {
        [owner, name] => Some(format!("{owner}/{name}")),
        _ => None,
    }
}

/// Judges a write.
pub(super) fn judge(
    policy: &NetPolicy,
    site: &Site,
    request: &CanonicalRequest,
    operation: Option<&Operation>,
    (kind, repository): (WriteKind, Option<&str>),
) -> Decision {
    policy.forge_write(&ForgeWrite {
        host: &site.via.host,
        port: site.via.port,
        method: request.method.as_str(),
        path: &request.path,
        operation,
        repository,
        kind,
    })
}
