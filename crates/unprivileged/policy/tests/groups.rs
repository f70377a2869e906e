//! Groups: hosts come from the package manager's own configuration, and nothing else does.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use LayerKind::{Project, User};
use bastle_policy::{
    ConnectVerdict, GroupSources, Host, HostGroup, LayerKind, NetRequest, Outcome, hosts_of,
};
use common::{merged, with_default};
use proptest::prelude::*;

fn from_file(group: HostGroup, name: &str, text: &str) -> Vec<String> {
    let sources = GroupSources {
        files: vec![(name.to_owned(), text.to_owned())],
        ..GroupSources::default()
    };
    hosts_of(group, &sources)
        .map(|hosts| hosts.iter().map(ToString::to_string).collect())
        .unwrap_or_default()
}

#[test]
fn addresses_are_read_from_each_managers_own_format() {
    let npmrc = "; c\n# registry=https://no.example/\nregistry = https://npm.example/api/\n@corp:registry=http://npm.corp.example:4873/\n//npm.example/:_authToken=hunter2\nalways-auth=true\n";
    assert_eq!(
        from_file(HostGroup::Npm, ".npmrc", npmrc),
        ["npm.corp.example:4873", "npm.example"]
    );
    assert_eq!(
        from_file(
            HostGroup::Npm,
            ".yarnrc.yml",
            "npmRegistryServer: \"https://yarn.example\"\n"
        ),
        ["yarn.example"]
    );
    let cargo = r#"
# index = "https://no.example/"
[source.x]
replace-with = "mirror" # registry = "https://no2.example"
[source.mirror]
registry = "sparse+https://mirror.example:8443/index/"
[registries]
corp = { index = "sparse+https://corp.example/", token = "hunter2" }
[registries.other]
index = 'https://user:pw@other.example/git/index'
[http]
proxy = "https://proxy.example"
[net]
registry = "https://no3.example"
"#;
    assert_eq!(
        from_file(HostGroup::Crates, "config.toml", cargo),
        ["corp.example", "mirror.example:8443", "other.example"]
    );
    assert_eq!(
        from_file(
            HostGroup::Crates,
            "config.toml",
            "registries.a.index = \"https://dotted.example/\"\n"
        ),
        ["dotted.example"]
    );
    let pip = "[global]\nindex-url = https://pip.example/simple\nextra-index-url =\n    https://u:p@more.example/simple\n    http://plain.example/simple\ntrusted-host = no.example\nproxy = http://no2.example\n";
    assert_eq!(
        from_file(HostGroup::Pypi, "pip.conf", pip),
        ["more.example", "pip.example", "plain.example"]
    );
    let uv = "index-url = \"https://uv.example/simple\"\nextra-index-url = [\n  \"https://a.example/\", # x\n  \"https://b.example/\",\n]\n[[index]]\nname = \"https://no.example\"\nurl = \"https://c.example/simple\"\n[other]\nurl = \"https://no2.example\"\n";
    assert_eq!(
        from_file(HostGroup::Pypi, "uv.toml", uv),
        ["a.example", "b.example", "c.example", "uv.example"]
    );
    let list = "# deb http://no.example x y\ndeb [arch=amd64 signed-by=/k.gpg] http://deb.example/debian stable main\ndeb-src https://src.example/debian stable main\ndebx http://no2.example x\ndeb cdrom:[x]/ stable main\ndeb file:/srv/x ./\n";
    assert_eq!(
        from_file(HostGroup::Apt, "sources.list", list),
        ["deb.example", "src.example"]
    );
    let stanzas = "Types: deb\nURIs: http://one.example/debian\n https://two.example/debian\nSuites: stable\n\nTypes: deb\nURIs: https://off.example/\nEnabled: no\n\nTypes: deb\nURIs: mirror+https://list.example/mirrors.txt\nSigned-By:\n http://key.example\n";
    assert_eq!(
        from_file(HostGroup::Apt, "x.sources", stanzas),
        ["list.example", "one.example", "two.example"]
    );
}

#[test]
fn variables_and_the_managers_own_answers_count_and_others_do_not() {
    let sources = GroupSources {
        environment: [
            ("PIP_INDEX_URL", "https://env.example/simple"),
            ("UV_INDEX", "corp=https://uv.example/x"),
            ("HTTP_PROXY", "http://proxy.example:3128"),
            ("npm_config_registry", "https://npm.example"),
        ]
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .to_vec(),
        answers: vec!["global.index-url='https://asked.example/simple'\n".to_owned()],
        ..GroupSources::default()
    };
    let hosts = |group| -> Vec<String> {
        hosts_of(group, &sources)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(
        hosts(HostGroup::Pypi),
        ["asked.example", "env.example", "uv.example"]
    );
    let npm = GroupSources {
        answers: Vec::new(),
        ..sources.clone()
    };
    let found: Vec<String> = hosts_of(HostGroup::Npm, &npm)
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found, ["npm.example"]);
}

#[test]
fn a_configuration_that_names_no_usable_host_is_a_fault_and_not_an_open_door() {
    for text in [
        "",
        "registry=",
        "registry=${NPM_REGISTRY}",
        "registry=ftp://x.example",
        "registry=https://localhost:4873/",
        "registry=http://169.254.169.254/",
        "registry=https://*/",
        "registry=https://a_b.example",
        "registry=https://127.1/",
        "registry=https://x.example:0/",
        "registry=https://[::1]/",
    ] {
        let sources = GroupSources {
            files: vec![(".npmrc".to_owned(), text.to_owned())],
            ..GroupSources::default()
        };
        assert!(hosts_of(HostGroup::Npm, &sources).is_err(), "{text:?}");
    }
    let huge = GroupSources {
        files: vec![(".npmrc".to_owned(), "#".repeat(300 * 1024))],
        ..GroupSources::default()
    };
    assert!(hosts_of(HostGroup::Npm, &huge).is_err());
}

#[test]
fn a_resolved_group_lets_packages_be_fetched_and_not_published() {
    let user = r#"{"version": 1, "extends": ["group:npm"], "net": {"allow": ["group:crates", "GET group:pypi/simple/**"], "deny": ["group:apt"]}}"#;
    let mut policy = merged(&with_default(&[(User, user)]));
    let host = |text: &str| Host::new(text).unwrap();
    assert!(matches!(
        policy.net.connect(&host("npm.example"), 443),
        ConnectVerdict::Deny(_)
    ));
    assert_eq!(
        policy.unresolved_groups(),
        [HostGroup::Npm, HostGroup::Crates, HostGroup::Pypi, HostGroup::Apt]
    );
    let place = |text: &str| vec![host(text).into()];
    let mut crates: Vec<bastle_policy::GroupHost> = place("crates.example");
    crates[0].port = Some(8443);
    policy.resolve_groups(&[
        (HostGroup::Npm, place("npm.example")),
        (HostGroup::Crates, crates),
        (HostGroup::Pypi, place("pypi.example")),
        (HostGroup::Apt, place("apt.example")),
    ]);
    assert!(policy.unresolved_groups().is_empty());
    let ask = |method: &str, name: &str, port: u16, path: &str| {
        policy
            .net
            .request(&NetRequest {
                method,
                host: &host(name),
                port,
                path,
                body_len: None,
                operation: None,
                websocket: false,
            })
            .outcome
    };
    assert_eq!(ask("GET", "npm.example", 443, "/react"), Outcome::Allow);
    assert_eq!(ask("GET", "npm.example", 443, "/@types%2fnode"), Outcome::Allow);
    assert_eq!(
        ask("POST", "npm.example", 443, "/-/npm/v1/security/audits"),
        Outcome::Allow
    );
    assert_eq!(ask("PUT", "npm.example", 443, "/react"), Outcome::Deny);
    assert_eq!(ask("GET", "crates.example", 8443, "/x"), Outcome::Allow);
    assert_eq!(ask("GET", "crates.example", 443, "/x"), Outcome::Deny);
    assert_eq!(ask("GET", "pypi.example", 443, "/simple/x"), Outcome::Allow);
    assert_eq!(ask("GET", "pypi.example", 443, "/legacy"), Outcome::Deny);
    let denied = policy.net.connect(&host("apt.example"), 443);
    let (rule, origin) = denied.decision().rule.clone().unwrap();
    assert_eq!(
        (rule.as_str(), origin.file.as_str()),
        ("net.deny apt.example", "group:apt at user.json")
    );
}

#[test]
fn a_project_that_names_a_group_gets_no_host_the_operator_did_not_allow() {
    let project = r#"{"version": 1, "net": {"allow": ["group:npm"]}}"#;
    let mut policy = merged(&with_default(&[
        (User, r#"{"version": 1, "net": {"allow": ["a.com"]}}"#),
        (Project, project),
    ]));
    policy.resolve_groups(&[(HostGroup::Npm, vec![Host::new("npm.example").unwrap().into()])]);
    for name in ["npm.example", "a.com"] {
        let verdict = policy.net.connect(&Host::new(name).unwrap(), 443);
        assert!(matches!(verdict, ConnectVerdict::Deny(_)), "{name}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic_or_name_this_machine(text in "[\\[\\]{}='\"#.,:/@\\n a-z0-9é]{0,200}", group in prop::sample::select(HostGroup::ALL.to_vec()), name in prop::sample::select(vec!["x.toml", ".npmrc", "x.sources"])) {
        let sources = GroupSources {
            files: vec![(name.to_owned(), text.clone())],
            environment: vec![("PIP_INDEX_URL".to_owned(), text.clone())],
            answers: vec![text],
        };
        if let Ok(hosts) = hosts_of(group, &sources) {
            prop_assert!(hosts.iter().all(|place| !place.host.is_forbidden()));
        }
    }
}
