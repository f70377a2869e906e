//! What a request asks for beyond a ceiling, and how that is told: what is missing, and how an admin grants it.
use super::{AuthorityCeiling, Bounded, WorkspaceMode};
use crate::net::NetMode;
use bastle_contract::{AbsPath, BackendKind, Code, Fault};

/// What a run would have, beside its policy. Every value is the one that will be used, defaults filled in.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'w> {
    /// The project, canonical.
    pub workspace: &'w AbsPath,
    /// The profile.
    pub profile: &'w str,
    /// The preset, with or without its version.
    pub preset: &'w str,
    /// How it gets the project.
    pub mode: WorkspaceMode,
    /// How much network.
    pub net: NetMode,
    /// What fences it.
    pub backend: BackendKind,
}

/// One thing that is asked for and may not be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Excess {
    /// A project outside every root.
    Root(String),
    /// A place to write outside every root.
    Scope(String),
    /// A path of the request's policy that leads out of what is granted, e.g. `fs.read ./link`.
    Path(String),
    /// A project that a rule hides.
    HiddenProject(AbsPath),
    /// A profile.
    Profile(String),
    /// A preset.
    Preset(String),
    /// A workspace mode.
    Mode(WorkspaceMode),
    /// A network mode.
    Net(NetMode),
    /// A backend.
    Backend(BackendKind),
    /// A host that the policy allows and the ceiling does not name.
    Host(String),
    /// A number above what the ceiling allows: what, asked, most.
    Number(Bounded, u64, u64),
    /// A key that only an admin, the configuration or a profile may state.
    Key(&'static str),
    /// A value that the operator's configuration does not grant, e.g. `fs.read /etc`.
    NotGranted(String),
    /// A variable that the operator's configuration or a secret sets.
    Variable(String),
    /// A secret that a run has and the ceiling does not name.
    Secret(String),
    /// A number that a run is not held to: what, and what the ceiling has.
    Unlimited(Bounded, u64),
    /// Something that only the command line gives, e.g. `unprotect`.
    CommandLine(&'static str),
}

impl AuthorityCeiling {
    /// Everything of a run that lies beyond this ceiling.
    #[must_use]
    pub fn excesses(&self, wanted: &Wanted<'_>) -> Vec<Excess> {
        let mut found = Vec::new();
        if !self.allows_root(wanted.workspace) {
            found.push(Excess::Root(wanted.workspace.to_string()));
        }
        if !self.allows_profile(wanted.profile) {
            found.push(Excess::Profile(wanted.profile.to_owned()));
        }
        if !self.allows_preset(wanted.preset) {
            found.push(Excess::Preset(wanted.preset.to_owned()));
        }
        if !self.allows_mode(wanted.mode) {
            found.push(Excess::Mode(wanted.mode));
        }
        if self.net.is_some_and(|most| wanted.net > most) {
            found.push(Excess::Net(wanted.net));
        }
        if !self.allows_backend(wanted.backend) {
            found.push(Excess::Backend(wanted.backend));
        }
        found
    }
}

impl Excess {
    /// The kind of authority, without a value: for whoever may not know what somebody else's run has.
    #[must_use]
    pub fn kind(&self) -> String {
        match self {
            Self::Root(_) | Self::HiddenProject(_) => "workspace".to_owned(),
            Self::Scope(_) => "scopes".to_owned(),
            Self::Path(what) | Self::NotGranted(what) => {
                what.split_whitespace().next().unwrap_or("policy").to_owned()
            }
            Self::Profile(_) => "profile".to_owned(),
            Self::Preset(_) => "preset".to_owned(),
            Self::Mode(mode) => format!("mode {}", mode.word()),
            Self::Net(mode) => format!("net {}", mode.name()),
            Self::Backend(_) => "backend".to_owned(),
            Self::Host(_) => "net.allow".to_owned(),
            Self::Number(kind, ..) | Self::Unlimited(kind, _) => kind.path(),
            Self::Key(key) | Self::CommandLine(key) => (*key).to_owned(),
            Self::Variable(_) => "env".to_owned(),
            Self::Secret(_) => "secrets".to_owned(),
        }
    }

    /// The refusal, with a command for an admin. `role` is the caller's.
    #[must_use]
    pub fn fault(&self, who: &str, role: &str) -> Fault {
        let fault = |what: String, why: &str| Fault::new(Code::TokenCeiling, what, why);
        let beyond = "the authority ceiling does not cover it";
        let token = |flag: String| {
            format!(
                "an admin grants it: bastle token create --role {role} {flag}; where the daemon's or the profile's ceiling is \
                 lower, there"
            )
        };
        match self {
            Self::Root(path) => fault(
                format!("workspace {path} is not for {who}"),
                "it lies outside the roots of the authority ceiling",
            )
            .help(token(format!("--root {path}"))),
            Self::Scope(path) => fault(
                format!("scopes {path} is not for {who}"),
                "it lies outside the roots of the authority ceiling",
            )
            .help(token(format!("--root {path}"))),
            Self::Path(what) => fault(
                format!("{what} is not for {who}"),
                "it leads outside the roots of the authority ceiling and of what the daemon's configuration grants",
            )
            .help("name the place itself, without symlinks"),
            Self::HiddenProject(path) => fault(
                format!("workspace {path} is not for {who}"),
                "the policy hides it",
            ),
            Self::Profile(name) => fault(format!("profile {name} is not for {who}"), beyond)
                .help(token(format!("--profile {name}"))),
            Self::Preset(name) => {
                let plain = name.split('@').next().unwrap_or(name);
                fault(format!("preset {name} is not for {who}"), beyond)
                    .help(token(format!("--preset {plain}")))
            }
            Self::Mode(mode) => fault(format!("mode {} is not for {who}", mode.word()), beyond)
                .help(token(format!("--mode {}", mode.word()))),
            Self::Net(mode) => fault(format!("net {} is not for {who}", mode.name()), beyond)
                .help(token(format!("--net {}", mode.name()))),
            Self::Backend(kind) => {
                let name = match kind {
                    BackendKind::Native => "native",
                    BackendKind::Host => "host",
                };
                fault(format!("backend {name} is not for {who}"), beyond)
                    .help(token(format!("--backend {name}")))
            }
            Self::Host(host) => fault(format!("net.allow {host} is not for {who}"), beyond)
                .help(token(format!("--allow-net '{host}'"))),
            Self::Number(kind, asked, most) => fault(
                format!("{} {asked} is more than {who} may ask for", kind.path()),
                &format!("the authority ceiling has {most}"),
            )
            .help(token(format!("--limit {}=VALUE", kind.key()))),
            Self::Key(key) => fault(
                format!("{key} in a request is not for {who}"),
                "only an admin, the daemon's configuration or a profile states it",
            )
            .help("an admin puts it into a profile: bastle profile put FILE"),
            Self::NotGranted(what) => fault(
                format!("{what} is not granted to {who}"),
                "a policy in a request only narrows, and the daemon's configuration does not grant this",
            )
            .help("an admin grants it in a policy file or a profile: bastle profile put FILE"),
            Self::Variable(name) => fault(
                format!("env {name} is not for {who}"),
                "the daemon's configuration sets this variable",
            ),
            Self::Secret(name) => fault(format!("secret {name} is not for {who}"), beyond)
                .help(token(format!("--secret {name}"))),
            Self::Unlimited(kind, most) => fault(
                format!("{} without a limit is not for {who}", kind.path()),
                &format!("the authority ceiling has {most}"),
            )
            .help(token(format!("--limit {}=VALUE", kind.key()))),
            Self::CommandLine(flag) => fault(
                format!("{flag} is not for {who}"),
                "only the command line on this machine gives it",
            ),
        }
    }
}

impl Bounded {
    /// Section and key in a policy document.
    #[must_use]
    pub fn path(self) -> String {
        match self {
            Self::Limit(kind) => format!("limits.{}", kind.name()),
            other => format!("budget.{}", other.key()),
        }
    }
}
