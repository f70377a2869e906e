//! The network rules of one run while it lives: as they were read, with what a person granted or took back since.
use super::groups::{self, Resolved};
use super::surroundings::{self, Known};
use crate::load::{Loaded, Sources, load, merge_layers};
use crate::place::Place;
use bastle_contract::{Code, Digest, Fault};
use bastle_policy::{Layer, LayerKind, NetMode, NetPolicy};

/// Most rules a person can add to a living run: more are a policy file.
const MOST_RULES: usize = 256;

/// The sources of a run's rules.
#[derive(Clone)]
pub struct Rules {
    place: Place,
    sources: Sources,
    layers: Vec<Layer>,
    allow: Vec<String>,
    deny: Vec<String>,
    /// Of this host, as it was at the start: an agent must not change it by waiting for a reload.
    known: Known,
    groups: Resolved,
}

impl Rules {
    /// The rules of a policy that was read; its groups become rules about hosts.
    pub fn new(place: &Place, sources: &Sources, loaded: &mut Loaded) -> Result<Self, Fault> {
        let mut groups = Resolved::new();
        let mut known = Known::default();
        let mut layers = Vec::new();
        // A run without a network never asks for its table.
        if reaches(loaded.effective.net.mode) {
            groups::resolve(&mut loaded.effective, &mut groups, place)?;
            known = surroundings::look(place);
            layers.clone_from(&loaded.layers);
        }
        Ok(Self {
            place: place.clone(),
            sources: sources.clone(),
            layers,
            allow: Vec::new(),
            deny: Vec::new(),
            known,
            groups,
        })
    }

    /// What the command line says about policy.
    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The table that follows from them now.
    pub fn table(&mut self) -> Result<NetPolicy, Vec<Fault>> {
        let mut layers = self.layers.clone();
        if let Some(session) = self.session()? {
            // Before the project's own files, which only narrow.
            let at = layers
                .iter()
                .position(|layer| matches!(layer.kind, LayerKind::Project | LayerKind::ProjectLocal))
                .unwrap_or(layers.len());
            layers.insert(at, session);
        }
        let mut effective = merge_layers(&self.place, &self.sources, &layers)?;
        groups::resolve(&mut effective, &mut self.groups, &self.place).map_err(|fault| vec![fault])?;
        let mut table = effective.net;
        bastle_policy::countable(&table).map_err(|fault| vec![fault])?;
        self.known.fill(&mut table).map_err(|fault| vec![fault])?;
        table.selftest().map_err(|why| {
            vec![Fault::new(
                Code::PolicyTest,
                "the network rules do not hold what they must",
                why,
            )]
        })?;
        Ok(table)
    }

    /// Reads the same sources again. On any error everything stays as it was.
    pub(crate) fn reread(&mut self) -> Result<NetPolicy, Vec<Fault>> {
        let before = std::mem::take(&mut self.layers);
        let read = load(&self.place, &self.sources).map(|loaded| loaded.layers);
        let table = read.and_then(|layers| {
            self.layers = layers;
            self.table()
        });
        if table.is_err() {
            self.layers = before;
        }
        table
    }

    /// Adds a rule of the session, or takes the opposite one back.
    pub(crate) fn grant(&mut self, rule: &str) -> Result<NetPolicy, Vec<Fault>> {
        self.change(|rules| {
            rules.deny.retain(|known| known != rule);
            rules.allow.push(rule.to_owned());
        })
    }

    /// Refuses a rule's hosts from now on, whoever allowed them.
    pub(crate) fn refuse(&mut self, rule: &str) -> Result<NetPolicy, Vec<Fault>> {
        self.change(|rules| {
            rules.allow.retain(|known| known != rule);
            rules.deny.push(rule.to_owned());
        })
    }

    /// Takes a rule of the session back.
    pub(crate) fn withdraw(&mut self, rule: &str) -> Result<NetPolicy, Vec<Fault>> {
        self.change(|rules| {
            rules.allow.retain(|known| known != rule);
            rules.deny.retain(|known| known != rule);
        })
    }

    /// What a person added since the start.
    pub(crate) fn added(&self) -> (&[String], &[String]) {
        (&self.allow, &self.deny)
    }

    fn change(&mut self, change: impl FnOnce(&mut Self)) -> Result<NetPolicy, Vec<Fault>> {
        let before = (self.allow.clone(), self.deny.clone());
        change(self);
        self.allow.dedup();
        self.deny.dedup();
        let table = if self.allow.len() + self.deny.len() > MOST_RULES {
            Err(vec![
                Fault::new(
                    Code::UsageArgument,
                    format!("a run takes at most {MOST_RULES} rules while it lives"),
                    "",
                )
                .help("write them to a policy file, then bastle policy reload RUN"),
            ])
        } else {
            self.table()
        };
        if table.is_err() {
            (self.allow, self.deny) = before;
        }
        table
    }

    /// The rules of the session as a layer.
    fn session(&self) -> Result<Option<Layer>, Vec<Fault>> {
        if self.allow.is_empty() && self.deny.is_empty() {
            return Ok(None);
        }
        let name = "this session";
        let text = serde_json::json!({ "version": 1, "net": { "allow": self.allow, "deny": self.deny } });
        let document = bastle_policy::parse(name, text.to_string().as_bytes())?;
        Ok(Some(Layer {
            kind: LayerKind::Flags,
            name: name.to_owned(),
            document: document.into(),
        }))
    }
}

/// Whether anything can go out at all.
pub(crate) fn reaches(mode: NetMode) -> bool {
    match mode {
        NetMode::None | NetMode::Offline => false,
        NetMode::Allowlist | NetMode::Open => true,
    }
}

/// The digest of a table, for the record.
pub fn digest(table: &NetPolicy) -> Result<Digest, Fault> {
    let fault = |why: String| Fault::new(Code::NetLost, "cannot digest the network rules", why);
    let bytes = serde_json::to_vec(table).map_err(|error| fault(error.to_string()))?;
    Digest::try_from(blake3::hash(&bytes).to_hex().to_string()).map_err(|error| fault(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_contract::AbsPath;
    use bastle_policy::{ConnectVerdict, Host};

    fn rules(dir: &std::path::Path, policy: &str) -> Rules {
        let path = |below: &str| AbsPath::from_path(&dir.canonicalize().unwrap().join(below)).unwrap();
        for below in ["home", "home/w", "state", "config"] {
            std::fs::create_dir_all(dir.join(below)).unwrap();
        }
        std::fs::write(dir.join("policy.json"), policy).unwrap();
        let place = Place {
            home: path("home"),
            workspace: path("home/w"),
            cwd: path("home/w"),
            state: dir.join("state"),
            config: dir.join("config"),
        };
        let sources = Sources {
            files: vec![dir.join("policy.json")],
            ..Sources::default()
        };
        let mut loaded = load(&place, &sources).unwrap();
        Rules::new(&place, &sources, &mut loaded).unwrap()
    }

    fn passes(table: &NetPolicy, host: &str) -> bool {
        matches!(
            table.connect(&Host::new(host).unwrap(), 443),
            ConnectVerdict::Pass(_) | ConnectVerdict::Inspect(_)
        )
    }

    #[test]
    fn a_refusal_while_the_run_lives_beats_every_file_and_can_be_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut rules = rules(dir.path(), r#"{"version":1,"net":{"allow":["a.example"]}}"#);
        assert!(passes(&rules.table().unwrap(), "a.example"));
        assert!(!passes(&rules.table().unwrap(), "b.example"));
        assert!(!passes(&rules.refuse("a.example").unwrap(), "a.example"));
        assert!(passes(&rules.grant("b.example").unwrap(), "b.example"));
        assert!(passes(&rules.withdraw("a.example").unwrap(), "a.example"));
        // Allowing what was refused takes the refusal back.
        assert!(!passes(&rules.refuse("b.example").unwrap(), "b.example"));
        assert!(passes(&rules.grant("b.example").unwrap(), "b.example"));
    }

    #[test]
    fn a_bad_rule_or_a_bad_file_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut rules = rules(dir.path(), r#"{"version":1,"net":{"allow":["a.example"]}}"#);
        for bad in ["*", "http://x", "a b c", "", "metadata.google.internal"] {
            let changed = rules.grant(bad);
            assert!(
                changed.is_err() || !passes(&changed.unwrap(), "evil.example"),
                "{bad}"
            );
            rules.withdraw(bad).unwrap();
        }
        std::fs::write(dir.path().join("policy.json"), "{").unwrap();
        assert!(rules.reread().is_err());
        assert!(passes(&rules.table().unwrap(), "a.example"));
        std::fs::write(
            dir.path().join("policy.json"),
            r#"{"version":1,"net":{"allow":["c.example"]}}"#,
        )
        .unwrap();
        let table = rules.reread().unwrap();
        assert!(passes(&table, "c.example") && !passes(&table, "a.example"));
    }

    #[test]
    fn a_remote_that_the_agent_writes_later_is_not_believed_by_a_reload() {
        let dir = tempfile::tempdir().unwrap();
        let mut rules = rules(dir.path(), r#"{"version":1}"#);
        let git = dir.path().join("home/w/.git");
        std::fs::create_dir_all(&git).unwrap();
        std::fs::write(
            git.join("config"),
            "[remote \"origin\"]\nurl = https://evil.example/x/y\n",
        )
        .unwrap();
        assert!(rules.reread().unwrap().remotes.is_empty());
    }

    #[test]
    fn a_git_configuration_that_cannot_be_read_stops_the_run_where_pushes_are_judged() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join("home/w/.git");
        std::fs::create_dir_all(&git).unwrap();
        std::fs::write(
            git.join("config"),
            "[remote \"o\"]\nurl = \"https://git.example/x\n",
        )
        .unwrap();
        let faults = rules(dir.path(), r#"{"version":1}"#).table().unwrap_err();
        assert_eq!(faults[0].code, Code::WorkspaceGit, "{faults:?}");
        let open = r#"{"version":1,"git":{"push":"allow","forcePush":"allow"}}"#;
        assert!(
            rules(dir.path(), open).table().is_ok(),
            "control: nothing to judge"
        );
        std::fs::write(
            git.join("config"),
            "[remote \"o\"]\nurl = https://git.example/x\n",
        )
        .unwrap();
        let table = rules(dir.path(), r#"{"version":1}"#).table().unwrap();
        assert!(table.judges_pushes(&Host::new("git.example").unwrap()), "control");
    }

    #[test]
    fn the_persons_own_git_configuration_counts() {
        let dir = tempfile::tempdir().unwrap();
        for (file, host) in [
            ("home/.gitconfig", "one.example"),
            ("home/.config/git/config", "two.example"),
            ("git/config", "three.example"),
        ] {
            let file = dir.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, format!("[url \"https://{host}/\"]\ninsteadOf = gh:\n")).unwrap();
        }
        let table = rules(dir.path(), r#"{"version":1}"#).table().unwrap();
        for host in ["one.example", "two.example", "three.example", "api.two.example"] {
            assert!(table.judges_pushes(&Host::new(host).unwrap()), "{host}");
        }
        assert!(!table.judges_pushes(&Host::new("four.example").unwrap()));
    }
}
