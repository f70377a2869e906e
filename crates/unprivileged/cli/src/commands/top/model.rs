//! What the fleet view shows: one line per run, counted. Everything in it came from a daemon and may quote agents.
use bastle_contract::runs::RunState;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) agent: String,
    pub(super) state: RunState,
    /// Why it is in that state.
    pub(super) reason: String,
    pub(super) started_ms: Option<u64>,
    pub(super) ended_ms: Option<u64>,
    /// Processor use in hundredths of one processor.
    pub(super) cpu: Option<u32>,
    pub(super) memory: Option<u64>,
    pub(super) cost_micro_usd: u64,
    pub(super) denials: u64,
    /// What was unusual: how many findings, and the gravest.
    pub(super) findings: String,
    pub(super) tags: String,
    /// What waits for an answer, oldest first.
    pub(super) questions: Vec<Waiting>,
}

/// A question that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) id: String,
    /// What exactly is asked: an answer carries it back.
    pub(super) hash: Option<String>,
    pub(super) text: String,
}

/// The whole fleet at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fleet {
    pub(super) lines: Vec<Line>,
    /// Where the daemon is.
    pub(super) address: String,
    /// Runs that the daemon has and this view left out.
    pub(super) more: usize,
}

impl Fleet {
    /// Those that need a person first, then the living, then what waits, then what ended; each by name.
    pub(super) fn sort(&mut self) {
        self.lines
            .sort_by(|a, b| (rank(a), &a.name).cmp(&(rank(b), &b.name)));
    }

    /// How many are in a state that `fits`.
    pub(super) fn count(&self, fits: impl Fn(RunState) -> bool) -> usize {
        self.lines.iter().filter(|line| fits(line.state)).count()
    }
}

fn rank(line: &Line) -> u8 {
    match line.state {
        RunState::NeedsInput | RunState::NeedsCredential => 0,
        _ if !line.questions.is_empty() => 0,
        RunState::Running | RunState::Building => 1,
        RunState::Suspended => 2,
        RunState::Queued => 3,
        RunState::Failed | RunState::Refused => 4,
        RunState::Completed | RunState::Cancelled => 5,
    }
}

impl Line {
    /// What a person should know of its state: a question, else the reason.
    pub(super) fn needs(&self) -> &str {
        match self.questions.first() {
            Some(first) if first.text.is_empty() => &first.id,
            Some(first) => &first.text,
            None => &self.reason,
        }
    }

    /// For how long it has run, or ran.
    pub(super) fn up_ms(&self, now_ms: u64) -> Option<u64> {
        let end = self.ended_ms.unwrap_or(now_ms);
        self.started_ms.map(|start| end.saturating_sub(start))
    }
}
