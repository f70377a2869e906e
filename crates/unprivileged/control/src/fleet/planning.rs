//! From a request to a complete launch: checked, with the policy merged and the preamble made. Nothing is written here.
use super::profiles;
use super::words::now_ms;
use super::{Caller, DEFAULT_TIMEOUT, Inner, RunRequest, SpawnRequest, adopt, children, rows, scopes};
use crate::load::{Loaded, Sources, load};
use crate::place::Place;
use crate::presets;
use bastle_contract::runs::{Attended, DRIVERS, LaunchSpec, NO_DRIVER, RawSpec, Tags};
use bastle_contract::{Argv, Code, EnvName, Fault, RunId, TRACE_VARIABLE, TraceParent};
use bastle_policy::profile::How;
use bastle_policy::{At, Grade, LayerKind, NetMode, PreambleFacts, Profile};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::rc::Rc;

/// A run that may be started.
pub(super) struct Planned {
    pub(super) spec: LaunchSpec,
    pub(super) scopes: Vec<String>,
    pub(super) preamble: String,
    pub(super) token: bool,
    /// Most runs of its profile at once.
    pub(super) at_once: Option<u32>,
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
struct Known {
    profile: Profile,
    document: Value,
}

/// Where a run stands in its request.
pub(super) struct Spot<'s> {
    pub(super) request: &'s SpawnRequest,
    pub(super) batch: &'s str,
    pub(super) index: usize,
}

fn bad(what: impl Into<String>, why: impl Into<String>) -> Fault {
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

    fn profile(&mut self, name: &str) -> Result<Rc<Known>, Vec<Fault>> {
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
        let parent = self.caller.run.as_ref().or(run.parent.as_ref());
        let Some(parent) = parent else {
            return self.plan_own(spot, run, None);
        };
        let one = |fault| vec![fault];
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
        let name = self.name(spot, run).map_err(one)?;
        let known = self.profile(run.profile.as_deref().unwrap_or("default"))?;
        let profile = &known.profile;
        let place = self.place(&run.workspace).map_err(one)?;
        let mode = mode(run.mode.as_deref()).map_err(one)?;
        let net = net(run.net.as_deref()).map_err(one)?;
        let policy = policy(&known, run, parent).map_err(one)?;
        let (preset, command) = chosen(&place, profile, run, parent)?;
        let asked_for = (preset.as_deref(), command.as_slice());
        let loaded = self.merge(&place, asked_for, &policy, net)?;
        if let Some(parent) = parent {
            let above = parent.get();
            let their_net = self::net(above.net.as_deref()).map_err(one)?;
            let theirs = above.policy.clone().unwrap_or_else(|| json!({}));
            let asked_for = (above.preset.as_deref(), above.argv.as_slice());
            let theirs = self.merge(&place, asked_for, &theirs, their_net)?;
            children::compare(&above.name, &theirs.effective, &loaded.effective).map_err(one)?;
        }
        let facts = PreambleFacts {
            cwd: None,
            scopes: run.scopes.clone(),
            answered: true,
        };
        let preamble = bastle_policy::preamble(&loaded.effective, &facts);
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
            net: run.net.clone(),
            expand: false,
            unprotect: Vec::new(),
            waive: Vec::new(),
            no_debuggers: false,
            env,
            notes: profile.notes(how),
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
        let scopes = writes(&spec, run, &loaded).map_err(one)?;
        Ok(Planned {
            spec,
            scopes,
            preamble,
            token: run.token,
            at_once: run.profile.as_ref().map(|_| profile.concurrency),
        })
    }

    fn name(&self, spot: &Spot<'_>, run: &RunRequest) -> Result<RunId, Fault> {
        let text = run.name.clone().unwrap_or_else(|| {
            let prefix = spot.request.prefix.as_deref().unwrap_or("run");
            format!("{prefix}-{}-{}", spot.batch, spot.index)
        });
        let name = RunId::try_from(text).map_err(|error| bad("unusable name", error.to_string()))?;
        let own = self.caller.prefix.as_deref();
        if own.is_some_and(|own| !name.as_str().starts_with(own)) {
            return Err(Fault::new(
                Code::TokenRefused,
                format!("{} may not start {name}", self.caller.id),
                format!("its runs begin with {}", own.unwrap_or_default()),
            ));
        }
        let taken = self.inner.options.state.join("runs").join(name.as_str());
        if run.name.is_some() && taken.exists() {
            return Err(bad(format!("the name {name} is taken"), "").help("bastle ps -a"));
        }
        Ok(name)
    }

    fn merge(
        &mut self,
        place: &Place,
        (preset, argv): (Option<&str>, &[String]),
        policy: &Value,
        net: Option<NetMode>,
    ) -> Result<Rc<Loaded>, Vec<Fault>> {
        let text = policy.to_string();
        // Only a preset looks for the program of the command.
        let argv = if preset.is_some() { argv } else { &[] };
        let key = format!("{}\0{preset:?}\0{net:?}\0{text}\0{argv:?}", place.workspace);
        let key = blake3::hash(key.as_bytes());
        if let Some(known) = self.merged.get(&key) {
            return Ok(Rc::clone(known));
        }
        let mut flags = bastle_policy::parse("request", text.as_bytes())?;
        flags.net.mode = net.map(At::nowhere);
        let sources = Sources {
            preset: preset.map(str::to_owned),
            argv: argv.to_vec(),
            flags: Some(flags),
            ..Sources::default()
        };
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

/// The preset of a run, and what of its command may be looked for on this host.
fn chosen(
    place: &Place,
    profile: &Profile,
    run: &RunRequest,
    parent: Option<&LaunchSpec>,
) -> Result<(Option<String>, Vec<String>), Vec<Fault>> {
    let command = if run.argv.is_empty() {
        &profile.command
    } else {
        &run.argv
    };
    // A child has what its parent has: no name of a program gives it more.
    if parent.is_some() {
        return Ok((run.preset.clone(), presets::of_child(command)));
    }
    let asked = run.preset.as_deref().or(profile.preset.as_deref());
    let preset = presets::choose(place, asked, command)?.preset;
    Ok((preset, command.clone()))
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

/// The document of a run: what its profile says, what the request says, time and turns. A child has its parent's.
fn policy(known: &Known, run: &RunRequest, parent: Option<&LaunchSpec>) -> Result<Value, Fault> {
    let unreadable = |why: String| bad("unusable policy", why);
    let profile = &known.profile;
    let own = run.policy.clone().unwrap_or_else(|| json!({}));
    if !own.is_object() {
        return Err(unreadable("it is no object".to_owned()));
    }
    let mut whole = if parent.is_some() {
        own
    } else {
        let mut base = known.document.clone();
        overlay(&mut base, own);
        base
    };
    let named = |section: &str, key: &str| {
        run.policy
            .as_ref()
            .and_then(|policy| policy.get(section)?.get(key).cloned())
    };
    let turns = match run.max_turns {
        Some(turns) if !(1..=1000).contains(&turns) => {
            return Err(bad(format!("{turns} turns"), "between 1 and 1000"));
        }
        Some(turns) => Some(json!(turns)),
        None => named("budget", "turns").or_else(|| Some(json!(profile.max_turns))),
    };
    let timeout = run
        .timeout
        .clone()
        .map(Value::String)
        .or_else(|| named("limits", "timeout"));
    let timeout = timeout.unwrap_or_else(|| match profile.timeout_ms {
        0 => json!(DEFAULT_TIMEOUT),
        ms => json!(format!("{ms}ms")),
    });
    set(&mut whole, "limits", "timeout", timeout);
    if let Some(turns) = turns {
        set(&mut whole, "budget", "turns", turns);
    }
    Ok(whole)
}

fn set(whole: &mut Value, section: &str, key: &str, value: Value) {
    if let Some(root) = whole.as_object_mut()
        && let Some(section) = root
            .entry(section.to_owned())
            .or_insert_with(|| Value::Object(Map::new()))
            .as_object_mut()
    {
        section.insert(key.to_owned(), value);
    }
}

/// Objects are united, lists are joined, anything else is replaced.
fn overlay(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                match base.get_mut(&key) {
                    Some(slot) => overlay(slot, value),
                    None => {
                        base.insert(key, value);
                    }
                }
            }
        }
        (Value::Array(base), Value::Array(over)) => {
            for value in over {
                if !base.contains(&value) {
                    base.push(value);
                }
            }
        }
        (base, over) => *base = over,
    }
}

fn tags(all: &Tags, own: &Tags) -> Result<Tags, Fault> {
    let mut map: BTreeMap<String, String> = all.as_map().clone();
    map.extend(
        own.as_map()
            .iter()
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    Tags::try_from(map).map_err(|error| bad("unusable labels", error.to_string()))
}

/// Places that the run writes outside any copy.
fn writes(spec: &LaunchSpec, run: &RunRequest, loaded: &Loaded) -> Result<Vec<String>, Fault> {
    let project = &spec.get().workspace;
    let mut paths = adopt::in_place(spec);
    for scope in &run.scopes {
        paths.push(scopes::settle(scope)?);
    }
    for granted in loaded.effective.granted(Grade::Write) {
        let asked = granted.origin.layer == LayerKind::Flags;
        if asked && !granted.value.as_path().starts_with(project.as_path()) {
            paths.push(scopes::settle(granted.value.as_str())?);
        }
    }
    paths.sort();
    paths.dedup();
    Ok(paths)
}
