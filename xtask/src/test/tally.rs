//! Counting what test runners report.
use std::fmt;

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

/// What a runner's "skipped" means: with a name filter it counts what was not asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    All,
    Filtered,
}

impl Tally {
    pub(crate) fn passed(passed: u64) -> Self {
        Self {
            passed,
            ..Self::default()
        }
    }

    pub(crate) fn failed(failed: u64) -> Self {
        Self {
            failed,
            ..Self::default()
        }
    }

    pub(crate) fn skipped(skipped: u64) -> Self {
        Self {
            skipped,
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Tests that ran but found that this host lacks what they need did not pass.
    pub(super) fn move_to_skipped(&mut self, count: u64) {
        let moved = count.min(self.passed);
        self.passed -= moved;
        self.skipped += moved;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// The counts in a line of `cargo test` or `cargo nextest`, if it is a summary.
pub(super) fn summary(line: &str, selection: Selection) -> Option<Tally> {
    // Indented, it is what one test printed: `nextest` shows that of every test that failed, and counts it itself.
    if let Some(rest) = line.strip_prefix("test result: ") {
        let (_, counts) = rest.split_once(". ")?;
        return Some(counted(counts.split(';'), Selection::All));
    }
    let rest = line.trim().strip_prefix("Summary [")?;
    let (_, counts) = rest.split_once(" run: ")?;
    Some(counted(without_remarks(counts).split(','), selection))
}

fn counted<'a>(parts: impl Iterator<Item = &'a str>, selection: Selection) -> Tally {
    let mut tally = Tally::default();
    for part in parts {
        let Some((number, word)) = part.trim().split_once(' ') else {
            continue;
        };
        let Ok(number) = number.parse::<u64>() else {
            continue;
        };
        match word.trim() {
            "passed" => tally.passed += number,
            "failed" | "timed out" | "exec failed" => tally.failed += number,
            "ignored" => tally.skipped += number,
            "skipped" if selection == Selection::All => tally.skipped += number,
            // "measured", "filtered out", "finished in": nobody asked for these.
            _ => {}
        }
    }
    tally
}

/// Drops what stands in parentheses: `7 passed (1 slow, 1 flaky)`.
fn without_remarks(counts: &str) -> String {
    let mut depth = 0usize;
    let mut kept = String::new();
    for character in counts.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            other if depth == 0 => kept.push(other),
            _ => {}
        }
    }
    kept.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace(" ,", ",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: u64, failed: u64, skipped: u64) -> Option<Tally> {
        Some(Tally {
            passed,
            failed,
            skipped,
        })
    }

    #[test]
    fn the_summary_of_cargo_test_is_understood() {
        let line = "test result: FAILED. 12 passed; 2 failed; 3 ignored; 0 measured; 9 filtered out; finished in 0.05s";
        assert_eq!(summary(line, Selection::All), tally(12, 2, 3));
        let line =
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(summary(line, Selection::Filtered), tally(0, 0, 0));
    }

    #[test]
    fn what_a_failed_test_printed_is_not_counted_a_second_time() {
        let line = "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 73 filtered out; finished in 2.49s";
        assert_eq!(summary(line, Selection::All), None);
    }

    #[test]
    fn the_summary_of_nextest_is_understood() {
        let line = "     Summary [   0.527s] 123 tests run: 118 passed (2 slow, 1 flaky), 3 failed, 1 timed out, 1 exec failed, 7 skipped";
        assert_eq!(summary(line, Selection::All), tally(118, 5, 7));
        assert_eq!(summary(line, Selection::Filtered), tally(118, 5, 0));
        let line = "     Summary [   0.003s] 1 test run: 1 passed, 0 skipped";
        assert_eq!(summary(line, Selection::All), tally(1, 0, 0));
        let line = "     Summary [  60.003s] 2/5 tests run: 1 passed, 1 timed out (1 leaky), 0 skipped";
        assert_eq!(summary(line, Selection::All), tally(1, 1, 0));
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in [
            "",
            "running 3 tests",
            "test a::passed ... ok",
            "Summary",
            "5 passed, 0 failed",
        ] {
            assert_eq!(summary(line, Selection::All), None, "{line}");
        }
    }

    #[test]
    fn a_test_that_could_not_run_here_is_not_counted_as_passed() {
        let mut counts = Tally::passed(3);
        counts.move_to_skipped(2);
        assert_eq!(Some(counts), tally(1, 0, 2));
        counts.move_to_skipped(9);
        assert_eq!(Some(counts), tally(0, 0, 3));
    }
}
