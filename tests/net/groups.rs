//! Groups: `group:npm` and the like stand for what the person's package manager is configured with, and nothing that a
//! project says changes that. Fetched by the real npm, pip, cargo and apt from a registry of the lab.
use crate::support::{Ended, Fence, Identity, Lab, Limit, Output, for_each_identity, run, skip};
use crate::world::{Scripts, host, world};
use serde_json::json;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(180));

/// One package manager.
struct Manager {
    group: &'static str,
    /// Its configuration below the home directory.
    home: &'static str,
    /// Its configuration below a project.
    project: &'static str,
    /// Fetches the lab's package; ends with 0 when it was got.
    fetch: &'static str,
    /// Path of its registry at a host.
    path: &'static str,
}

const NPM: Manager = Manager {
    group: "npm",
    home: ".npmrc",
    project: ".npmrc",
    fetch: "npm install lab-package --no-audit --no-fund --fetch-retries=0 && test -f node_modules/lab-package/index.js",
    path: "/npm/",
};
const PIP: Manager = Manager {
    group: "pypi",
    home: ".config/pip/pip.conf",
    project: "pip.conf",
    fetch: "PIP_CONFIG_FILE=$PWD/pip.conf pip download --no-cache-dir --retries 0 --disable-pip-version-check -d got lab-package \
            && test -f got/lab_package-1.0-py3-none-any.whl",
    path: "/pip/simple/",
};
const CARGO: Manager = Manager {
    group: "crates",
    home: ".cargo/config.toml",
    project: ".cargo/config.toml",
    fetch: "CARGO_NET_RETRY=0 $CARGO_BINARY generate-lockfile && grep -q checksum Cargo.lock",
    path: "/cargo/index/",
};

impl Manager {
    /// A configuration that names the registry at `host`.
    fn configuration(&self, host: &str) -> String {
        let url = format!("https://{host}:{}{}", world().tls, self.path);
        match self.group {
            "npm" => format!("registry={url}\n"),
            "pypi" => format!("[global]\nindex-url = {url}\n"),
            _ => format!(
                "[source.crates-io]\nreplace-with = \"lab\"\n[source.lab]\nregistry = \"sparse+{url}\"\n"
            ),
        }
    }

    /// What the person has configured.
    fn configure(&self, lab: &Lab, text: &str) {
        lab.plant(&Path::new("home").join(self.home), text);
    }

    /// What the project says.
    fn project(&self, lab: &Lab, text: &str) {
        lab.project(self.project, text);
    }

    /// A run that may use the group.
    fn fence<'a>(&self, lab: &'a Lab) -> Fence<'a> {
        let net = json!({ "allow": [format!("group:{}", self.group)] });
        let policy = world().policy(lab, &world().document(&net, &json!({})));
        let cargo = lab.tools().join("cargo");
        if self.group == "crates" && !cargo.exists() {
            std::fs::copy(env!("CARGO"), &cargo).expect("cargo runs this test");
            std::fs::set_permissions(&cargo, Permissions::from_mode(0o755)).expect("own file");
        }
        let cargo = format!("CARGO_BINARY={}", cargo.display());
        world().under(lab, &policy).flags(["--env", &cargo]).within(SLOW)
    }

    /// The plan of that run, as JSON text.
    fn plan(&self, lab: &Lab) -> Ended {
        let fence = self.fence(lab).flags(["--dry-run-policy", "--json"]);
        run(&mut fence.command(["true"]), b"", SLOW)
    }
}

fn installed(program: &str, test: &str) -> bool {
    let there = Path::new("/usr/bin").join(program).exists();
    if !there {
        skip(test, &format!("{program} is not installed"));
    }
    there
}

/// The whole matter for one manager: resolved from the person's file, fetched, and not widened by the project's.
fn is_held_to_the_persons_registry(manager: &Manager) {
    for_each_identity(|lab| {
        let (mirror, evil) = (host("mirror"), host("evil"));
        lab.project(
            "Cargo.toml",
            "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nlab-package = \"1\"\n",
        );
        lab.project("src/lib.rs", "");
        manager.configure(lab, &manager.configuration(&mirror));
        manager.project(lab, &manager.configuration(&evil));
        let plan = manager.plan(lab);
        assert_eq!(plan.code, 0, "{plan:?}");
        let place = format!("{mirror}:{}", world().tls);
        assert!(plan.stdout.contains(&place), "the host is listed: {plan:?}");
        assert!(
            plan.stdout.contains(&format!("group:{}", manager.group)),
            "with its origin: {plan:?}"
        );
        assert!(!plan.stdout.contains(&evil), "the project's is not: {plan:?}");
        let output = manager
            .fence(lab)
            .shell(&format!("{}; echo status $?", manager.fetch));
        let last = output.said().lines().last().unwrap_or_default();
        assert!(last.starts_with("status ") && last != "status 0", "{output:?}");
        assert!(
            world().seen(&evil).is_empty(),
            "the project's host was reached: {output:?}"
        );
        assert!(
            !crate::world::codes(&output, &evil).is_empty(),
            "and the denial is told: {output:?}"
        );
        // The same project with the person's registry: the same command works.
        manager.project(lab, &manager.configuration(&mirror));
        let output = manager.fence(lab).shell(&format!(
            "{}; echo status $?\n\
             curl -s -o /dev/null -w '%{{http_code}}\\n' -T /dev/null https://{mirror}:{{tls}}{}lab-package\n\
             curl -s -o /dev/null -w '%{{http_code}}\\n' https://{evil}:{{tls}}/",
            manager.fetch, manager.path
        ));
        let lines: Vec<&str> = output.said().lines().rev().take(3).collect();
        assert_eq!(lines[2], "status 0", "control: {output:?}");
        assert_eq!(lines[1], "403", "publishing is not reading: {output:?}");
        assert_eq!(lines[0], "000", "another host: {output:?}");
        assert!(!world().seen(&mirror).is_empty() && world().seen(&evil).is_empty());
        assert!(
            world()
                .seen(&mirror)
                .iter()
                .all(|request| request["method"] != "PUT")
        );
    });
}

#[test]
fn npm_reaches_the_persons_registry_and_a_projects_npmrc_widens_nothing() {
    if installed(
        "npm",
        "npm_reaches_the_persons_registry_and_a_projects_npmrc_widens_nothing",
    ) {
        is_held_to_the_persons_registry(&NPM);
    }
}

#[test]
fn pip_reaches_the_persons_index_and_a_projects_pip_conf_widens_nothing() {
    if installed(
        "pip",
        "pip_reaches_the_persons_index_and_a_projects_pip_conf_widens_nothing",
    ) {
        is_held_to_the_persons_registry(&PIP);
    }
}

#[test]
fn cargo_reaches_the_persons_index_and_a_projects_config_widens_nothing() {
    is_held_to_the_persons_registry(&CARGO);
}

#[test]
fn a_default_index_that_the_person_replaced_is_not_part_of_the_group() {
    for_each_identity(|lab| {
        for manager in [&PIP, &CARGO] {
            if manager.group == "pypi" && !Path::new("/usr/bin/pip").exists() {
                continue;
            }
            let (mirror, earlier) = (host("mirror"), host("earlier"));
            // What cargo keeps of an index it used before.
            let index = format!("home/.cargo/registry/index/{earlier}-1949cf8c6b5b557f/config.json");
            lab.plant(Path::new(&index), &format!("{{\"dl\":\"https://{earlier}/dl\"}}"));
            manager.configure(lab, &manager.configuration(&mirror));
            let plan = manager.plan(lab);
            assert_eq!(plan.code, 0, "{plan:?}");
            assert!(plan.stdout.contains(&mirror), "{plan:?}");
            assert!(!plan.stdout.contains(&earlier), "{plan:?}");
            let strangers: Vec<&str> = plan
                .stdout
                .split('"')
                .filter(|text| text.contains("GET,HEAD ") && !text.contains(&mirror))
                .collect();
            assert!(strangers.is_empty(), "{strangers:?}");
        }
    });
}

#[test]
fn a_configuration_without_a_usable_address_stops_the_launch_and_is_named() {
    for_each_identity(|lab| {
        for (manager, text) in [
            (&CARGO, "[source.lab\nregistry = sparse+https://\n"),
            (
                &CARGO,
                "[source.lab]\nregistry = \"sparse+https://exa mple:99999/\"\n",
            ),
            (&CARGO, "[source.lab]\nregistry = \"file:///srv/index\"\n"),
            (&CARGO, "[source.lab]\nregistry = \"https://127.0.0.1/\"\n"),
            (&CARGO, "\0\u{1}\u{2}"),
        ] {
            manager.configure(lab, text);
            let output = manager.fence(lab).run(["true"]);
            assert_ne!(output.ended.code, 0, "{text:?}: {output:?}");
            let told = &output.ended.stderr;
            assert!(
                told.contains("group:crates are not known") && told.contains("config.toml"),
                "{text:?}: {output:?}"
            );
            assert!(
                output.events("statement").is_empty(),
                "nothing was started: {output:?}"
            );
        }
        CARGO.configure(lab, &CARGO.configuration(&host("good")));
        assert_eq!(CARGO.fence(lab).run(["true"]).ended.code, 0, "control");
    });
}

#[test]
fn the_group_apt_names_exactly_the_hosts_of_the_systems_sources() {
    let mut text = std::fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
    for entry in std::fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .flatten()
    {
        text += &std::fs::read_to_string(entry.path()).unwrap_or_default();
    }
    let lines = text
        .lines()
        .filter(|line| line.starts_with("URIs:") || line.starts_with("deb "));
    let words = lines.flat_map(str::split_whitespace);
    let mut hosts: Vec<&str> = words
        .filter_map(|word| word.strip_prefix("http://").or(word.strip_prefix("https://")))
        .filter_map(|rest| rest.split('/').next())
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    if hosts.is_empty() || text.contains("Enabled") {
        return skip(
            "the_group_apt_names_exactly_the_hosts_of_the_systems_sources",
            "no plain sources of apt",
        );
    }
    for_each_identity(|lab| {
        let apt = Manager {
            group: "apt",
            ..CARGO
        };
        let plan = apt.plan(lab);
        assert_eq!(plan.code, 0, "{plan:?}");
        for host in &hosts {
            assert!(plan.stdout.contains(host), "{host}: {plan:?}");
        }
        let output = apt.fence(lab).run(["true"]);
        assert_eq!(output.ended.code, 0, "{output:?}");
    });
}

/// Fetches the lab's package with apt as a person in a project would who names the sources there.
const APT_FETCH: &str = "mkdir -p state/lists/partial cache/archives/partial && : > state/status
apt=\"apt-get -q -o Dir::Etc=$PWD/apt -o Dir::State=$PWD/state -o Dir::State::status=$PWD/state/status -o Dir::Cache=$PWD/cache\"
apt=\"$apt -o Acquire::Languages=none -o Acquire::Retries=0 -o APT::Update::Error-Mode=any\"
$apt update && $apt download lab-package && test \"$(dpkg-deb -f lab-package_1.0_all.deb Package)\" = lab-package
echo status $?
";

/// A source of apt at `host`. The repository is not signed: whom to believe is the person's matter, where to go is ours.
fn source_at(host: &str) -> String {
    format!("deb [trusted=yes] http://{host}:{}/apt lab main\n", world().plain)
}

/// The same command on a machine whose sources of apt are in `etc`: only that process and its children see them.
fn with_sources(etc: &Path, lab: &Lab, inner: &Command) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command
        .arg("mount --bind \"$0\" /etc/apt && exec \"$@\"")
        .arg(etc);
    let uid = lab.identity.uid();
    command.arg("setpriv").args([
        format!("--reuid={uid}"),
        format!("--regid={uid}"),
        "--clear-groups".to_owned(),
    ]);
    command.arg(inner.get_program()).args(inner.get_args());
    command.env_clear();
    for (name, value) in inner.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.current_dir(inner.get_current_dir().expect("the workspace"));
    command
}

#[test]
fn apt_fetches_from_the_systems_sources_and_a_projects_list_widens_nothing() {
    let test = "apt_fetches_from_the_systems_sources_and_a_projects_list_widens_nothing";
    if !installed("apt-get", test) {
        return;
    }
    for_each_identity(|lab| {
        if lab.identity == Identity::Current {
            return skip(test, "only root can show a process other sources of apt");
        }
        let (mirror, evil) = (host("mirror"), host("evil"));
        let etc = lab.tools().join("apt");
        std::fs::create_dir(&etc).expect("a fresh place");
        std::fs::write(etc.join("sources.list"), source_at(&mirror)).expect("can be written");
        let apt = Manager {
            group: "apt",
            ..CARGO
        };
        let plan = apt.fence(lab).flags(["--dry-run-policy", "--json"]);
        let plan = run(&mut with_sources(&etc, lab, &plan.command(["true"])), b"", SLOW);
        assert_eq!(plan.code, 0, "{plan:?}");
        let place = format!("{mirror}:{}", world().plain);
        assert!(plan.stdout.contains(&place), "the host is listed: {plan:?}");
        let fetch = |from: &str| {
            lab.project("apt/sources.list", &source_at(from));
            let script = lab.project("fetch.sh", APT_FETCH);
            let fence = apt.fence(lab);
            let inner = fence.command(["sh", script.to_str().expect("UTF-8")]);
            let ended = run(&mut with_sources(&etc, lab, &inner), b"", SLOW);
            Output {
                ended,
                audit: fence.audit(),
            }
        };
        let output = fetch(&evil);
        let last = output.said().lines().last().unwrap_or_default();
        assert!(last.starts_with("status ") && last != "status 0", "{output:?}");
        assert!(
            world().seen(&evil).is_empty(),
            "the project's host was reached: {output:?}"
        );
        assert!(
            !crate::world::codes(&output, &evil).is_empty(),
            "and the denial is told: {output:?}"
        );
        // The same project with the system's source: the same command works.
        let output = fetch(&mirror);
        assert!(output.said().ends_with("status 0"), "control: {output:?}");
        let asked = world().seen(&mirror);
        assert!(
            asked.iter().any(|request| request["path"]
                .as_str()
                .is_some_and(|path| path.ends_with(".deb"))),
            "{asked:?}"
        );
        assert!(
            asked.iter().all(|request| request["method"] == "GET"),
            "{asked:?}"
        );
    });
}
