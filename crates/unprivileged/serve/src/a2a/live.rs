//! What a worker prints, as it prints it: pieces of one artifact between the other events of its task.
//!
//! Every reader is told the same pieces at the same place among the events. What is printed has no numbers of its own, so
//! the first reader that comes to an event decides how much was printed before it, for all of them.
//!
//! **Trust:** the bytes are the agent's: told as text, piece by piece, and only so many of one task.
use super::artifacts::{ABOUT, MOST_OUTPUT};
use crate::app::App;
use crate::errors::Refusal;
use crate::transcript;
use bastle_contract::RunId;
use bastle_contract::stream::StreamKind;
use bastle_control::fleet::Fleet;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes of one task that are told as they come. Of what is more, the end is told when it ended.
const MOST: u64 = 1024 * 1024;
/// Bytes that are read at once.
const PART: u64 = 64 * 1024;
/// Places that are remembered for slow readers.
const MOST_CUTS: usize = 4096;

/// How much was printed before which event.
type Cuts = BTreeMap<u64, u64>;
/// Those of the tasks that somebody watches.
pub(super) type Watched = Mutex<HashMap<String, Weak<Mutex<Cuts>>>>;

/// Which piece it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    First,
    Further,
    Last,
}

/// What one reader was told of a task's output.
#[derive(Clone)]
pub(super) struct Live {
    run: RunId,
    context: String,
    cuts: Arc<Mutex<Cuts>>,
    /// Where in the log it reads on.
    at: u64,
    /// Bytes of output up to there.
    bytes: u64,
    /// The beginning of a character whose rest is in the next piece.
    open: Vec<u8>,
    /// A driven agent prints frames of its protocol; what it says is told as messages, and whole at the end.
    frames: bool,
}

impl Live {
    /// From what is there now, which is given as an artifact; none where nothing was printed.
    pub(super) async fn begin(
        app: &App,
        run: &RunId,
        context: &str,
    ) -> Result<(Self, Option<Value>), Refusal> {
        let mut live = Self {
            cuts: cuts_of(&app.a2a.watched, run),
            run: run.clone(),
            context: context.to_owned(),
            at: 0,
            bytes: 0,
            open: Vec::new(),
            frames: false,
        };
        app.ask(move |fleet| {
            live.frames = transcript::speaks_a_protocol(fleet, &live.run)?;
            let mut text = String::new();
            live.read(fleet, u64::MAX, u64::MAX, |piece, _| {
                text.push_str(&piece);
                if text.len() > 4 * MOST_OUTPUT {
                    text.drain(..text.ceil_char_boundary(text.len() - MOST_OUTPUT));
                }
            });
            text.drain(..text.ceil_char_boundary(text.len().saturating_sub(MOST_OUTPUT)));
            let artifact = (live.bytes > 0).then(|| live.artifact(&text));
            Ok::<_, Refusal>((live, artifact))
        })
        .await
    }

    /// What was printed before an event.
    pub(super) async fn before(&mut self, app: &App, seq: u64) -> Vec<Value> {
        self.told(app, move |live, fleet| {
            let cuts = Arc::clone(&live.cuts);
            let mut cuts = cuts.lock().unwrap_or_else(PoisonError::into_inner);
            let cut = *cuts
                .entry(seq)
                .or_insert_with(|| length(fleet, &live.run).unwrap_or(0));
            while cuts.len() > MOST_CUTS {
                cuts.pop_first();
            }
            drop(cuts);
            live.pieces(fleet, cut, u64::MAX)
        })
        .await
    }

    /// What was printed by now, where the next event has not come.
    pub(super) async fn now(&mut self, app: &App, since: u64) -> Vec<Value> {
        self.told(app, move |live, fleet| {
            let cuts = Arc::clone(&live.cuts);
            // Held while it is read: whoever decides about the next event then sees no less.
            let cuts = cuts.lock().unwrap_or_else(PoisonError::into_inner);
            let next = cuts.range(since.saturating_add(1)..).next();
            let limit = next.map_or(u64::MAX, |(_, cut)| *cut);
            live.pieces(fleet, limit, PART)
        })
        .await
    }

    /// The last piece: the artifact is whole. `None` where nothing was told, or not everything could be.
    pub(super) fn close(&mut self) -> Option<Value> {
        if self.bytes == 0 || self.bytes > MOST {
            return None;
        }
        let rest = String::from_utf8_lossy(&std::mem::take(&mut self.open)).into_owned();
        let mut artifact = self.artifact(&rest);
        artifact["description"] = json!("What it printed");
        artifact["metadata"] = json!({ ABOUT: { "bytes": self.bytes, "truncated": false } });
        Some(self.update(&artifact, Place::Last))
    }

    async fn told(
        &mut self,
        app: &App,
        work: impl FnOnce(&mut Self, &Fleet) -> Vec<Value> + Send + 'static,
    ) -> Vec<Value> {
        let mut live = self.clone();
        let done = app.ask(move |fleet| {
            let told = work(&mut live, fleet);
            Ok::<_, Refusal>((live, told))
        });
        let Ok((live, told)) = done.await else {
            return Vec::new();
        };
        *self = live;
        told
    }

    fn pieces(&mut self, fleet: &Fleet, limit: u64, most: u64) -> Vec<Value> {
        let mut pieces: Vec<(String, u64)> = Vec::new();
        self.read(fleet, limit, most, |piece, before| pieces.push((piece, before)));
        pieces
            .into_iter()
            .filter(|(piece, before)| *before < MOST && !piece.is_empty())
            .map(|(piece, before)| {
                let place = if before > 0 { Place::Further } else { Place::First };
                self.update(&self.artifact(&piece), place)
            })
            .collect()
    }

    /// Reads whole records that end by `limit`; each piece of output with how much there was before it.
    fn read(&mut self, fleet: &Fleet, limit: u64, most: u64, mut take: impl FnMut(String, u64)) {
        if self.frames {
            return;
        }
        // One that has not begun has printed nothing.
        let Ok(mut reader) = fleet.output(&self.run) else {
            return;
        };
        if reader.seek(self.at).is_err() {
            return;
        }
        let mut read = 0;
        while let (true, Ok(Some(record))) = (read < most, reader.next_record()) {
            if reader.at() > limit {
                return;
            }
            self.at = reader.at();
            if record.kind != StreamKind::Output {
                continue;
            }
            let before = self.bytes;
            let size = u64::try_from(record.bytes.len()).unwrap_or(u64::MAX);
            self.bytes += size;
            read += size;
            take(self.text(&record.bytes), before);
        }
    }

    /// Bytes as text; a character that is cut waits for its rest.
    fn text(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.open);
        all.extend_from_slice(bytes);
        let torn = match std::str::from_utf8(&all) {
            Err(error) if error.error_len().is_none() => all.len() - error.valid_up_to(),
            // Behind a byte that is no text the end may still be torn.
            Err(_) => (1..=3.min(all.len()))
                .find(|back| all[all.len() - back] >= 0xc0)
                .filter(|back| std::str::from_utf8(&all[all.len() - back..]).is_err())
                .unwrap_or(0),
            Ok(_) => 0,
        };
        self.open = all.split_off(all.len() - torn);
        String::from_utf8_lossy(&all).into_owned()
    }

    fn artifact(&self, text: &str) -> Value {
        json!({
            "artifactId": "output", "name": "output",
            "parts": [{ "text": text, "mediaType": "text/plain" }],
        })
    }

    fn update(&self, artifact: &Value, place: Place) -> Value {
        json!({ "artifactUpdate": {
            "taskId": self.run, "contextId": self.context, "artifact": artifact, "append": place != Place::First,
            "lastChunk": place == Place::Last,
        } })
    }
}

/// The places of a task that all its readers share.
fn cuts_of(watched: &Watched, run: &RunId) -> Arc<Mutex<Cuts>> {
    let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
    watched.retain(|_, cuts| cuts.strong_count() > 0);
    if let Some(cuts) = watched.get(run.as_str()).and_then(Weak::upgrade) {
        return cuts;
    }
    let cuts = Arc::new(Mutex::new(Cuts::new()));
    watched.insert(run.as_str().to_owned(), Arc::downgrade(&cuts));
    cuts
}

fn length(fleet: &Fleet, run: &RunId) -> Option<u64> {
    fleet.output(run).ok()?.length().ok()
}
