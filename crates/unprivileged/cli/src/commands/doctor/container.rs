//! Which kind of container this is, and how it is started so that a fence can be built in it.
use super::cause::Fix;

/// Who made the container: each names its options in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    Codespaces,
    Devcontainer,
    Docker,
    GithubJob,
    Gvisor,
    Kubernetes,
    Lxc,
    Nspawn,
    Other,
    Podman,
}

/// What must be given to it: only what was seen to be in the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needed {
    /// A filter that lets the calls through.
    pub(super) seccomp: bool,
    /// Another AppArmor profile, or none.
    pub(super) apparmor: bool,
    /// `/proc` without covers.
    pub(super) proc: bool,
}

/// Where the kind is read from; the host's own in production.
pub(super) struct Signs<'a> {
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    pub(super) exists: &'a dyn Fn(&str) -> bool,
    /// `/proc/version`.
    pub(super) version: &'a str,
    /// `/proc/1/cgroup`.
    pub(super) groups: &'a str,
    /// Whether one of this process's namespaces is not the machine's first: a marker file alone can be left over in a virtual
    /// machine that was made from an image.
    pub(super) apart: bool,
}

/// The file that `doctor --seccomp-profile` prints, by the name that the fixes use.
const PROFILE: &str = "bastle-seccomp.json";

impl Container {
    /// The most particular kind whose sign is there.
    pub(super) fn detect(signs: &Signs<'_>) -> Option<Self> {
        let set = |name: &str| (signs.variable)(name).is_some_and(|value| !value.is_empty());
        // The only text that tells: the version that it shows is always this build of 2016.
        if signs.version.contains("Sun Jan 10 15:06:54 PST 2016") {
            return Some(Self::Gvisor);
        }
        if set("KUBERNETES_SERVICE_HOST") || (signs.exists)("/run/secrets/kubernetes.io/serviceaccount") {
            return Some(Self::Kubernetes);
        }
        if !signs.apart {
            return None;
        }
        let manager = (signs.variable)("container").unwrap_or_default();
        let marked = (signs.exists)("/.dockerenv") || (signs.exists)("/run/.containerenv");
        let named = [
            "docker",
            "kubepods",
            "containerd",
            "lxc",
            "libpod",
            "machine.slice/machine-",
        ]
        .into_iter()
        .find(|name| signs.groups.contains(name));
        if !marked && named.is_none() && manager.is_empty() {
            return None;
        }
        Some(if set("CODESPACES") {
            Self::Codespaces
        } else if set("REMOTE_CONTAINERS") || set("DEVCONTAINER") {
            Self::Devcontainer
        } else if set("GITHUB_ACTIONS") {
            Self::GithubJob
        } else if (signs.exists)("/run/.containerenv") || manager == "podman" || named == Some("libpod") {
            Self::Podman
        } else if (signs.exists)("/.dockerenv") || named == Some("docker") {
            Self::Docker
        } else if named == Some("kubepods") {
            Self::Kubernetes
        } else if manager == "lxc" || named == Some("lxc") {
            Self::Lxc
        } else if manager == "systemd-nspawn" {
            Self::Nspawn
        } else {
            Self::Other
        })
    }

    /// Its name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Codespaces => "GitHub Codespaces",
            Self::Devcontainer => "development container",
            Self::Docker => "Docker",
            Self::GithubJob => "container job of GitHub Actions",
            Self::Gvisor => "gVisor",
            Self::Kubernetes => "Kubernetes pod",
            Self::Lxc => "LXC",
            Self::Nspawn => "systemd-nspawn",
            Self::Other => "container",
            Self::Podman => "Podman",
        }
    }

    /// The options of this kind for what is needed, as one fix.
    pub(super) fn fix(self, needed: Needed) -> Fix {
        let text = match self {
            Self::Docker | Self::Other => {
                format!("docker run {} ...{}", docker(needed).join(" "), written(needed))
            }
            Self::Podman => format!("podman run {} ...{}", podman(needed).join(" "), written(needed)),
            Self::Codespaces | Self::Devcontainer => {
                let words: Vec<String> = docker(needed)
                    .iter()
                    .flat_map(|option| option.split(' '))
                    .map(|word| format!("{word:?}"))
                    .collect();
                format!(
                    "in devcontainer.json: \"runArgs\": [{}], then rebuild the container{}",
                    words.join(", "),
                    written(needed)
                )
            }
            Self::GithubJob => format!(
                "in the workflow: container: options: {}; or run the job without container: on ubuntu-24.04{}",
                docker(needed).join(" "),
                written(needed)
            ),
            Self::Kubernetes => kubernetes(needed),
            Self::Lxc => "lxc config set NAME security.nesting true, then lxc restart NAME".to_owned(),
            Self::Nspawn => "systemd-nspawn --system-call-filter='@mount @sandbox clone3' ...".to_owned(),
            Self::Gvisor => "run the container with runc instead of runsc: gVisor has no Landlock".to_owned(),
        };
        Fix::Instruction(text)
    }
}

/// How the profile's file comes to be.
fn written(needed: Needed) -> String {
    if needed.seccomp {
        format!("; the file: bastle doctor --seccomp-profile >{PROFILE}")
    } else {
        String::new()
    }
}

fn docker(needed: Needed) -> Vec<String> {
    options(needed, "--security-opt systempaths=unconfined")
}

fn podman(needed: Needed) -> Vec<String> {
    options(needed, "--security-opt unmask=ALL")
}

fn options(needed: Needed, proc: &str) -> Vec<String> {
    let seccomp = format!("--security-opt seccomp={PROFILE}");
    [
        (needed.seccomp, seccomp.as_str()),
        (needed.apparmor, "--security-opt apparmor=unconfined"),
        (needed.proc, proc),
    ]
    .into_iter()
    .filter(|(wanted, _)| *wanted)
    .map(|(_, option)| option.to_owned())
    .collect()
}

fn kubernetes(needed: Needed) -> String {
    let mut fields = Vec::new();
    if needed.seccomp {
        fields.push(format!(
            "seccompProfile: {{type: Localhost, localhostProfile: {PROFILE}}}"
        ));
    }
    if needed.apparmor {
        fields.push("appArmorProfile: {type: Unconfined}".to_owned());
    }
    if needed.proc {
        fields.push("procMount: Unmasked".to_owned());
    }
    let users = if needed.proc {
        " and hostUsers: false in the pod's spec"
    } else {
        ""
    };
    let file = if needed.seccomp {
        format!(
            "; the file, on the node: bastle doctor --seccomp-profile >/var/lib/kubelet/seccomp/{PROFILE}"
        )
    } else {
        String::new()
    };
    format!(
        "in the container's securityContext: {}{users}{file}",
        fields.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(variables: &[(&str, &str)], files: &[&str], groups: &str) -> Option<Container> {
        Container::detect(&Signs {
            variable: &|name| {
                variables
                    .iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| (*value).to_owned())
            },
            exists: &|path| files.contains(&path),
            version: "Linux version 6.8.0",
            groups,
            apart: true,
        })
    }

    #[test]
    fn a_marker_file_in_a_machine_with_its_first_namespaces_is_no_container() {
        let signs = Signs {
            variable: &|_| None,
            exists: &|path| path == "/.dockerenv",
            version: "",
            groups: "",
            apart: false,
        };
        assert_eq!(Container::detect(&signs), None);
        assert_eq!(
            Container::detect(&Signs { apart: true, ..signs }),
            Some(Container::Docker)
        );
    }

    #[test]
    fn the_kind_of_container_is_read_from_its_own_signs() {
        assert_eq!(detect(&[], &[], "0::/init.scope\n"), None);
        // A virtual machine of a CI service has the variable and is no container.
        assert_eq!(detect(&[("GITHUB_ACTIONS", "true")], &[], "0::/"), None);
        assert_eq!(detect(&[], &["/.dockerenv"], ""), Some(Container::Docker));
        assert_eq!(
            detect(&[("container", "podman")], &[], ""),
            Some(Container::Podman)
        );
        assert_eq!(
            detect(&[("CODESPACES", "true")], &["/.dockerenv"], ""),
            Some(Container::Codespaces)
        );
        assert_eq!(
            detect(&[("GITHUB_ACTIONS", "true")], &["/.dockerenv"], ""),
            Some(Container::GithubJob)
        );
        assert_eq!(
            detect(&[("KUBERNETES_SERVICE_HOST", "10.0.0.1")], &[], ""),
            Some(Container::Kubernetes)
        );
        assert_eq!(detect(&[("container", "lxc")], &[], ""), Some(Container::Lxc));
    }

    #[test]
    fn the_shipped_filter_allows_what_builds_a_fence_and_nothing_that_changes_the_kernel() {
        let profile: serde_json::Value =
            serde_json::from_str(include_str!("../../../../../../packaging/container/seccomp.json")).unwrap();
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        let allowed: Vec<&str> = profile["syscalls"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|rule| rule["names"].as_array().unwrap())
            .map(|name| name.as_str().unwrap())
            .collect();
        for needed in [
            "clone3",
            "unshare",
            "mount",
            "move_mount",
            "open_tree",
            "mount_setattr",
            "pivot_root",
            "umount2",
            "setns",
            "sethostname",
            "seccomp",
            "landlock_restrict_self",
            "process_vm_readv",
            "get_mempolicy",
        ] {
            assert!(allowed.contains(&needed), "{needed}");
        }
        for refused in [
            "keyctl",
            "add_key",
            "request_key",
            "bpf",
            "perf_event_open",
            "userfaultfd",
            "io_uring_setup",
            "init_module",
            "finit_module",
            "kexec_load",
            "kexec_file_load",
            "open_by_handle_at",
            "reboot",
            "swapon",
            "syslog",
            "settimeofday",
            "clock_settime",
            "iopl",
            "ioperm",
        ] {
            assert!(!allowed.contains(&refused), "{refused}");
        }
    }

    #[test]
    fn only_options_for_what_is_in_the_way_are_named() {
        let seccomp = Needed {
            seccomp: true,
            ..Needed::default()
        };
        let text = Container::Docker.fix(seccomp).text().to_owned();
        assert!(
            text.contains("seccomp=bastle-seccomp.json") && !text.contains("systempaths"),
            "{text}"
        );
        let proc = Needed {
            proc: true,
            ..Needed::default()
        };
        assert_eq!(
            Container::Podman.fix(proc).text(),
            "podman run --security-opt unmask=ALL ..."
        );
        let all = Needed {
            seccomp: true,
            apparmor: true,
            proc: true,
        };
        let pod = Container::Kubernetes.fix(all).text().to_owned();
        for word in ["seccompProfile", "appArmorProfile", "procMount", "hostUsers"] {
            assert!(pod.contains(word), "{pod}");
        }
        let space = Container::Codespaces.fix(all).text().to_owned();
        assert!(
            space.contains("\"runArgs\": [\"--security-opt\", \"seccomp=bastle-seccomp.json\""),
            "{space}"
        );
    }
}
