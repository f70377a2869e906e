//! Names of runs: as the request says, else made from its prefix, and always within the prefix of the caller's token.
//!
//! **Trust:** a name and a prefix are anybody's with a token. The own token of a run has the prefix of whoever started the
//! run: a child is never named beyond it.
use super::planning::{Spot, bad};
use super::{Caller, Inner, RunRequest, SpawnRequest};
use bastle_contract::{Code, Fault, RunId};

/// First part of names where neither the request nor the token says one.
const USUAL: &str = "run";

/// First part of the names that a request leaves open, without the dash after it. The agent of a run was never told the
/// prefix of its token: what it leaves open begins with it. Everybody else chooses a name within theirs.
pub(super) fn beginning<'r>(caller: &'r Caller, request: &'r SpawnRequest) -> &'r str {
    let own = caller.run.as_ref().and(caller.prefix.as_deref());
    let own = own.map(|own| own.strip_suffix('-').unwrap_or(own));
    request.prefix.as_deref().or(own).unwrap_or(USUAL)
}

/// The name of one run of a request.
pub(super) fn name(
    inner: &Inner,
    caller: &Caller,
    spot: &Spot<'_>,
    run: &RunRequest,
) -> Result<RunId, Fault> {
    let text = run.name.clone().unwrap_or_else(|| {
        let first = beginning(caller, spot.request);
        format!("{first}-{}-{}", spot.batch, spot.index)
    });
    let name = RunId::try_from(text).map_err(|error| bad("unusable name", error.to_string()))?;
    let own = caller.prefix.as_deref();
    if own.is_some_and(|own| !name.as_str().starts_with(own)) {
        return Err(Fault::new(
            Code::TokenRefused,
            format!("{} may not start {name}", caller.id),
            format!("its runs begin with {}", own.unwrap_or_default()),
        ));
    }
    let taken = inner.options.state.join("runs").join(name.as_str());
    if run.name.is_some() && taken.exists() {
        return Err(bad(format!("the name {name} is taken"), "").help("bastle ps -a"));
    }
    Ok(name)
}
