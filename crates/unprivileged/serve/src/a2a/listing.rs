//! Lists of tasks, a page at a time. The token of a page is signed and holds for the same question of the same caller.
use super::asked::{Params, flag, given_id, history, number, text};
use super::calls::{At, Call};
use super::send::hex;
use super::task::{Shown, TaskState, WithArtifacts, Words, task};
use super::wrong::Wrong;
use aws_lc_rs::hmac;
use bastle_contract::RunId;
use bastle_control::fleet::{TaskQuery, Verb};
use serde_json::{Value, json};

/// Tasks of a page: usually, and at most.
const USUAL: i64 = 50;
const MOST: i64 = 100;

pub(super) async fn list(call: &Call, params: &Params) -> Result<Value, Wrong> {
    let size = match number(params, "pageSize")? {
        None => USUAL,
        Some(size @ 1..=MOST) => size,
        Some(_) => return Err(Wrong::field("pageSize", format!("between 1 and {MOST}"))),
    };
    let size = usize::try_from(size).unwrap_or(1);
    let shown = Shown {
        history: history(params)?,
        artifacts: match flag(params, "includeArtifacts")? {
            true => WithArtifacts::Yes,
            false => WithArtifacts::No,
        },
        told: call.told(),
        words: Words::Hidden,
    };
    let mut query = query(call, params)?;
    let scope = format!("{}\0{query:?}", call.who.0.id);
    if let Some(token) = text(params, "pageToken")? {
        query.after = Some(open(&call.app.a2a.pages, &scope, token)?);
    }
    query.limit = size + 1;
    let state = call.app.state.clone();
    let caller = call.who.0.clone();
    let (tasks, next, total) = call
        .ask(move |fleet| {
            let (mut rows, total) = fleet.tasks(&query)?;
            let more = rows.len() > size;
            rows.truncate(size);
            let next = rows
                .last()
                .filter(|_| more)
                .map(|row| (row.changed_ms, row.name.clone()));
            let mut tasks = Vec::with_capacity(rows.len());
            for row in rows
                .into_iter()
                .filter(|row| caller.may_on(Verb::Read, &row.name))
            {
                // One that was removed meanwhile is not there.
                let shown = shown.within(fleet, &caller, &row.name);
                if let Ok(task) = task(fleet, &state, &row.name, shown) {
                    tasks.push(task);
                }
            }
            Ok::<_, crate::errors::Refusal>((tasks, next, total))
        })
        .await?;
    let next = next.map(|(changed, name)| seal(&call.app.a2a.pages, &scope, changed, &name));
    Ok(json!({
        "tasks": tasks, "nextPageToken": next.unwrap_or_default(), "pageSize": size, "totalSize": total,
    }))
}

/// What is asked for, within what the caller may see.
fn query(call: &Call, params: &Params) -> Result<TaskQuery, Wrong> {
    let states = match text(params, "status")? {
        None | Some("TASK_STATE_UNSPECIFIED") => Vec::new(),
        Some(word) => TaskState::of_word(word)
            .ok_or_else(|| Wrong::field("status", "is no state of a task"))?
            .runs(),
    };
    let changed_from = match text(params, "statusTimestampAfter")? {
        None => None,
        Some(time) => {
            let time: jiff::Timestamp = time
                .parse()
                .map_err(|_| Wrong::field("statusTimestampAfter", "a time such as 2026-01-31T12:00:00Z"))?;
            Some(u64::try_from(time.as_millisecond()).unwrap_or(0))
        }
    };
    let context = text(params, "contextId")?
        .map(|id| given_id("contextId", id))
        .transpose()?;
    let caller = &call.who.0;
    Ok(TaskQuery {
        run: match &call.at {
            At::Worker(run) => Some(run.clone()),
            At::Door => caller.run.clone(),
        },
        prefix: caller.prefix.clone(),
        context,
        states,
        changed_from,
        after: None,
        limit: 0,
    })
}

/// `MILLISECONDS.NAME.SIGNATURE`.
fn seal(key: &hmac::Key, scope: &str, changed: u64, name: &RunId) -> String {
    let place = format!("{changed}.{name}");
    format!(
        "{place}.{}",
        hex(hmac::sign(key, format!("{scope}\0{place}").as_bytes()).as_ref())
    )
}

fn open(key: &hmac::Key, scope: &str, token: &str) -> Result<(u64, RunId), Wrong> {
    let bad = || Wrong::field("pageToken", "was not given for this list");
    let (place, signature) = token.rsplit_once('.').ok_or_else(bad)?;
    let signature = unhex(signature).ok_or_else(bad)?;
    hmac::verify(key, format!("{scope}\0{place}").as_bytes(), &signature).map_err(|_| bad())?;
    let (changed, name) = place.split_once('.').ok_or_else(bad)?;
    let changed = changed.parse().map_err(|_| bad())?;
    let name = RunId::try_from(name.to_owned()).map_err(|_| bad())?;
    Ok((changed, name))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pair = |two: &[u8]| {
        std::str::from_utf8(two)
            .ok()
            .and_then(|two| u8::from_str_radix(two, 16).ok())
    };
    digits.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_token_that_was_changed_or_is_of_another_list_is_refused() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &[1; 32]);
        let name = RunId::try_from("a2a-x-0".to_owned()).unwrap();
        let token = seal(&key, "me", 17, &name);
        assert_eq!(open(&key, "me", &token).unwrap(), (17, name));
        assert!(open(&key, "you", &token).is_err());
        assert!(open(&hmac::Key::new(hmac::HMAC_SHA256, &[2; 32]), "me", &token).is_err());
        for at in 0..token.len() {
            let mut bent = token.clone().into_bytes();
            bent[at] ^= 1;
            let bent = String::from_utf8(bent).unwrap();
            // A digit of the signature in the other case is the same digit.
            if !bent.eq_ignore_ascii_case(&token) {
                assert!(open(&key, "me", &bent).is_err(), "{bent}");
            }
            assert!(open(&key, "me", &token[..at]).is_err());
        }
    }
}
