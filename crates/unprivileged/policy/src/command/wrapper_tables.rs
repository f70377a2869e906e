//! Programs that start another command given in their arguments: which options they know. Data only.
//! An option that is not listed makes the command unclear, so a missing entry errs towards a refusal.

use super::options::Spec;

/// Whether the wrapper itself needs a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// It adds no power: what it starts decides.
    Through,
    /// It changes who or where the command runs: it needs a rule of its own, too.
    NeedsRule,
}

/// A wrapper whose arguments are `[options] [words to skip] command…`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrapper {
    /// Its names.
    pub(super) names: &'static [&'static str],
    /// Its options.
    pub(super) spec: Spec,
    /// Plain words before the command (a duration, a mask, a directory).
    pub(super) skip: usize,
    /// Whether it needs a rule.
    pub(super) own: Own,
}

const fn spec(
    flags: &'static str,
    valued: &'static str,
    long_flags: &'static [&'static str],
    long_valued: &'static [&'static str],
) -> Spec {
    Spec {
        flags,
        valued,
        optional: "",
        long_flags,
        long_valued,
    }
}

const fn through(names: &'static [&'static str], skip: usize, spec: Spec) -> Wrapper {
    Wrapper {
        names,
        spec,
        skip,
        own: Own::Through,
    }
}

const fn ruled(names: &'static [&'static str], skip: usize, spec: Spec) -> Wrapper {
    Wrapper {
        names,
        spec,
        skip,
        own: Own::NeedsRule,
    }
}

/// All plain wrappers. `env`, `xargs`, `find`, shells and the like are read by code of their own.
pub(super) const WRAPPERS: &[Wrapper] = &[
    through(&["nice"], 0, spec("", "n", &[], &["adjustment"])),
    through(&["nohup"], 0, spec("", "", &[], &[])),
    through(
        &["timeout", "gtimeout"],
        1,
        spec(
            "fpv",
            "ks",
            &["foreground", "preserve-status", "verbose"],
            &["kill-after", "signal"],
        ),
    ),
    through(
        &["stdbuf"],
        0,
        spec("", "ioe", &[], &["input", "output", "error"]),
    ),
    through(&["setsid"], 0, spec("cfw", "", &["ctty", "fork", "wait"], &[])),
    through(
        &["ionice"],
        0,
        spec("t", "cn", &["ignore"], &["class", "classdata"]),
    ),
    through(
        &["time"],
        0,
        spec(
            "pvaq",
            "f",
            &["portability", "verbose", "append", "quiet"],
            &["format"],
        ),
    ),
    through(&["builtin"], 0, spec("", "", &[], &[])),
    through(&["unbuffer"], 0, spec("p", "", &[], &[])),
    through(&["catchsegv", "nohup.exe"], 0, spec("", "", &[], &[])),
    through(
        &["chrt"],
        1,
        spec(
            "abdfiorRvGm",
            "TPD",
            &[
                "batch",
                "deadline",
                "fifo",
                "idle",
                "other",
                "rr",
                "reset-on-fork",
            ],
            &[],
        ),
    ),
    through(&["taskset"], 1, spec("ac", "", &["all-tasks", "cpu-list"], &[])),
    ruled(
        &["sudo", "sudo-rs"],
        0,
        spec(
            "AbEHknPSBN",
            "CDghpRrtTuU",
            &[
                "askpass",
                "background",
                "set-home",
                "non-interactive",
                "preserve-groups",
                "stdin",
                "reset-timestamp",
                "bell",
            ],
            &[
                "user",
                "group",
                "host",
                "prompt",
                "chdir",
                "chroot",
                "close-from",
                "command-timeout",
                "role",
                "type",
            ],
        ),
    ),
    ruled(&["doas"], 0, spec("Lns", "aCu", &[], &[])),
    ruled(
        &["pkexec"],
        0,
        spec("", "", &["disable-internal-agent", "keep-cwd"], &["user"]),
    ),
    ruled(
        &["chroot"],
        1,
        spec("", "", &["skip-chdir"], &["userspec", "groups"]),
    ),
    ruled(
        &["unshare"],
        0,
        spec(
            "imnprUuCTfc",
            "RwSG",
            &[
                "ipc",
                "mount",
                "net",
                "pid",
                "uts",
                "user",
                "cgroup",
                "time",
                "fork",
                "map-root-user",
                "map-current-user",
                "mount-proc",
                "keep-caps",
            ],
            &[
                "propagation",
                "root",
                "wd",
                "setuid",
                "setgid",
                "map-user",
                "map-group",
            ],
        ),
    ),
    ruled(
        &["nsenter"],
        0,
        spec(
            "aF",
            "tSG",
            &[
                "all",
                "no-fork",
                "preserve-credentials",
                "mount",
                "uts",
                "ipc",
                "net",
                "pid",
                "user",
                "cgroup",
            ],
            &["target", "setuid", "setgid"],
        ),
    ),
    ruled(
        &["setpriv"],
        0,
        spec(
            "",
            "",
            &["no-new-privs", "clear-groups", "keep-groups", "reset-env"],
            &[
                "reuid",
                "regid",
                "groups",
                "inh-caps",
                "bounding-set",
                "securebits",
            ],
        ),
    ),
    ruled(
        &["setarch", "linux32", "linux64", "i386", "x86_64"],
        0,
        spec("RvB3", "", &["addr-no-randomize", "verbose"], &[]),
    ),
    ruled(
        &["strace", "ltrace"],
        0,
        spec(
            "cCdfFhiqrtTvVxyzZkwY",
            "abeEoOpPsSuUXI",
            &["follow-forks"],
            &["trace", "output", "string-limit"],
        ),
    ),
    ruled(
        &["runuser"],
        0,
        spec("lfmp", "gGuws", &["login"], &["user", "group", "shell"]),
    ),
    ruled(&["gosu", "su-exec", "runcon"], 1, spec("", "", &[], &[])),
    ruled(
        &["systemd-run"],
        0,
        spec(
            "dGPqrtS",
            "HMpuE",
            &[
                "user", "scope", "pty", "pipe", "quiet", "wait", "collect", "no-block",
            ],
            &["unit", "property", "slice", "setenv", "working-directory"],
        ),
    ),
    ruled(
        &[
            "torsocks",
            "proxychains",
            "proxychains4",
            "rlwrap",
            "fakeroot",
            "eatmydata",
            "firejail",
            "proot",
            "dbus-run-session",
            "xvfb-run",
            "caffeinate",
        ],
        0,
        spec("q", "", &[], &[]),
    ),
    ruled(
        &[
            "valgrind",
            "gdbserver",
            "perf",
            "heaptrack",
            "hyperfine",
            "entr",
            "with-contenv",
            "direnv",
        ],
        0,
        spec("", "", &[], &[]),
    ),
];

/// `env`.
pub(super) const ENV: Spec = spec(
    "i0v",
    "uCS",
    &["ignore-environment", "null", "debug", "list-signal-handling"],
    &["unset", "chdir", "split-string"],
);
/// `xargs`.
pub(super) const XARGS: Spec = Spec {
    flags: "0rtpxo",
    valued: "aEIdLnPs",
    optional: "eil",
    long_flags: &[
        "null",
        "no-run-if-empty",
        "verbose",
        "interactive",
        "exit",
        "open-tty",
        "show-limits",
        "replace",
        "eof",
        "max-lines",
    ],
    long_valued: &[
        "arg-file",
        "delimiter",
        "max-args",
        "max-procs",
        "max-chars",
        "process-slot-var",
    ],
};
/// `sh`, `bash` and kin.
pub(super) const SHELL: Spec = spec(
    "abcefhiklmnprstuvxBCEHPTDVdg",
    "oO",
    &[
        "norc",
        "noprofile",
        "posix",
        "login",
        "verbose",
        "restricted",
        "noediting",
        "version",
        "no-rcs",
    ],
    &["command"],
);
/// `exec`.
pub(super) const EXEC: Spec = spec("cl", "a", &[], &[]);
/// `command`.
pub(super) const COMMAND: Spec = spec("pvV", "", &[], &[]);
/// `flock`.
pub(super) const FLOCK: Spec = spec(
    "exsnuoFv",
    "wEc",
    &[
        "exclusive",
        "shared",
        "nonblock",
        "nb",
        "unlock",
        "close",
        "no-fork",
        "verbose",
    ],
    &["timeout", "wait", "conflict-exit-code", "command"],
);
/// `script`.
pub(super) const SCRIPT: Spec = Spec {
    flags: "aefq",
    valued: "cEIOBTmo",
    optional: "t",
    long_flags: &["append", "return", "flush", "quiet", "force", "timing"],
    long_valued: &[
        "command",
        "echo",
        "log-in",
        "log-out",
        "log-io",
        "log-timing",
        "logging-format",
        "output-limit",
    ],
};
/// `su`.
pub(super) const SU: Spec = spec(
    "lmpfP",
    "cgGsw",
    &["login", "preserve-environment", "fast", "pty"],
    &[
        "command",
        "group",
        "supp-group",
        "shell",
        "whitelist-environment",
        "session-command",
    ],
);
/// `watch`.
pub(super) const WATCH: Spec = Spec {
    flags: "bcegprtwxC",
    valued: "nq",
    optional: "d",
    long_flags: &[
        "beep",
        "color",
        "errexit",
        "chgexit",
        "precise",
        "no-rerun",
        "no-title",
        "no-wrap",
        "exec",
        "differences",
    ],
    long_valued: &["interval", "equexit"],
};
/// `parallel`.
pub(super) const PARALLEL: Spec = spec(
    "0kmqrtuvX",
    "jNnaCLId",
    &[
        "keep-order",
        "bar",
        "null",
        "verbose",
        "ungroup",
        "dry-run",
        "progress",
        "no-notice",
        "will-cite",
        "halt-on-error",
    ],
    &[
        "jobs", "max-args", "arg-file", "colsep", "delay", "timeout", "joblog", "results", "halt", "retries",
    ],
);
/// The dynamic loader.
pub(super) const LOADER: Spec = spec(
    "",
    "",
    &["list", "verify", "inhibit-cache"],
    &[
        "library-path",
        "argv0",
        "preload",
        "audit",
        "inhibit-rpath",
        "glibc-hwcaps-prepend",
    ],
);
/// `bwrap`: everything up to the command takes a known number of words, read by code.
pub(super) const BWRAP_WORDS: &[(&str, usize)] = &[
    ("--ro-bind", 2),
    ("--bind", 2),
    ("--dev-bind", 2),
    ("--ro-bind-try", 2),
    ("--bind-try", 2),
    ("--symlink", 2),
    ("--setenv", 2),
    ("--file", 2),
    ("--proc", 1),
    ("--dev", 1),
    ("--tmpfs", 1),
    ("--dir", 1),
    ("--chdir", 1),
    ("--unsetenv", 1),
    ("--uid", 1),
    ("--gid", 1),
    ("--hostname", 1),
    ("--cap-add", 1),
    ("--cap-drop", 1),
    ("--unshare-all", 0),
    ("--unshare-user", 0),
    ("--unshare-net", 0),
    ("--unshare-pid", 0),
    ("--unshare-ipc", 0),
    ("--unshare-uts", 0),
    ("--share-net", 0),
    ("--new-session", 0),
    ("--die-with-parent", 0),
    ("--clearenv", 0),
];
