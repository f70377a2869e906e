//! `bastle preset`: list, show, keep and start from presets. Nothing is fetched; what is kept is read from files here.
use crate::context::{Context, Ended, Format};
use crate::render::{Paint, Table, clean};
use bastle_contract::{AbsPath, Code, Fault};
use bastle_control::{Place, presets};
use bastle_policy::{Effective, Layer, MergeOptions, Surroundings};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments of `preset`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle preset ls                        what there is, built in and kept
  bastle preset show claude               what it grants, copies and injects
  bastle preset update ./claude@2.json    check it, show what changes, keep it
  bastle preset init claude --output my-policy.json
  bastle run --policy my-policy.json -- claude

Nothing is fetched from a network. Kept presets are files NAME@VERSION.json in the configuration directory.
Exit codes: 0 ok, 1 failed, 2 usage, 3 unknown preset.")]
pub(crate) struct PresetArgs {
    #[command(subcommand)]
    verb: PresetVerb,
}

#[derive(Debug, clap::Subcommand)]
enum PresetVerb {
    /// List presets
    #[command(visible_alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one
    Show {
        /// NAME or NAME@VERSION
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Keep presets from a file NAME@VERSION.json, or all such files of a directory
    Update {
        /// File or directory
        path: PathBuf,
        /// Show what would change, keep nothing
        #[arg(long)]
        dry_run: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a policy file to start from
    Init {
        /// NAME or NAME@VERSION
        name: String,
        /// Where to; standard output where nothing is said. A file that is there is not replaced
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

impl PresetArgs {
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            PresetVerb::Ls { json } | PresetVerb::Show { json, .. } | PresetVerb::Update { json, .. } => {
                *json
            }
            PresetVerb::Init { .. } => false,
        }
    }
}

/// Does it.
pub(crate) fn run(args: PresetArgs, cx: &Context) -> Ended {
    let place = Place::without_project()?;
    match args.verb {
        PresetVerb::Ls { json } => list(&place, Format::from(json), cx),
        PresetVerb::Show { name, json } => show(&place, &name, Format::from(json), cx),
        PresetVerb::Update { path, dry_run, json } => {
            let keeping = if dry_run { Keeping::Shown } else { Keeping::Kept };
            update(&place, &path, keeping, Format::from(json), cx)
        }
        PresetVerb::Init { name, output } => init(&place, &name, output.as_deref(), cx),
    }
}

/// A preset and where it is from.
struct Known {
    layer: Layer,
    text: String,
    file: Option<PathBuf>,
}

impl Known {
    fn name(&self) -> &str {
        self.layer.name.split('@').next().unwrap_or_default()
    }

    fn purpose(&self) -> String {
        match &self.layer.document.agent {
            Some(agent) => format!("what {} needs, on top of default", agent.title),
            None => super::policy::purpose(self.name()).to_owned(),
        }
    }

    fn source(&self) -> &'static str {
        if self.file.is_some() { "kept" } else { "built-in" }
    }
}

fn all(place: &Place) -> Result<Vec<Known>, Vec<Fault>> {
    let mut known = Vec::new();
    for name in bastle_policy::names() {
        let layer = bastle_policy::preset(name).map_err(|fault| vec![fault])?;
        let text = bastle_policy::preset_text(&layer).unwrap_or_default().to_owned();
        known.push(Known {
            layer,
            text,
            file: None,
        });
    }
    for kept in presets::kept(&place.config)? {
        known.push(Known {
            layer: kept.layer,
            text: kept.text,
            file: Some(kept.file),
        });
    }
    Ok(known)
}

fn layers(known: &[Known]) -> Vec<Layer> {
    let kept = known.iter().filter(|known| known.file.is_some());
    kept.map(|known| known.layer.clone()).collect()
}

fn list(place: &Place, format: Format, cx: &Context) -> Ended {
    let known = all(place)?;
    if format == Format::Json {
        let rows: Vec<Value> = known
            .iter()
            .map(|known| {
                json!({
                    "name": known.name(),
                    "version": bastle_policy::preset_version(&known.layer),
                    "from": known.source(),
                    "agent": known.layer.document.agent.as_ref().map(|agent| &agent.title),
                    "purpose": known.purpose(),
                })
            })
            .collect();
        cx.print_json(&json!({ "schema": "bastle.presets/v1", "presets": rows }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["PRESET", "FROM", "PURPOSE"]);
    for known in &known {
        table.row([
            (known.layer.name.as_str(), Paint::Bold),
            (known.source(), Paint::Plain),
            (&known.purpose(), Paint::Plain),
        ]);
    }
    cx.print(&table.render(cx.out))?;
    Ok(0)
}

fn found<'k>(known: &'k [Known], name: &str) -> Result<&'k Known, Fault> {
    let layer = bastle_policy::find_preset(name, &layers(known))?;
    let same = known.iter().find(|known| known.layer.name == layer.name);
    same.ok_or_else(|| Fault::new(Code::PolicyReference, format!("no preset is called {name:?}"), ""))
}

fn show(place: &Place, name: &str, format: Format, cx: &Context) -> Ended {
    let known = all(place)?;
    let known = found(&known, name)?;
    let agent = known.layer.document.agent.as_ref().map(|agent| {
        json!({
            "title": agent.title,
            "programs": agent.programs,
            "packages": agent.packages,
            "versions": agent.versions.as_ref().map(|(from, to)| json!({ "from": from, "to": to })),
            "copies": agent.files.iter().map(|file| format!("~/{}", file.from)).collect::<Vec<_>>(),
            "credentials": agent.credentials.iter().map(|credential| json!({
                "name": credential.secret.name,
                "from": credential.from,
                "hosts": credential.secret.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "inner": { "values": agent.inner.values, "pairs": agent.inner.pairs, "drop": agent.inner.drop,
                "settings": agent.inner.settings },
            "tells": agent.tells,
            "notes": agent.notes,
        })
    });
    if format == Format::Json {
        cx.print_json(&json!({
            "schema": "bastle.preset/v1",
            "name": known.name(),
            "version": bastle_policy::preset_version(&known.layer),
            "from": known.source(),
            "purpose": known.purpose(),
            "agent": agent,
            "text": known.text,
        }))?;
    } else {
        cx.note(&format!("{} ({})", known.layer.name, known.source()));
        cx.print(&known.text)?;
    }
    Ok(0)
}

/// Whether a preset is kept or only looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeping {
    Kept,
    Shown,
}

fn update(place: &Place, path: &Path, keeping: Keeping, format: Format, cx: &Context) -> Ended {
    let known = all(place)?;
    let mut rows = Vec::new();
    for file in files(path)? {
        let fresh = presets::read_file(&file)?;
        let name = fresh.layer.name.split('@').next().unwrap_or_default();
        let before = bastle_policy::find_preset(name, &layers(&known)).ok();
        let base = match &before {
            Some(layer) => reach(place, layer, &layers(&known))?,
            None => reach(place, &bastle_policy::preset("default")?, &[])?,
        };
        let lines = bastle_policy::diff(&base, &reach(place, &fresh.layer, &layers(&known))?);
        let against = before.map_or("default".to_owned(), |layer| layer.name);
        if format == Format::Human {
            cx.note(&format!("{} compared with {against}:", fresh.layer.name));
            for line in &lines {
                let (sign, paint) = if line.wider {
                    ("+", Paint::Warn)
                } else {
                    ("-", Paint::Good)
                };
                let text = format!("{sign} {} {}", clean(&line.section), clean(&line.what));
                cx.print(&format!("{}\n", cx.out.paint(paint, &text)))?;
            }
        }
        let kept = match keeping {
            Keeping::Kept => Some(presets::keep(&place.config, &fresh)?),
            Keeping::Shown => None,
        };
        if let (Some(kept), Format::Human) = (&kept, format) {
            cx.note(&format!(
                "{} {} is kept in {}",
                cx.err.tick(),
                fresh.layer.name,
                kept.display()
            ));
        }
        rows.push(json!({ "preset": fresh.layer.name, "against": against, "lines": lines, "kept": kept }));
    }
    if format == Format::Json {
        cx.print_json(&json!({ "schema": "bastle.preset-update/v1", "presets": rows }))?;
    }
    Ok(0)
}

/// The file, or the preset files of a directory.
fn files(path: &Path) -> Result<Vec<PathBuf>, Fault> {
    let fault = |why: String| {
        Fault::new(
            Code::UsageArgument,
            format!("cannot read presets from {}", path.display()),
            why,
        )
    };
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(|error| fault(error.to_string()))?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    if files.is_empty() {
        return Err(fault("there is no file NAME@VERSION.json".to_owned()));
    }
    Ok(files)
}

/// What a preset reaches by itself.
fn reach(place: &Place, layer: &Layer, kept: &[Layer]) -> Result<Effective, Vec<Fault>> {
    let one = |fault| vec![fault];
    let workspace = AbsPath::new("/workspace").map_err(|error| {
        one(Fault::new(
            Code::UsageArgument,
            "unusable path",
            error.to_string(),
        ))
    })?;
    let surroundings = Surroundings {
        home: place.home.clone(),
        workspace,
    };
    let layers = [bastle_policy::floor().map_err(one)?, layer.clone()];
    let options = MergeOptions {
        kept: kept.to_vec(),
        ..MergeOptions::default()
    };
    bastle_policy::merge(&layers, &surroundings, &options)
}

fn init(place: &Place, name: &str, output: Option<&Path>, cx: &Context) -> Ended {
    let known = all(place)?;
    let known = found(&known, name)?;
    let full = &known.layer.name;
    let text = format!(
        "// A policy to start from: what {full} allows, and what you add. bastle run --policy FILE -- CMD\n\
         {{\n  \"version\": 1,\n  \"extends\": [\"preset:{full}\"],\n\
         \x20 // Directories outside the project, for reading and for writing.\n\
         \x20 \"fs\": {{ \"read\": [], \"write\": [], \"hide\": [], \"protect\": [] }},\n\
         \x20 // Hosts, such as \"docs.example.com\" or \"GET api.example.com/v1/**\".\n\
         \x20 \"net\": {{ \"allow\": [], \"deny\": [] }}\n}}\n"
    );
    match output {
        None => cx.print(&text)?,
        Some(file) => {
            write_new(file, &text)?;
            cx.note(&format!("{} {} is written", cx.err.tick(), file.display()));
        }
    }
    Ok(0)
}

/// Writes a file that is not there yet.
pub(super) fn write_new(file: &Path, text: &str) -> Result<(), Fault> {
    let fault = |error: std::io::Error| {
        Fault::new(
            Code::UsageArgument,
            format!("cannot write {}", file.display()),
            error.to_string(),
        )
        .help("name a file that does not exist")
    };
    let mut out = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .map_err(fault)?;
    out.write_all(text.as_bytes()).map_err(fault)
}
