//! `bastle policy import`: settings of other tools become a policy file, and every rule is accounted for.
use super::super::preset::write_new;
use super::super::source::raw_home;
use crate::context::{Context, Ended, Format};
use crate::render::{Paint, clean};
use bastle_contract::{Code, Fault};
use bastle_control::read_project_file;
use bastle_policy::{Became, ImportFile, ImportLine, ImportStanding, ImportTool};
use serde_json::{Value, json};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// One byte more than is imported, so that a longer file is seen to be longer.
const MOST: u64 = 256 * 1024 + 1;

/// Arguments of `policy import`.
#[derive(Debug, clap::Args)]
pub(super) struct ImportArgs {
    /// claude, codex, opencode or srt
    #[arg(long, value_name = "TOOL")]
    from: String,
    /// File, or directory to look in [default: where the tool keeps its settings, here and at home]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// Write the policy to this file; one that is there is not replaced
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Imports.
pub(super) fn run(args: &ImportArgs, cx: &Context) -> Ended {
    let Some(tool) = ImportTool::parse(&args.from) else {
        return Err(Fault::new(
            Code::UsageArgument,
            format!("--from {:?} is not known", args.from),
            "",
        )
        .help(format!("tools: {}", ImportTool::WORDS.join(", ")))
        .into());
    };
    let found = match &args.path {
        Some(path) if path.is_dir() => existing(tool, &[Root::Project(path.clone())]),
        Some(path) => vec![Settings::named(path)],
        None => existing(
            tool,
            &[Root::Project(PathBuf::from(".")), Root::Home(raw_home()?)],
        ),
    };
    if found.is_empty() {
        return Err(Fault::new(
            Code::UsageArgument,
            format!("no settings of {} were found", args.from),
            "",
        )
        .help(format!("bastle policy import --from {} FILE", args.from))
        .into());
    }
    let files = found.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let paths: Vec<&PathBuf> = found.iter().map(|one| &one.path).collect();
    let imported = bastle_policy::import(tool, &files)?;
    if let Some(output) = &args.output {
        write_new(output, &imported.text)?;
    }
    if Format::from(args.json) == Format::Json {
        let document: Value = serde_json::from_str(&imported.text).unwrap_or_default();
        cx.print_json(&json!({
            "schema": "bastle.policy-import/v1",
            "from": args.from,
            "files": paths,
            "document": document,
            "report": imported.report,
            "written": args.output,
        }))?;
        return Ok(0);
    }
    for line in &imported.report {
        cx.note(&shown(line, cx));
    }
    match &args.output {
        Some(output) => cx.note(&format!("{} {} is written", cx.err.tick(), output.display())),
        None => cx.print(&imported.text)?,
    }
    Ok(0)
}

fn shown(line: &ImportLine, cx: &Context) -> String {
    let (word, paint) = match line.became {
        Became::Kept => ("kept    ", Paint::Good),
        Became::Narrowed => ("narrowed", Paint::Warn),
        Became::LeftOut => ("left out", Paint::Bad),
    };
    let mut text = format!("{}  {}", cx.err.paint(paint, word), clean(&line.rule));
    if !line.into.is_empty() {
        text.push_str(&format!("  →  {}", clean(&line.into.join(", "))));
    }
    if !line.why.is_empty() {
        text.push_str(&format!("  ({})", clean(&line.why)));
    }
    text
}

/// A directory in which settings are looked for.
enum Root {
    /// A project: its author is not trusted, so nothing is read through a link of it.
    Project(PathBuf),
    /// The person's home, where settings are often links to where they are kept.
    Home(PathBuf),
}

/// One file with settings.
struct Settings {
    path: PathBuf,
    /// The project that brings it and its name there; `None` for a file that the person named or has at home.
    project: Option<(PathBuf, PathBuf)>,
}

impl Settings {
    fn named(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            project: None,
        }
    }
}

impl Root {
    fn path(&self) -> &Path {
        match self {
            Self::Project(path) | Self::Home(path) => path,
        }
    }

    /// The file of a name below, if anything but a directory stands there. A link of a project counts: it is refused when
    /// it is read, instead of being passed over.
    fn settings(&self, name: &Path) -> Option<Settings> {
        let path = self.path().join(name);
        match self {
            Self::Home(_) => path.is_file().then(|| Settings::named(&path)),
            Self::Project(root) => {
                let there = path.symlink_metadata().is_ok_and(|meta| !meta.is_dir());
                there.then(|| Settings {
                    path: path.clone(),
                    project: Some((root.clone(), name.to_path_buf())),
                })
            }
        }
    }
}

/// Where a tool keeps its settings below a directory.
fn existing(tool: ImportTool, roots: &[Root]) -> Vec<Settings> {
    let names: &[&str] = match tool {
        ImportTool::Claude => &[
            ".claude/settings.json",
            ".claude/settings.local.json",
            "settings.json",
            "settings.local.json",
        ],
        ImportTool::Codex => &[".codex/config.toml", "config.toml"],
        ImportTool::Opencode => &[
            "opencode.json",
            "opencode.jsonc",
            ".config/opencode/opencode.json",
            ".config/opencode/opencode.jsonc",
        ],
        ImportTool::Srt => &[".srt-settings.json", "srt-settings.json"],
    };
    let mut found = Vec::new();
    for root in roots {
        found.extend(names.iter().filter_map(|name| root.settings(Path::new(name))));
        if tool == ImportTool::Codex {
            for folder in [".codex/rules", "rules"] {
                let entries = std::fs::read_dir(root.path().join(folder))
                    .into_iter()
                    .flatten()
                    .flatten();
                let mut rules: Vec<PathBuf> = entries
                    .map(|entry| Path::new(folder).join(entry.file_name()))
                    .filter(|path| path.extension().is_some_and(|ending| ending == "rules"))
                    .collect();
                rules.sort();
                found.extend(rules.iter().filter_map(|name| root.settings(name)));
            }
        }
    }
    // The current directory may be the home.
    let mut real = Vec::new();
    found.retain(|one: &Settings| {
        let own = std::fs::canonicalize(&one.path).unwrap_or_else(|_| one.path.clone());
        let fresh = !real.contains(&own);
        real.push(own);
        fresh
    });
    found
}

fn read(settings: &Settings) -> Result<ImportFile, Fault> {
    let path = settings.path.as_path();
    let fault = |why: String| {
        Fault::new(
            Code::PolicyUnreadable,
            format!("cannot import {}", path.display()),
            why,
        )
    };
    let bytes = match &settings.project {
        Some((root, name)) => read_project_file(root, name, MOST)
            .map_err(|error| fault(error.to_string()).help(error.fix(path)))?
            .ok_or_else(|| fault("it does not exist".to_owned()))?,
        None => read_named(path).map_err(fault)?,
    };
    let home = raw_home().ok().map(|home| home.join(".claude"));
    let at_home = home.is_some_and(|home| {
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        path.parent().and_then(real) == real(&home) && real(&home).is_some()
    });
    Ok(ImportFile {
        name: path.display().to_string(),
        standing: if at_home {
            ImportStanding::Home
        } else {
            ImportStanding::Project
        },
        bytes,
    })
}

/// A file that the person named or keeps at home: a link in its path is the person's own.
fn read_named(path: &Path) -> Result<Vec<u8>, String> {
    // Without O_NONBLOCK opening a FIFO would wait for a writer for ever.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(|error| error.to_string())?;
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MOST)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}
