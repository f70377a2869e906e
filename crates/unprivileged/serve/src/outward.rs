//! Telling people who are not looking: webhooks, and a notice on the desktop.
use crate::app::App;
use crate::errors::Refusal;
use crate::options::Config;
use crate::webhook::Hook;
use bastle_contract::Fault;
use bastle_control::fleet::{EventFilter, StoredEvent};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;

/// Events that are fetched at once.
const BATCH: usize = 32;
/// Time between two notices: a run that asks and asks does not cover the screen.
const CALM: Duration = Duration::from_secs(2);

/// Starts what the settings ask for.
pub(crate) fn start(app: &App, config: &Config, tasks: &mut JoinSet<()>) -> Result<(), Fault> {
    for hook in &config.webhooks {
        let hook = Hook::open(hook)?;
        tasks.spawn(follow(app.clone(), hook));
    }
    if config.desktop.unwrap_or(true)
        && std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_some()
        && let Some(program) = notifier()
    {
        tasks.spawn(notice(app.clone(), program));
    }
    Ok(())
}

/// Reads events of some kinds as they come.
struct Reader {
    app: App,
    filter: EventFilter,
    since: u64,
}

impl Reader {
    async fn open(app: App, kinds: Vec<String>) -> Option<Self> {
        let since = app.ask(|fleet| fleet.newest_event()).await.ok()?;
        Some(Self {
            app,
            filter: EventFilter {
                kinds,
                ..EventFilter::default()
            },
            since,
        })
    }

    /// The next events; `None` when the daemon ends.
    async fn next(&mut self) -> Option<Vec<StoredEvent>> {
        let mut newest = self.app.newest.clone();
        let mut closing = self.app.closing.clone();
        loop {
            newest.borrow_and_update();
            let (since, filter) = (self.since, self.filter.clone());
            let found: Result<_, Refusal> = self
                .app
                .ask(move |fleet| fleet.events(since, &filter, BATCH))
                .await;
            if let Some(last) = found.as_ref().ok().and_then(|found| found.last()) {
                self.since = last.seq;
                return found.ok();
            }
            tokio::select! {
                changed = newest.changed() => changed.ok()?,
                _ = closing.wait_for(|closing| *closing) => return None,
            }
        }
    }
}

async fn follow(app: App, hook: Hook) {
    let mut closing = app.closing.clone();
    let work = async {
        let mut reader = Reader::open(app.clone(), hook.kinds()).await?;
        loop {
            for event in reader.next().await? {
                if !hook.tell(event).await {
                    app.metrics.webhook_failures.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    tokio::select! {
        done = work => { let none: Option<()> = done; none.unwrap_or(()) },
        _ = closing.wait_for(|closing| *closing) => {}
    }
}

/// The program that shows notices, where there is one.
fn notifier() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join("notify-send"))
        .find(|program| program.is_absolute() && program.is_file())
}

async fn notice(app: App, program: PathBuf) {
    let mut closing = app.closing.clone();
    let work = async {
        let mut reader = Reader::open(app, vec!["question".to_owned()]).await?;
        loop {
            let events = reader.next().await?;
            let Some(event) = events.into_iter().next_back() else {
                continue;
            };
            let run = event.run.map(String::from).unwrap_or_default();
            let text = event
                .data
                .get("text")
                .and_then(|text| text.as_str())
                .unwrap_or_default();
            let text = shown(text);
            let program = program.clone();
            let shows = tokio::task::spawn_blocking(move || {
                Command::new(program)
                    .args(["--app-name=bastle", "--", &format!("bastle: {run} asks"), &text])
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
            });
            // A notice that is not shown is one channel less; the question stays open on the others.
            match shows.await {
                Ok(_) | Err(_) => {}
            }
            tokio::time::sleep(CALM).await;
        }
    };
    tokio::select! {
        done = work => { let none: Option<()> = done; none.unwrap_or(()) },
        _ = closing.wait_for(|closing| *closing) => {}
    }
}

/// Text of an agent for a notice: short, no markup, nothing that acts.
fn shown(text: &str) -> String {
    text.chars()
        .take(200)
        .map(|c| match c {
            '<' | '>' | '&' => '\u{b7}',
            c if c.is_control() => ' ',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_holds_no_markup_and_no_control_characters() {
        let text = shown("<a href=\"x\">push</a>\u{1b}[2J\nnow & here");
        assert!(!text.contains(['<', '>', '&', '\u{1b}', '\n']), "{text}");
        assert_eq!(shown(&"x".repeat(1000)).len(), 200);
    }
}
