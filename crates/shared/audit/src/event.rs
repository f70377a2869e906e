//! What is recorded. Text in denials and programs comes from the agent and is untrusted.
use bastle_contract::egress::{BudgetReached, NetClosed, NetDecision};
use bastle_contract::grants::{FileOp, GrantWay};
use bastle_contract::{
    AbsPath, Access, Argv, BackendKind, CapabilityStatement, Denied, Digest, ExecSeen, Fault, FileSeen,
    FilesTold, LimitHit, LimitLost, RunId, Usage, Waiver,
};
use serde::{Deserialize, Serialize};

/// One thing that happened to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum AuditEvent {
    /// The policy was compiled and the run admitted; nothing has been started yet.
    RunPlanned {
        /// Digest of the effective policy.
        policy: Digest,
        /// Digest of the plan.
        plan: Digest,
        /// What will be executed.
        argv: Argv,
        /// What enforces the plan.
        backend: BackendKind,
        /// Limits given up by name.
        waivers: Vec<Waiver>,
        /// The effective policy. The caller has redacted secrets.
        effective: serde_json::Value,
    },
    /// What the probes inside the finished sandbox found.
    Statement(CapabilityStatement),
    /// The agent was executed.
    Started {
        /// Host process id of init.
        pid: u32,
    },
    /// An attempt was refused. Its record id is the denial's id everywhere.
    Denied(Denied),
    /// A limit was hit.
    Limit(LimitHit),
    /// A limit did not hold any more, and the run was ended for it.
    LimitLost(LimitLost),
    /// A program was started inside.
    Exec(ExecSeen),
    /// The whole tree was frozen.
    Paused,
    /// It goes on.
    Resumed,
    /// Output beyond the limit was discarded.
    OutputTruncated {
        /// How many bytes.
        bytes: u64,
    },
    /// The run is over.
    Ended {
        /// How the agent ended.
        exit: Exit,
        /// What the run used.
        usage: Usage,
        /// Why it was ended, if not by itself: `timeout`, `stopped`, `memory`.
        reason: Option<String>,
    },
    /// bastle refused to start or to go on.
    Refused(Fault),
    /// A request, connection or lookup was judged. Where it was denied, its id is the denial's id everywhere.
    Net(NetDecision),
    /// What a judged request or connection moved, told at its end.
    NetClosed(NetClosed),
    /// Somebody or something answered a question about a request.
    NetAnswered {
        /// Number of the judged request.
        seq: u64,
        /// Its id.
        id: String,
        /// Whether it may go on.
        allow: bool,
        /// Who answered: `person` (at the terminal or the run's own socket), `timeout`, `unattended`; through a daemon the kind
        /// of principal and its id, such as `token-person token:k3v9` or `program agent:mcp`.
        by: String,
    },
    /// Somebody or something answered the agent's own permission layer.
    ToolAnswered {
        /// The question's id within the run.
        id: String,
        /// The tool and what for, as far as it is told. Untrusted text.
        used: String,
        /// Whether it may.
        allow: bool,
        /// Who answered, as for `NetAnswered`; also `rule`.
        by: String,
        /// The rule, where one decided.
        rule: Option<String>,
        /// Digest of what was answered: the question with the exact input that was shown, or tool and input where a rule
        /// decided. `None` in records of before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hash: Option<String>,
    },
    /// The network rules of the living run were replaced.
    NetChanged {
        /// What was asked: `reload`, `allow RULE`, `deny RULE`, `revoke RULE`.
        change: String,
        /// Digest of the table now in force.
        table: Digest,
        /// Connections that were cut because it does not allow them.
        cut: u32,
        /// Who asked for it: the kind of principal and its id; empty in records of before.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        by: String,
    },
    /// The egress process ended while the run lived.
    NetLost {
        /// How many were lost so far.
        restart: u32,
        /// What is known of it.
        why: String,
    },
    /// A share of a budget was reached.
    Budget(BudgetReached),
    /// The agent asked for a rule. Untrusted text.
    Wanted {
        /// The rule.
        rule: String,
        /// The reason, as the person at the terminal reads it.
        why: String,
    },
    /// What became of one file, or how it was used. Untrusted text.
    File(FileSeen),
    /// What was seen of files in all; after it nothing more is told of them.
    Files(FilesTold),
    /// The run got a layer of its own above a named cache.
    CacheLent {
        /// The cache.
        cache: String,
        /// How many files it had.
        files: u64,
    },
    /// Files of a run's layer became part of a named cache.
    CacheMerged {
        /// The cache.
        cache: String,
        /// How many files came in.
        merged: u64,
        /// How many were left out.
        refused: u64,
    },
    /// The tree that the agent works in is there; the agent has not started.
    WorkspaceMade {
        /// `copy`, `in-place`, …
        mode: String,
        /// The project.
        source: String,
        /// Where the agent's files are.
        tree: String,
        /// Files that were copied.
        files: u64,
        /// Bytes in them.
        bytes: u64,
        /// Names of the project that it does not have.
        left_out: u64,
        /// The agent's branch.
        branch: Option<String>,
    },
    /// A person granted the living run a path; nothing of it is inside yet.
    Granted {
        /// Its path on the host.
        path: AbsPath,
        /// Reading or also writing.
        access: Access,
        /// By which way.
        way: GrantWay,
        /// After how long it ends by itself.
        seconds: Option<u64>,
        /// Who asked for it: the kind of principal and its id; empty in records of before.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        by: String,
    },
    /// A grant is over, or could not be carried out.
    GrantEnded {
        /// Its path on the host.
        path: AbsPath,
        /// By which way it was.
        way: GrantWay,
        /// `revoked`, `expired`, or why it could not be carried out.
        why: String,
        /// Who took it back: the kind of principal and its id; empty where nobody did.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        by: String,
    },
    /// The agent asks the file broker for something; what was allowed has not happened yet.
    BrokerAccess {
        /// What.
        op: FileOp,
        /// Which file, as the agent spelled it: untrusted text. For what is allowed its path on the host.
        name: String,
        /// How many bytes.
        bytes: u64,
        /// Their digest (BLAKE3).
        digest: Option<Digest>,
        /// Why not, where it is refused.
        refused: Option<String>,
    },
    /// A person does something with the work of a run that has ended; it has not happened yet.
    HostChanged {
        /// Whose work.
        run: RunId,
        /// `apply`, `apply-branch`, `undo`, `rm`, `cache-merge`.
        by: String,
        /// What it is done to: a project, a branch, a cache.
        at: String,
        /// Names that change. Untrusted text.
        names: Vec<String>,
        /// How many more there are.
        more: u64,
        /// Hashes of held changes that were approved, as they were given.
        approvals: Vec<String>,
        /// Who does it: the kind of principal and its id; empty in records of before.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        principal: String,
    },
    /// A further command was asked for, beside the agent and in the same fence; it has not started yet.
    ExecRequested {
        /// Its number within the run.
        id: u32,
        /// Who asked: `socket`.
        by: String,
        /// What is executed.
        argv: Argv,
        /// Names of the variables it gets beside the agent's. Their values are not kept.
        env: Vec<String>,
        /// Where it starts, if not where the agent did.
        cwd: Option<AbsPath>,
        /// Whether it has a terminal.
        tty: bool,
    },
    /// A further command is over, or was not started.
    ExecEnded {
        /// Its number within the run.
        id: u32,
        /// How it ended.
        exit: Exit,
        /// Why it was not started, or was ended by bastle.
        reason: Option<String>,
    },
    /// Anything else worth keeping.
    Note {
        /// What it is about, e.g. `approval`.
        topic: String,
        /// In words.
        text: String,
    },
}

/// How the agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// It exited.
    Code(u8),
    /// A signal killed it.
    Signal(u8),
    /// It never ran, or nobody could tell.
    Unknown,
}

/// Records the log makes about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum Mark {
    /// First record of every log.
    Opened {
        /// Which run.
        run: RunId,
        /// Id of the signing key.
        key: String,
        /// The public key, hexadecimal.
        public: String,
        /// Number of this run's opening line in the index: cutting the index before it is found.
        index_sequence: u64,
        /// BLAKE3 of that line.
        index_fingerprint: String,
        /// What it ran on; absent in logs of before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system: Option<crate::System>,
    },
    /// Signs the chain up to the record before it.
    Checkpoint {
        /// Number of the record before it.
        sequence: u64,
        /// Fingerprint of that record.
        head: String,
        /// Ed25519 signature, hexadecimal.
        signature: String,
    },
    /// Last record: nothing may follow.
    Sealed {
        /// Number of the record before it.
        sequence: u64,
        /// Fingerprint of that record.
        head: String,
        /// Records in the log, this one included.
        count: u64,
        /// Ed25519 signature, hexadecimal.
        signature: String,
    },
    /// Writing went on after a crash.
    Recovered {
        /// Bytes of the incomplete last line that were set aside.
        torn_bytes: u64,
        /// Their BLAKE3 hash; empty when there were none.
        torn_digest: String,
    },
}

/// What a record carries under `unmapped.bastle`.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// A record of the log about itself.
    Mark(Mark),
    /// Something that happened.
    Event(AuditEvent),
}
