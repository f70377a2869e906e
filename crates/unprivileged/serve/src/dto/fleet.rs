//! Batches, questions, tokens, profiles and sums, as answers.
use super::time;
use bastle_control::fleet::{Approval, BatchRecord, Health, Page, ProfileRecord, Stats, StatsRow, Token};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The word that serde has for a value.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(_) | Err(_) => String::new(),
    }
}

/// A batch.
#[derive(Serialize, ToSchema)]
#[schema(as = Batch)]
pub(crate) struct BatchForm {
    /// Its id.
    id: String,
    /// First part of its names.
    prefix: String,
    /// Who asked for it.
    caller: String,
    /// When.
    created: String,
    /// The same in milliseconds since 1970.
    created_ms: u64,
    /// How many runs it has.
    size: u64,
    /// How many are in which state.
    states: BTreeMap<String, u64>,
    /// Most that live at once.
    max_parallel: Option<u32>,
}

impl From<BatchRecord> for BatchForm {
    fn from(batch: BatchRecord) -> Self {
        Self {
            id: batch.id,
            prefix: batch.prefix,
            caller: batch.caller,
            created: time(batch.created_ms),
            created_ms: batch.created_ms,
            size: batch.size,
            states: batch
                .states
                .iter()
                .map(|(state, count)| (state.to_string(), *count))
                .collect(),
            max_parallel: batch.max_parallel,
        }
    }
}

/// A page of batches.
#[derive(Serialize, ToSchema)]
#[schema(as = Batches)]
pub(crate) struct BatchesForm {
    /// The batches.
    items: Vec<BatchForm>,
    /// The cursor of the next page.
    next: Option<String>,
}

impl From<Page<BatchRecord>> for BatchesForm {
    fn from(page: Page<BatchRecord>) -> Self {
        Self {
            items: page.items.into_iter().map(BatchForm::from).collect(),
            next: page.next,
        }
    }
}

/// A question of a run and what became of it.
#[derive(Serialize, ToSchema)]
#[schema(as = Approval)]
pub(crate) struct ApprovalForm {
    /// Its number among all questions.
    id: u64,
    /// Who asks.
    run: String,
    /// The id of the question within the run.
    question: String,
    /// Digest of the exact request: an answer names it.
    hash: String,
    /// What is asked, in words; empty for whoever may neither answer it nor act inside the run. Holds text of the agent: show it
    /// escaped.
    text: String,
    /// What it is about.
    about: String,
    /// When it was asked.
    asked: String,
    /// The same in milliseconds since 1970.
    asked_ms: u64,
    /// Until when it waits, in milliseconds since 1970.
    expires_ms: u64,
    /// `open`, `approved`, `denied`, `expired` or `stale`.
    state: String,
    /// Who answered.
    approver: Option<String>,
    /// `local-person`, `token-person`, `program` or `automatic`.
    approver_kind: Option<String>,
    /// When, in milliseconds since 1970.
    answered_ms: Option<u64>,
    /// `once` or `session`.
    scope: Option<String>,
    /// How often the answer may be used.
    uses: Option<u64>,
    /// What the approver said; only for whoever is told the words of the question.
    message: Option<String>,
}

impl From<Approval> for ApprovalForm {
    fn from(one: Approval) -> Self {
        Self {
            id: one.id,
            run: one.run.to_string(),
            question: one.question,
            hash: one.hash,
            text: one.text,
            about: one.about,
            asked: time(one.asked_ms),
            asked_ms: one.asked_ms,
            expires_ms: one.expires_ms,
            state: word(&one.state),
            approver: one.approver,
            approver_kind: one.approver_kind.map(|kind| kind.word().to_owned()),
            answered_ms: one.answered_ms,
            scope: one.scope,
            uses: one.uses,
            message: one.message,
        }
    }
}

/// Questions.
#[derive(Serialize, ToSchema)]
#[schema(as = Approvals)]
pub(crate) struct ApprovalsForm {
    /// The questions.
    pub(crate) items: Vec<ApprovalForm>,
}

/// What is known of a token. Never its secret.
#[derive(Serialize, ToSchema)]
#[schema(as = Token)]
pub(crate) struct TokenForm {
    /// Its id.
    id: String,
    /// `token-person` or `program`.
    kind: String,
    /// What it may do.
    role: String,
    /// What it is for.
    note: String,
    /// Who made it.
    maker: String,
    /// When, in milliseconds since 1970.
    created_ms: u64,
    /// Until when, in milliseconds since 1970.
    expires_ms: Option<u64>,
    /// Since when it does not hold any more.
    revoked_ms: Option<u64>,
    /// Only runs whose names begin so.
    prefix: Option<String>,
    /// Only these verbs.
    verbs: Option<Vec<String>>,
    /// The run it belongs to.
    run: Option<String>,
    /// The most it may give to runs, as far as it was stated.
    ceiling: super::Ceiling,
}

impl From<Token> for TokenForm {
    fn from(token: Token) -> Self {
        Self {
            id: token.id,
            kind: token.kind.word().to_owned(),
            role: token.role.word().to_owned(),
            note: token.note,
            maker: token.maker,
            created_ms: token.created_ms,
            expires_ms: token.expires_ms,
            revoked_ms: token.revoked_ms,
            prefix: token.prefix,
            verbs: token.verbs.map(|verbs| verbs.iter().map(word).collect()),
            run: token.run.map(String::from),
            ceiling: token.ceiling.into(),
        }
    }
}

/// Tokens.
#[derive(Serialize, ToSchema)]
#[schema(as = Tokens)]
pub(crate) struct TokensForm {
    /// The tokens.
    pub(crate) items: Vec<TokenForm>,
}

/// A token that was made.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedToken {
    /// What is known of it.
    pub(crate) token: TokenForm,
    /// The secret, told here and nowhere else.
    pub(crate) secret: String,
}

/// A profile.
#[derive(Serialize, ToSchema)]
#[schema(as = Profile)]
pub(crate) struct ProfileForm {
    /// Its name.
    name: String,
    /// Grows with every change; 0 for one that is built in.
    version: u64,
    /// Whether it comes with bastle.
    builtin: bool,
    /// The document.
    document: Value,
    /// When it was changed last, in milliseconds since 1970.
    changed_ms: u64,
}

impl From<ProfileRecord> for ProfileForm {
    fn from(profile: ProfileRecord) -> Self {
        Self {
            name: profile.name,
            version: profile.version,
            builtin: profile.builtin,
            document: profile.document,
            changed_ms: profile.changed_ms,
        }
    }
}

/// Profiles.
#[derive(Serialize, ToSchema)]
#[schema(as = Profiles)]
pub(crate) struct ProfilesForm {
    /// The profiles.
    pub(crate) items: Vec<ProfileForm>,
}

/// Sums over runs.
#[derive(Serialize, ToSchema)]
#[schema(as = Stats)]
pub(crate) struct StatsForm {
    /// All together.
    total: StatsRowForm,
    /// By the first word of the command.
    by_agent: BTreeMap<String, StatsRowForm>,
    /// By label.
    by_tag: BTreeMap<String, StatsRowForm>,
    /// By day in UTC.
    by_day: BTreeMap<String, StatsRowForm>,
    /// By batch.
    by_batch: BTreeMap<String, StatsRowForm>,
}

/// One row of sums.
#[derive(Serialize, ToSchema)]
#[schema(as = StatsRow)]
struct StatsRowForm {
    /// Runs.
    runs: u64,
    /// In which state.
    states: BTreeMap<String, u64>,
    /// Wall time, milliseconds.
    wall_ms: u64,
    /// Processor time, milliseconds.
    cpu_ms: u64,
    /// Denied attempts.
    denials: u64,
    /// Tokens of models.
    model_tokens: u64,
    /// Cost in millionths of a dollar.
    micro_usd: u64,
}

impl From<StatsRow> for StatsRowForm {
    fn from(row: StatsRow) -> Self {
        Self {
            runs: row.runs,
            states: row
                .states
                .iter()
                .map(|(state, count)| (state.to_string(), *count))
                .collect(),
            wall_ms: row.wall_ms,
            cpu_ms: row.cpu_ms,
            denials: row.denials,
            model_tokens: row.model_tokens,
            micro_usd: row.micro_usd,
        }
    }
}

impl From<Stats> for StatsForm {
    fn from(stats: Stats) -> Self {
        let rows =
            |rows: BTreeMap<String, StatsRow>| rows.into_iter().map(|(key, row)| (key, row.into())).collect();
        Self {
            total: stats.total.into(),
            by_agent: rows(stats.by_agent),
            by_tag: rows(stats.by_tag),
            by_day: rows(stats.by_day),
            by_batch: rows(stats.by_batch),
        }
    }
}

/// Whether the daemon works.
#[derive(Serialize, ToSchema)]
#[schema(as = Health)]
pub(crate) struct HealthForm {
    /// Whether the store takes writes.
    pub(crate) store: bool,
    /// Since when it is open, in milliseconds since 1970.
    since_ms: u64,
    /// Runs that live.
    living: u64,
    /// Runs that wait.
    queued: u64,
    /// Most that live at once.
    max_parallel: u32,
    /// Bytes of the database.
    store_bytes: u64,
}

impl From<Health> for HealthForm {
    fn from(health: Health) -> Self {
        Self {
            store: health.store,
            since_ms: health.since_ms,
            living: health.living,
            queued: health.queued,
            max_parallel: health.max_parallel,
            store_bytes: health.store_bytes,
        }
    }
}
