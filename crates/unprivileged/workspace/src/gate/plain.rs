//! The allow list: kinds of files that run only as part of the project. Everything else is an unknown kind.
//!
//! **Trust:** names are folded paths of the agent. The list is data of this binary. Rules about words and directories
//! (`place.rs`) only ever take a name off the allow list, except in directories of test data.
use super::place::Place;
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
    /// Input or expected output of a test, of any format.
    Fixture,
}

/// Why a name is not of an allowed kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// It or a directory above it begins with a dot.
    Dotfile,
    /// It holds what another system takes for a separator.
    Separator,
    /// It lies where an interpreter, a server or a package manager loads everything from.
    LoadedDirectory,
    /// Configuration at the root of a project or package.
    RootConfiguration,
    /// Named as the configuration of a tool, or in a directory of tools' configuration.
    ToolConfiguration,
    /// A program that a package manager, a hook or a build starts by its name.
    StartedByName,
    /// A module that takes the place of one of the interpreter's own.
    ShadowsModule,
    /// Text that an agent takes as instructions.
    Instructions,
    /// A list of packages to install.
    Dependencies,
    /// It has no extension and is no known document.
    NoExtension,
    /// Its extension is not on the list.
    Extension,
}

impl Unknown {
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Dotfile => "unknown kind: a name that begins with a dot is a setting of some tool",
            Self::Separator => {
                "unknown kind: its name holds a backslash or a colon, which other systems read as another path"
            }
            Self::LoadedDirectory => {
                "unknown kind: everything in this directory is loaded by an interpreter, a server or a package manager"
            }
            Self::RootConfiguration => {
                "unknown kind: a configuration file at the root of a package, which some tool may obey"
            }
            Self::ToolConfiguration => {
                "unknown kind: it is named or placed as the configuration of a tool, which may run it"
            }
            Self::StartedByName => {
                "unknown kind: it is named or placed as a program that an installer, a hook or a build starts"
            }
            Self::ShadowsModule => {
                "unknown kind: the interpreter loads it in place of its own module of that name"
            }
            Self::Instructions => "unknown kind: it is named as instructions that an agent may obey",
            Self::Dependencies => "unknown kind: it is named as a list of packages to install",
            Self::NoExtension => "unknown kind: a name without an extension that is no known document",
            Self::Extension => "unknown kind: its extension is not one of plain source, text, data or media",
        }
    }
}

/// What stands beside a file, asked only where a rule depends on it.
pub(super) struct Around<'a> {
    /// Whether its directory is the root of a project or a package.
    pub(super) at_root: &'a dyn Fn() -> bool,
    /// Whether its directory is a package of Python, whose modules have a name in front.
    pub(super) in_package: &'a dyn Fn() -> bool,
    /// Whether its directory holds a program that is started by its path, which puts the directory before the
    /// interpreter's own modules.
    pub(super) beside_program: &'a dyn Fn() -> bool,
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
    /// Documents without an extension.
    names: BTreeSet<String>,
    /// Documents that have the name of a language or a licence for an extension.
    documents: BTreeSet<String>,
    document_extensions: BTreeSet<String>,
    /// Dotfiles that only keep a directory in a repository.
    placeholders: BTreeSet<String>,
    /// Extensions of formats that tools read their configuration from.
    pub(super) configuration: BTreeSet<String>,
    /// Extensions of languages that are executed from their source.
    pub(super) program: BTreeSet<String>,
    /// Those of them that tools read their configuration from.
    pub(super) configuration_program: BTreeSet<String>,
    pub(super) tooling_words: BTreeSet<String>,
    pub(super) lifecycle_words: BTreeSet<String>,
    pub(super) instruction_words: BTreeSet<String>,
    pub(super) agent_names: BTreeSet<String>,
    pub(super) dependency_words: BTreeSet<String>,
    pub(super) dependency_extensions: BTreeSet<String>,
    pub(super) tooling_directories: BTreeSet<String>,
    pub(super) configuration_directories: BTreeSet<String>,
    pub(super) loaded_directories: BTreeSet<String>,
    pub(super) installed_directories: BTreeSet<String>,
    pub(super) document_directories: BTreeSet<String>,
    pub(super) source_directories: BTreeSet<String>,
    pub(super) test_directories: BTreeSet<String>,
    pub(super) data_directories: BTreeSet<String>,
    pub(super) fixture_directories: BTreeSet<String>,
    pub(super) translation_directories: BTreeSet<String>,
    /// Modules that an interpreter loads by a name without a package.
    pub(super) shadowed_modules: BTreeSet<String>,
    /// Files that make their directory the root of a package.
    pub(super) package_markers: Vec<String>,
    /// Files by which a directory is one that programs of Python are started from.
    pub(super) started_programs: Vec<String>,
    /// Directories from which programs of Python are started, whatever their names.
    pub(super) program_directories: BTreeSet<String>,
    /// Directories whose entries are packages: `packages/config/src` is a package named so, not a tool's directory.
    pub(super) workspace_directories: BTreeSet<String>,
    /// Documents whose removal takes a restriction away.
    pub(super) restrictions: Vec<NamePattern>,
}

impl PlainKinds {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let kinds: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match kinds.format {
            2 => Ok(kinds),
            other => Err(format!("format {other} is unknown")),
        }
    }

    /// Whether a folded path has a name that begins with a dot and is more than a placeholder.
    pub(super) fn is_dotfile(&self, folded: &[u8]) -> bool {
        let path = String::from_utf8_lossy(folded);
        let (directories, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let hidden = |part: &str| part.starts_with('.');
        directories.split('/').any(hidden) || hidden(name) && !self.placeholders.contains(name)
    }

    /// Judges a folded path.
    pub(super) fn judge(&self, folded: &[u8], around: &Around<'_>) -> Result<Plain, Unknown> {
        if self.is_dotfile(folded) {
            return Err(Unknown::Dotfile);
        }
        let path = String::from_utf8_lossy(folded);
        if path.contains(['\\', ':']) {
            return Err(Unknown::Separator);
        }
        let (directories, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let place = Place::new(self, directories);
        if place.is_loaded() {
            return Err(Unknown::LoadedDirectory);
        }
        if self.placeholders.contains(name) {
            return Ok(Plain::Text);
        }
        // A template is judged as what is made from it.
        let name = name
            .strip_suffix(".in")
            .filter(|made| made.contains('.'))
            .unwrap_or(name);
        let Some((stem, extension)) = name.rsplit_once('.') else {
            let licence = name.split_once(['_', '-']).is_some_and(|(document, which)| {
                self.documents.contains(document) && self.document_extensions.contains(which)
            });
            return if licence || self.names.contains(name) {
                Ok(Plain::Text)
            } else if place.holds_fixtures() && !place.names_task(name) {
                Ok(Plain::Fixture)
            } else {
                Err(Unknown::NoExtension)
            };
        };
        let Some(plain) = self.extension(extension) else {
            let document = self.documents.contains(stem) && self.document_extensions.contains(extension);
            return match (document, place.holds_fixtures()) {
                (true, _) => Ok(Plain::Text),
                (false, true) if !place.names_task(stem) => Ok(Plain::Fixture),
                (false, true | false) => Err(Unknown::Extension),
            };
        };
        place.judge(stem, extension, plain, around)?;
        Ok(plain)
    }

    /// Whether a folded path is source that cannot be started by its name: `src/bin/server.rs`.
    pub(super) fn is_compiled(&self, folded: &[u8]) -> bool {
        let path = String::from_utf8_lossy(folded);
        path.rsplit_once('.').is_some_and(|(_, extension)| {
            self.source.contains(extension) && !self.program.contains(extension)
        })
    }

    pub(super) fn is_script(&self, extension: &str) -> bool {
        self.script.contains(extension)
    }

    /// Whether an extension is that of source or of a script.
    pub(super) fn is_code(&self, extension: &str) -> bool {
        [&self.source, &self.script, &self.program]
            .iter()
            .any(|list| list.contains(extension))
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
