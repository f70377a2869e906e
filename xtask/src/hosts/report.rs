//! What a guest said, and whether it is what was expected of it.
use super::guests::{Expected, Followed, Guest, Means, Situation};
use serde_json::Value;
use std::collections::BTreeMap;

/// Everything that a guest said with a meaning.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) kernel: String,
    /// The version of systemd; empty without it.
    pub(super) systemd: String,
    ended: bool,
    situations: BTreeMap<String, Checks>,
}

/// One situation: results by the name of their check, and what `doctor` printed.
#[derive(Debug, Default)]
struct Checks {
    results: BTreeMap<String, (String, String)>,
    doctor: Value,
}

/// One line of the table.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) situation: &'static str,
    pub(super) cells: Vec<String>,
    /// Whether the guest said anything about it.
    pub(super) tried: bool,
    /// Every difference to what was expected.
    pub(super) wrong: Vec<String>,
}

/// The checks beside the fence, in the order of the table.
const CHECKS: [&str; 5] = ["demo", "limits", "overlay", "daemon", "escapes"];

/// What a refused run must not begin with: where the sandbox cannot be built, egress is not the cause.
const OWN_PROCESSES: &str = "the fence of bastle's own processes";

/// What is made where no group can hold a limit: the fix that doctor prints for that is followed.
const GROUP: &str = "group";

/// A cell of a check that is not made in a situation.
const UNTRIED: &str = "";

/// The one that is made again after a fix was followed.
const AFTER_FIX: &str = "demo";

impl Report {
    /// Reads a console; what is no result is left out.
    pub(super) fn read(console: &str) -> Self {
        let mut report = Self::default();
        for line in console.lines() {
            let Some((_, said)) = line.split_once('@') else {
                continue;
            };
            let mut words = said.splitn(5, ' ');
            let mut word = || words.next().unwrap_or_default().to_owned();
            match word().as_str() {
                "kernel" => report.kernel = word(),
                "systemd" => report.systemd = word(),
                "end" => report.ended = true,
                "hosts" => {
                    let (situation, check) = (word(), word());
                    let result = (word(), word().trim().to_owned());
                    report.checks(situation).results.insert(check, result);
                }
                "json" => {
                    let situation = word();
                    let text = said.splitn(3, ' ').nth(2).unwrap_or_default();
                    report.checks(situation).doctor = serde_json::from_str(text).unwrap_or_default();
                }
                _ => {}
            }
        }
        report
    }

    fn checks(&mut self, situation: String) -> &mut Checks {
        self.situations.entry(situation).or_default()
    }

    /// One row per situation, or those of some.
    pub(super) fn judge(&self, guest: &Guest, only: Option<&str>) -> Vec<Row> {
        let mut rows: Vec<Row> = guest.chosen(only).map(|situation| self.row(situation)).collect();
        if !self.ended
            && let Some(last) = rows.last_mut()
        {
            last.wrong.push("the guest did not come to its end".to_owned());
        }
        rows
    }

    fn row(&self, situation: &Situation) -> Row {
        let mut wrong = Vec::new();
        let nothing = Checks::default();
        let of = |name: &str| self.situations.get(name).unwrap_or(&nothing);
        let checks = of(situation.name);
        let cells = match situation.expected {
            Expected::Works(means) => checks.work(means, &CHECKS, &mut wrong),
            Expected::Refuses {
                cause,
                followed,
                then,
                ..
            } => {
                checks.expect("doctor", "refused", &mut wrong);
                checks.expect("run", "refused", &mut wrong);
                if checks.result("run").1.contains(OWN_PROCESSES) {
                    wrong.push(format!(
                        "run names egress and not the step: {}",
                        checks.result("run").1
                    ));
                }
                if checks.doctor["cause"] != cause {
                    wrong.push(format!(
                        "doctor names the cause {} and not {cause:?}: {}",
                        checks.doctor["cause"],
                        checks.problems()
                    ));
                }
                checks.expect("fix", "works", &mut wrong);
                let fix = match followed {
                    Followed::AsPrinted => "after the printed command",
                    Followed::ByDoctor => "after `doctor --fix --yes`",
                    Followed::By(_) => "after the printed advice",
                };
                let mut cells = of(&format!("{}-fixed", situation.name)).work(then, &[AFTER_FIX], &mut wrong);
                if let Some(fence) = cells.first_mut() {
                    *fence = format!("refused: `{cause}`; {fix}: {fence}");
                }
                cells
            }
        };
        Row {
            situation: situation.name,
            cells,
            tried: self.situations.contains_key(situation.name),
            wrong,
        }
    }
}

impl Checks {
    fn result(&self, check: &str) -> (&str, &str) {
        self.results
            .get(check)
            .map_or(("not tried", ""), |(outcome, detail)| (outcome, detail))
    }

    fn expect(&self, check: &str, expected: &str, wrong: &mut Vec<String>) {
        let (outcome, detail) = self.result(check);
        if outcome != expected {
            let problems = if check == "doctor" {
                self.problems()
            } else {
                String::new()
            };
            wrong.push(format!(
                "{check}: {outcome} and not {expected}: {detail}{problems}"
            ));
        }
    }

    /// The fence and every check as cells; differences to what `means` allow go to `wrong`.
    fn work(&self, means: Means, tried: &[&str], wrong: &mut Vec<String>) -> Vec<String> {
        self.expect("doctor", "works", wrong);
        self.expect("run", "works", wrong);
        let fence = self.result("run").1;
        let fence = fence
            .trim_start_matches("fence: ")
            .trim_start_matches("namespaces+");
        let mut cells = vec![fence.to_owned()];
        for check in CHECKS {
            if !tried.contains(&check) {
                cells.push(UNTRIED.to_owned());
                continue;
            }
            let expected = match check {
                "overlay" if !means.overlay => "refused",
                _ => "works",
            };
            self.expect(check, expected, wrong);
            let (outcome, detail) = self.result(check);
            if check == "limits" && outcome == "works" && detail.contains("no-cpu") == means.cgroup {
                wrong.push(format!("limits: {detail}, with a cgroup: {}", means.cgroup));
            }
            if check == "limits" && !means.cgroup {
                self.expect(GROUP, "works", wrong);
            }
            cells.push(match (check, outcome) {
                ("limits", "works") if detail.contains("no-cpu") => match self.result(GROUP).0 {
                    "works" => "yes; `--cpu` after the printed fix".to_owned(),
                    _ => "yes, but `--cpu`: refused".to_owned(),
                },
                ("escapes", "works") => format!("{detail} held"),
                ("demo", "works") => detail.split(" attacks").next().unwrap_or(detail).to_owned(),
                (_, "works") => "yes".to_owned(),
                (_, other) => other.to_owned(),
            });
        }
        cells
    }

    fn problems(&self) -> String {
        let checks = self.doctor["checks"].as_array().map(Vec::as_slice);
        let problems = checks
            .unwrap_or_default()
            .iter()
            .filter(|check| check["state"] == "problem");
        problems.map(Value::to_string).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::archive::Arch;
    use crate::hosts::guests::Userland;

    const MEANS: Means = Means {
        cgroup: false,
        overlay: true,
    };

    fn guest(situations: &'static [Situation]) -> Guest {
        Guest {
            name: "x",
            suite: "x",
            arch: Arch::Amd64,
            userland: Userland::Busybox,
            situations: [situations, &[]],
        }
    }

    const WORKS: &[Situation] = &[Situation {
        name: "user",
        about: "",
        session: "user",
        enter: "",
        leave: "",
        expected: Expected::Works(MEANS),
    }];

    const REFUSES: &[Situation] = &[Situation {
        name: "off",
        about: "",
        session: "user",
        enter: "",
        leave: "",
        expected: Expected::Refuses {
            cause: "limit-zero",
            fix: "sysctl",
            followed: Followed::AsPrinted,
            then: MEANS,
        },
    }];

    fn good(name: &str) -> String {
        format!(
            "@hosts {name} doctor works\n@hosts {name} run works fence: namespaces+landlock v2+seccomp\n\
             \x1b[2J@hosts {name} demo works 8 of 8 attacks blocked\r\n@hosts {name} limits works pids memory disk no-cpu\n\
             @hosts {name} group works\n@hosts {name} overlay works\n@hosts {name} daemon works\n@hosts {name} escapes works 32\n"
        )
    }

    fn wrong(guest: &Guest, console: &str) -> String {
        let rows = Report::read(console).judge(guest, None);
        rows.iter()
            .flat_map(|row| row.wrong.clone())
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn a_guest_that_works_as_expected_has_nothing_wrong_and_a_full_row() {
        let console = format!("noise\n@kernel 6.1.0 landlock\n{}@end\n", good("user"));
        let report = Report::read(&console);
        let rows = report.judge(&guest(WORKS), None);
        assert_eq!(report.kernel, "6.1.0");
        assert_eq!(rows[0].wrong, Vec::<String>::new());
        assert_eq!(
            rows[0].cells,
            [
                "landlock v2+seccomp",
                "8 of 8",
                "yes; `--cpu` after the printed fix",
                "yes",
                "yes",
                "32 held"
            ]
        );
    }

    #[test]
    fn what_was_not_tried_or_came_out_otherwise_is_wrong() {
        let without = good("user").replace("@hosts user daemon works\n", "");
        assert!(wrong(&guest(WORKS), &format!("{without}@end\n")).contains("daemon: not tried"));
        let failed = good("user").replace("escapes works", "escapes failed");
        assert!(wrong(&guest(WORKS), &format!("{failed}@end\n")).contains("escapes: failed"));
        let alone = good("user").replace("group works", "group failed");
        assert!(wrong(&guest(WORKS), &format!("{alone}@end\n")).contains("group: failed"));
        let held = good("user").replace("no-cpu", "cpu");
        assert!(wrong(&guest(WORKS), &format!("{held}@end\n")).contains("limits"));
        assert!(wrong(&guest(WORKS), &good("user")).contains("did not come to its end"));
    }

    #[test]
    fn a_refusal_needs_its_cause_and_a_fix_after_which_everything_works() {
        let refused = "@hosts off doctor refused\n@hosts off run refused error: x\n";
        let told = "@json off {\"cause\":\"limit-zero\",\"checks\":[]}\n";
        let fixed = format!(
            "@hosts off fix works sysctl -w max=1\n{}@end\n",
            good("off-fixed")
        );
        let all = format!("{refused}{told}{fixed}");
        assert_eq!(wrong(&guest(REFUSES), &all), "");
        let other = all.replace("limit-zero", "unknown");
        assert!(wrong(&guest(REFUSES), &other).contains("names the cause \"unknown\""));
        assert!(wrong(&guest(REFUSES), &all.replace("fix works", "fix failed")).contains("fix: failed"));
        let egress = all.replace(
            "error: x",
            "error: the fence of bastle's own processes does not hold",
        );
        assert!(wrong(&guest(REFUSES), &egress).contains("run names egress"));
        assert!(
            wrong(&guest(REFUSES), &all.replace("off run refused", "off run works")).contains("run: works")
        );
    }
}
