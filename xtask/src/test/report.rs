//! What is told at the end: a table of the steps, and the closing line.
use super::tally::Tally;
use std::fmt;
use std::time::Duration;

/// The steps in order, each with what came of it.
pub(super) struct Report {
    rows: Vec<Row>,
}

struct Row {
    step: &'static str,
    end: Option<(Tally, Duration)>,
}

impl Report {
    /// Of steps of which none has run.
    pub(super) fn of(steps: impl Iterator<Item = &'static str>) -> Self {
        Self {
            rows: steps.map(|step| Row { step, end: None }).collect(),
        }
    }

    /// The step at this place in the order has run.
    pub(super) fn ended(&mut self, index: usize, tally: Tally, took: Duration) {
        if let Some(row) = self.rows.get_mut(index) {
            row.end = Some((tally, took));
        }
    }

    /// A finding about the whole run.
    pub(super) fn add(&mut self, step: &'static str, tally: Tally) {
        self.rows.push(Row {
            step,
            end: Some((tally, Duration::ZERO)),
        });
    }

    /// The counts of all steps.
    pub(super) fn total(&self) -> Tally {
        let mut total = Tally::default();
        for (tally, _) in self.rows.iter().filter_map(|row| row.end.as_ref()) {
            total.add(tally);
        }
        total
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, step: &str, tally: &Tally, took: Duration| {
            let (passed, failed, skipped) = (tally.passed, tally.failed, tally.skipped);
            let seconds = took.as_secs_f64();
            writeln!(f, "{step:<24}{passed:>8}{failed:>8}{skipped:>9}{seconds:>10.1}")
        };
        writeln!(f, "{:<24}  passed  failed  skipped   seconds", "step")?;
        for row in &self.rows {
            match &row.end {
                Some((tally, took)) => line(f, row.step, tally, *took)?,
                None => writeln!(f, "{:<24}       -       -        -   not run", row.step)?,
            }
        }
        let ended = self.rows.iter().filter_map(|row| row.end.as_ref());
        let total = self.total();
        line(f, "all steps", &total, ended.map(|(_, took)| *took).sum())?;
        let failed: Vec<&str> = self
            .rows
            .iter()
            .filter(|row| row.end.as_ref().is_some_and(|(tally, _)| tally.failed > 0))
            .map(|row| row.step)
            .collect();
        if !failed.is_empty() {
            writeln!(f, "failed steps: {}", failed.join(", "))?;
        }
        write!(f, "{total}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_line_also_those_that_did_not_run_and_the_counts_come_last() {
        let mut report = Report::of(["packages", "unit tests", "fuzz"].into_iter());
        report.ended(0, Tally::passed(1), Duration::from_millis(1_500));
        let mut tests = Tally::passed(1200);
        tests.add(&Tally::failed(2));
        tests.add(&Tally::skipped(3));
        report.ended(1, tests, Duration::from_secs(61));
        assert_eq!(
            report.to_string(),
            "step                      passed  failed  skipped   seconds\n\
             packages                       1       0        0       1.5\n\
             unit tests                  1200       2        3      61.0\n\
             fuzz                           -       -        -   not run\n\
             all steps                   1201       2        3      62.5\n\
             failed steps: unit tests\n\
             1201 passed, 2 failed, 3 skipped"
        );
    }
}
