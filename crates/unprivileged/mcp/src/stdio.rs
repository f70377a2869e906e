//! One conversation over a pair of pipes: a message per line, both ways, nothing else on the way out.
//!
//! **Trust:** whoever started the process. Lines are bounded all the same, and so is what is under way.
use crate::desk::{Desk, Session};
use crate::face::Face;
use crate::words::{Message, Request, RpcError, id_of, read};
use crate::{legacy, modern};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How long answers under way may take once nobody asks any more.
const DRAIN: Duration = Duration::from_secs(10);

/// The two ends.
pub struct Stdio<R, W> {
    /// Where messages come from.
    pub input: R,
    /// Where they go.
    pub output: W,
}

/// What is under way, by the id of the request as text.
type UnderWay = Arc<Mutex<HashMap<String, tokio::task::AbortHandle>>>;

struct Conversation<F: Face> {
    desk: Arc<Desk<F>>,
    caller: F::Caller,
    key: String,
    session: Option<Arc<Session>>,
    sender: mpsc::Sender<Value>,
    tasks: JoinSet<()>,
    under_way: UnderWay,
}

/// Talks until the input ends.
///
/// # Errors
/// When a pipe fails.
pub async fn converse<F, R, W>(
    desk: Arc<Desk<F>>,
    caller: F::Caller,
    ends: Stdio<R, W>,
) -> std::io::Result<()>
where
    F: Face,
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(64);
    let writer = tokio::spawn(write(ends.output, receiver));
    let mut talk = Conversation {
        key: desk.face.key(&caller),
        caller,
        session: None,
        sender,
        tasks: JoinSet::new(),
        under_way: UnderWay::default(),
        desk,
    };
    let mut input = BufReader::new(ends.input);
    let mut line = Vec::new();
    loop {
        line.clear();
        let most = talk.desk.limits.line;
        match next_line(&mut input, &mut line, most).await? {
            Line::Whole => talk.hear(&line).await,
            Line::TooLong => {
                let error = RpcError::request("the message is longer than is taken");
                talk.say(error.message(&Value::Null)).await;
            }
            Line::End => break,
        }
        if talk.sender.is_closed() {
            break;
        }
        while talk.tasks.try_join_next().is_some() {}
    }
    let Conversation {
        mut tasks, sender, ..
    } = talk;
    drop(sender);
    let drained = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tasks.abort_all();
    }
    tasks.shutdown().await;
    writer
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads up to the end of a line; a longer one is passed over.
async fn next_line<R: AsyncRead + Unpin>(
    input: &mut BufReader<R>,
    line: &mut Vec<u8>,
    most: usize,
) -> std::io::Result<Line> {
    let mut long = false;
    loop {
        let part = input.fill_buf().await?;
        if part.is_empty() {
            return Ok(match (line.is_empty(), long) {
                (_, true) => Line::TooLong,
                (true, false) => Line::End,
                (false, false) => Line::Whole,
            });
        }
        let (taken, ended) = match part.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at, true),
            None => (part.len(), false),
        };
        if line.len() + taken > most {
            long = true;
            line.clear();
        }
        if !long {
            line.extend_from_slice(&part[..taken]);
        }
        input.consume(taken + usize::from(ended));
        if ended {
            return Ok(if long { Line::TooLong } else { Line::Whole });
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(
    mut output: W,
    mut receiver: mpsc::Receiver<Value>,
) -> std::io::Result<()> {
    while let Some(message) = receiver.recv().await {
        output.write_all(format!("{message}\n").as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}

impl<F: Face> Conversation<F> {
    async fn say(&self, message: Value) {
        // A closed output ends the conversation at the next line.
        drop(self.sender.send(message).await);
    }

    async fn hear(&mut self, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let value = match self.desk.face.parse(line) {
            Ok(value) => value,
            Err(why) => return self.say(RpcError::parse(&why).message(&Value::Null)).await,
        };
        let id = id_of(&value);
        match read(value) {
            Err(error) => self.say(error.message(&id)).await,
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    self.cancel(params.get("requestId"));
                }
            }
            Ok(Message::Response { id, outcome }) => {
                // One that nobody waits for is nothing.
                self.desk.answered(&self.key, &id, outcome);
            }
            Ok(Message::Request(request)) => {
                if let Err(error) = self.take(request).await {
                    self.say(error.message(&id)).await;
                }
            }
        }
    }

    fn cancel(&self, id: Option<&Value>) {
        let name = id.map(Value::to_string).unwrap_or_default();
        if let Some(task) = self.under_way().remove(&name) {
            task.abort();
        }
    }

    fn under_way(&self) -> std::sync::MutexGuard<'_, HashMap<String, tokio::task::AbortHandle>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take(&mut self, request: Request) -> Result<(), RpcError> {
        if request.method == "initialize" && !request.is_modern() {
            let session = legacy::agree(&request)?;
            let welcome = self.desk.welcome(&session);
            self.session = Some(Arc::new(session));
            self.say(json!({ "jsonrpc": "2.0", "id": request.id, "result": welcome }))
                .await;
            return Ok(());
        }
        let name = request.id.to_string();
        if self.under_way().contains_key(&name) {
            return Err(RpcError::request("id: a request of this id is under way"));
        }
        let session = match (&self.session, request.is_modern()) {
            (_, true) => None,
            (Some(session), false) => Some(Arc::clone(session)),
            // Without either, it is told what a modern request says.
            (None, false) => None,
        };
        let at_work = self.desk.begin(&self.key)?;
        let capabilities = match &session {
            None => modern::check(&request)?,
            Some(_) => serde_json::Map::new(),
        };
        let (desk, caller, sender) = (Arc::clone(&self.desk), self.caller.clone(), self.sender.clone());
        let (under_way, own) = (Arc::clone(&self.under_way), name.clone());
        // Noted before it can end: a request that is over must not stay in the list.
        let noted = Arc::clone(&self.under_way);
        let mut list = noted.lock().unwrap_or_else(PoisonError::into_inner);
        let task = self.tasks.spawn(async move {
            let _at_work = at_work;
            let done = answer(&desk, &request, session, capabilities, caller, sender.clone()).await;
            under_way
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&own);
            let message = match done {
                Ok(result) => json!({ "jsonrpc": "2.0", "id": request.id, "result": result }),
                Err(error) => error.message(&request.id),
            };
            drop(sender.send(message).await);
        });
        list.insert(name, task);
        Ok(())
    }
}

async fn answer<F: Face>(
    desk: &Arc<Desk<F>>,
    request: &Request,
    session: Option<Arc<Session>>,
    capabilities: serde_json::Map<String, Value>,
    caller: F::Caller,
    sender: mpsc::Sender<Value>,
) -> Result<Value, RpcError> {
    let longest = desk.limits.longest;
    let late = |_| Err(RpcError::internal("the answer took too long"));
    match session {
        Some(session) => {
            let done = desk.legacy(request, &session, caller, sender);
            tokio::time::timeout(longest, done).await.unwrap_or_else(late)
        }
        None if request.method == "subscriptions/listen" => {
            desk.modern(request, capabilities, caller, sender).await
        }
        None => {
            let done = desk.modern(request, capabilities, caller, sender);
            tokio::time::timeout(longest, done).await.unwrap_or_else(late)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::said;
    use proptest::prelude::*;

    const WORDS: [&str; 12] = [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"a","arguments":{}}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":7}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#,
        r#"{"jsonrpc":"2.0","id":"nobody","result":{}}"#,
        "[]",
        "",
        "{",
        "\u{0}",
    ];

    #[test]
    fn a_line_longer_than_is_taken_is_refused_and_the_next_is_served() {
        let bytes = format!("\"{}\"\n{}\n", "x".repeat(5000), WORDS[0]);
        let all = String::from_utf8(said(bytes.as_bytes())).unwrap();
        let lines: Vec<Value> = all
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2, "{all}");
        assert_eq!(lines[0]["error"]["code"], -32600);
        assert_eq!(lines[1]["result"]["protocolVersion"], "2025-11-25");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn whatever_comes_in_only_messages_go_out(
            picks in proptest::collection::vec((0..WORDS.len(), any::<u8>(), 0usize..200), 0..12),
            noise in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut bytes = Vec::new();
            for (pick, flip, at) in picks {
                let mut line = WORDS[pick].as_bytes().to_vec();
                if let Some(byte) = line.get_mut(at) {
                    *byte ^= flip;
                }
                bytes.extend_from_slice(&line);
                bytes.push(b'\n');
            }
            bytes.extend_from_slice(&noise);
            for line in said(&bytes).split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let message: Value = serde_json::from_slice(line).unwrap();
                prop_assert_eq!(&message["jsonrpc"], "2.0");
                prop_assert!(message["result"].is_object() != message["error"].is_object(), "{}", message);
            }
        }
    }
}
