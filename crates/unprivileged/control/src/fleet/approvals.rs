//! Questions of runs and their answers. The first answer wins, and it holds for exactly the request that was shown.
use super::errands::answer_line;
use super::words::{allow_on, approval_state, approval_word, now_ms, run_id};
use super::{Approval, ApprovalQuery, ApprovalState, Caller, Inner, PrincipalKind, Verb, Verdict};
use super::{principals, rows, talk};
use crate::live::Scope;
use crate::store::{Stop, int, uint};
use bastle_contract::{Code, Fault};
use rusqlite::{Connection, Row, params};

const COLUMNS: &str = "id, run, question, hash, text, about, asked_ms, expires_ms, state, approver, answered_ms, \
     scope, uses, message, approver_kind";
/// Longest message of an approver.
const MAX_MESSAGE: usize = 4096;

/// What somebody said to a question.
pub(super) struct Said<'s> {
    pub(super) hash: Option<&'s str>,
    pub(super) verdict: Verdict,
    pub(super) scope: Scope,
    pub(super) message: Option<&'s str>,
}

fn read(row: &Row<'_>) -> Result<Approval, Stop> {
    Ok(Approval {
        id: uint(row.get(0)?),
        run: run_id(row.get(1)?)?,
        question: row.get(2)?,
        hash: row.get(3)?,
        text: row.get(4)?,
        about: row.get(5)?,
        asked_ms: uint(row.get(6)?),
        expires_ms: uint(row.get(7)?),
        state: approval_state(&row.get::<_, String>(8)?)?,
        approver: row.get(9)?,
        answered_ms: row.get::<_, Option<i64>>(10)?.map(uint),
        scope: row.get(11)?,
        uses: row.get::<_, Option<i64>>(12)?.map(uint),
        message: row.get(13)?,
        approver_kind: row
            .get::<_, Option<String>>(14)?
            .and_then(|word| PrincipalKind::of(&word)),
    })
}

pub(super) fn one(db: &Connection, id: u64) -> Result<Approval, Stop> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM approvals WHERE id = ?1"))?;
    let mut rows = statement.query([int(id)])?;
    match rows.next()? {
        Some(row) => read(row),
        None => Err(
            Fault::new(Code::ApprovalMissing, format!("there is no question {id}"), "")
                .help("bastle approvals ls")
                .into(),
        ),
    }
}

pub(super) fn list(inner: &Inner, query: &ApprovalQuery) -> Result<Vec<Approval>, Fault> {
    let most = match query.limit {
        0 => 100,
        limit => limit.min(1000),
    };
    inner.store.read(|db| {
        let mut statement = db.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM approvals WHERE (?1 = 0 OR id < ?1) AND (?2 IS NULL OR state = ?2) \
             AND (?3 IS NULL OR run = ?3) ORDER BY id DESC LIMIT ?4"
        ))?;
        let mut rows = statement.query(params![
            int(query.after),
            query.state.map(approval_word),
            query.run.as_ref().map(bastle_contract::RunId::as_str),
            int(most as u64)
        ])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(read(row)?);
        }
        Ok(found)
    })
}

fn stale(id: u64, why: impl Into<String>) -> Fault {
    Fault::new(
        Code::ApprovalStale,
        format!("question {id} cannot be answered any more"),
        why,
    )
    .help("bastle approvals ls")
}

/// Answers a question: recorded first, then told to the run.
pub(super) fn answer(inner: &Inner, caller: &Caller, id: u64, said: &Said<'_>) -> Result<Approval, Fault> {
    let long = said.message.is_some_and(|message| message.len() > MAX_MESSAGE);
    if long {
        return Err(Fault::new(
            Code::UsageArgument,
            "the message is too long",
            format!("{MAX_MESSAGE} bytes are the most"),
        ));
    }
    // Told here and by nobody else: the run takes an answer once, and a second one would be told as too late.
    let run = inner.store.read(|db| one(db, id))?.run;
    let _in_hand = inner.take_in_hand(&run, &act(id));
    let (approval, journal) = inner.store.write(|db| record(db, caller, id, said))?;
    super::hooks::point("answer-committed");
    let state = approval_word(approval.state);
    let line = answer_line(
        state,
        &approval.question,
        &approval.hash,
        approval.scope.as_deref(),
        Some(&caller.described()),
    );
    let told = talk::ask(&inner.options.state, &approval.run, &line);
    inner.store.write(|db| {
        db.prepare_cached("DELETE FROM journal WHERE id = ?1")?
            .execute([journal])?;
        if told.is_err() {
            db.prepare_cached("UPDATE approvals SET state = 'stale' WHERE id = ?1")?
                .execute([int(id)])?;
        }
        let now = if told.is_err() { "stale" } else { state };
        let data = serde_json::json!({"id": id, "state": now, "by": caller.id, "kind": caller.kind, "scope": approval.scope});
        rows::own_event(db, Some(&approval.run), "approval", &data, now_ms())
    })?;
    inner.told();
    match told {
        Ok(_) => Ok(approval),
        Err(fault) => Err(stale(
            id,
            format!("the run {} did not take it: {fault}", approval.run),
        )),
    }
}

/// What the journal says of an answer that has to be told.
fn act(id: u64) -> String {
    format!("answer {id}")
}

/// Checks and records an answer; gives it with the entry of the journal that says it has to be told.
fn record(db: &Connection, caller: &Caller, id: u64, said: &Said<'_>) -> Result<(Approval, i64), Stop> {
    let mut approval = one(db, id)?;
    allow_on(caller, Verb::Answer, &approval.run)?;
    let now = super::words::steady_ms();
    match approval.state {
        ApprovalState::Open if approval.expires_ms > now => {}
        ApprovalState::Open => return Err(stale(id, "it expired").into()),
        state => {
            let by = approval.approver.as_deref().unwrap_or("nobody");
            let kind = approval
                .approver_kind
                .map_or_else(String::new, |kind| format!(" ({})", kind.word()));
            return Err(stale(id, format!("it is {}, by {by}{kind}", approval_word(state))).into());
        }
    }
    if said.hash.is_some_and(|hash| hash != approval.hash) {
        return Err(stale(id, "it asks something else than what was answered").into());
    }
    // A no takes nothing from anybody but the one who asks; a yes is another's to say.
    if said.verdict == Verdict::Approve {
        principals::refuse_own(db, caller, &approval.run)?;
    }
    let (state, scope, uses): (_, _, Option<u64>) = match (said.verdict, said.scope) {
        (Verdict::Approve, Scope::Once) => (ApprovalState::Approved, "once", Some(1)),
        (Verdict::Approve, Scope::Session) => (ApprovalState::Approved, "session", None),
        (Verdict::Deny, Scope::Once) => (ApprovalState::Denied, "once", None),
        (Verdict::Deny, Scope::Session) => (ApprovalState::Denied, "session", None),
    };
    approval.state = state;
    approval.approver = Some(caller.id.clone());
    approval.approver_kind = Some(caller.kind);
    approval.answered_ms = Some(now);
    approval.scope = Some(scope.to_owned());
    approval.uses = uses;
    approval.message = said.message.map(str::to_owned);
    db.prepare_cached(
        "UPDATE approvals SET state = ?2, approver = ?3, answered_ms = ?4, scope = ?5, uses = ?6, message = ?7, \
         approver_kind = ?8 \
         WHERE id = ?1 AND state = 'open'",
    )?
    .execute(params![
        int(id),
        approval_word(state),
        approval.approver,
        int(now),
        scope,
        uses.map(int),
        approval.message,
        caller.kind.word(),
    ])?;
    db.prepare_cached("INSERT INTO journal(time_ms, run, act) VALUES (?1, ?2, ?3)")?
        .execute(params![int(now), approval.run.as_str(), act(id)])?;
    Ok((approval, db.last_insert_rowid()))
}
