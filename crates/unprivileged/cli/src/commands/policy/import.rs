//! `bastle policy import`: settings of other tools become a policy file, and every rule is accounted for.
use super::super::preset::write_new;
use super::super::source::raw_home;
use crate::context::{Context, Ended, Format};
use crate::render::{Paint, clean};
use bastle_contract::{Code, Fault};
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
    let paths = match &args.path {
        Some(path) if path.is_dir() => existing(tool, std::slice::from_ref(path)),
        Some(path) => vec![path.clone()],
        None => existing(tool, &[PathBuf::from("."), raw_home()?]),
    };
    if paths.is_empty() {
        return Err(Fault::new(
            Code::UsageArgument,
            format!("no settings of {} were found", args.from),
            "",
        )
        .help(format!("bastle policy import --from {} FILE", args.from))
        .into());
    }
    let files = paths
        .iter()
        .map(|path| read(path))
        .collect::<Result<Vec<_>, _>>()?;
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

/// Where a tool keeps its settings below a directory.
fn existing(tool: ImportTool, roots: &[PathBuf]) -> Vec<PathBuf> {
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
        found.extend(
            names
                .iter()
                .map(|name| root.join(name))
                .filter(|path| path.is_file()),
        );
        if tool == ImportTool::Codex {
            for folder in [".codex/rules", "rules"] {
                let entries = std::fs::read_dir(root.join(folder))
                    .into_iter()
                    .flatten()
                    .flatten();
                let mut rules: Vec<PathBuf> = entries
                    .map(|entry| entry.path())
                    .filter(|path| path.extension().is_some_and(|ending| ending == "rules"))
                    .collect();
                rules.sort();
                found.extend(rules);
            }
        }
    }
    // The current directory may be the home.
    let mut real = Vec::new();
    found.retain(|path| {
        let own = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let fresh = !real.contains(&own);
        real.push(own);
        fresh
    });
    found
}

fn read(path: &Path) -> Result<ImportFile, Fault> {
    let fault = |why: String| {
        Fault::new(
            Code::PolicyUnreadable,
            format!("cannot import {}", path.display()),
            why,
        )
    };
    // Without O_NONBLOCK opening a FIFO would wait for a writer for ever.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(|error| fault(error.to_string()))?;
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(fault("it is not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(MOST)
        .read_to_end(&mut bytes)
        .map_err(|error| fault(error.to_string()))?;
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
