//! Settings of other tools, read and written as a policy of ours, with a report of what became of each rule.
//!
//! **Trust:** the files may come with a project. Every parser has bounds, and nothing is executed. What cannot be said
//! in our words is left out when it grants, and becomes a wider refusal when it refuses: the result never allows what
//! the source denies.
mod claude;
mod codex;
mod draft;
mod opencode;
mod srt;
mod starlark;

use crate::json::{Node, Source, read as read_json};
use bastle_contract::{Code, Fault};
use draft::Draft;
use serde::Serialize;

/// Largest file that is read.
const MOST_BYTES: usize = 256 * 1024;
/// Most files of one import.
const MOST_FILES: usize = 64;

/// Whose settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportTool {
    /// Claude Code: `settings.json`.
    Claude,
    /// Codex: `config.toml`, `*.rules`.
    Codex,
    /// opencode: `opencode.json`.
    Opencode,
    /// The sandbox runtime: its settings.
    Srt,
}

/// Where a file of settings stands: what `/x` in it is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In the project.
    Project,
    /// In the person's home.
    Home,
}

/// One file to import.
#[derive(Clone, Debug)]
pub struct ImportFile {
    /// For the report; its ending tells the format.
    pub name: String,
    /// Where it stands.
    pub standing: Standing,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// What became of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Became {
    /// It says the same.
    Kept,
    /// It allows less or refuses more than it did.
    Narrowed,
    /// It is not in the result.
    LeftOut,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImportLine {
    /// The file.
    pub file: String,
    /// The rule as it was.
    pub rule: String,
    /// What became of it.
    pub became: Became,
    /// The rules of the result.
    pub into: Vec<String>,
    /// Why, where there is something to say.
    pub why: String,
}

/// An imported policy.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The document, as text of a policy file.
    pub text: String,
    /// One line for each rule that was found.
    pub report: Vec<ImportLine>,
}

impl ImportTool {
    /// The words of `--from`.
    pub const WORDS: [&'static str; 4] = ["claude", "codex", "opencode", "srt"];

    /// The tool of a word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "claude" => Some(Self::Claude),
            "codex" => Some(Self::Codex),
            "opencode" => Some(Self::Opencode),
            "srt" => Some(Self::Srt),
            _ => None,
        }
    }
}

/// Imports the settings of one tool.
pub fn import(tool: ImportTool, files: &[ImportFile]) -> Result<Imported, Vec<Fault>> {
    if files.len() > MOST_FILES {
        return Err(vec![unreadable(
            "the settings",
            &format!("more than {MOST_FILES} files"),
        )]);
    }
    let mut draft = Draft::default();
    for file in files {
        draft.begin(file);
        if file.bytes.len() > MOST_BYTES {
            return Err(vec![unreadable(
                &file.name,
                &format!("it has more than {MOST_BYTES} bytes"),
            )]);
        }
        let text =
            std::str::from_utf8(&file.bytes).map_err(|_| vec![unreadable(&file.name, "it is not UTF-8")])?;
        let read = match tool {
            ImportTool::Claude => json(&file.name, text).map(|root| claude::read(&root, &mut draft)),
            ImportTool::Opencode => json(&file.name, text).map(|root| opencode::read(&root, &mut draft)),
            ImportTool::Srt => json(&file.name, text).map(|root| srt::read(&root, &mut draft)),
            ImportTool::Codex if file.name.ends_with(".rules") => {
                starlark::read(text, &mut draft);
                Ok(())
            }
            ImportTool::Codex => toml::from_str::<toml::Table>(text)
                .map(|table| codex::read(&table, &mut draft))
                .map_err(|error| vec![unreadable(&file.name, error.message())]),
        };
        read?;
    }
    draft.finish()
}

fn json(name: &str, text: &str) -> Result<Node, Vec<Fault>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    read_json(&Source::new(name, text)).map_err(|found| vec![found.fault()])
}

fn unreadable(name: &str, why: &str) -> Fault {
    Fault::new(
        Code::PolicyUnreadable,
        format!("cannot import {name}"),
        why.to_owned(),
    )
}
