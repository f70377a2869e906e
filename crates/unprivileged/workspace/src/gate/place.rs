//! Names of an allowed extension that are held all the same, by their words and by the directories above them.
//!
//! **Trust:** names are folded paths of the agent. A word or a directory of the project's sources lifts only the rules
//! about words and tooling directories; rules about roots, instructions and shadowed modules hold everywhere.
use super::plain::{Around, Plain, PlainKinds, Unknown};

/// Parts of a name after its first dot that mark the configuration of a tool: `TOOL.config.js`.
const CONFIGURATION_MARKS: &[&str] = &["config", "conf", "rc", "settings"];

/// The directories above a file.
pub(super) struct Place<'a> {
    kinds: &'a PlainKinds,
    directories: Vec<&'a str>,
}

impl<'a> Place<'a> {
    pub(super) fn new(kinds: &'a PlainKinds, directories: &'a str) -> Self {
        let parts = directories.split('/').filter(|part| !part.is_empty());
        Self {
            kinds,
            directories: parts.collect(),
        }
    }

    /// Whether something loads every file of one of the directories: `conf.d`, `META-INF`, `vendor`.
    pub(super) fn is_loaded(&self) -> bool {
        self.directories.iter().any(|part| {
            part.ends_with(".d")
                || self.kinds.loaded_directories.contains(*part)
                || self.kinds.installed_directories.contains(*part)
        })
    }

    /// Whether the directory holds inputs and expected outputs of tests, whatever their format.
    pub(super) fn holds_fixtures(&self) -> bool {
        let mut in_tests = false;
        self.directories.iter().any(|part| {
            let fixture = self.kinds.fixture_directories.contains(*part)
                || in_tests && self.kinds.data_directories.contains(*part);
            in_tests |= self.kinds.test_directories.contains(*part);
            fixture
        })
    }

    /// Whether a name without a known extension is of the form of a task runner's file: `Taskfile`.
    pub(super) fn names_task(&self, stem: &str) -> bool {
        stem.ends_with("file") || self.has_word(stem)
    }

    /// Judges a name whose extension is on the allow list.
    pub(super) fn judge(
        &self,
        stem: &str,
        extension: &str,
        plain: Plain,
        around: &Around<'_>,
    ) -> Result<(), Unknown> {
        let configuration = self.kinds.configuration.contains(extension);
        let program = self.kinds.program.contains(extension) || plain == Plain::Script;
        if (configuration || program || plain == Plain::Data && extension != "svg") && names_tool(stem) {
            return Err(Unknown::ToolConfiguration);
        }
        if configuration {
            self.configuration(stem, around)?;
        }
        if program {
            self.program(stem, extension, around)?;
        }
        if plain == Plain::Data
            && !configuration
            && extension != "svg"
            && shaped_as_tool(stem)
            && (around.at_root)()
        {
            return Err(Unknown::RootConfiguration);
        }
        if plain == Plain::Text {
            self.text(stem, extension, around)?;
        }
        Ok(())
    }

    fn configuration(&self, stem: &str, around: &Around<'_>) -> Result<(), Unknown> {
        if (around.at_root)() {
            return Err(Unknown::RootConfiguration);
        }
        let has = |list: &std::collections::BTreeSet<String>| {
            self.directories.iter().any(|part| list.contains(*part))
        };
        if has(&self.kinds.translation_directories) || self.holds_fixtures() {
            return Ok(());
        }
        let describes = words(stem).next_back() == Some("schema");
        let named = self.has_word(stem) && !describes && !has(&self.kinds.source_directories);
        if named || self.tooling().is_some() || self.in_generator(stem) {
            return Err(Unknown::ToolConfiguration);
        }
        Ok(())
    }

    fn program(&self, stem: &str, extension: &str, around: &Around<'_>) -> Result<(), Unknown> {
        if (shaped_as_tool(stem) || self.has_word(stem)) && (around.at_root)() {
            return Err(Unknown::RootConfiguration);
        }
        if extension == "py" && self.shadows(stem, around) {
            return Err(Unknown::ShadowsModule);
        }
        let tooling = self.tooling();
        let configures = self.kinds.configuration_program.contains(extension);
        if configures && tooling.is_some_and(|part| self.kinds.configuration_directories.contains(part))
            || self.in_generator(stem)
        {
            return Err(Unknown::ToolConfiguration);
        }
        let sourced = self
            .directories
            .iter()
            .any(|part| self.kinds.source_directories.contains(*part));
        let lifecycle = !sourced && words(stem).any(|word| self.kinds.lifecycle_words.contains(word));
        let script = self.kinds.is_script(extension) && tooling.is_some();
        // `hooks/useThing.ts` is a component's code, not a hook of a tool.
        let hook = tooling == Some("hooks") && !stem.starts_with("use");
        if lifecycle || script || hook {
            return Err(Unknown::StartedByName);
        }
        Ok(())
    }

    fn text(&self, stem: &str, extension: &str, around: &Around<'_>) -> Result<(), Unknown> {
        let agent = |word: &str| self.kinds.agent_names.contains(word);
        let told = |word: &str| agent(word) || self.kinds.instruction_words.contains(word);
        let all = words(stem).next().is_some() && words(stem).all(told);
        let any = words(stem).any(agent);
        if all && any || (all || any) && (around.at_root)() {
            return Err(Unknown::Instructions);
        }
        let lists = self.kinds.dependency_extensions.contains(extension)
            && words(stem).any(|word| self.kinds.dependency_words.contains(word) || ends_as_list(word));
        if lists && (around.at_root)() {
            return Err(Unknown::Dependencies);
        }
        Ok(())
    }

    /// The first directory of tools' files that is not part of the sources.
    fn tooling(&self) -> Option<&'a str> {
        let source = |part: &str| self.kinds.source_directories.contains(part);
        let end = self.directories.iter().position(|part| source(part));
        let before = &self.directories[..end.unwrap_or(self.directories.len())];
        let workspace = |at: usize| {
            at.checked_sub(1)
                .is_some_and(|above| self.kinds.workspace_directories.contains(before[above]))
        };
        let mut parts = before.iter().enumerate();
        // With sources right below it, an entry of a workspace is a package whatever its name.
        parts.find_map(|(at, part)| {
            let package = workspace(at) && end == Some(at + 1);
            (self.kinds.tooling_directories.contains(*part) && !package).then_some(*part)
        })
    }

    /// Whether it is a part of a documentation generator: `docs/_ext/x.py`, `docs/_data.yml`.
    fn in_generator(&self, stem: &str) -> bool {
        let mut parts = self.directories.iter().copied().chain([stem]);
        let private = |part: &str| part.starts_with('_') && !part.starts_with("__");
        parts.any(|part| self.kinds.document_directories.contains(part)) && parts.any(private)
    }

    /// Whether Python finds it where it looks for a module of its own.
    fn shadows(&self, stem: &str, around: &Around<'_>) -> bool {
        let own = |name: &str| self.kinds.shadowed_modules.contains(name);
        match (stem, self.directories.as_slice()) {
            ("__init__", [package] | ["src" | "lib", package]) => own(package),
            _ => own(stem) && !(around.in_package)() && self.starts_programs(around),
        }
    }

    /// Whether Python looks into the directory before its own modules: the top level, the root of sources, the root of
    /// a package, and directories that programs are started from.
    fn starts_programs(&self, around: &Around<'_>) -> bool {
        let last = match self.directories.as_slice() {
            [] | ["src"] => return true,
            [.., last] => *last,
        };
        self.kinds.program_directories.contains(last)
            || self.kinds.tooling_directories.contains(last)
            || (around.at_root)()
            || (around.beside_program)()
    }

    fn has_word(&self, stem: &str) -> bool {
        words(stem).any(|word| self.kinds.tooling_words.contains(word))
    }
}

fn words(stem: &str) -> impl DoubleEndedIterator<Item = &str> {
    stem.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
}

/// Whether a stem reads `TOOL.config` or `TOOL.config.prod`.
fn names_tool(stem: &str) -> bool {
    let mut parts = stem.split('.');
    let tool = parts.next().unwrap_or_default();
    !tool.is_empty() && parts.any(|part| CONFIGURATION_MARKS.contains(&part))
}

/// Whether a stem is formed as those of tools are: `toolrc`, `toolfile`, `toolconf`, `tool-setup`.
fn shaped_as_tool(stem: &str) -> bool {
    stem.ends_with("rc")
        || stem.ends_with("file")
        || stem.ends_with("conf")
        || stem.contains("config")
        || stem.contains("setup")
}

/// `newreqs`, `devrequirements`: lists of packages with a word in front.
fn ends_as_list(word: &str) -> bool {
    ["reqs", "requirements", "constraints"]
        .iter()
        .any(|end| word.ends_with(end))
}
