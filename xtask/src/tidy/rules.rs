//! The written lists: which crate lives in which zone, which arrows exist, which outside crates each may name.
//!
//! A line added here is a decision about trust: give its reason in the change that adds it.

/// What one crate may be and use.
pub(super) struct CrateRule {
    /// Package name without the `bastle-` prefix; the root package is `bastle`.
    pub(super) name: &'static str,
    /// Folder of its manifest, from the root.
    pub(super) folder: &'static str,
    /// Our own crates it may depend on.
    pub(super) arrows: &'static [&'static str],
    /// Our own crates that its tests may use besides.
    pub(super) test_arrows: &'static [&'static str],
    /// Outside crates it may name in its manifest.
    pub(super) outside: &'static [&'static str],
}

/// One line per crate; a crate that is not listed fails.
pub(super) const CRATES: &[CrateRule] = &[
    CrateRule {
        name: "contract",
        folder: "crates/shared/contract",
        arrows: &[],
        test_arrows: &[],
        // rustix: the one way frames and descriptors cross a socket, so that every zone does it alike.
        outside: &["rustix", "serde", "serde_json", "thiserror"],
    },
    CrateRule {
        name: "audit",
        folder: "crates/shared/audit",
        arrows: &["contract"],
        test_arrows: &[],
        outside: &[
            "blake3",
            "ed25519-dalek",
            "getrandom",
            "jiff",
            "rustix",
            "serde",
            "serde_json",
            "serde_json_canonicalizer",
            "thiserror",
        ],
    },
    CrateRule {
        name: "policy",
        folder: "crates/unprivileged/policy",
        arrows: &["contract"],
        test_arrows: &[],
        outside: &[
            "blake3",
            "idna",
            "serde",
            "serde_json",
            "thiserror",
            // Settings of other tools, read by the importers and by the filter of copied configuration.
            "toml",
            "tree-sitter",
            "tree-sitter-bash",
        ],
    },
    CrateRule {
        name: "egress",
        folder: "crates/unprivileged/egress",
        arrows: &["contract", "audit", "policy"],
        test_arrows: &[],
        // rustix: splice. The rest is one async runtime, one HTTP, one TLS, one DNS implementation.
        outside: &[
            "aws-lc-rs",
            // Answers that a server compresses though asked not to are looked through: gzip, br, zstd.
            "brotli-decompressor",
            "bytes",
            "flate2",
            "hickory-proto",
            "http",
            "http-body",
            "http-body-util",
            "hyper",
            "hyper-util",
            "rcgen",
            "rustix",
            "rustls",
            "rustls-native-certs",
            "ruzstd",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tokio-rustls",
            "zeroize",
        ],
    },
    CrateRule {
        name: "workspace",
        folder: "crates/unprivileged/workspace",
        arrows: &["contract", "sys"],
        // policy: tests judge with the catalogue that control hands in.
        test_arrows: &["policy"],
        // icu_normalizer: one form of a name before it is judged. toml: manifests are parsed, not searched. flate2, sha1, sha2:
        // git's binary patches are compressed and name blobs by these hashes; nothing is trusted because of them.
        outside: &[
            "blake3",
            "flate2",
            "icu_normalizer",
            "rustix",
            "serde",
            "serde_json",
            "sha1",
            "sha2",
            "thiserror",
            "toml",
        ],
    },
    CrateRule {
        name: "agents",
        folder: "crates/unprivileged/agents",
        arrows: &["contract"],
        test_arrows: &[],
        outside: &["serde", "serde_json", "thiserror"],
    },
    CrateRule {
        name: "control",
        folder: "crates/unprivileged/control",
        arrows: &["contract", "agents", "audit", "policy", "workspace", "sys"],
        test_arrows: &[],
        // blake3: digests of plans and pinned documents. signal-hook: signals of the terminal end the run in order.
        // aws-lc-rs: the store of secrets, and the digest of Java's. zeroize: secrets are wiped. rusqlite: the daemon's
        // registry, with its own SQLite.
        outside: &[
            "aws-lc-rs",
            "blake3",
            "getrandom",
            "jiff",
            "rusqlite",
            "rustix",
            "serde",
            "serde_json",
            "signal-hook",
            "thiserror",
            "zeroize",
        ],
    },
    CrateRule {
        name: "mcp",
        folder: "crates/unprivileged/mcp",
        arrows: &[],
        test_arrows: &[],
        // The protocol alone, over the runtime and HTTP types that serve has already. aws-lc-rs: what a client carries for
        // us is sealed. axum: the server of the conformance suite.
        outside: &[
            "aws-lc-rs",
            "axum",
            "bytes",
            "futures-util",
            "http",
            "proptest",
            "serde_json",
            "tokio",
        ],
    },
    CrateRule {
        name: "serve",
        folder: "crates/unprivileged/serve",
        // policy and audit: questions about a policy and records of a run are answered by the crates that hold them.
        arrows: &["contract", "control", "policy", "audit", "mcp"],
        test_arrows: &[],
        // One HTTP server and one client, both over the HTTP, TLS and runtime that egress has already. aws-lc-rs:
        // signatures of webhooks, by the library that TLS uses. jiff: times as RFC 3339 writes them.
        outside: &[
            "aws-lc-rs",
            "axum",
            "bytes",
            "futures-util",
            "http",
            "http-body-util",
            "hyper",
            "hyper-util",
            "jiff",
            "rustix",
            "rustls",
            "rustls-native-certs",
            "serde",
            "serde_json",
            "tokio",
            "tokio-rustls",
            "tokio-tungstenite",
            "tower",
            "utoipa",
            "utoipa-axum",
        ],
    },
    CrateRule {
        name: "cli",
        folder: "crates/unprivileged/cli",
        arrows: &["contract", "audit", "policy", "control", "serve"],
        test_arrows: &[],
        outside: &[
            "clap",
            "clap_complete",
            "clap_mangen",
            "jiff",
            "rustix",
            "serde",
            "serde_json",
        ],
    },
    CrateRule {
        name: "sys",
        folder: "crates/kernel/sys",
        arrows: &[],
        test_arrows: &[],
        outside: &["landlock", "libc", "rustix"],
    },
    CrateRule {
        name: "spawner",
        folder: "crates/privileged/spawner",
        arrows: &["contract", "audit", "sys"],
        test_arrows: &[],
        outside: SMALL_ZONE,
    },
    CrateRule {
        name: "init",
        folder: "crates/sandboxed/init",
        arrows: &["contract", "sys"],
        test_arrows: &[],
        outside: SMALL_ZONE,
    },
    // The one place where zones meet: it dispatches and nothing else.
    CrateRule {
        name: "bastle",
        folder: "",
        arrows: &["contract", "cli", "egress", "spawner", "init"],
        // control: the suite that every backend passes speaks to the trait itself.
        test_arrows: &["contract", "audit", "control", "policy", "sys"],
        outside: &[],
    },
    CrateRule {
        name: "xtask",
        folder: "xtask",
        arrows: &[],
        test_arrows: &[],
        outside: &["serde", "serde_json"],
    },
];

/// What the spawner and init may name. `libc` is for its constants: calls that need it live in `sys`.
const SMALL_ZONE: &[&str] = &["landlock", "libc", "rustix", "serde", "serde_json", "thiserror"];

/// Crates whose whole closure is checked, not only their own manifest.
pub(super) const SMALL_CRATES: &[&str] = &["contract", "sys", "spawner", "init"];

/// Everything that may be linked into, or run at build time for, a crate of [`SMALL_CRATES`].
///
/// An async runtime, HTTP, a command-line parser, a grammar or the policy engine is absent on purpose: these
/// crates run as root or as PID 1 of the sandbox, and every line in them is a line to trust.
pub(super) const SMALL_CLOSURE: &[&str] = &[
    // ours
    "bastle-contract",
    "bastle-sys",
    "bastle-spawner",
    "bastle-init",
    // frames and plans
    "itoa",
    "memchr",
    "serde",
    "serde_core",
    "serde_json",
    "thiserror",
    "zmij",
    // system calls
    "bitflags",
    "enumflags2",
    "errno",
    "landlock",
    "libc",
    "linux-raw-sys",
    "rustix",
    // derive macros: run by the compiler, not linked
    "enumflags2_derive",
    "proc-macro2",
    "quote",
    "serde_derive",
    "syn",
    "thiserror-impl",
    "unicode-ident",
];

/// What the spawner links besides, because as a daemon it writes an audit log of its own: hashing, signing, and the date.
/// None of it reads what a caller or an agent sent; init has no log and links none of it.
pub(super) const RECORDING_CLOSURE: &[&str] = &[
    "arrayvec",
    "bastle-audit",
    "blake3",
    "block-buffer",
    "cc",
    "cfg-if",
    "constant_time_eq",
    "cpufeatures",
    "crypto-common",
    "curve25519-dalek",
    "curve25519-dalek-derive",
    "digest",
    "ed25519",
    "ed25519-dalek",
    "find-msvc-tools",
    "getrandom",
    "hybrid-array",
    "jiff",
    "jiff-core",
    "rustc_version",
    "ryu-js",
    "semver",
    "serde_json_canonicalizer",
    "sha2",
    "shlex",
    "signature",
    "subtle",
    "typenum",
    "zeroize",
];
