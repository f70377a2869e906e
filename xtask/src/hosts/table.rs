//! The table of `docs/hosts.md` between two markers: rows of guests that were not booted this time stay as they were.
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
        let fresh = new.iter().find(|(name, _)| *name == guest.name);
        match fresh {
            Some((_, lines)) => table.extend(lines.iter().cloned()),
            None => {
                let own = format!("| {} |", guest.name);
                table.extend(
                    old.lines()
                        .filter(|line| line.starts_with(&own))
                        .map(str::to_owned),
                );
            }
        }
    }
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", table.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_was_not_booted_keeps_its_rows_and_one_that_was_gets_new_ones() {
        let [first, second] = [GUESTS[0].name, GUESTS[1].name];
        let document =
            format!("a\n{BEGIN}\n| {first} | old |\n| {second} | old |\n| gone | old |\n{END}\nb\n");
        let merged = merge(&document, &[(first, vec![format!("| {first} | new |")])]).unwrap();
        assert!(merged.contains(&format!("| {first} | new |\n| {second} | old |\n{END}")));
        assert!(!merged.contains("gone") && merged.starts_with("a\n") && merged.ends_with("\nb\n"));
        assert!(merge("no markers", &[]).is_err());
    }
}
