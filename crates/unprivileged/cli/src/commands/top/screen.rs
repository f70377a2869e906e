//! The picture: lines of text that fit a terminal. Pure: a fleet and a view in, lines out.
use super::model::{Fleet, Line};
use crate::render::{Paint, Style, bytes, clean, duration_ms};
use bastle_contract::runs::RunState;

/// What a person has chosen to see.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    /// Name of the chosen run: it stays chosen when lines move.
    pub(super) chosen: Option<String>,
    /// The last lines a run printed, where its pane is open.
    pub(super) pane: Option<Pane>,
    /// A question of ours that waits for a key.
    pub(super) asks: Option<String>,
    /// What came of the last key.
    pub(super) note: String,
}

/// The end of what a run printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pane {
    pub(super) run: String,
    pub(super) lines: Vec<String>,
    /// Where in the output the next part begins.
    pub(super) next: u64,
}

/// Lines of output that are kept: more than a terminal shows.
const KEPT: usize = 1000;
/// Longest line that is kept.
const LONGEST: usize = 4096;

impl Pane {
    /// Adds what was printed. A line that goes on is continued.
    pub(super) fn add(&mut self, text: &str) {
        for (index, part) in text.split('\n').enumerate() {
            let part = part.trim_end_matches('\r');
            match self.lines.last_mut() {
                Some(last) if index == 0 => {
                    let room = LONGEST.saturating_sub(last.len());
                    last.extend(part.chars().take(room));
                }
                Some(_) | None => self.lines.push(part.chars().take(LONGEST).collect()),
            }
        }
        let from = self.lines.len().saturating_sub(KEPT);
        self.lines.drain(..from);
    }
}

/// The size of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) rows: usize,
    pub(super) cols: usize,
}

impl View {
    /// Where the chosen run is, else the first.
    pub(super) fn index(&self, fleet: &Fleet) -> usize {
        let chosen = self.chosen.as_deref();
        fleet
            .lines
            .iter()
            .position(|line| chosen == Some(line.name.as_str()))
            .unwrap_or(0)
    }

    /// The chosen run.
    pub(super) fn line<'a>(&self, fleet: &'a Fleet) -> Option<&'a Line> {
        fleet.lines.get(self.index(fleet))
    }

    /// Chooses the neighbour, `down` lines further.
    pub(super) fn step(&mut self, fleet: &Fleet, down: isize) {
        let last = fleet.lines.len().saturating_sub(1);
        let next = self.index(fleet).saturating_add_signed(down).min(last);
        self.chosen = fleet.lines.get(next).map(|line| line.name.clone());
    }
}

const HEADINGS: [&str; 11] = [
    "NAME", "AGENT", "STATE", "NEEDS", "UP", "CPU", "MEM", "COST", "DENY", "UNUSUAL", "TAGS",
];
/// Widest a column may be; what is longer is cut with an ellipsis.
const WIDEST: [usize; 11] = [28, 10, 16, 32, 8, 5, 9, 8, 5, 10, 40];

/// The whole picture for one moment.
pub(super) fn frame(fleet: &Fleet, view: &View, size: Size, now_ms: u64, style: Style) -> Vec<String> {
    let mut lines = vec![header(fleet, size, style), String::new()];
    let below = match &view.pane {
        Some(_) => size.rows.saturating_sub(4) / 2,
        None => 0,
    };
    let room = size.rows.saturating_sub(lines.len() + below + 2);
    lines.extend(table(fleet, view, Size { rows: room, ..size }, now_ms, style));
    if let Some(pane) = &view.pane {
        while lines.len() + below + 1 < size.rows {
            lines.push(String::new());
        }
        let title = format!("── {} ", clean(&pane.run));
        lines.push(style.paint(Paint::Dim, &cut(&title, size.cols)));
        let shown = below.saturating_sub(1);
        let from = pane.lines.len().saturating_sub(shown);
        lines.extend(pane.lines[from..].iter().map(|line| cut(&clean(line), size.cols)));
    }
    while lines.len() + 1 < size.rows {
        lines.push(String::new());
    }
    lines.truncate(size.rows.saturating_sub(1));
    lines.push(footer(view, size, style));
    lines
}

/// The same without a terminal: the header and the table, nothing cut, no keys.
pub(super) fn plain(fleet: &Fleet, now_ms: u64, style: Style) -> String {
    let size = Size {
        rows: usize::MAX,
        cols: usize::MAX,
    };
    let view = View::default();
    let mut text = header(fleet, size, style);
    text.push('\n');
    for line in table(fleet, &view, size, now_ms, style) {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn header(fleet: &Fleet, size: Size, style: Style) -> String {
    let dot = style.dot();
    let working = fleet.count(|state| matches!(state, RunState::Running | RunState::Building));
    let needs = fleet.count(|state| matches!(state, RunState::NeedsInput | RunState::NeedsCredential));
    let suspended = fleet.count(|state| state == RunState::Suspended);
    let queued = fleet.count(|state| state == RunState::Queued);
    let ended = fleet.count(RunState::is_final);
    let mut text = format!(
        "bastle {dot} {needs} need you {dot} {working} working {dot} {suspended} suspended {dot} {queued} queued {dot} {ended} ended"
    );
    if fleet.more > 0 {
        text.push_str(&format!(" {dot} {} not shown", fleet.more));
    }
    text.push_str(&format!(" {dot} {}", clean(&fleet.address)));
    style.paint(Paint::Bold, &cut(&text, size.cols))
}

/// The table, scrolled so that the chosen line is in it.
fn table(fleet: &Fleet, view: &View, size: Size, now_ms: u64, style: Style) -> Vec<String> {
    if fleet.lines.is_empty() {
        return vec!["no runs; bastle spawn --count 3 -- CMD".to_owned()];
    }
    let live = size.cols != usize::MAX;
    let cells: Vec<[String; 11]> = fleet
        .lines
        .iter()
        .map(|line| cells(line, now_ms, style))
        .collect();
    let width = |column: usize| {
        let widest = cells.iter().map(|row| wide(&row[column])).max().unwrap_or(0);
        let widest = widest.max(HEADINGS[column].len());
        if live { widest.min(WIDEST[column]) } else { widest }
    };
    let widths: [usize; 11] = std::array::from_fn(width);
    let chosen = view.index(fleet);
    let room = size.rows.saturating_sub(1).max(1);
    let first = (chosen + 1).saturating_sub(room);
    let mark = |on: bool| match (live, on) {
        (false, _) => "",
        (true, true) => "> ",
        (true, false) => "  ",
    };
    let heading = joined(HEADINGS.map(str::to_owned), &widths);
    let mut lines = vec![style.paint(Paint::Dim, &cut(&format!("{}{heading}", mark(false)), size.cols))];
    for (index, row) in cells.into_iter().enumerate().skip(first).take(room) {
        let text = cut(
            &format!("{}{}", mark(index == chosen), joined(row, &widths)),
            size.cols,
        );
        let paint = match fleet.lines[index].state {
            _ if live && index == chosen => Paint::Accent,
            RunState::NeedsInput | RunState::NeedsCredential => Paint::Warn,
            RunState::Failed | RunState::Refused => Paint::Bad,
            RunState::Completed | RunState::Cancelled | RunState::Queued => Paint::Dim,
            RunState::Running | RunState::Building | RunState::Suspended => Paint::Plain,
        };
        lines.push(style.paint(paint, &text));
    }
    lines
}

fn cells(line: &Line, now_ms: u64, style: Style) -> [String; 11] {
    let some = |text: Option<String>| text.unwrap_or_default();
    let cost = line.cost_micro_usd;
    [
        clean(&line.name),
        clean(&line.agent),
        format!("{} {}", sign(line.state, style), line.state.word()),
        clean(line.needs()),
        some(line.up_ms(now_ms).map(duration_ms)),
        some(line.cpu.map(|cpu| format!("{cpu}%"))),
        some(line.memory.map(bytes)),
        if cost == 0 {
            String::new()
        } else {
            format!("${}.{:02}", cost / 1_000_000, cost % 1_000_000 / 10_000)
        },
        line.denials.to_string(),
        clean(&line.findings),
        clean(&line.tags),
    ]
}

/// A sign beside the word, so that colour is never the only one.
fn sign(state: RunState, style: Style) -> &'static str {
    match state {
        RunState::Running | RunState::Building => style.pick("●", "*"),
        RunState::NeedsInput | RunState::NeedsCredential => style.pick("◆", "?"),
        RunState::Suspended => style.pick("■", "="),
        RunState::Queued => style.pick("○", "."),
        RunState::Completed => style.pick("✓", "+"),
        RunState::Failed | RunState::Refused => style.pick("✗", "x"),
        RunState::Cancelled => "-",
    }
}

fn footer(view: &View, size: Size, style: Style) -> String {
    if let Some(asks) = &view.asks {
        return style.paint(Paint::Warn, &cut(&clean(asks), size.cols));
    }
    let keys = "q quit  up/down choose  enter output  p pause/resume  s stop  a allow  d deny";
    let text = if view.note.is_empty() {
        keys.to_owned()
    } else {
        clean(&view.note)
    };
    style.paint(Paint::Dim, &cut(&text, size.cols))
}

/// Cells side by side, each as wide as its column.
fn joined(cells: [String; 11], widths: &[usize; 11]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let cell = cut(cell, *width);
        text.push_str(&cell);
        text.push_str(&" ".repeat(width.saturating_sub(wide(&cell)) + 2));
    }
    text.truncate(text.trim_end().len());
    text
}

/// How many columns a text takes.
fn wide(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Columns of one character: two for the scripts and pictures that terminals show so, none for combining marks.
fn columns(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// At most `width` columns; what is cut is marked.
fn cut(text: &str, width: usize) -> String {
    if wide(text) <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += columns(c);
        // One column is kept for the mark.
        if used + 1 > width {
            break;
        }
        out.push(c);
    }
    if width > 0 {
        out.push('~');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::model::Waiting;
    use super::*;

    fn line(name: &str, state: RunState) -> Line {
        Line {
            name: name.to_owned(),
            agent: "claude".to_owned(),
            state,
            reason: String::new(),
            started_ms: Some(1_000),
            ended_ms: None,
            cpu: Some(34),
            memory: Some(812 << 20),
            cost_micro_usd: 840_000,
            denials: 5,
            findings: "2 high".to_owned(),
            tags: "batch=a7".to_owned(),
            questions: Vec::new(),
        }
    }

    fn fleet() -> Fleet {
        let mut asks = line("red-finch", RunState::NeedsInput);
        asks.questions.push(Waiting {
            id: "d_8f2k".to_owned(),
            hash: None,
            text: "POST api.example.com\u{1b}[2J\u{202e}".to_owned(),
        });
        let mut fleet = Fleet {
            lines: vec![line("calm-otter", RunState::Running), asks],
            address: "unix:///run/b.sock".to_owned(),
            more: 0,
        };
        fleet.sort();
        fleet
    }

    const SIZE: Size = Size { rows: 12, cols: 80 };

    #[test]
    fn what_needs_a_person_stands_first_and_every_line_fits_the_terminal() {
        let fleet = fleet();
        for cols in [1, 7, 20, 80, 300] {
            for rows in [1, 2, 5, 40] {
                let shown = frame(
                    &fleet,
                    &View::default(),
                    Size { rows, cols },
                    61_000,
                    Style::PLAIN,
                );
                assert_eq!(shown.len(), rows, "{shown:?}");
                assert!(shown.iter().all(|line| wide(line) <= cols), "{cols}: {shown:?}");
            }
        }
        let shown = frame(
            &fleet,
            &View::default(),
            Size { rows: 12, cols: 200 },
            61_000,
            Style::PLAIN,
        );
        assert!(
            shown[0].contains("1 need you") && shown[0].contains("1 working"),
            "{shown:?}"
        );
        assert!(
            shown[3].contains("red-finch") && shown[3].contains("d_8f2k") == shown[3].contains("nothing")
        );
        assert!(
            shown[4].contains("calm-otter") && shown[4].contains("$0.84") && shown[4].contains("812 MiB")
        );
        assert!(shown[4].contains("1m") && shown[4].contains("34%"), "{shown:?}");
    }

    #[test]
    fn text_of_an_agent_cannot_act_on_the_terminal() {
        let mut view = View {
            pane: Some(Pane {
                run: "calm-otter".to_owned(),
                lines: vec!["\u{1b}]0;owned\u{7}".to_owned(), "plain".to_owned()],
                next: 0,
            }),
            note: "x\u{1b}[2J".to_owned(),
            ..View::default()
        };
        for _ in 0..2 {
            let shown = frame(&fleet(), &view, SIZE, 61_000, Style::PLAIN).join("");
            assert!(
                !shown.chars().any(|c| c.is_control() || c == '\u{202e}'),
                "{shown:?}"
            );
            view.asks = Some("stop \u{1b}?".to_owned());
        }
        assert!(!plain(&fleet(), 61_000, Style::PLAIN).contains('\u{1b}'));
    }

    #[test]
    fn output_is_kept_in_lines_and_an_endless_one_is_cut() {
        let mut pane = Pane::default();
        pane.add("one\r\ntw");
        pane.add("o\nthree");
        assert_eq!(pane.lines, ["one", "two", "three"]);
        for _ in 0..10 {
            pane.add(&"x".repeat(3000));
        }
        assert!(pane.lines.last().unwrap().len() <= LONGEST);
        pane.add(&"y\n".repeat(5000));
        assert_eq!(pane.lines.len(), KEPT);
    }

    #[test]
    fn the_chosen_run_stays_chosen_when_lines_move_and_is_always_in_sight() {
        let mut fleet = Fleet {
            lines: (0..50)
                .map(|n| line(&format!("run-{n:02}"), RunState::Running))
                .collect(),
            ..Fleet::default()
        };
        let mut view = View::default();
        view.step(&fleet, 30);
        assert_eq!(view.chosen.as_deref(), Some("run-30"));
        fleet.lines.insert(0, line("first", RunState::NeedsInput));
        assert_eq!(view.line(&fleet).unwrap().name, "run-30");
        let shown = frame(&fleet, &view, SIZE, 0, Style::PLAIN);
        assert!(shown.iter().any(|line| line.starts_with("> run-30")), "{shown:?}");
        view.step(&fleet, -1000);
        assert_eq!(view.line(&fleet).unwrap().name, "first");
        view.step(&fleet, 1000);
        assert_eq!(view.line(&fleet).unwrap().name, "run-49");
        view.step(&Fleet::default(), 1);
        assert_eq!(view.chosen, None);
    }
}
