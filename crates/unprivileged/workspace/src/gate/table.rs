//! The table of kinds in `docs/import-gate.md`, made from the catalogue.
use bastle_contract::{HostExecuted, HostExecutedKind as Of};
use std::collections::BTreeMap;
use std::fmt::Write;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/import-gate.md");
const HEADING: &str = "## Kinds\n\n";
/// Names that a row shows.
const SHOWN: usize = 4;

/// What the gate does with a kind, as `judge.rs` does it.
fn answer(kind: Of) -> &'static str {
    match kind {
        Of::Advisory => "pointed out; held when it ignores less",
        Of::Script => "pointed out; held when executable",
        Of::LockFile => "parsed; held on any change but its layout",
        Of::Manifest => "parsed; held by what changed",
        Of::Vcs
        | Of::VcsHook
        | Of::ReviewRules
        | Of::Ci
        | Of::Deploy
        | Of::Editor
        | Of::Shell
        | Of::VersionManager
        | Of::Debugger
        | Of::AgentSettings
        | Of::AgentInstructions
        | Of::PackageManager
        | Of::InstalledCode
        | Of::Build
        | Of::DevTool
        | Of::TestRunner
        | Of::TaskRunner
        | Of::Interpreter
        | Of::DocsGenerator
        | Of::Notebook
        | Of::SystemUnit
        | Of::Archive
        | Of::Compiled => "held",
    }
}

fn shown(entry: &HostExecuted) -> String {
    let pattern = entry.pattern.as_str();
    let inner = pattern.strip_prefix("**/").unwrap_or(pattern);
    let inner = inner
        .strip_suffix("**")
        .map_or_else(|| inner.to_owned(), str::to_owned);
    format!("`{inner}`")
}

fn table(entries: &'static [HostExecuted]) -> String {
    let mut kinds: BTreeMap<&str, Vec<&HostExecuted>> = BTreeMap::new();
    for entry in entries {
        kinds.entry(entry.kind.name()).or_default().push(entry);
    }
    let mut out = String::from(
        "| kind | names | protected in place | for example | what the gate does |\n|---|---|---|---|---|\n",
    );
    for (name, of) in kinds {
        let guarded = of.iter().filter(|entry| entry.protect_in_place).count();
        let examples: Vec<String> = of.iter().take(SHOWN).map(|entry| shown(entry)).collect();
        writeln!(
            out,
            "| `{name}` | {} | {guarded} | {} | {} |",
            of.len(),
            examples.join(", "),
            answer(of[0].kind)
        )
        .unwrap();
    }
    out
}

#[test]
fn the_table_of_kinds_in_the_document_is_the_one_the_catalogue_makes() {
    let made = table(bastle_policy::host_executed::catalogue().unwrap());
    let page = std::fs::read_to_string(FILE).unwrap();
    let (above, kept) = page.split_once(HEADING).unwrap();
    if std::env::var_os("BASTLE_BLESS").is_some() {
        std::fs::write(FILE, format!("{above}{HEADING}{made}")).unwrap();
        return;
    }
    assert!(
        kept == made,
        "BASTLE_BLESS=1 cargo test -p bastle-workspace the_table_of_kinds writes {FILE}"
    );
}
