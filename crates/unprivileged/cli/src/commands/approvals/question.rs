//! A question that waits, wherever it was heard of: from the daemon, or from the socket of a run.
use crate::client::{Daemon, part, short};
use crate::commands::source::state_dir;
use bastle_contract::{Code, Fault, RunId};
use bastle_control::fleet::Approval;
use bastle_control::live::{self, Command, Scope};
use bastle_control::runs::{RunDir, read_events};
use serde_json::{Value, json};
use std::path::Path;

/// Events of one run that are looked through for its questions.
const MOST_EVENTS: usize = 100_000;

/// An open question. Its text holds words of the agent: show it escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// How it is named on the command line: a number of the daemon, or `RUN/ID`.
    pub(super) id: String,
    pub(super) run: String,
    /// Its id within the run.
    pub(super) question: String,
    /// Digest of the exact request, where it is known.
    pub(super) hash: Option<String>,
    pub(super) text: String,
    pub(super) about: String,
    pub(super) asked_ms: Option<u64>,
    pub(super) expires_ms: Option<u64>,
}

/// Whom questions are heard from and answers are given to.
pub(super) enum Channel {
    /// The daemon knows all.
    Daemon(Daemon),
    /// Without one: every living run of this user, by its own socket.
    Sockets,
}

/// What a person says.
#[derive(Clone, Debug)]
pub(super) struct Answer<'a> {
    pub(super) yes: bool,
    pub(super) scope: Scope,
    pub(super) message: Option<&'a str>,
}

impl Channel {
    /// The daemon where one is, else the sockets.
    pub(super) fn open() -> Result<Self, Vec<Fault>> {
        Ok(Daemon::if_there()?.map_or(Self::Sockets, Self::Daemon))
    }

    /// What is open now.
    pub(super) fn questions(&self) -> Result<Vec<Question>, Vec<Fault>> {
        match self {
            Self::Daemon(daemon) => {
                let open: Vec<Approval> = daemon.list("/api/v1/approvals?state=open&limit=1000")?;
                Ok(open.into_iter().map(Question::from).collect())
            }
            Self::Sockets => {
                let state = state_dir().map_err(|fault| vec![fault])?;
                Ok(live::living(&state)
                    .iter()
                    .flat_map(|run| of_run(&state, run))
                    .collect())
            }
        }
    }

    /// Gives the answer to exactly what was asked.
    pub(super) fn answer(&self, question: &Question, answer: &Answer<'_>) -> Result<Value, Vec<Fault>> {
        match self {
            Self::Daemon(daemon) => {
                let verb = if answer.yes { "approve" } else { "deny" };
                let mut body = json!({ "hash": question.hash, "message": answer.message });
                if answer.yes {
                    body["scope"] = json!(answer.scope);
                }
                daemon.post(&format!("/api/v1/approvals/{}/{verb}", part(&question.id)), &body)
            }
            Self::Sockets => {
                let state = state_dir().map_err(|fault| vec![fault])?;
                let run = RunId::try_from(question.run.clone())
                    .map_err(|error| vec![Fault::new(Code::RunMissing, "no such run", error.to_string())])?;
                let (target, hash) = (question.question.clone(), question.hash.clone());
                let command = if answer.yes {
                    Command::Allow {
                        target,
                        scope: answer.scope,
                        hash,
                        by: None,
                    }
                } else {
                    Command::Deny {
                        target,
                        hash,
                        by: None,
                    }
                };
                live::ask(&state, &run, &command)
            }
        }
    }
}

/// The open questions of one living run. One that does not answer has none that could be answered.
fn of_run(state: &Path, run: &RunId) -> Vec<Question> {
    let Ok(status) = live::ask(state, run, &Command::Status {}) else {
        return Vec::new();
    };
    let kept = RunDir::open(state, run)
        .and_then(|dir| {
            read_events(&dir.events_path(), 0, MOST_EVENTS)
                .map_err(|error| Fault::new(Code::StateDir, "events", error.to_string()))
        })
        .unwrap_or_default();
    let words = |value: &Value| value.as_str().map(str::to_owned);
    let open = status["questions"].as_array().cloned().unwrap_or_default();
    open.iter()
        .filter_map(|one| {
            let id = words(one).or_else(|| words(&one["id"]))?;
            let told = kept
                .iter()
                .rev()
                .find(|event| event.kind == "question" && event.data["id"] == id.as_str());
            let data = told.map_or(one, |event| &event.data);
            Some(Question {
                id: format!("{run}/{id}"),
                run: run.to_string(),
                question: id,
                hash: words(&data["hash"]),
                text: words(&data["text"]).unwrap_or_default(),
                about: words(&data["about"]).unwrap_or_default(),
                asked_ms: told.map(|event| event.time_ms),
                expires_ms: None,
            })
        })
        .collect()
}

impl From<Approval> for Question {
    fn from(approval: Approval) -> Self {
        Self {
            id: approval.id.to_string(),
            run: approval.run.to_string(),
            question: approval.question,
            hash: Some(approval.hash),
            text: approval.text,
            about: approval.about,
            asked_ms: Some(approval.asked_ms),
            expires_ms: Some(approval.expires_ms),
        }
    }
}

/// The question that a person means: its id, the id within its run where only one has it, or `RUN/ID`.
pub(super) fn find<'a>(open: &'a [Question], wanted: &str) -> Result<&'a Question, Fault> {
    if let Some(exact) = open.iter().find(|one| one.id == wanted) {
        return Ok(exact);
    }
    let names = |one: &&Question| one.question == wanted || format!("{}/{}", one.run, one.question) == wanted;
    let mut fitting = open.iter().filter(names);
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only),
        (Some(first), Some(second)) => Err(Fault::new(
            Code::UsageArgument,
            format!("{} names more than one question", short(wanted)),
            format!("{} and {}", first.id, second.id),
        )
        .help("bastle approvals ls")),
        (None, _) => {
            let mut fault = Fault::new(
                Code::ApprovalMissing,
                format!("no question {} is open", short(wanted)),
                "it was answered, it expired, its run ended, or it never was",
            );
            let ids = open
                .iter()
                .flat_map(|one| [one.id.as_str(), one.question.as_str()]);
            if let Some(near) = bastle_policy::nearest(wanted, ids) {
                fault = fault.help(format!("did you mean {}?", short(near)));
            }
            Err(fault.help("bastle approvals ls"))
        }
    }
}

/// Whether what a person saw is what is asked now.
pub(super) fn same(question: &Question, seen: Option<&str>) -> Result<(), Fault> {
    let Some(seen) = seen else { return Ok(()) };
    let fits = |hash: &String| seen.len() >= 8 && hash.starts_with(seen);
    if question.hash.as_ref().is_some_and(fits) {
        return Ok(());
    }
    Err(Fault::new(
        Code::ApprovalStale,
        format!("question {} is not what --hash says", question.id),
        "it asks for something else now; the first eight characters of the hash, or more, are compared",
    )
    .help("bastle approvals ls"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(id: &str, run: &str, within: &str) -> Question {
        Question {
            id: id.to_owned(),
            run: run.to_owned(),
            question: within.to_owned(),
            hash: Some("0123456789abcdef".to_owned()),
            text: String::new(),
            about: String::new(),
            asked_ms: None,
            expires_ms: None,
        }
    }

    #[test]
    fn an_id_that_two_runs_have_is_not_guessed_and_an_unknown_one_gets_a_hint() {
        let open = [
            question("7", "a", "d_1"),
            question("8", "b", "d_1"),
            question("9", "c", "d_8f2k"),
        ];
        assert_eq!(find(&open, "8").unwrap().run, "b");
        assert_eq!(find(&open, "d_8f2k").unwrap().run, "c");
        assert_eq!(find(&open, "b/d_1").unwrap().run, "b");
        assert_eq!(find(&open, "d_1").unwrap_err().code, Code::UsageArgument);
        let fault = find(&open, "d_8f2j").unwrap_err();
        assert!(fault.help[0].contains("did you mean d_8f2k"), "{fault:?}");
    }

    #[test]
    fn an_answer_to_what_is_not_asked_any_more_is_refused() {
        let asked = question("7", "a", "d_1");
        for bad in ["", "0123", "0123456789abcdeF", "fedcba9876543210"] {
            assert!(same(&asked, Some(bad)).is_err(), "{bad}");
        }
        assert!(same(&asked, Some("01234567")).is_ok() && same(&asked, None).is_ok());
        let unknown = Question { hash: None, ..asked };
        assert!(same(&unknown, Some("01234567")).is_err());
    }
}
