//! From a request to a complete launch: checked, with the policy merged and the preamble made. Nothing is written here.
use super::authority::{self, Authority};
use super::documents::{policy, tags};
use super::naming;
use super::preset_choice::{Choice, chosen};
use super::profiles;
use super::words::now_ms;
use super::{Caller, Inner, RunRequest, SpawnRequest, adopt, children, entry, rows};
use crate::load::{Loaded, Sources, load};
use crate::place::Place;
use crate::writers::settle;
use bastle_contract::runs::{Attended, DRIVERS, LaunchSpec, NO_DRIVER, RawSpec};
use bastle_contract::{AbsPath, Argv, Bounds, Code, EnvName, Fault, TRACE_VARIABLE, TraceParent};
use bastle_policy::profile::How;
use bastle_policy::{At, AuthorityCeiling, Grade, LayerKind, NetMode, PreambleFacts, Profile};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::rc::Rc;

/// A run that may be started.
pub(super) struct Planned {
    pub(super) spec: LaunchSpec,
    pub(super) scopes: Vec<String>,
    pub(super) preamble: String,
    /// What its own token may give to children; `None`: it gets no token.
    pub(super) token: Option<AuthorityCeiling>,
    /// Most runs of its profile at once.
    pub(super) at_once: Option<u32>,
    /// Most runs of whoever asked.
    pub(super) max_runs: Option<u32>,
}

/// What the runs of one request have in common; merged policies are kept, since most runs have the same.
pub(super) struct Planner<'p> {
    inner: &'p Inner,
    caller: &'p Caller,
    merged: HashMap<blake3::Hash, Rc<Loaded>>,
    profiles: HashMap<String, Rc<Known>>,
    places: HashMap<String, Place>,
}

/// A profile and its document.
pub(super) struct Known {
    pub(super) profile: Profile,
    pub(super) document: Value,
}

/// Where a run stands in its request.
pub(super) struct Spot<'s> {
    pub(super) request: &'s SpawnRequest,
    pub(super) batch: &'s str,
    pub(super) index: usize,
}

pub(super) fn bad(what: impl Into<String>, why: impl Into<String>) -> Fault {
    Fault::new(Code::UsageArgument, what, why)
}

impl<'p> Planner<'p> {
    pub(super) fn new(inner: &'p Inner, caller: &'p Caller) -> Self {
        Self {
            inner,
            caller,
            merged: HashMap::new(),
            profiles: HashMap::new(),
            places: HashMap::new(),
        }
    }

    pub(super) fn profile(&mut self, name: &str) -> Result<Rc<Known>, Vec<Fault>> {
        if let Some(known) = self.profiles.get(name) {
            return Ok(Rc::clone(known));
        }
        let profile = profiles::load(self.inner, name)?;
        let document = serde_json::from_str(&profile.document().to_json())
            .map_err(|error| vec![bad("unusable policy", error.to_string())])?;
        let known = Rc::new(Known { profile, document });
        self.profiles.insert(name.to_owned(), Rc::clone(&known));
        Ok(known)
    }

    fn place(&mut self, workspace: &str) -> Result<Place, Fault> {
        if let Some(place) = self.places.get(workspace) {
            return Ok(place.clone());
        }
        let place = Place::find(Some(Path::new(workspace)))?;
        self.places.insert(workspace.to_owned(), place.clone());
        Ok(place)
    }

    /// Checks one run and makes its launch.
    pub(super) fn plan(&mut self, spot: &Spot<'_>, run: &RunRequest) -> Result<Planned, Vec<Fault>> {
        let one = |fault| vec![fault];
        authority::references(self.inner, self.caller, run).map_err(one)?;
        let parent = self.caller.run.as_ref().or(run.parent.as_ref());
        let Some(parent) = parent else {
            return self.plan_own(spot, run, None);
        };
        if self.caller.run.is_some() && run.parent.as_ref().is_some_and(|named| named != parent) {
            return Err(one(bad("a run starts children of its own only", "")));
        }
        let spec = self.inner.store.read(|db| rows::spec(db, parent)).map_err(one)?;
        let narrowed = children::within(&spec, run).map_err(one)?;
        self.plan_own(spot, &narrowed, Some(&spec))
    }

    fn plan_own(
        &mut self,
        spot: &Spot<'_>,
        run: &RunRequest,
        parent: Option<&LaunchSpec>,
    ) -> Result<Planned, Vec<Fault>> {
        let one = |fault| vec![fault];
        let name = naming::name(self.inner, self.caller, spot, run).map_err(one)?;
        let known = self.profile(run.profile.as_deref().unwrap_or("default"))?;
        let profile = &known.profile;
        let authority = Authority::of(self.inner, self.caller, profile, parent).map_err(one)?;
        let place = self
            .place(&run.workspace)
            .map_err(|fault| one(authority.unusable_place(&run.workspace, fault)))?;
        let mode = authority.mode(mode(run.mode.as_deref()).map_err(one)?);
        let net = authority.net(net(run.net.as_deref()).map_err(one)?);
        let policy = policy(&known, run, parent, authority.inline()).map_err(one)?;
        let Choice {
            preset,
            command,
            of_client,
            note,
        } = chosen(&place, profile, run, (parent, &authority))?;
        let of_client = of_client || self.is_without_credential(parent)?;
        authority.admit(run, &place, preset.as_deref(), (mode.as_deref(), net))?;
        let bounds = authority.bounds(run, parent).map_err(one)?;
        let asked_for = (preset.as_deref(), command.as_slice(), of_client);
        let held = write_scopes(run, parent).map_err(one)?;
        let loaded = self.merge(&place, asked_for, &policy, net, (bounds.as_ref(), &held))?;
        authority.granted(run, parent, &place, &loaded)?;
        if let Some(parent) = parent {
            self.within_parent(parent, &loaded)?;
        }
        let preamble = preamble(run, &loaded);
        let Asked { argv, input, driver } = asked(profile, run, &preamble).map_err(one)?;
        let how = driver.as_ref().map_or(How::Alone, |_| How::Driven);
        let (trace, env) = traced(spot.request.trace, variables(profile, run, how), parent).map_err(one)?;
        let spec = LaunchSpec::new(RawSpec {
            name,
            argv,
            workspace: place.workspace.clone(),
            cwd: None,
            mode,
            branch: None,
            from: run.from.clone(),
            preset,
            policy_files: Vec::new(),
            policy: Some(policy),
            bounds,
            client_command: of_client,
            net: net.map(|mode| mode.name().to_owned()),
            expand: false,
            unprotect: Vec::new(),
            hide_history: run.hide_history || parent.is_some_and(|parent| parent.get().hide_history),
            waive: Vec::new(),
            no_debuggers: false,
            share_workspace: false,
            approved: false,
            scopes: held,
            env,
            notes: authority.notes(run, &place, profile.notes(how).into_iter().chain(note).collect()),
            tty: run.tty,
            open_input: run.open_input,
            profile: run.profile.clone(),
            model: profile.model.clone().filter(|_| driver.is_some()),
            driver,
            input,
            tags: tags(&spot.request.tags, &run.tags).map_err(one)?,
            batch: Some(spot.batch.to_owned()),
            parent: run.parent.clone(),
            attended: Attended::Elsewhere,
            trace,
        })
        .map_err(|error| vec![bad("this request cannot be used", error.to_string())])?;
        let scopes = refuse_history(&spec)
            .and_then(|()| writes(&spec, &loaded))
            .map_err(one)?;
        let token = run.token.then(|| entry::of_token(&spec, &loaded.effective));
        Ok(Planned {
            spec,
            scopes,
            preamble,
            token,
            at_once: run.profile.as_ref().map(|_| profile.concurrency),
            max_runs: authority.max_runs(),
        })
    }

    /// Whether a parent's command was a client's and did not name the agent of its preset: its children have no credential
    /// either.
    fn is_without_credential(&mut self, parent: Option<&LaunchSpec>) -> Result<bool, Vec<Fault>> {
        let Some(parent) = parent.filter(|parent| parent.get().client_command) else {
            return Ok(false);
        };
        let theirs = self.merge_launch(parent)?;
        Ok(theirs
            .agent
            .as_ref()
            .is_none_or(|agent| agent.credentials.is_empty()))
    }

    /// Refuses a child whose merged policy reaches further than its parent's.
    fn within_parent(&mut self, parent: &LaunchSpec, child: &Loaded) -> Result<(), Vec<Fault>> {
        let theirs = self.merge_launch(parent)?;
        children::compare(&parent.get().name, &theirs.effective, &child.effective)
            .map_err(|fault| vec![fault])
    }

    /// The policy of a launch that was made before.
    pub(super) fn merge_launch(&mut self, launch: &LaunchSpec) -> Result<Rc<Loaded>, Vec<Fault>> {
        let raw = launch.get();
        let policy = raw.policy.clone().unwrap_or_else(|| json!({}));
        self.merge_as(launch, &policy, raw.bounds.as_ref())
    }

    /// The same launch with another document, within other bounds.
    pub(super) fn merge_as(
        &mut self,
        launch: &LaunchSpec,
        policy: &Value,
        bounds: Option<&Bounds>,
    ) -> Result<Rc<Loaded>, Vec<Fault>> {
        let raw = launch.get();
        let one = |fault| vec![fault];
        let place = self.place(raw.workspace.as_str()).map_err(one)?;
        let net = net(raw.net.as_deref()).map_err(one)?;
        let asked_for = (raw.preset.as_deref(), raw.argv.as_slice(), raw.client_command);
        self.merge(&place, asked_for, policy, net, (bounds, raw.scopes.as_slice()))
    }

    fn merge(
        &mut self,
        place: &Place,
        (preset, argv, of_client): (Option<&str>, &[String], bool),
        policy: &Value,
        net: Option<NetMode>,
        (bounds, scopes): (Option<&Bounds>, &[AbsPath]),
    ) -> Result<Rc<Loaded>, Vec<Fault>> {
        let text = policy.to_string();
        // Only a preset looks for the program of the command.
        let argv = if preset.is_some() { argv } else { &[] };
        let key = format!(
            "{}\0{preset:?}\0{net:?}\0{text}\0{argv:?}\0{of_client}\0{bounds:?}\0{scopes:?}",
            place.workspace
        );
        let key = blake3::hash(key.as_bytes());
        if let Some(known) = self.merged.get(&key) {
            return Ok(Rc::clone(known));
        }
        let mut flags = bastle_policy::parse("request", text.as_bytes())?;
        flags.net.mode = net.map(At::nowhere);
        let mut sources = Sources {
            preset: preset.map(str::to_owned),
            argv: argv.to_vec(),
            client_command: of_client,
            flags: Some(flags),
            scopes: scopes.to_vec(),
            ..Sources::default()
        };
        if let Some(bounds) = bounds {
            sources.bind(bounds)?;
        }
        let loaded = Rc::new(load(place, &sources)?);
        self.merged.insert(key, Rc::clone(&loaded));
        Ok(loaded)
    }

    /// The preamble of such a run, without starting it.
    pub(super) fn preamble(&mut self, run: &RunRequest) -> Result<String, Vec<Fault>> {
        let request = SpawnRequest::default();
        let spot = Spot {
            request: &request,
            batch: "preview",
            index: usize::try_from(now_ms() % 1000).unwrap_or(0),
        };
        self.plan(&spot, run).map(|planned| planned.preamble)
    }
}

/// What the agent of a request is told about its limits before its prompt.
fn preamble(run: &RunRequest, loaded: &Loaded) -> String {
    let facts = PreambleFacts {
        cwd: None,
        scopes: run.scopes.clone(),
        answered: true,
    };
    bastle_policy::preamble(&loaded.effective, &facts)
}

/// The scopes of a request, as the places they stand for. A child that names none has its parent's.
fn write_scopes(run: &RunRequest, parent: Option<&LaunchSpec>) -> Result<Vec<AbsPath>, Fault> {
    if let Some(parent) = parent.filter(|_| run.scopes.is_empty()) {
        return Ok(parent.get().scopes.clone());
    }
    let settled = run.scopes.iter().map(|scope| {
        let place = settle(scope)?;
        AbsPath::new(&place).map_err(|error| bad(format!("unusable scope {scope:?}"), error.to_string()))
    });
    settled.collect()
}

/// Variables of an agent, in order.
type Variables = Vec<(EnvName, String)>;

/// The trace that a run belongs to, and its variables with its own place in that trace: what the request says, else what
/// its own variables say, else that of its parent, else a new one.
fn traced(
    sent: Option<TraceParent>,
    mut env: BTreeMap<EnvName, String>,
    parent: Option<&LaunchSpec>,
) -> Result<(Option<TraceParent>, Variables), Fault> {
    let variable = EnvName::try_from(TRACE_VARIABLE.to_owned())
        .map_err(|error| bad("the variable of a trace", error.to_string()))?;
    let above = parent.and_then(|parent| {
        let env = &parent.get().env;
        env.iter()
            .find(|(name, _)| *name == variable)
            .map(|(_, value)| value)
    });
    let told = |text: Option<&String>| text.and_then(|text| TraceParent::parse(text).ok());
    let sent = sent.or_else(|| told(env.get(&variable))).or_else(|| told(above));
    let mut random = [0; 24];
    getrandom::fill(&mut random)
        .map_err(|error| Fault::new(Code::StateDir, "no random numbers", error.to_string()))?;
    let mut own = TraceParent {
        trace: sent.map_or_else(|| *random.first_chunk().unwrap_or(&[1; 16]), |sent| sent.trace),
        span: *random.last_chunk().unwrap_or(&[1; 8]),
        flags: sent.map_or(1, |sent| sent.flags),
    };
    // Zero is nobody's number.
    own.span[0] |= 1;
    own.trace[0] |= u8::from(sent.is_none());
    env.insert(variable, own.to_string());
    Ok((sent, env.into_iter().collect()))
}

fn mode(word: Option<&str>) -> Result<Option<String>, Fault> {
    match word {
        Some(word) if crate::workspaces::mode(word).is_none() => Err(bad(
            format!("there is no workspace mode {word:?}"),
            "modes are copy, overlay, worktree and in-place",
        )),
        Some(word) => Ok(Some(word.to_owned())),
        None => Ok(None),
    }
}

fn net(word: Option<&str>) -> Result<Option<NetMode>, Fault> {
    word.map(|word| {
        NetMode::parse(word).ok_or_else(|| {
            bad(format!("network mode {word:?} is not known"), "").help("none, allowlist, open or offline")
        })
    })
    .transpose()
}

/// What is executed, what it reads first, and how it is spoken to.
struct Asked {
    argv: Argv,
    input: Option<String>,
    driver: Option<String>,
}

/// What becomes of the prompt. The preamble is always before it.
fn asked(profile: &Profile, run: &RunRequest, preamble: &str) -> Result<Asked, Fault> {
    let prompt = run
        .prompt
        .as_ref()
        .map(|prompt| bastle_policy::prompt_with(preamble, prompt));
    let named = (!run.argv.is_empty()).then(|| Argv::try_from(run.argv.clone()));
    let given = named
        .transpose()
        .map_err(|error| bad("unusable command", error.to_string()))?;
    if let Some(driver) = driver(profile, run)? {
        if prompt.is_none() && !run.open_input {
            let why = "it would wait for ever for what it is asked";
            return Err(bad("a driven agent needs a prompt", why)
                .help("bastle spawn --prompt TEXT, or --keep-open and bastle say RUN TEXT"));
        }
        return Ok(Asked {
            argv: profile.driven_argv(given.as_ref())?,
            input: prompt,
            driver: Some(driver),
        });
    }
    let (argv, input) = match &given {
        None => profile.argv(prompt.as_deref())?,
        Some(argv) => profile.argv_of(argv, prompt.as_deref())?,
    };
    Ok(Asked {
        argv,
        input,
        driver: None,
    })
}

/// What the request says, and what a driven agent takes by no other way.
fn variables(profile: &Profile, run: &RunRequest, how: How) -> BTreeMap<EnvName, String> {
    let mut all = run.env.clone();
    if how == How::Driven {
        for (name, value) in profile.driven_env() {
            all.entry(name).or_insert(value);
        }
    }
    all
}

/// How the agent is spoken to: as the request says, else as its profile does where there is something to say.
fn driver(profile: &Profile, run: &RunRequest) -> Result<Option<String>, Fault> {
    let spoken = run.tty.is_none() && (run.prompt.is_some() || run.open_input);
    match (run.driver.as_deref(), profile.driver.as_deref()) {
        (Some(NO_DRIVER), _) => Ok(None),
        (Some(word), _) if !DRIVERS.contains(&word) => Err(bad(
            format!("there is no driver {word:?}"),
            format!("drivers are {}, or {NO_DRIVER}", DRIVERS.join(", ")),
        )),
        (Some(_), _) if run.tty.is_some() => Err(bad(
            "an agent at a terminal cannot be driven",
            "a protocol is spoken over pipes",
        )),
        (Some(word), Some(own)) if word != own => Err(bad(
            format!(
                "the agent of profile {} cannot be driven as {word:?}",
                profile.name
            ),
            format!("it is driven as {own:?}"),
        )),
        (Some(word), _) => Ok(Some(word.to_owned())),
        (None, Some(own)) if spoken => Ok(Some(own.to_owned())),
        (None, _) => Ok(None),
    }
}

/// A history is hidden in a copy of the project and nowhere else.
fn refuse_history(spec: &LaunchSpec) -> Result<(), Fault> {
    let raw = spec.get();
    let why = match raw.hide_history {
        true if raw.from.is_some() => "a fork has the history of the run it is made from",
        true if !adopt::in_place(spec).is_empty() => "in place the agent has the project's own repository",
        true | false => return Ok(()),
    };
    Err(bad("the history cannot be hidden", why))
}

/// Places that the run writes outside any copy.
fn writes(spec: &LaunchSpec, loaded: &Loaded) -> Result<Vec<String>, Fault> {
    let project = &spec.get().workspace;
    let raw = spec.get();
    // Scopes are all that it can write of the project.
    let mut paths = match raw.scopes.is_empty() {
        true => adopt::in_place(spec),
        false => raw.scopes.iter().map(AbsPath::to_string).collect(),
    };
    for granted in loaded.effective.granted(Grade::Write) {
        let asked = granted.origin.layer == LayerKind::Flags;
        if asked && !granted.value.as_path().starts_with(project.as_path()) {
            paths.push(settle(granted.value.as_str())?);
        }
    }
    paths.sort();
    paths.dedup();
    Ok(paths)
}
