//! Telling those who are not looking: webhooks, a collector of traces, and a notice on the desktop.
use crate::app::App;
use crate::errors::Refusal;
use crate::options::Config;
use crate::otlp;
use crate::webhook::{Address, Hook, is_alert};
use bastle_contract::{Code, Fault};
use bastle_control::fleet::{EventFilter, StoredEvent};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Events that are fetched at once.
const BATCH: usize = 32;
/// Time between two notices: a run that asks and asks does not cover the screen.
const CALM: Duration = Duration::from_secs(2);

/// Those who are told, and how far each was.
pub(crate) struct Outward {
    tasks: JoinSet<()>,
    /// Number of the last event that each was told; 0 while it begins.
    told: Vec<Arc<AtomicU64>>,
}

impl Outward {
    /// Nobody is told anything more. The number from which whoever comes next goes on.
    pub(crate) fn stop(mut self) -> u64 {
        self.tasks.abort_all();
        let told = self.told.iter().map(|told| told.load(Ordering::Relaxed));
        told.filter(|told| *told > 0).min().unwrap_or(0)
    }

    /// Waits for those who end by themselves.
    pub(crate) async fn end(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Whether everybody whom the settings name can be told something.
pub(crate) fn check(config: &Config) -> Result<(), Fault> {
    config
        .webhooks
        .iter()
        .try_for_each(|hook| Hook::open(hook).map(|_| ()))
}

/// Starts what the settings ask for, from the event after `since`; from now on when that is 0.
pub(crate) fn start(app: &App, config: &Config, since: u64) -> Result<Outward, Fault> {
    let mut tasks = JoinSet::new();
    let mut told = Vec::new();
    let mut place = || {
        let at = Arc::new(AtomicU64::new(since));
        told.push(Arc::clone(&at));
        at
    };
    // All of them before any of them.
    let hooks = config
        .webhooks
        .iter()
        .map(Hook::open)
        .collect::<Result<Vec<_>, _>>()?;
    for hook in hooks {
        tasks.spawn(follow(app.clone(), hook, place()));
    }
    if let Some(url) = &config.otlp {
        let address = Address::parse(url).map_err(|why| {
            Fault::new(
                Code::ApiConfig,
                format!("the collector {url} cannot be used"),
                why,
            )
            .help("bastle serve --otlp http://127.0.0.1:4318")
        })?;
        tasks.spawn(otlp::follow(app.clone(), address.below("/v1/traces"), place()));
    }
    if config.desktop.unwrap_or(true)
        && std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_some()
        && let Some(program) = notifier()
    {
        tasks.spawn(notice(app.clone(), program, place()));
    }
    Ok(Outward { tasks, told })
}

/// Reads events of some kinds as they come.
pub(crate) struct Reader {
    app: App,
    filter: EventFilter,
    since: u64,
}

impl Reader {
    pub(crate) async fn open(app: App, kinds: Vec<String>, at: &AtomicU64) -> Option<Self> {
        let since = match at.load(Ordering::Relaxed) {
            0 => app.ask(|fleet| fleet.newest_event()).await.ok()?,
            since => since,
        };
        at.store(since, Ordering::Relaxed);
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
    pub(crate) async fn next(&mut self) -> Option<Vec<StoredEvent>> {
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

async fn follow(app: App, hook: Hook, at: Arc<AtomicU64>) {
    let mut closing = app.closing.clone();
    let work = async {
        let mut reader = Reader::open(app.clone(), hook.kinds(), &at).await?;
        loop {
            for event in reader.next().await? {
                let seq = event.seq;
                if hook.wants(&event) && !hook.tell(event).await {
                    app.metrics.webhook_failures.fetch_add(1, Ordering::Relaxed);
                }
                at.store(seq, Ordering::Relaxed);
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

async fn notice(app: App, program: PathBuf, at: Arc<AtomicU64>) {
    let mut closing = app.closing.clone();
    let work = async {
        let mut reader = Reader::open(app, vec!["question".to_owned(), "anomaly".to_owned()], &at).await?;
        loop {
            let events = reader.next().await?;
            if let Some(last) = events.last() {
                at.store(last.seq, Ordering::Relaxed);
            }
            let shown_there = |event: &StoredEvent| event.kind != "anomaly" || is_alert(event);
            let Some(event) = events.into_iter().rev().find(shown_there) else {
                continue;
            };
            let does = if event.kind == "anomaly" {
                "is unusual"
            } else {
                "asks"
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
                    .args(["--app-name=bastle", "--", &format!("bastle: {run} {does}"), &text])
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
