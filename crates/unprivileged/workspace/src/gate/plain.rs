//! The allow list: kinds of files that run only as part of the project. Everything else is an unknown kind.
//!
//! **Trust:** names are folded paths of the agent. The list is data of this binary.
use bastle_contract::NamePattern;
use serde::Deserialize;
use std::collections::BTreeSet;

/// What an allowed kind holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    /// Source text of a language.
    Source,
    /// A script that somebody may start by hand.
    Script,
    /// Prose.
    Text,
    /// Data that a program reads.
    Data,
    /// Pictures, sound, fonts and the like.
    Media,
}

/// Why a name is not of an allowed kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// It or a directory above it begins with a dot.
    Dotfile,
    /// Configuration at the root of a project or package.
    RootConfiguration,
    /// Named as the configuration of a tool.
    ToolConfiguration,
    /// It has no extension and is no known document.
    NoExtension,
    /// Its extension is not on the list.
    Extension,
}

impl Unknown {
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Dotfile => "unknown kind: a name that begins with a dot is a setting of some tool",
            Self::RootConfiguration => {
                "unknown kind: a configuration file at the root of a package, which some tool may obey"
            }
            Self::ToolConfiguration => {
                "unknown kind: it is named as the configuration of a tool, which may run it"
            }
            Self::NoExtension => "unknown kind: a name without an extension that is no known document",
            Self::Extension => "unknown kind: its extension is not one of plain source, text, data or media",
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlainKinds {
    format: u8,
    source: BTreeSet<String>,
    script: BTreeSet<String>,
    text: BTreeSet<String>,
    data: BTreeSet<String>,
    media: BTreeSet<String>,
    names: BTreeSet<String>,
    /// Files that make their directory the root of a package.
    pub(super) package_markers: Vec<String>,
    /// Documents whose removal takes a restriction away.
    pub(super) restrictions: Vec<NamePattern>,
}

impl PlainKinds {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let kinds: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match kinds.format {
            1 => Ok(kinds),
            other => Err(format!("format {other} is unknown")),
        }
    }

    /// Judges a folded path; `at_root` tells whether its directory is the root of a project or a package.
    pub(super) fn judge(&self, folded: &[u8], at_root: impl FnOnce() -> bool) -> Result<Plain, Unknown> {
        let path = String::from_utf8_lossy(folded);
        if path.split('/').any(|part| part.starts_with('.')) {
            return Err(Unknown::Dotfile);
        }
        let name = path.rsplit('/').next().unwrap_or(&path);
        let Some((stem, extension)) = name.rsplit_once('.') else {
            return if self.names.contains(name) {
                Ok(Plain::Text)
            } else {
                Err(Unknown::NoExtension)
            };
        };
        let plain = self.extension(extension).ok_or(Unknown::Extension)?;
        let code = matches!(
            extension,
            "js" | "mjs" | "cjs" | "ts" | "mts" | "cts" | "jsx" | "tsx"
        );
        let configures = |plain: Plain| matches!(plain, Plain::Data) && extension != "svg" || code;
        if configures(plain) && ["config", "conf", "rc"].iter().any(|mark| names_tool(stem, mark)) {
            return Err(Unknown::ToolConfiguration);
        }
        let root_only = matches!(
            extension,
            "json" | "json5" | "jsonc" | "yaml" | "yml" | "toml" | "xml" | "properties"
        ) || (configures(plain) || extension == "py")
            && (stem.ends_with("rc")
                || stem.contains("config")
                || stem.contains("setup")
                || stem.ends_with("file"));
        if root_only && at_root() {
            return Err(Unknown::RootConfiguration);
        }
        Ok(plain)
    }

    fn extension(&self, extension: &str) -> Option<Plain> {
        let kinds = [
            (&self.source, Plain::Source),
            (&self.script, Plain::Script),
            (&self.text, Plain::Text),
            (&self.data, Plain::Data),
            (&self.media, Plain::Media),
        ];
        let found = kinds.into_iter().find(|(list, _)| list.contains(extension));
        found.map(|(_, plain)| plain)
    }
}

/// Whether a stem reads `TOOL.config` or `TOOL.rc`.
fn names_tool(stem: &str, mark: &str) -> bool {
    stem.rsplit_once('.')
        .is_some_and(|(tool, end)| !tool.is_empty() && end == mark)
}
