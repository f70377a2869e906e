//! The guests, what is tried in each, and what is expected: data alone.
use super::archive::Arch;

/// One boot: a kernel, the system on the disk, and situations that are tried one after the other.
pub(super) struct Guest {
    pub(super) name: &'static str,
    /// The suite of the kernel.
    pub(super) suite: &'static str,
    pub(super) arch: Arch,
    pub(super) userland: Userland,
    /// Two lists, one after the other: those of every guest with this userland, and those of some alone.
    pub(super) situations: [&'static [Situation]; 2],
}

/// The system on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Userland {
    /// No service manager: cgroup v2 belongs to root.
    Busybox,
    /// Debian's or Ubuntu's own of this release.
    Systemd(&'static str),
}

/// Who runs bastle, on which settings of the machine, and what has to come of it.
pub(super) struct Situation {
    pub(super) name: &'static str,
    /// The same in the words of the table.
    pub(super) about: &'static str,
    /// A name that the guest's `as` knows.
    pub(super) session: &'static str,
    /// Shell lines of root before and after.
    pub(super) enter: &'static str,
    pub(super) leave: &'static str,
    pub(super) expected: Expected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Works(Means),
    /// Nothing starts. `doctor` names the cause by this code and prints a fix with these words. It is followed, and then
    /// everything has to work.
    Refuses {
        cause: &'static str,
        fix: &'static str,
        followed: Followed,
        then: Means,
    },
}

/// How a printed fix is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Followed {
    /// It is a command: executed as it is printed, by the identity that doctor told it.
    AsPrinted,
    /// It is a command, and `doctor --fix --yes` executes it.
    ByDoctor,
    /// It says what to do: shell lines of root that do it.
    By(&'static str),
}

/// What a situation offers besides the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Means {
    /// A cgroup with every controller: fractions of a processor can be held.
    pub(super) cgroup: bool,
    pub(super) overlay: bool,
}

const NO_CGROUP: Means = Means {
    cgroup: false,
    overlay: true,
};
const CGROUP: Means = Means {
    cgroup: true,
    overlay: true,
};
const NO_OVERLAY: Means = Means {
    cgroup: false,
    overlay: false,
};

/// Nothing is changed on the machine.
const fn plain(name: &'static str, about: &'static str, session: &'static str, means: Means) -> Situation {
    Situation {
        name,
        about,
        session,
        enter: "",
        leave: "",
        expected: Expected::Works(means),
    }
}

const BUSYBOX: &[Situation] = &[
    plain("user", "ordinary user", "user", NO_CGROUP),
    plain("root", "root", "root", CGROUP),
    plain(
        "delegated",
        "ordinary user, delegated cgroup",
        "delegated",
        CGROUP,
    ),
    Situation {
        name: "yama-2",
        about: "ordinary user, `kernel.yama.ptrace_scope=2`",
        session: "user",
        enter: "echo 2 > /proc/sys/kernel/yama/ptrace_scope",
        leave: "echo 0 > /proc/sys/kernel/yama/ptrace_scope",
        expected: Expected::Refuses {
            cause: "ptrace-scope",
            fix: "ptrace_scope",
            followed: Followed::ByDoctor,
            then: NO_CGROUP,
        },
    },
    Situation {
        name: "no-overlay",
        about: "ordinary user, no overlay module",
        session: "user",
        enter: "rmmod overlay",
        leave: "",
        expected: Expected::Works(NO_OVERLAY),
    },
    Situation {
        name: "no-userns",
        about: "ordinary user, `user.max_user_namespaces=0`",
        session: "user",
        enter: "echo 0 > /proc/sys/user/max_user_namespaces",
        leave: "echo 1000 > /proc/sys/user/max_user_namespaces",
        expected: Expected::Refuses {
            cause: "namespace-limit-zero",
            fix: "max_user_namespaces",
            followed: Followed::AsPrinted,
            then: NO_OVERLAY,
        },
    },
    Situation {
        name: "no-unprivileged-userns",
        about: "ordinary user, `kernel.unprivileged_userns_clone=0`",
        session: "user",
        enter: "echo 0 > /proc/sys/kernel/unprivileged_userns_clone",
        leave: "echo 1 > /proc/sys/kernel/unprivileged_userns_clone",
        expected: Expected::Refuses {
            cause: "user-namespaces-off",
            fix: "unprivileged_userns_clone",
            followed: Followed::AsPrinted,
            then: NO_OVERLAY,
        },
    },
];

const SYSTEMD: &[Situation] = &[
    Situation {
        // The next situations begin without the user's own service manager, as on a machine where nobody is logged in.
        leave: "systemctl stop user@1000.service",
        ..plain("login", "login session", "user", NO_CGROUP)
    },
    plain("service", "system service, `User=`", "service", NO_CGROUP),
    plain(
        "service-delegated",
        "system service, `User=`, `Delegate=yes`",
        "delegated",
        CGROUP,
    ),
    // Without Delegate= systemd takes back what is written to a group that it has not given away.
    plain("user-manager", "`systemd-run --user`", "manager", NO_CGROUP),
    plain(
        "user-manager-delegated",
        "`systemd-run --user -p Delegate=yes`",
        "manager-delegated",
        CGROUP,
    ),
    plain("root-service", "system service, root", "root", NO_CGROUP),
    plain(
        "root-delegated",
        "system service, root, `Delegate=yes`",
        "root-delegated",
        CGROUP,
    ),
];

/// What AppArmor can refuse on Debian's kernels: they have no `kernel.apparmor_restrict_unprivileged_userns`.
const APPARMOR: &[Situation] = &[Situation {
    name: "apparmor-denies",
    about: "login session, an AppArmor profile on bastle that denies `userns`",
    session: "user",
    enter: "printf 'abi <abi/4.0>,\\nprofile bastle /usr/bin/bastle { file, capability, network, signal, ptrace, unix, mount, umount, pivot_root, mqueue, dbus, }\\n' > /tmp/profile; apparmor_parser -r /tmp/profile",
    leave: "apparmor_parser -R /tmp/profile",
    expected: Expected::Refuses {
        cause: "apparmor-profile-denies",
        fix: "allow userns",
        followed: Followed::By(
            "sed -i 's/ {/ flags=(attach_disconnected) { userns,/' /tmp/profile; apparmor_parser -r /tmp/profile",
        ),
        then: NO_CGROUP,
    },
}];

/// Ubuntu as it is installed, without the package of bastle; each followed fix stays for what comes after.
const UBUNTU: &[Situation] = &[
    Situation {
        name: "restricted",
        about: "login session, `kernel.apparmor_restrict_unprivileged_userns=1`",
        session: "user",
        // As apparmor.service does at a start, with this profile alone: all of them take minutes here.
        enter: "apparmor_parser -r /etc/apparmor.d/unprivileged_userns",
        leave: "",
        expected: Expected::Refuses {
            cause: "apparmor-restriction",
            fix: "apparmor_parser -r",
            followed: Followed::ByDoctor,
            then: NO_CGROUP,
        },
    },
    Situation {
        name: "not-loaded",
        about: "login session, bastle's AppArmor profile installed and not loaded",
        session: "user",
        enter: "apparmor_parser -R /etc/apparmor.d/bastle",
        leave: "",
        expected: Expected::Refuses {
            cause: "apparmor-profile-not-loaded",
            fix: "apparmor_parser -r",
            followed: Followed::AsPrinted,
            then: NO_CGROUP,
        },
    },
    Situation {
        name: "other-path",
        about: "login session, bastle in another place than its AppArmor profile",
        session: "user",
        enter: "mv /usr/bin/bastle /usr/local/bin/bastle",
        leave: "mv /usr/local/bin/bastle /usr/bin/bastle",
        expected: Expected::Refuses {
            cause: "apparmor-profile-other-path",
            fix: "apparmor_parser -r",
            followed: Followed::AsPrinted,
            then: NO_CGROUP,
        },
    },
];

/// Every guest, in the order in which they are tried.
pub(super) const GUESTS: &[Guest] = &[
    guest("6.1", "bookworm", Arch::Amd64, Userland::Busybox),
    guest("6.12", "trixie", Arch::Amd64, Userland::Busybox),
    guest("newest", "sid", Arch::Amd64, Userland::Busybox),
    guest(
        "6.1-systemd",
        "bookworm",
        Arch::Amd64,
        Userland::Systemd("bookworm"),
    ),
    guest("6.12-systemd", "trixie", Arch::Amd64, Userland::Systemd("trixie")),
    guest("newest-systemd", "sid", Arch::Amd64, Userland::Systemd("sid")),
    guest("ubuntu-24.04", "noble", Arch::Amd64, Userland::Systemd("noble")),
    guest(
        "ubuntu-26.04",
        "resolute",
        Arch::Amd64,
        Userland::Systemd("resolute"),
    ),
    guest("6.1-arm64", "bookworm", Arch::Arm64, Userland::Busybox),
    guest("6.12-arm64", "trixie", Arch::Arm64, Userland::Busybox),
];

const fn guest(name: &'static str, suite: &'static str, arch: Arch, userland: Userland) -> Guest {
    let situations: [&'static [Situation]; 2] = match userland {
        Userland::Busybox => [BUSYBOX, &[]],
        Userland::Systemd(release) => match release.as_bytes() {
            // Its own first: nothing works before their fixes.
            b"noble" | b"resolute" => [UBUNTU, SYSTEMD],
            // AppArmor judges user namespaces since Linux 6.7, and its parser since 4.0.
            b"trixie" | b"sid" => [SYSTEMD, APPARMOR],
            _ => [SYSTEMD, &[]],
        },
    };
    Guest {
        name,
        suite,
        arch,
        userland,
        situations,
    }
}

impl Guest {
    /// What is tried, in this order.
    pub(super) fn situations(&self) -> impl Iterator<Item = &'static Situation> {
        self.situations.into_iter().flatten()
    }

    /// All, or those that a list with commas names.
    pub(super) fn chosen(&self, only: Option<&str>) -> impl Iterator<Item = &'static Situation> {
        self.situations().filter(move |situation| {
            only.is_none_or(|names| names.split(',').any(|name| name == situation.name))
        })
    }

    /// The shell lines that the guest reads, of all situations or of some.
    pub(super) fn plan(&self, only: Option<&str>) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let mut plan = String::new();
        for situation in self.chosen(only) {
            let (fix, lines) = match situation.expected {
                Expected::Works(_) => ("", ""),
                Expected::Refuses { fix, followed, .. } => match followed {
                    Followed::AsPrinted => (fix, ""),
                    Followed::ByDoctor => (fix, "bastle doctor --fix --yes"),
                    Followed::By(lines) => (fix, lines),
                },
            };
            let words = [
                situation.name,
                situation.session,
                situation.enter,
                situation.leave,
                fix,
                lines,
            ];
            plan.push_str("situation");
            for word in words {
                plan.push(' ');
                plan.push_str(&quoted(word));
            }
            plan.push('\n');
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_what_a_shell_would_read_otherwise_is_quoted() {
        let mut names: Vec<&str> = GUESTS.iter().map(|guest| guest.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), GUESTS.len());
        for guest in GUESTS {
            let plan = guest.plan(None);
            assert_eq!(plan.lines().count(), guest.situations().count());
            assert!(plan.lines().all(|line| line.starts_with("situation '")), "{plan}");
            let one = guest.situations().next().map(|situation| situation.name);
            assert_eq!(guest.plan(one).lines().count(), 1);
        }
    }
}
