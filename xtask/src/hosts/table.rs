//! The table of `docs/hosts.md` between two markers: rows of situations that were not tried this time stay as they were.
use super::guests::{GUESTS, Guest, Userland};
use super::report::{Report, Row};
use crate::sh::{self, Failed};

const BEGIN: &str = "<!-- guests: begin -->";
const END: &str = "<!-- guests: end -->";

const HEAD: &str = "\
| guest | kernel | system | situation | fence | attacks of `demo` | limits | overlay | daemon | escapes |
|---|---|---|---|---|---|---|---|---|---|";

/// The rows of one guest, as lines of the document.
pub(super) fn lines(guest: &Guest, report: &Report, rows: &[Row]) -> Vec<String> {
    let kernel = &report.kernel;
    let system = match guest.userland {
        Userland::Busybox => "busybox".to_owned(),
        Userland::Systemd(release) => format!("systemd {} of {release}", report.systemd),
    };
    let about = |name: &str| {
        let found = guest.situations().find(|situation| situation.name == name);
        found.map_or(name, |situation| situation.about).to_owned()
    };
    rows.iter()
        .filter(|row| row.tried)
        .map(|row| {
            let mut cells = vec![
                guest.name.to_owned(),
                format!("{kernel} {}", guest.arch.debian()),
                system.clone(),
                about(row.situation),
            ];
            cells.extend(row.cells.iter().map(|cell| cell.replace('|', "\\|")));
            if !row.wrong.is_empty() {
                cells.push("**not as expected**".to_owned());
            }
            format!("| {} |", cells.join(" | "))
        })
        .collect()
}

/// Writes rows into the document.
pub(super) fn record(new: &[(&'static str, Vec<String>)]) -> Result<(), Failed> {
    let path = sh::root().join("docs/hosts.md");
    let text = std::fs::read_to_string(&path).map_err(Failed::io(path.display()))?;
    let text = merge(&text, new).map_err(|why| Failed::new(path.display().to_string(), why))?;
    std::fs::write(&path, text).map_err(Failed::io(path.display()))
}

fn merge(document: &str, new: &[(&'static str, Vec<String>)]) -> Result<String, String> {
    let (before, rest) = document
        .split_once(BEGIN)
        .ok_or_else(|| format!("has no {BEGIN}"))?;
    let (old, after) = rest.split_once(END).ok_or_else(|| format!("has no {END}"))?;
    let mut table = vec![HEAD.to_owned()];
    for guest in GUESTS {
        let fresh: Vec<&String> = new
            .iter()
            .filter(|(name, _)| *name == guest.name)
            .flat_map(|(_, lines)| lines)
            .collect();
        for situation in guest.situations() {
            let is_its = |line: &str| cell(line, 1) == guest.name && cell(line, 4) == situation.about;
            let kept = || old.lines().find(|line| is_its(line)).map(str::to_owned);
            let line = fresh.iter().find(|line| is_its(line)).map(|line| (*line).clone());
            table.extend(line.or_else(kept));
        }
    }
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", table.join("\n")))
}

/// A cell of a row.
fn cell(line: &str, number: usize) -> &str {
    line.split('|').nth(number).unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_situation_that_was_not_tried_keeps_its_row_and_one_that_was_gets_a_new_one() {
        let name = GUESTS[0].name;
        let mut abouts = GUESTS[0].situations().map(|situation| situation.about);
        let [first, second] = [abouts.next().unwrap(), abouts.next().unwrap()];
        let row = |about: &str, how: &str| format!("| {name} | 6.1 | busybox | {about} | {how} |");
        let document = format!(
            "a\n{BEGIN}\n{}\n{}\n| gone | 6.1 | busybox | {first} | old |\n{END}\nb\n",
            row(second, "old"),
            row(first, "old")
        );
        let merged = merge(&document, &[(name, vec![row(first, "new")])]).unwrap();
        assert!(merged.contains(&format!("{}\n{}\n{END}", row(first, "new"), row(second, "old"))));
        assert!(!merged.contains("gone") && merged.starts_with("a\n") && merged.ends_with("\nb\n"));
        assert!(merge("no markers", &[]).is_err());
    }
}
