//! One agent at work: a project, a scripted model, a policy that lets it reach that model alone, and its run.
use crate::agent::{Agent, Asks, search_path};
use crate::kept::{Kept, fresh, verb};
use crate::model::{HOST, KEY, Model, Turn};
use crate::names::Names;
use crate::support::{Ended, Identity, Lab, Limit, bastle, eventually, identities, run, skip};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long anything that a real agent does may take on a loaded machine.
pub(crate) const PATIENCE: Limit = Limit(Duration::from_secs(240));

/// Who starts the agent: both ways of making a sandbox are used, each by half of the tests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    /// Root where the tests are, else whoever runs them.
    Foremost,
    /// An ordinary user where such a one can be had and can reach the agents, else the same.
    Ordinary,
}

/// The scene.
pub(crate) struct Scene {
    pub(crate) agent: Agent,
    pub(crate) lab: Lab,
    pub(crate) model: Model,
    pub(crate) names: Names,
    place: PathBuf,
}

/// The run of an agent.
pub(crate) struct Working<'a> {
    pub(crate) kept: Kept<'a>,
    asks: Asks,
    /// Questions that were answered while nothing else was waited for.
    nodded: RefCell<BTreeSet<String>>,
}

impl Scene {
    /// A project and a model that goes by the script; nothing where the agent is not installed, which is counted.
    pub(crate) fn new(test: &str, who: Who, agent: Agent, script: Vec<Turn>) -> Option<Self> {
        Self::scripted(test, who, agent, |_| script)
    }

    /// The same, with a script that names places of the lab.
    pub(crate) fn scripted(
        test: &str,
        who: Who,
        agent: Agent,
        script: impl FnOnce(&Lab) -> Vec<Turn>,
    ) -> Option<Self> {
        let place = match agent.installed() {
            Ok(place) => place,
            Err(reason) => {
                skip(test, &reason);
                return None;
            }
        };
        let lab = Lab::new(who.identity(&place));
        lab.project("greet.sh", "echo good evening\n");
        lab.project(
            "test.sh",
            "[ \"$(sh greet.sh)\" = hello ] && echo passed-$((6 * 7))\n",
        );
        let model = Model::start(agent, script(&lab));
        std::fs::write(lab.tools().join("lab-ca.pem"), &model.authority).expect("can be written");
        let scene = Self {
            agent,
            lab,
            model,
            names: Names::start(),
            place,
        };
        scene.git(&["init", "-q"]);
        scene.git(&["add", "-A"]);
        scene.git(&["commit", "-qm", "first"]);
        Some(scene)
    }

    /// git in the project, outside the fence.
    pub(crate) fn git(&self, words: &[&str]) -> String {
        let mut command = self.lab.command(Path::new("git"));
        command
            .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"])
            .args(["-c", "init.defaultBranch=main"])
            .args(words);
        let ended = run(&mut command, b"", Limit::HANG);
        assert_eq!(ended.code, 0, "git {words:?}: {ended:?}");
        ended.stdout
    }

    /// What the run is held to: the model, the key for it, and what a test adds.
    fn policy(&self, more: &Value) -> PathBuf {
        let port = self.model.port;
        let mut policy = json!({
            "version": 1,
            "net": { "addresses": ["127.0.0.1/32"], "resolvers": [format!("127.0.0.1:{}", self.names.port)],
                "allow": [format!("GET,POST {HOST}:{port}/**")] },
            "secrets": [{ "name": self.agent.key(), "from": "env:LAB_REAL", "hosts": [HOST], "ports": [port],
                "header": self.agent.header().1 }],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            policy[key] = value.clone();
        }
        self.lab.plant(Path::new("home/lab.json"), &policy.to_string())
    }

    /// Starts the agent in the background with something to do.
    pub(crate) fn start(&self, asks: Asks, flags: &[&str], more: &Value) -> Working<'_> {
        let name = fresh();
        let port = self.model.port;
        let mut command = self.lab.command(bastle());
        command
            .env("LAB_REAL", KEY)
            .env("SSL_CERT_FILE", self.lab.tools().join("lab-ca.pem"))
            .env("PATH", search_path())
            .args(["run", "-d", "--name", &name, "--driver", self.agent.driver()])
            .args(["--prompt", "make the test pass", "--ro"])
            .arg(&self.place)
            .arg("--policy")
            .arg(self.policy(more))
            .args(flags);
        for (variable, value) in self.agent.variables(port, asks) {
            command.arg("--env").arg(format!("{variable}={value}"));
        }
        command.arg("--").args(self.agent.words(&self.place, port, asks));
        let ended = run(&mut command, b"", Limit::HANG);
        let kept = Kept { lab: &self.lab, name };
        assert_eq!(ended.code, 0, "{ended:?}");
        Working {
            kept,
            asks,
            nodded: RefCell::default(),
        }
    }

    /// Where programs are looked for: that of the agent first.
    fn path(&self) -> String {
        let programs = self.place.join("node_modules/.bin");
        format!("{}:{}", programs.display(), search_path())
    }

    /// Runs an agent as a person does, by its name alone: its preset finds it and says what it needs. Its name for the run,
    /// and what became of it.
    pub(crate) fn alone(&self, words: &[&str], variables: &[(&str, String)]) -> (String, Ended) {
        let name = fresh();
        let mut command = self.lab.command(bastle());
        command
            .env("LAB_REAL", KEY)
            .env("SSL_CERT_FILE", self.lab.tools().join("lab-ca.pem"))
            .env("PATH", self.path())
            .args(["run", "--name", &name, "--workspace", "copy", "--policy"])
            .arg(self.policy(&json!({})));
        for (variable, value) in variables {
            command.arg("--env").arg(format!("{variable}={value}"));
        }
        command.arg("--").args(words);
        let ended = run(&mut command, b"", PATIENCE);
        (name, ended)
    }

    /// A verb of bastle about the run.
    pub(crate) fn verb(&self, words: &[&str]) -> Ended {
        verb(&self.lab, words)
    }
}

impl Working<'_> {
    /// What the agent said of this kind.
    pub(crate) fn said(&self, what: &str) -> Vec<Value> {
        let events = self.kept.events().into_iter();
        events
            .filter(|event| event["kind"] == "agent" && event["data"]["said"] == what)
            .map(|event| event["data"].clone())
            .collect()
    }

    /// Waits until something holds; the events are told when it never does.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let held = eventually(PATIENCE, || {
            self.nod();
            holds()
        });
        if !held {
            let logs = self.kept.say(&["logs"]);
            panic!("{what}: {:#?}\n{logs:?}", self.kept.events());
        }
    }

    /// An agent that is told to ask for nothing and asks nevertheless is allowed it: the fence is what holds.
    fn nod(&self) {
        if self.asks != Asks::Nothing {
            return;
        }
        for event in self.kept.events() {
            let id = event["data"]["id"].as_str().unwrap_or_default();
            let asked = event["kind"] == "question" && id.starts_with("p_");
            if asked && self.nodded.borrow_mut().insert(id.to_owned()) {
                verb(self.kept.lab, &["allow", &self.kept.name, id]);
            }
        }
    }

    /// Waits for the end of the run; its exit code.
    #[track_caller]
    pub(crate) fn ends(&self) -> i32 {
        self.until("it does not end", || {
            self.kept.events().iter().any(|event| event["kind"] == "ended")
        });
        self.kept.wait()
    }

    /// What the record says, and that nobody changed it.
    #[track_caller]
    pub(crate) fn record(&self) -> String {
        let verified = verb(self.kept.lab, &["audit", "verify", &self.kept.name]);
        assert_eq!(verified.code, 0, "{verified:?}");
        verb(self.kept.lab, &["audit", "show", &self.kept.name, "--json"]).stdout
    }
}

impl Who {
    fn identity(self, place: &Path) -> Identity {
        let open = |path: &Path| path.metadata().is_ok_and(|meta| meta.mode() & 0o005 == 0o005);
        let mut known = identities();
        match self {
            Self::Ordinary if known.len() > 1 && place.ancestors().all(open) => known.remove(1),
            Self::Ordinary | Self::Foremost => known.remove(0),
        }
    }
}
