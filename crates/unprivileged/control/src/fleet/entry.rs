//! Who may act inside a run of somebody else: execute, speak to the agent, read or change its tree, widen it, start children
//! of it. Whoever could have started the same run may; nobody else gets at what it reaches through it.
//!
//! **Trust:** the launch is what was recorded when the run was started; its policy is merged again from the configuration as
//! it is now. What cannot be merged any more is refused.
use super::authority::{led_out, of_caller};
use super::planning::{Known, Planner};
use super::{Caller, Inner, Verb, adopt, principals, rows};
use crate::place::settled;
use crate::presets;
use bastle_contract::runs::LaunchSpec;
use bastle_contract::{AbsPath, BackendKind, Bounds, Code, EnvName, Fault, RunId, TRACE_VARIABLE};
use bastle_policy::profile::How;
use bastle_policy::{
    AuthorityCeiling, Effective, Excess, NetRule, NetTarget, Wanted, WorkspaceMode, beyond, reserved,
};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Most kinds of authority that a refusal names.
const MOST_NAMED: usize = 4;

/// Refuses whoever would act inside a run that has more authority than they do.
pub(super) fn may_enter(inner: &Inner, caller: &Caller, run: &RunId) -> Result<(), Fault> {
    if caller.run.as_ref() == Some(run) {
        return Ok(());
    }
    let Some(own) = of_caller(inner, caller)? else {
        return Ok(());
    };
    let (spec, theirs) = inner.store.read(|db| {
        let mut theirs = false;
        // A child has no more than its parent: the outermost run tells for all below it.
        let mut outermost = rows::spec(db, run)?;
        for above in principals::ancestors(db, run)? {
            outermost = rows::spec(db, &above.name)?;
            // Started within its own ceiling, which was compared then.
            theirs |= above.caller == caller.id && outermost.get().bounds.is_some();
        }
        Ok((outermost, theirs))
    })?;
    if theirs {
        return Ok(());
    }
    let found = match Planner::new(inner, caller).surplus(&spec, (&own, &caller.ceiling)) {
        Ok(found) => found,
        Err(faults) => {
            let why = faults.first().map_or_else(String::new, Fault::to_string);
            return Err(refused(
                caller,
                run,
                &format!("its authority cannot be compared: {why}"),
            ));
        }
    };
    if found.is_empty() {
        return Ok(());
    }
    let mut kinds: Vec<String> = found.iter().map(Excess::kind).collect();
    kinds.dedup();
    let rest = kinds.len().saturating_sub(MOST_NAMED);
    kinds.truncate(MOST_NAMED);
    let more = if rest > 0 {
        format!(" and {rest} more")
    } else {
        String::new()
    };
    let why = format!(
        "it has more authority than the ceiling of {}: {}{more}",
        caller.id,
        kinds.join(", ")
    );
    Err(refused(caller, run, &why))
}

/// Whether a caller is told what a question of a run asks, in words. Whoever may answer it sees what they answer; the others
/// have to be able to act inside the run, by their role and by their authority. A viewer answers nothing and acts nowhere.
pub(super) fn may_read_questions(inner: &Inner, caller: &Caller, run: &RunId) -> bool {
    if caller.run.as_ref() == Some(run) || (caller.run.is_none() && caller.is_trusted()) {
        return true;
    }
    caller.may_on(Verb::Answer, run)
        || (caller.may_on(Verb::Control, run) && may_enter(inner, caller, run).is_ok())
}

fn refused(caller: &Caller, run: &RunId, why: &str) -> Fault {
    Fault::new(
        Code::TokenCeiling,
        format!("{} may not act inside the run {run}", caller.id),
        why,
    )
    .help(format!("bastle inspect {run}   (who started it)"))
    .help("bastle whoami   (the ceiling of this token)")
}

/// Whether the outermost run above this one is an admin's: the daemon's default does not hold it.
pub(super) fn is_admins(inner: &Inner, run: &RunId) -> Result<bool, Fault> {
    inner.store.read(|db| {
        let lineage = principals::ancestors(db, run)?;
        let outermost = lineage.last().map_or(run, |above| &above.name);
        Ok(rows::spec(db, outermost)?.get().bounds.is_none())
    })
}

/// The authority of a run that an admin started, from its policy as it is now.
pub(super) fn of_unbounded(
    inner: &Inner,
    caller: &Caller,
    spec: &LaunchSpec,
) -> Result<AuthorityCeiling, Fault> {
    let mut planner = Planner::new(inner, caller);
    planner.authority(spec).map_err(|faults| {
        let unknown = || Fault::new(Code::TokenCeiling, "the authority of the run is unknown", "");
        faults.into_iter().next().unwrap_or_else(unknown)
    })
}

/// What the own token of a run states. What bounds an operator's run is in its launch; an admin's has only its policy.
pub(super) fn of_token(spec: &LaunchSpec, effective: &Effective) -> AuthorityCeiling {
    match spec.get().bounds {
        Some(_) => AuthorityCeiling::default(),
        None => of_spec(spec, effective),
    }
}

/// The authority of a run with this policy, as a ceiling.
fn of_spec(spec: &LaunchSpec, effective: &Effective) -> AuthorityCeiling {
    AuthorityCeiling::of_run(effective, &wanted(spec, effective))
}

/// What a launch has beside its policy.
fn wanted<'s>(spec: &'s LaunchSpec, effective: &Effective) -> Wanted<'s> {
    let raw = spec.get();
    let stated = raw.mode.as_deref().and_then(WorkspaceMode::parse);
    Wanted {
        workspace: &raw.workspace,
        profile: raw.profile.as_deref().unwrap_or("default"),
        preset: presets::plain_name(raw.preset.as_deref()),
        mode: match (stated, adopt::in_place(spec).is_empty()) {
            (Some(mode), _) => mode,
            (None, true) => WorkspaceMode::Copy,
            (None, false) => WorkspaceMode::InPlace,
        },
        net: effective.net.mode,
        backend: BackendKind::Native,
    }
}

impl Planner<'_> {
    /// The authority of a launch that was made before, as a ceiling.
    fn authority(&mut self, launch: &LaunchSpec) -> Result<AuthorityCeiling, Vec<Fault>> {
        let loaded = self.merge_launch(launch)?;
        Ok(of_spec(launch, &loaded.effective))
    }

    /// What a launch has that somebody with this ceiling could not have given to it. `stated` is what their token says itself.
    fn surplus(
        &mut self,
        launch: &LaunchSpec,
        (own, stated): (&AuthorityCeiling, &AuthorityCeiling),
    ) -> Result<Vec<Excess>, Vec<Fault>> {
        let raw = launch.get();
        let theirs = self.merge_launch(launch)?;
        let mut found = own.excesses(&wanted(launch, &theirs.effective));
        found.extend(own.surplus(&theirs.effective));
        let flags = [
            ("policy files", !raw.policy_files.is_empty()),
            ("allow-user-expansion", raw.expand),
            ("unprotect", !raw.unprotect.is_empty()),
            ("waive", !raw.waive.is_empty()),
        ];
        found.extend(
            flags
                .into_iter()
                .filter(|flag| flag.1)
                .map(|flag| Excess::CommandLine(flag.0)),
        );
        let known = self.profile(raw.profile.as_deref().unwrap_or("default"))?;
        // An operator gives no variable that holds more than an operator has.
        if raw.bounds.is_none() {
            found.extend(variables(launch, &known));
        }
        let document = raw.policy.clone().unwrap_or_else(|| json!({}));
        let rest = residual(&document, &known.document, (own, stated));
        let request = bastle_policy::parse("request", rest.to_string().as_bytes())?;
        found.extend(reserved(&request));
        if !found.is_empty() {
            return Ok(found);
        }
        // The same launch under this ceiling, with what the launch adds to its profile as a request.
        let ceiling = serde_json::to_value(own).map_err(|error| {
            vec![Fault::new(
                Code::TokenCeiling,
                "the ceiling cannot be kept",
                error.to_string(),
            )]
        })?;
        let bounds = Bounds {
            ceiling,
            request: Some(rest),
        };
        let base = with_numbers(&known.document, &document);
        let mine = self.merge_as(launch, &base, Some(&bounds))?;
        found.extend(beyond(&request, &mine.effective, own));
        found.extend(led_out(&request, &mine.effective));
        Ok(found)
    }
}

/// Variables that an admin gave: nobody but them knows what is in them.
fn variables(launch: &LaunchSpec, known: &Known) -> Vec<Excess> {
    let raw = launch.get();
    let how = raw.driver.as_ref().map_or(How::Alone, |_| How::Driven);
    let own: Vec<EnvName> = match how {
        How::Driven => known
            .profile
            .driven_env()
            .into_iter()
            .map(|(name, _)| name)
            .collect(),
        How::Alone => Vec::new(),
    };
    let given = raw.env.iter().map(|(name, _)| name);
    given
        .filter(|name| name.as_str() != TRACE_VARIABLE && !own.contains(name))
        .map(|name| Excess::Variable(name.as_str().to_owned()))
        .collect()
}

/// The profile's document with the limits and budgets of the launch: those are compared with the ceiling as numbers.
fn with_numbers(profile: &Value, launch: &Value) -> Value {
    let mut whole = profile.clone();
    for section in ["limits", "budget"] {
        if let (Some(whole), Some(own)) = (whole.as_object_mut(), launch.get(section)) {
            whole.insert(section.to_owned(), own.clone());
        }
    }
    whole
}

/// What the document of a launch says beside its profile's, without limits and budgets and without what the ceiling states by
/// name.
fn residual(launch: &Value, profile: &Value, own: (&AuthorityCeiling, &AuthorityCeiling)) -> Value {
    let mut rest = Map::new();
    let none = Map::new();
    for (section, content) in launch.as_object().unwrap_or(&none) {
        let known = profile.get(section);
        if matches!(section.as_str(), "limits" | "budget") || known == Some(content) {
            continue;
        }
        let left = match content {
            Value::Object(members) => {
                let left = members.iter().filter_map(|(key, value)| {
                    let known = known.and_then(|section| section.get(key));
                    let value = without(value, known, |one| is_stated((section, key), one, own));
                    value.map(|value| (key.clone(), value))
                });
                let left: Map<String, Value> = left.collect();
                (!left.is_empty()).then_some(Value::Object(left))
            }
            other => without(other, known, |one| is_stated((section, ""), one, own)),
        };
        rest.extend(left.map(|left| (section.clone(), left)));
    }
    rest.insert("version".to_owned(), json!(1));
    Value::Object(rest)
}

/// A value without what is known; `None` when nothing is left of it.
fn without(value: &Value, known: Option<&Value>, stated: impl Fn(&Value) -> bool) -> Option<Value> {
    let Value::Array(all) = value else {
        return (known != Some(value)).then(|| value.clone());
    };
    let known = known.and_then(Value::as_array);
    let is_known = |one: &Value| known.is_some_and(|known| known.contains(one)) || stated(one);
    let left: Vec<Value> = all.iter().filter(|one| !is_known(one)).cloned().collect();
    (!left.is_empty()).then_some(Value::Array(left))
}

/// Whether an entry of a list is something that the token states by name. A default names projects, not what they may read.
fn is_stated(
    (section, key): (&str, &str),
    entry: &Value,
    (own, stated): (&AuthorityCeiling, &AuthorityCeiling),
) -> bool {
    match (section, key) {
        ("secrets", "") => entry
            .get("name")
            .and_then(Value::as_str)
            .and_then(|name| EnvName::try_from(name.to_owned()).ok())
            .is_some_and(|name| stated.states_secrets() && own.allows_secret(&name)),
        ("net", "allow" | "ask") => entry
            .as_str()
            .and_then(|rule| NetRule::new(rule).ok())
            .is_some_and(|rule| match &rule.target {
                NetTarget::Host(pattern) => stated.states_hosts() && own.allows_hosts(pattern),
                NetTarget::Group(_) => false,
            }),
        ("fs", "read" | "write") => entry
            .as_str()
            .filter(|path| Path::new(path).is_absolute())
            .and_then(|path| AbsPath::from_path(&settled(Path::new(path))).ok())
            .is_some_and(|real| stated.states_roots() && own.allows_root(&real)),
        _ => false,
    }
}
