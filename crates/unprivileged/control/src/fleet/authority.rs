//! What whoever asks may give to a run: everything for an admin; for everybody else the meet of the token's ceiling, the
//! profile's and the daemon's, and for a child also its parent's. And which other runs a request may name.
//!
//! **Trust:** requests are anybody's with a token. What lies beyond the ceiling is refused by name, never dropped.
use super::documents::{Inline, narrowing};
use super::words::{allow_on, missing};
use super::{Caller, Inner, Role, RunRequest, Verb, entry, rows};
use crate::load::{Loaded, Sources, load};
use crate::place::{self, Place};
use crate::presets;
use bastle_contract::runs::LaunchSpec;
use bastle_contract::{AbsPath, BackendKind, Bounds, Code, Fault, RunId};
use bastle_policy::{
    AuthorityCeiling, Effective, Excess, NetMode, NetRule, NetTarget, Profile, Wanted, WorkspaceMode,
    asked_paths, beyond, reserved,
};
use std::path::Path;

/// The authority that a run is started with.
pub(super) enum Authority {
    /// An admin's.
    Full,
    /// Anybody else's.
    Within(Box<Held>),
}

/// A ceiling with every default filled in, and whose it is.
pub(super) struct Held {
    ceiling: AuthorityCeiling,
    who: String,
    role: Role,
}

/// The most that a caller may give, apart from any profile; `None`: an admin.
pub(super) fn of_caller(inner: &Inner, caller: &Caller) -> Result<Option<AuthorityCeiling>, Fault> {
    let stated = match (&caller.run, caller.is_trusted()) {
        (None, true) => return Ok(None),
        (None, false) => caller.ceiling.meet(&inner.ceiling()),
        // A run has what whoever started it had; one of an admin has what its own policy gives it.
        (Some(run), _) => {
            let spec = inner.store.read(|db| rows::spec(db, run))?;
            match spec.get().bounds.as_ref() {
                Some(bounds) if entry::is_admins(inner, run)? => return read(bounds).map(Some),
                Some(bounds) => read(bounds)?.meet(&inner.ceiling()),
                None if caller.ceiling.is_empty() => {
                    return entry::of_unbounded(inner, caller, &spec).map(Some);
                }
                None => return Ok(Some(caller.ceiling.clone())),
            }
        }
    };
    Ok(Some(stated.or(&AuthorityCeiling::built_in(&place::home()?))))
}

fn read(bounds: &Bounds) -> Result<AuthorityCeiling, Fault> {
    serde_json::from_value(bounds.ceiling.clone()).map_err(|error| {
        Fault::new(
            Code::TokenCeiling,
            "the authority ceiling of the parent cannot be read",
            error.to_string(),
        )
    })
}

/// Whether a caller may show a living run a path of the host. The roots must be stated: a project below the home directory is
/// one thing, any path there another.
pub(super) fn may_grant(inner: &Inner, caller: &Caller, path: &AbsPath) -> Result<(), Fault> {
    if caller.is_trusted() {
        return Ok(());
    }
    let stated = caller.ceiling.meet(&inner.ceiling());
    // A link below a root may lead out of it, and the agent may have made it.
    let real = AbsPath::from_path(&place::settled(path.as_path())).ok();
    let inside = |path: &AbsPath| stated.allows_root(path);
    if stated.states_roots() && inside(path) && real.as_ref().is_some_and(inside) {
        return Ok(());
    }
    let fault = Fault::new(
        Code::TokenCeiling,
        format!("{path} is not {}'s to grant", caller.id),
        "no root of the authority ceiling covers it",
    );
    let role = caller.role.word();
    Err(fault.help(format!(
        "an admin grants it: bastle token create --role {role} --root {path}"
    )))
}

/// Whether a caller may open a host to a living run that did not ask for it, or take a refusal of it back. The hosts must be
/// stated; what the run's own ceiling does not name stays closed whatever is said.
pub(super) fn may_allow(caller: &Caller, daemon: &AuthorityCeiling, rule: &str) -> Result<(), Fault> {
    if caller.is_trusted() {
        return Ok(());
    }
    let stated = caller.ceiling.meet(daemon);
    let target = NetRule::new(rule).map(|rule| rule.target);
    let covered = match &target {
        Ok(NetTarget::Host(pattern)) => stated.states_hosts() && stated.allows_hosts(pattern),
        Ok(NetTarget::Group(_)) | Err(_) => false,
    };
    if covered {
        return Ok(());
    }
    let fault = Fault::new(
        Code::TokenCeiling,
        format!("{rule:?} is not {}'s to allow", caller.id),
        "no host of the authority ceiling covers it; questions are answered by their number",
    );
    let role = caller.role.word();
    Err(fault
        .help(format!(
            "an admin grants it: bastle token create --role {role} --allow-net HOST"
        ))
        .help("bastle approvals ls"))
}

/// The policy of a question: whoever is no admin asks within the roots, and what they bring along only narrows.
pub(super) fn policy_for(
    inner: &Inner,
    caller: &Caller,
    workspace: &str,
    mut sources: Sources,
) -> Result<Effective, Vec<Fault>> {
    let one = |fault| vec![fault];
    let found = Place::find(Some(Path::new(workspace)));
    let Some(ceiling) = of_caller(inner, caller).map_err(one)? else {
        return Ok(load(&found.map_err(one)?, &sources)?.effective);
    };
    let held = Held {
        ceiling,
        who: caller.id.clone(),
        role: caller.role,
    };
    let place = found.map_err(|fault| vec![held.unusable_place(workspace, fault)])?;
    let outside = !held.ceiling.allows_root(&place.workspace);
    let outside = outside.then(|| Excess::Root(workspace.to_owned()));
    held.refuse(outside.as_slice())?;
    if let Some(document) = sources.flags.take() {
        held.refuse(&reserved(&document))?;
        sources.request = Some(document);
    }
    sources.ceiling = Some(held.ceiling);
    Ok(load(&place, &sources)?.effective)
}

/// Every run that a request names is one that its sender could name directly. Another one is told like none.
pub(super) fn references(inner: &Inner, caller: &Caller, run: &RunRequest) -> Result<(), Fault> {
    // A run's own token names its parent by being it; what it begins with is compared with the parent.
    if caller.run.is_some() {
        return Ok(());
    }
    let known = |name: &RunId, verb: Verb| {
        let there = inner.store.read(|db| rows::phase(db, name))?.is_some();
        if !there || !caller.may_on(Verb::Read, name) {
            return Err(missing(name.as_str()));
        }
        allow_on(caller, verb, name)?;
        entry::may_enter(inner, caller, name)
    };
    if let Some(parent) = &run.parent {
        known(parent, Verb::Control)?;
    }
    // An admin may also begin with a tree whose run the records do not know, unless the token names its runs.
    let named = !caller.is_trusted() || caller.is_limited();
    if let Some(from) = run.from.as_deref().filter(|_| named) {
        let name = from.rsplit_once('@').map_or(from, |(name, _)| name);
        let name = RunId::try_from(name.to_owned()).map_err(|_| missing(name))?;
        known(&name, Verb::Read)?;
    }
    Ok(())
}

impl Authority {
    /// The authority of a caller for a run of a profile, and of a parent.
    pub(super) fn of(
        inner: &Inner,
        caller: &Caller,
        profile: &Profile,
        parent: Option<&LaunchSpec>,
    ) -> Result<Self, Fault> {
        let own = of_caller(inner, caller)?;
        let above = parent.and_then(|parent| parent.get().bounds.as_ref());
        let above = above.map(read).transpose()?;
        let stated = match (own, above) {
            (None, None) => return Ok(Self::Full),
            (Some(one), None) | (None, Some(one)) => one,
            (Some(own), Some(above)) => own.meet(&above),
        };
        Ok(Self::Within(Box::new(Held {
            ceiling: stated.meet(&profile.ceiling),
            who: caller.id.clone(),
            role: match caller.role {
                Role::Run => Role::Operator,
                role => role,
            },
        })))
    }

    /// What the policy of the request counts for.
    pub(super) fn inline(&self) -> Inline {
        match self {
            Self::Full => Inline::Trusted,
            Self::Within(_) => Inline::Narrows,
        }
    }

    /// Whether a ceiling holds it: the word of whoever asks is not the operator's.
    pub(super) fn is_held(&self) -> bool {
        match self {
            Self::Full => false,
            Self::Within(_) => true,
        }
    }

    pub(super) fn max_runs(&self) -> Option<u32> {
        match self {
            Self::Full => None,
            Self::Within(held) => held.ceiling.max_runs(),
        }
    }

    /// Why a project cannot be used.
    pub(super) fn unusable_place(&self, asked: &str, fault: Fault) -> Fault {
        match self {
            Self::Full => fault,
            Self::Within(held) => held.unusable_place(asked, fault),
        }
    }

    /// The mode in which the run gets its project. Unstated it would fit itself to the project, which may be in place: where
    /// that is not allowed, the first mode that is.
    pub(super) fn mode(&self, asked: Option<String>) -> Option<String> {
        let Self::Within(held) = self else { return asked };
        if asked.is_some() || held.ceiling.allows_mode(WorkspaceMode::InPlace) {
            return asked;
        }
        let first = WorkspaceMode::ALL
            .into_iter()
            .find(|mode| held.ceiling.allows_mode(*mode));
        Some(first.unwrap_or(WorkspaceMode::Copy).word().to_owned())
    }

    /// The network mode: as asked, and where nothing is asked no wider than the ceiling.
    pub(super) fn net(&self, asked: Option<NetMode>) -> Option<NetMode> {
        let Self::Within(held) = self else { return asked };
        match (asked, held.ceiling.net()) {
            (None, Some(most)) if most < NetMode::default() => Some(most),
            (asked, _) => asked,
        }
    }

    /// Refuses what lies beyond the ceiling, before anything of the project is read.
    pub(super) fn admit(
        &self,
        run: &RunRequest,
        place: &Place,
        preset: Option<&str>,
        (mode, net): (Option<&str>, Option<NetMode>),
    ) -> Result<(), Vec<Fault>> {
        let Self::Within(held) = self else { return Ok(()) };
        let wanted = Wanted {
            workspace: &place.workspace,
            profile: run.profile.as_deref().unwrap_or("default"),
            preset: presets::plain_name(preset),
            mode: mode
                .and_then(WorkspaceMode::parse)
                .unwrap_or(WorkspaceMode::InPlace),
            net: net.unwrap_or_default(),
            backend: BackendKind::Native,
        };
        let mut found = held.ceiling.excesses(&wanted);
        // A place that is locked elsewhere keeps others from starting; one that is no path is told as that later.
        for scope in &run.scopes {
            if Path::new(scope).is_absolute() && !held.covers(scope) {
                found.push(Excess::Scope(scope.clone()));
            }
        }
        // Of a child the keys that could grant were refused already.
        if run.parent.is_none()
            && let Some(document) = document(run)?
        {
            found.extend(reserved(&document));
        }
        held.refuse(&found)
    }

    /// What travels with the run.
    pub(super) fn bounds(
        &self,
        run: &RunRequest,
        parent: Option<&LaunchSpec>,
    ) -> Result<Option<Bounds>, Fault> {
        let Self::Within(held) = self else { return Ok(None) };
        let unprintable = |error: serde_json::Error| {
            Fault::new(
                Code::TokenCeiling,
                "the authority ceiling cannot be kept",
                error.to_string(),
            )
        };
        let ceiling = serde_json::to_value(&held.ceiling).map_err(unprintable)?;
        let request = match parent {
            // What narrowed the parent narrows the child; its own refusals are in its document.
            Some(parent) => {
                let bounds = parent.get().bounds.as_ref();
                bounds.and_then(|bounds| bounds.request.clone())
            }
            None => narrowing(run),
        };
        Ok(Some(Bounds { ceiling, request }))
    }

    /// Refuses what was asked for and is not in the merged policy.
    pub(super) fn granted(
        &self,
        run: &RunRequest,
        parent: Option<&LaunchSpec>,
        place: &Place,
        loaded: &Loaded,
    ) -> Result<(), Vec<Fault>> {
        let Self::Within(held) = self else { return Ok(()) };
        let effective = &loaded.effective;
        let mut found = Vec::new();
        if effective.hidden_by(&place.workspace).is_some() {
            found.push(Excess::HiddenProject(place.workspace.clone()));
        }
        if parent.is_none()
            && let Some(document) = document(run)?
        {
            found.extend(beyond(&document, effective, &held.ceiling));
            found.extend(led_out(&document, effective));
        }
        for name in run.env.keys() {
            let set = effective.env_set.iter().any(|own| own.value.0 == *name);
            let secret = effective.secrets.iter().any(|own| own.value.name == *name);
            if set || secret {
                found.push(Excess::Variable(name.as_str().to_owned()));
            }
        }
        held.refuse(&found)
    }

    /// What is told about the run at its start.
    pub(super) fn notes(&self, run: &RunRequest, place: &Place, mut notes: Vec<String>) -> Vec<String> {
        let by_itself = run.mode.is_none() && self.mode(None).is_some();
        if by_itself && !place.workspace.as_path().join(".git").exists() {
            notes.push("it works on a copy: its authority ceiling does not allow in-place".to_owned());
        }
        notes
    }
}

/// The request's own policy with its time and turns, parsed.
fn document(run: &RunRequest) -> Result<Option<bastle_policy::Document>, Vec<Fault>> {
    narrowing(run)
        .map(|whole| bastle_policy::parse("request", whole.to_string().as_bytes()))
        .transpose()
}

/// Paths of the document whose symlinks lead where nothing is granted. By their spelling they were judged before.
pub(super) fn led_out(document: &bastle_policy::Document, effective: &Effective) -> Vec<Excess> {
    let asked = asked_paths(document, &effective.surroundings).into_iter();
    asked
        .filter(|asked| {
            let real = AbsPath::from_path(&place::settled(asked.path.as_path()));
            real.is_ok_and(|real| real != asked.path && effective.configured(&real) < asked.grade)
        })
        .map(|asked| Excess::Path(asked.spelt))
        .collect()
}

impl Held {
    /// Whether a path lies below a root once its symlinks are followed.
    fn covers(&self, asked: &str) -> bool {
        let real = AbsPath::from_path(&place::settled(Path::new(asked)));
        real.is_ok_and(|path| self.ceiling.allows_root(&path))
    }

    /// Outside the roots it is the same words whether something is there or not.
    fn unusable_place(&self, asked: &str, fault: Fault) -> Fault {
        if Path::new(asked).is_absolute() && self.covers(asked) {
            return fault;
        }
        self.fault(&Excess::Root(asked.to_owned()))
    }

    fn fault(&self, excess: &Excess) -> Fault {
        excess.fault(&self.who, self.role.word())
    }

    fn refuse(&self, found: &[Excess]) -> Result<(), Vec<Fault>> {
        match found {
            [] => Ok(()),
            found => Err(found.iter().map(|excess| self.fault(excess)).collect()),
        }
    }
}
