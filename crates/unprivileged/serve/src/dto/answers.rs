//! Forms of answers that other crates write: what a living run says of itself, differences, applies, snapshots, records
//! and policies.
//!
//! They are written as JSON where they come from (the run's own process, the workspace, the policy), and passed on. These
//! types describe them for the OpenAPI document; `tests/api/forms.rs` holds real answers against it.
#![expect(dead_code, reason = "read by the document alone")]
use serde_json::Value;
use utoipa::ToSchema;

/// An object whose members another document describes.
#[derive(ToSchema)]
pub(crate) struct JsonObject(serde_json::Map<String, Value>);

/// What a living run does.
#[derive(ToSchema)]
pub(crate) struct RunStatus {
    /// Its name.
    run: String,
    /// Its command line; only for whoever may act inside the run.
    argv: Option<Vec<String>>,
    /// Where it is: `running`, `suspended`, `needs-input`, …
    state: String,
    /// Why it is there.
    reason: Option<String>,
    /// Refusals so far.
    denials: u64,
    /// Paths it was granted while it ran.
    grants: Vec<LiveGrant>,
    /// What it moved over the network; null without a network.
    net: Option<JsonObject>,
    /// Ids of the questions it asks.
    questions: Option<Vec<String>>,
    /// The questions themselves; of each only `id` and `hash` for whoever may neither answer them nor act inside the run.
    asks: Option<Vec<JsonObject>>,
    /// Hosts that were allowed while it ran.
    allowed: Option<Vec<String>>,
    /// Hosts that were denied while it ran.
    denied: Option<Vec<String>>,
    /// What a driven agent reports of its own use.
    reported: Option<JsonObject>,
}

/// A path that a run was granted while it ran.
#[derive(ToSchema)]
pub(crate) struct LiveGrant {
    /// The path.
    path: String,
    /// `read-only` or `read-write`.
    access: String,
}

/// Paths that a run was granted while it ran.
#[derive(ToSchema)]
pub(crate) struct LiveGrants {
    items: Vec<LiveGrant>,
}

/// A path was granted.
#[derive(ToSchema)]
pub(crate) struct GrantMade {
    granted: LiveGrant,
}

/// A granted path was taken back.
#[derive(ToSchema)]
pub(crate) struct GrantRevoked {
    /// The path.
    revoked: String,
    /// Processes that held something of it.
    holders: u64,
}

/// What became of a rule: a question was answered, or the rules of the run changed.
#[derive(ToSchema)]
pub(crate) struct RuleChanged {
    /// The question that this answered.
    answered: Option<String>,
    /// The change of the rules.
    changed: Option<String>,
    /// Connections that the change cut.
    cut: Option<u64>,
}

/// A message reached a driven agent.
#[derive(ToSchema)]
pub(crate) struct MessageTaken {
    /// The run.
    run: String,
    /// `prompted`, `steered`, `queued` or `interrupted`.
    how: String,
}

/// What a run changed.
#[derive(ToSchema)]
pub(crate) struct RunDiff {
    /// `bastle.diff/v1`.
    schema: String,
    /// The run.
    run: String,
    /// Digest of the state that was looked at.
    state: String,
    /// Hash that approves all of it.
    approval: Option<String>,
    /// Changes in ignored paths that are not shown.
    ignored: u64,
    changes: Vec<FileChange>,
}

/// One changed path.
#[derive(ToSchema)]
pub(crate) struct FileChange {
    /// The path; bytes that are no text as `{"b64": …}`.
    path: Value,
    /// The path as it is shown to people.
    shown: String,
    /// What was there.
    before: Option<JsonObject>,
    /// What is there now.
    after: Option<JsonObject>,
    /// `text`, `binary`, `large`, `unknown` or `nothing`.
    body: String,
    /// Lines added.
    added: u64,
    /// Lines removed.
    removed: u64,
    hunks: Vec<JsonObject>,
    /// How much attention it needs: 1 to 3.
    tier: Option<Value>,
    /// What the import gate found.
    findings: Vec<JsonObject>,
    /// Whether the path is an ignored one.
    ignored: bool,
    /// Hash that approves exactly this content at this path.
    approval: Option<String>,
}

/// What an apply did, or would do.
#[derive(ToSchema)]
pub(crate) struct Applied {
    /// The run.
    run: String,
    /// `tree`, `branch`, `patch` or `undo`.
    to: String,
    /// Paths that were written.
    paths: Vec<String>,
    /// Whether nothing was written.
    dry_run: Option<bool>,
    /// Paths that were left out, and why.
    left_out: Option<Vec<LeftOut>>,
    /// Hash that approves all of it.
    approval: Option<String>,
    /// Paths where both sides' changes were merged.
    merged: Option<Vec<String>>,
    /// The branch that was written.
    branch: Option<String>,
    /// The commit on it.
    commit: Option<String>,
    /// What cannot be in a commit and stays work of the run.
    not_in_branch: Option<Vec<NotCarried>>,
    /// What cannot be in a patch.
    not_in_patch: Option<Vec<NotCarried>>,
    /// Remarks of an undo.
    notes: Option<Vec<String>>,
}

/// A path, or its extended attributes, that the form of the result cannot hold.
#[derive(ToSchema)]
pub(crate) struct NotCarried {
    path: String,
    /// What is missing and why, for people.
    why: String,
}

/// A path that an apply left out.
#[derive(ToSchema)]
pub(crate) struct LeftOut {
    path: String,
    /// `not-named`, `ignored`, `needs-approval`, `refused` or `kept-ours`.
    reason: String,
    /// Hash that approves this content.
    approval: Option<String>,
}

/// A kept state of a run's copy.
#[derive(ToSchema)]
pub(crate) struct SnapshotInfo {
    number: u64,
    name: Option<String>,
    /// What it was taken for.
    reason: Value,
    /// When, as RFC 3339 writes it.
    created: String,
    /// Digest of the state.
    state: String,
    files: u64,
    bytes: u64,
}

/// The kept states of a run's copy.
#[derive(ToSchema)]
pub(crate) struct SnapshotList {
    items: Vec<SnapshotInfo>,
}

/// A snapshot was taken.
#[derive(ToSchema)]
pub(crate) struct SnapshotTaken {
    snapshot: SnapshotInfo,
}

/// A copy was made what it was.
#[derive(ToSchema)]
pub(crate) struct RolledBack {
    /// The state it has now.
    to: SnapshotInfo,
    /// The state it had, kept.
    before: SnapshotInfo,
    /// Paths that changed.
    paths: Vec<String>,
}

/// The audit log of a run.
#[derive(ToSchema)]
pub(crate) struct AuditLog {
    run: String,
    /// `sealed`, `unsealed` or `tampered`.
    verdict: String,
    /// Good records.
    records: u64,
    /// Number of the last record that a signature covers.
    signed: u64,
    /// Fingerprint of the last good record.
    head: String,
    /// The records, as OCSF has them; for admins only.
    items: Vec<JsonObject>,
}

/// Names of presets.
#[derive(ToSchema)]
pub(crate) struct PresetList {
    items: Vec<PresetName>,
}

/// A preset.
#[derive(ToSchema)]
pub(crate) struct PresetName {
    name: String,
    version: Option<String>,
}

/// A preset with its document.
#[derive(ToSchema)]
pub(crate) struct PresetDocument {
    /// `NAME@VERSION`.
    name: String,
    /// An `agent-permissions` document.
    document: JsonObject,
}

/// Where a rule comes from.
#[derive(ToSchema)]
pub(crate) struct RuleOrigin {
    /// The layer.
    layer: String,
    /// File or preset.
    file: String,
    /// Line, from 1; 0 where there is none.
    line: u32,
}

/// A path and where it comes from.
#[derive(ToSchema)]
pub(crate) struct SourcedPath {
    path: String,
    origin: RuleOrigin,
}

/// A rule and where it comes from.
#[derive(ToSchema)]
pub(crate) struct SourcedRule {
    rule: String,
    origin: RuleOrigin,
}

/// A limit and where it comes from.
#[derive(ToSchema)]
pub(crate) struct SourcedLimit {
    limit: String,
    value: u64,
    origin: RuleOrigin,
}

/// What a policy comes to.
#[derive(ToSchema)]
pub(crate) struct EffectivePolicy {
    headline: String,
    digest: String,
    mode: Value,
    layers: Vec<JsonObject>,
    read: Vec<SourcedPath>,
    write: Vec<SourcedPath>,
    hide: Vec<SourcedRule>,
    protect: Vec<SourcedRule>,
    limits: Vec<SourcedLimit>,
    /// What project files asked for and did not get.
    not_granted: Vec<JsonObject>,
    /// Rules without effect.
    inactive: Vec<JsonObject>,
    /// What the project's files did.
    summary: Value,
}

/// A policy that was checked.
#[derive(ToSchema)]
pub(crate) struct PolicyCheck {
    policy: EffectivePolicy,
    /// Tests in the documents.
    tests: Vec<PolicyTest>,
    /// Remarks of the linter.
    findings: Vec<JsonObject>,
    score: PolicyScore,
}

/// A test in a policy document.
#[derive(ToSchema)]
pub(crate) struct PolicyTest {
    passed: bool,
    fault: Option<JsonObject>,
}

/// How exposed a policy leaves the host.
#[derive(ToSchema)]
pub(crate) struct PolicyScore {
    /// Tenths, 0 to 100.
    tenths: u32,
    /// `SAFE`, `OK`, `MEDIUM`, `EXPOSED` or `UNSAFE`.
    word: String,
    /// What adds up to it.
    table: Vec<JsonObject>,
}

/// What a policy says to a question.
#[derive(ToSchema)]
pub(crate) struct PolicyAnswer {
    query: String,
    /// `allow`, `ask` or `deny`.
    outcome: String,
    code: Option<String>,
    reason: String,
    rule: Option<DecidingRule>,
    nearest: Option<DecidingRule>,
    /// What holds it.
    mechanism: Value,
    /// Whether it is held, or advice.
    enforced: Value,
    tier: u8,
    help: Vec<String>,
}

/// The rule that decided.
#[derive(ToSchema)]
pub(crate) struct DecidingRule {
    text: String,
    origin: RuleOrigin,
}

/// Commands and tools that a policy stops.
#[derive(ToSchema)]
pub(crate) struct BlockedCommands {
    /// The profile that was asked about.
    profile: Option<String>,
    preset: String,
    /// By rules of layers.
    rules: Vec<BlockedCommand>,
    /// By tier 3 of the danger matrix.
    tier3: Vec<BlockedCommand>,
    /// Where command and tool rules act.
    held: String,
}

/// Something that is denied or asked about.
#[derive(ToSchema)]
pub(crate) struct BlockedCommand {
    /// `exec.deny`, `exec.ask`, `tools.deny`, `tools.ask`, or a kind of the danger matrix.
    section: String,
    rule: String,
    /// The question that was asked, as `can-i` takes it.
    example: String,
    /// `ask` or `deny`.
    outcome: String,
    why: String,
    origin: Option<RuleOrigin>,
    held: String,
}
