//! The form of the database, and how an older one is brought up to date. Steps are only ever added.
use rusqlite::Connection;

/// Each step makes version N of version N-1.
const STEPS: &[&str] = &[FIRST, SPENT, CONVERSATIONS, PLACES, PRINCIPALS, AUTHORITY];

const FIRST: &str = "
CREATE TABLE batches(
    id           TEXT PRIMARY KEY,
    ord          INTEGER NOT NULL UNIQUE,
    prefix       TEXT NOT NULL,
    caller       TEXT NOT NULL,
    created_ms   INTEGER NOT NULL,
    size         INTEGER NOT NULL,
    max_parallel INTEGER
) STRICT;

CREATE TABLE runs(
    ord          INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT NOT NULL UNIQUE,
    batch        TEXT REFERENCES batches(id),
    idx          INTEGER,
    -- queued: wanted. starting: its keeper may have been started. kept: its keeper was seen. ended.
    phase        TEXT NOT NULL CHECK (phase IN ('queued','starting','kept','ended')),
    state        TEXT NOT NULL,
    reason       TEXT,
    spec         TEXT NOT NULL,
    preamble     TEXT,
    priority     INTEGER NOT NULL DEFAULT 0,
    at_once      INTEGER,
    created_ms   INTEGER NOT NULL,
    started_ms   INTEGER,
    ended_ms     INTEGER,
    code         INTEGER,
    fault        TEXT,
    agent        TEXT NOT NULL,
    workspace    TEXT NOT NULL,
    profile      TEXT,
    parent       TEXT,
    depth        INTEGER NOT NULL DEFAULT 0,
    caller       TEXT NOT NULL,
    denials      INTEGER NOT NULL DEFAULT 0,
    question     TEXT,
    turns        INTEGER NOT NULL DEFAULT 0,
    model_tokens INTEGER NOT NULL DEFAULT 0,
    micro_usd    INTEGER NOT NULL DEFAULT 0,
    wall_ms      INTEGER NOT NULL DEFAULT 0,
    cpu_ms       INTEGER NOT NULL DEFAULT 0,
    last_event   INTEGER NOT NULL DEFAULT 0,
    -- Where in its file of events the next one begins.
    events_at    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX runs_by_phase ON runs(phase, priority DESC, ord);
CREATE INDEX runs_by_batch ON runs(batch);
CREATE INDEX runs_by_parent ON runs(parent);
CREATE INDEX runs_by_end ON runs(ended_ms);

CREATE TABLE tags(
    run   TEXT NOT NULL REFERENCES runs(name) ON DELETE CASCADE,
    key   TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX tags_by_value ON tags(key, value);

CREATE TABLE events(
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    run     TEXT,
    run_seq INTEGER,
    batch   TEXT,
    time_ms INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    data    TEXT NOT NULL,
    UNIQUE (run, run_seq)
) STRICT;
CREATE INDEX events_by_run ON events(run, seq);
CREATE INDEX events_by_batch ON events(batch, seq);

CREATE TABLE approvals(
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    run         TEXT NOT NULL,
    question    TEXT NOT NULL,
    hash        TEXT NOT NULL,
    text        TEXT NOT NULL,
    about       TEXT NOT NULL,
    asked_ms    INTEGER NOT NULL,
    expires_ms  INTEGER NOT NULL,
    state       TEXT NOT NULL,
    approver    TEXT,
    answered_ms INTEGER,
    scope       TEXT,
    uses        INTEGER,
    message     TEXT
) STRICT;
CREATE INDEX approvals_by_state ON approvals(state, id);
CREATE INDEX approvals_by_run ON approvals(run, id);

CREATE TABLE tokens(
    id         TEXT PRIMARY KEY,
    hash       BLOB NOT NULL,
    role       TEXT NOT NULL,
    note       TEXT NOT NULL,
    maker      TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    revoked_ms INTEGER,
    prefix     TEXT,
    verbs      TEXT,
    run        TEXT
) STRICT;

CREATE TABLE profiles(
    name       TEXT PRIMARY KEY,
    version    INTEGER NOT NULL,
    document   TEXT NOT NULL,
    changed_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE idempotency(
    caller     TEXT NOT NULL,
    key        TEXT NOT NULL,
    hash       BLOB NOT NULL,
    report     TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (caller, key)
) STRICT;

-- What was begun and is finished at the next start if it was not: written before the effect, removed after it.
CREATE TABLE journal(
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ms INTEGER NOT NULL,
    run     TEXT NOT NULL,
    act     TEXT NOT NULL
) STRICT;

-- Places that runs write which have not ended.
CREATE TABLE locks(
    run  TEXT NOT NULL REFERENCES runs(name) ON DELETE CASCADE,
    path TEXT NOT NULL,
    PRIMARY KEY (run, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE counters(
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT;
";

const SPENT: &str = "
-- What a run is known to have used of each budget. Only grows.
CREATE TABLE spent(
    run  TEXT NOT NULL REFERENCES runs(name) ON DELETE CASCADE,
    what TEXT NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (run, what)
) STRICT, WITHOUT ROWID;
";

/// What the agent protocol adds to runs: the conversation a run belongs to, what was said in it, and whom to tell.
const CONVERSATIONS: &str = "
CREATE TABLE conversations(
    run        TEXT PRIMARY KEY REFERENCES runs(name) ON DELETE CASCADE,
    context    TEXT NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX conversations_by_context ON conversations(context);

CREATE TABLE messages(
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    run     TEXT NOT NULL REFERENCES runs(name) ON DELETE CASCADE,
    time_ms INTEGER NOT NULL,
    message TEXT NOT NULL
) STRICT;
CREATE INDEX messages_by_run ON messages(run, seq);

CREATE TABLE receivers(
    run        TEXT NOT NULL REFERENCES runs(name) ON DELETE CASCADE,
    id         TEXT NOT NULL,
    caller     TEXT NOT NULL,
    config     TEXT NOT NULL,
    -- Number of the last event that was told.
    since      INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (run, id)
) STRICT, WITHOUT ROWID;
";

/// Who holds a place is asked at every start.
const PLACES: &str = "
CREATE INDEX locks_by_path ON locks(path);
";

/// What kind of principal started a run, answered a question, holds a token. `NULL`: from before it was recorded.
const PRINCIPALS: &str = "
ALTER TABLE runs ADD COLUMN caller_kind TEXT;
ALTER TABLE approvals ADD COLUMN approver_kind TEXT;
ALTER TABLE tokens ADD COLUMN kind TEXT NOT NULL DEFAULT 'token-person';
UPDATE tokens SET kind = 'program' WHERE role = 'run';
";

/// The ceiling of a token; whose authority a run uses up, and by which way it was asked for. Runs from before are their
/// caller's; tokens from before have the daemon's default.
const AUTHORITY: &str = "
ALTER TABLE tokens ADD COLUMN ceiling TEXT;
ALTER TABLE runs ADD COLUMN principal TEXT;
ALTER TABLE runs ADD COLUMN via TEXT NOT NULL DEFAULT 'runs';
UPDATE runs SET principal = caller;
CREATE INDEX runs_by_principal ON runs(principal, phase);
";

/// Checks that the file is whole and not newer than this program, and takes the steps it lacks, each whole or not.
pub(super) fn bring_up_to_date(connection: &Connection) -> Result<(), String> {
    let text = |error: rusqlite::Error| error.to_string();
    let checked: String = connection
        .pragma_query_value(None, "quick_check", |row| row.get(0))
        .map_err(text)?;
    if checked != "ok" {
        return Err(format!("it is damaged: {checked}"));
    }
    let version: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(text)?;
    let Ok(version) = usize::try_from(version) else {
        return Err(format!("it says that its version is {version}"));
    };
    if version > STEPS.len() {
        return Err(format!(
            "it has version {version}, and this program knows up to {}",
            STEPS.len()
        ));
    }
    for (done, step) in STEPS.iter().enumerate().skip(version) {
        let next = done + 1;
        connection
            .execute_batch(&format!(
                "BEGIN IMMEDIATE;{step}PRAGMA user_version={next};COMMIT;"
            ))
            .map_err(text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_database_is_brought_up_to_date_and_keeps_what_it_has() {
        let old = Connection::open_in_memory().unwrap();
        old.execute_batch(&format!("{FIRST}PRAGMA user_version=1;"))
            .unwrap();
        old.execute(
            "INSERT INTO events(time_ms, kind, data) VALUES (1, 'note', '{}')",
            [],
        )
        .unwrap();
        old.execute(
            "INSERT INTO runs(name, phase, state, spec, created_ms, agent, workspace, caller) \
             VALUES ('old', 'kept', 'running', '{}', 0, 'sh', '/w', 'token:before')",
            [],
        )
        .unwrap();
        old.execute(
            "INSERT INTO tokens(id, hash, role, note, maker, created_ms) VALUES ('t', x'00', 'operator', '', 'me', 0)",
            [],
        )
        .unwrap();
        bring_up_to_date(&old).unwrap();
        let (principal, via): (String, String) = old
            .query_row("SELECT principal, via FROM runs", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!((principal.as_str(), via.as_str()), ("token:before", "runs"));
        let ceiling: Option<String> = old
            .query_row("SELECT ceiling FROM tokens", [], |row| row.get(0))
            .unwrap();
        assert_eq!(ceiling, None, "a token from before has the daemon's default");
        let count = |table: &str| -> i64 {
            old.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))
                .unwrap()
        };
        assert_eq!((count("events"), count("receivers")), (1, 0));
        let version: i64 = old
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap();
        assert_eq!(usize::try_from(version).unwrap(), STEPS.len());
        bring_up_to_date(&old).unwrap();
    }
}
