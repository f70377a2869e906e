//! Rules from what was learned: the narrowest that cover what a run did, each with its evidence.
//!
//! **Trust:** hosts, methods and paths in the record come from the agent. What is proposed here is a proposal: a
//! person reads it and chooses the file.
use bastle_audit::{AuditEvent, Payload};
use bastle_contract::egress::{NetDecision, NetVerdict};
use bastle_contract::{Code, Fault, RunId};
use bastle_policy::{Host, NetRule};
use bastle_workspace::project::{ProjectFileError, read_project_file};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Paths of one host that are proposed one by one; more are summed up by what they have in common.
const MOST_PATHS: usize = 3;
/// Largest policy file that is merged with.
const MOST_FILE: u64 = 64 * 1024;

/// A proposed rule and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// The rule.
    pub rule: String,
    /// How many requests it covers.
    pub count: u64,
    /// In how many runs.
    pub runs: usize,
    /// When the first was seen, in milliseconds since 1970.
    pub first_seen_ms: u64,
    /// What to think of before taking it.
    pub notes: Vec<String>,
}

/// What was seen of one place.
#[derive(Default)]
struct Seen {
    methods: BTreeSet<String>,
    paths: BTreeMap<String, u64>,
    count: u64,
    runs: BTreeSet<RunId>,
    first: u64,
}

/// Reads the logs of runs that learned and proposes rules that at least `min_runs` of them needed.
pub fn propose(state: &Path, runs: &[RunId], min_runs: usize) -> Result<Vec<Proposal>, Fault> {
    let mut places: BTreeMap<(String, u16), Seen> = BTreeMap::new();
    for run in runs {
        let records = match bastle_audit::show(state, run) {
            Ok(records) => records,
            Err(bastle_audit::AuditError::Missing { .. }) => continue,
            Err(error) => return Err(error.fault()),
        };
        // A torn last line is what a killed run leaves; what stands before it counts.
        for record in records.map_while(Result::ok) {
            if let Some(Payload::Event(AuditEvent::Net(decision))) = record.payload() {
                note(&mut places, run, record.time_ms(), &decision);
            }
        }
    }
    let fitting = places
        .into_iter()
        .filter(|(_, seen)| seen.runs.len() >= min_runs.max(1));
    Ok(fitting
        .flat_map(|((host, port), seen)| rules(&host, port, &seen))
        .collect())
}

fn note(places: &mut BTreeMap<(String, u16), Seen>, run: &RunId, time_ms: u64, decision: &NetDecision) {
    let nameable = Host::new(&decision.host).is_ok_and(|host| !host.is_forbidden() && !host.is_literal());
    if decision.verdict != NetVerdict::Learned || decision.port == 0 || !nameable || decision.secret.is_some()
    {
        return;
    }
    let seen = places.entry((decision.host.clone(), decision.port)).or_default();
    match (&decision.method, &decision.path) {
        (Some(method), Some(path)) if method != "CONNECT" => {
            seen.methods.insert(method.clone());
            *seen.paths.entry(path.clone()).or_default() += u64::from(decision.count.max(1));
        }
        // Only a connection was seen: where nothing else is, the whole host is proposed.
        _ => {}
    }
    seen.count += u64::from(decision.count.max(1));
    seen.runs.insert(run.clone());
    if seen.first == 0 || time_ms < seen.first {
        seen.first = time_ms;
    }
}

fn rules(host: &str, port: u16, seen: &Seen) -> Vec<Proposal> {
    let place = match port {
        443 | 80 => host.to_owned(),
        other => format!("{host}:{other}"),
    };
    let mut notes = Vec::new();
    if port == 80 {
        notes.push("not encrypted".to_owned());
    }
    let proposal = |rule: String, notes: Vec<String>| Proposal {
        rule,
        count: seen.count,
        runs: seen.runs.len(),
        first_seen_ms: seen.first,
        notes,
    };
    if seen.methods.is_empty() {
        notes.push("only the connection was seen: everything at this host is allowed".to_owned());
        return vec![proposal(place, notes)];
    }
    let mut methods = seen.methods.clone();
    if methods.contains("GET") {
        methods.insert("HEAD".to_owned());
    }
    let methods = methods.into_iter().collect::<Vec<_>>().join(",");
    let exact = seen.paths.len() <= MOST_PATHS && seen.paths.keys().all(|path| is_plain(path));
    let paths: Vec<(String, u64)> = if exact {
        seen.paths.clone().into_iter().collect()
    } else {
        vec![(format!("{}**", common(&seen.paths)), seen.count)]
    };
    if !exact {
        notes.push(format!("{} paths summed up", seen.paths.len()));
    }
    let rules = paths.into_iter().map(|(path, count)| Proposal {
        count,
        ..proposal(format!("{methods} {place}{path}"), notes.clone())
    });
    rules
        .filter(|proposal| NetRule::new(&proposal.rule).is_ok())
        .collect()
}

/// A path that a rule can spell and means nothing but itself.
fn is_plain(path: &str) -> bool {
    path.bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"/-._~".contains(&b))
}

/// The directory that all paths share, ended by a slash.
fn common(paths: &BTreeMap<String, u64>) -> String {
    let (Some((first, _)), Some((last, _))) = (paths.first_key_value(), paths.last_key_value()) else {
        return "/".to_owned();
    };
    // Sorted: what the first and the last share, all share.
    let shared = first
        .bytes()
        .zip(last.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let shared = first.get(..shared).unwrap_or("/");
    let directory = shared.rfind('/').and_then(|at| shared.get(..=at)).unwrap_or("/");
    let plain = directory.split_inclusive('/').take_while(|part| is_plain(part));
    let plain: String = plain.collect();
    if plain.is_empty() { "/".to_owned() } else { plain }
}

/// Adds rules to a policy file, which is made where there is none; gives back how many are new.
pub fn save(file: &Path, proposals: &[Proposal]) -> Result<usize, Fault> {
    let name = file.display().to_string();
    let fault = |why: String| {
        Fault::new(
            Code::PolicyUnreadable,
            format!("cannot write rules to {name}"),
            why,
        )
    };
    // The file may be the project's own: nothing is read through a link, and what is not a file is not waited for.
    let (directory, last) = split(file);
    let read = std::fs::canonicalize(directory)
        .map_err(ProjectFileError::Io)
        .and_then(|directory| read_project_file(&directory, last, MOST_FILE));
    let mut document: Map<String, Value> = match read {
        Ok(Some(bytes)) => {
            bastle_policy::parse(&name, &bytes)
                .map_err(|faults| faults.into_iter().next().unwrap_or_else(|| fault(String::new())))?;
            serde_json::from_slice(&bytes).map_err(|_| {
                fault("it has comments, which would be lost".to_owned())
                    .help("write to another file, and name it with --policy as well")
            })?
        }
        Ok(None) => Map::from_iter([("version".to_owned(), json!(1))]),
        Err(error) => return Err(fault(error.to_string()).help(error.fix(file))),
    };
    let net = document.entry("net").or_insert_with(|| json!({}));
    let allow = net
        .as_object_mut()
        .map(|net| net.entry("allow").or_insert_with(|| json!([])))
        .and_then(Value::as_array_mut)
        .ok_or_else(|| fault("its net.allow is no list".to_owned()))?;
    let mut new = 0;
    for proposal in proposals {
        let rule = Value::from(proposal.rule.as_str());
        if !allow.contains(&rule) {
            allow.push(rule);
            new += 1;
        }
    }
    let mut text =
        serde_json::to_string_pretty(&Value::Object(document)).map_err(|error| fault(error.to_string()))?;
    text.push('\n');
    // Nothing is written that could not be read again.
    bastle_policy::parse(&name, text.as_bytes())
        .map_err(|faults| faults.into_iter().next().unwrap_or_else(|| fault(String::new())))?;
    replace(file, text.as_bytes()).map_err(|error| fault(error.to_string()))?;
    Ok(new)
}

/// The directory of a file, and its name there.
fn split(file: &Path) -> (&Path, &Path) {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    (directory, file.file_name().map_or(file, Path::new))
}

/// Replaces a file as a whole: whoever reads it sees the old one or the new one.
fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    let (directory, _) = split(file);
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("policy");
    let fresh = directory.join(format!(
        ".{name}.{:016x}",
        getrandom::u64().map_err(std::io::Error::other)?
    ));
    let mut open = std::fs::OpenOptions::new();
    open.write(true).create_new(true);
    let written = open
        .open(&fresh)
        .and_then(|mut out| out.write_all(bytes).and_then(|()| out.sync_all()))
        .and_then(|()| std::fs::rename(&fresh, file));
    if written.is_err() {
        drop(std::fs::remove_file(&fresh));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(list: &[&str]) -> BTreeMap<String, u64> {
        list.iter().map(|path| ((*path).to_owned(), 1)).collect()
    }

    fn seen(methods: &[&str], list: &[&str]) -> Seen {
        Seen {
            methods: methods.iter().map(|method| (*method).to_owned()).collect(),
            paths: paths(list),
            count: 1,
            ..Seen::default()
        }
    }

    #[test]
    fn a_rule_covers_what_was_seen_and_no_neighbour() {
        let few = rules("api.example", 443, &seen(&["GET"], &["/a/1", "/a/2"]));
        let texts: Vec<_> = few.iter().map(|proposal| proposal.rule.as_str()).collect();
        assert_eq!(texts, ["GET,HEAD api.example/a/1", "GET,HEAD api.example/a/2"]);
        let many = rules(
            "api.example",
            8443,
            &seen(&["GET"], &["/v1/a/1", "/v1/a/2", "/v1/ab", "/v1/a/9"]),
        );
        assert_eq!(many[0].rule, "GET,HEAD api.example:8443/v1/**");
        let tunnel = rules("api.example", 443, &Seen::default());
        assert_eq!(tunnel[0].rule, "api.example");
        assert!(!tunnel[0].notes.is_empty());
    }

    #[test]
    fn a_path_with_pattern_signs_never_becomes_a_wider_rule_than_its_directory() {
        let odd = rules("api.example", 443, &seen(&["GET"], &["/x/*/y"]));
        assert_eq!(odd[0].rule, "GET,HEAD api.example/x/**");
        assert_eq!(common(&paths(&["/a*b/c", "/a*b/d"])), "/");
    }

    #[test]
    fn rules_are_never_saved_through_a_link_of_the_project() {
        let dir = tempfile::tempdir().unwrap();
        let proposal = rules("api.example", 443, &Seen::default());
        let outside = dir.path().join("token");
        std::fs::write(&outside, "bst_SECRET").unwrap();
        let file = dir.path().join("agent-permissions.json");
        std::os::unix::fs::symlink(&outside, &file).unwrap();
        let fault = save(&file, &proposal).unwrap_err();
        assert!(fault.why.contains("symbolic link"), "{fault}");
        assert!(!format!("{fault:?}").contains("SECRET"), "{fault:?}");
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "bst_SECRET");
    }

    #[test]
    fn saving_merges_keeps_the_rest_and_refuses_what_it_would_damage() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mine.json");
        let proposal = rules("api.example", 443, &Seen::default());
        assert_eq!(save(&file, &proposal).unwrap(), 1);
        assert_eq!(save(&file, &proposal).unwrap(), 0);
        std::fs::write(
            &file,
            r#"{"version":1,"fs":{"read":["."]},"net":{"deny":["evil.example"]}}"#,
        )
        .unwrap();
        save(&file, &proposal).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("evil.example") && text.contains("api.example") && text.contains("\"fs\""));
        for bad in ["{", "{\"version\":1} // note", "{\"version\":1,\"nte\":{}}"] {
            std::fs::write(&file, bad).unwrap();
            assert!(save(&file, &proposal).is_err(), "{bad}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), bad);
        }
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            1,
            "nothing is left behind"
        );
    }
}
