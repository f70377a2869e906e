//! `bastle profile`: agents as data: command, limits, policy, kept by the daemon.
use super::stats::age;
use crate::client::{Daemon, part, short};
use crate::context::{Context, Ended, Failed, Format};
use crate::render::{Paint, Table, clean_lines, timestamp};
use bastle_contract::{Code, Fault};
use bastle_control::fleet::ProfileRecord;
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest document.
const MOST: u64 = 256 * 1024;

/// Arguments of `profile`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle profile ls
  bastle profile show claude              the document and what is put before every prompt
  bastle profile put ./reviewer.json      its name is the file's, or --name
  bastle spawn --profile reviewer --prompt 'look at the last commit'

Exit codes: 0 ok, 1 failed, 2 usage, 3 no such profile, 4 not permitted.")]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    verb: ProfileVerb,
}

#[derive(Debug, clap::Subcommand)]
enum ProfileVerb {
    /// List profiles
    #[command(visible_alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a profile, and what the daemon puts before the prompts of its runs
    Show {
        /// Its name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Keep a profile from a file
    Put {
        /// The document (JSON)
        file: PathBuf,
        /// Its name [default: the document's, else the file's without .json]
        #[arg(long)]
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a profile
    Rm {
        /// Its name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl ProfileArgs {
    /// Whether JSON was asked for.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            ProfileVerb::Ls { json }
            | ProfileVerb::Show { json, .. }
            | ProfileVerb::Put { json, .. }
            | ProfileVerb::Rm { json, .. } => *json,
        }
    }
}

/// Does it.
pub(crate) fn run(args: &ProfileArgs, cx: &Context) -> Ended {
    match &args.verb {
        ProfileVerb::Ls { json } => ls((*json).into(), cx),
        ProfileVerb::Show { name, json } => show(name, (*json).into(), cx),
        ProfileVerb::Put { file, name, json } => put(file, name.as_deref(), (*json).into(), cx),
        ProfileVerb::Rm { name, json } => {
            let daemon = Daemon::open()?;
            daemon
                .delete(&address(name))
                .map_err(|faults| near(&daemon, name, faults))?;
            if *json {
                cx.print_json(&json!({ "schema": "bastle.profile-removed/v1", "name": name }))?;
            } else {
                cx.note(&format!("{} {} is removed", cx.err.tick(), short(name)));
            }
            Ok(0)
        }
    }
}

fn address(name: &str) -> String {
    format!("/api/v1/profiles/{}", part(name))
}

/// A name that is not there: perhaps another was meant.
fn near(daemon: &Daemon, name: &str, mut faults: Vec<Fault>) -> Vec<Fault> {
    let missing = |fault: &&mut Fault| matches!(fault.code, Code::ProfileMissing | Code::ApiMissing);
    if let Some(fault) = faults.iter_mut().find(missing)
        && let Ok(profiles) = daemon.list::<ProfileRecord>("/api/v1/profiles")
        && let Some(near) = bastle_policy::nearest(name, profiles.iter().map(|one| one.name.as_str()))
    {
        // The daemon may have had the same thought.
        if !fault.help.iter().any(|help| help.starts_with("did you mean")) {
            fault.help.insert(0, format!("did you mean {near}?"));
        }
    }
    faults
}

fn ls(format: Format, cx: &Context) -> Ended {
    let daemon = Daemon::open()?;
    let profiles: Vec<ProfileRecord> = daemon.list("/api/v1/profiles")?;
    if format == Format::Json {
        let listed: Vec<Value> = profiles.iter().map(as_value).collect();
        cx.print_json(&json!({ "schema": "bastle.profiles/v1", "profiles": listed }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["NAME", "VERSION", "CHANGED"]);
    for profile in &profiles {
        let (version, changed) = if profile.builtin {
            ("built in".to_owned(), String::new())
        } else {
            (profile.version.to_string(), age(profile.changed_ms))
        };
        table.row([
            (&profile.name, Paint::Bold),
            (&version, Paint::Plain),
            (&changed, Paint::Plain),
        ]);
    }
    cx.print(&table.render(cx.out))?;
    Ok(0)
}

fn show(name: &str, format: Format, cx: &Context) -> Ended {
    let daemon = Daemon::open()?;
    let found = daemon
        .get(&address(name))
        .map_err(|faults| near(&daemon, name, faults))?;
    let profile: ProfileRecord = daemon.read(found)?;
    // What a run of it here would be told; a project that cannot be used has none.
    let here = std::env::current_dir().map(|path| path.display().to_string());
    let wish = json!({ "profile": profile.name, "workspace": here.unwrap_or_default() });
    let preamble = daemon.post("/api/v1/preamble", &wish).ok();
    let preamble = preamble.and_then(|answer| answer["preamble"].as_str().map(str::to_owned));
    if format == Format::Json {
        let mut value = as_value(&profile);
        value["document"] = profile.document.clone();
        cx.print_json(&json!({ "schema": "bastle.profile/v1", "profile": value, "preamble": preamble }))?;
        return Ok(0);
    }
    let text = serde_json::to_string_pretty(&profile.document).unwrap_or_default();
    cx.print(&format!("{}\n", crate::render::escaped(&text)))?;
    if let Some(preamble) = preamble {
        cx.note("put before every prompt of a run in this directory:");
        cx.print(&format!("\n{}\n", clean_lines(&preamble)))?;
    }
    Ok(0)
}

fn put(file: &Path, name: Option<&str>, format: Format, cx: &Context) -> Ended {
    let document = read(file)?;
    let stem = file.file_stem().and_then(|stem| stem.to_str());
    let name = name
        .or_else(|| document["name"].as_str())
        .or(stem)
        .unwrap_or_default();
    let daemon = Daemon::open()?;
    let profile: ProfileRecord =
        daemon.read(daemon.put(&address(name), &json!({ "document": document }))?)?;
    if format == Format::Json {
        let mut value = as_value(&profile);
        value["document"] = profile.document.clone();
        cx.print_json(&json!({ "schema": "bastle.profile/v1", "profile": value, "preamble": null }))?;
        return Ok(0);
    }
    cx.note(&format!(
        "{} {} is kept, version {}",
        cx.err.tick(),
        short(&profile.name),
        profile.version
    ));
    Ok(0)
}

fn read(file: &Path) -> Result<Value, Failed> {
    let name = file.display();
    let unreadable = |why: String| Fault::new(Code::UsageArgument, format!("cannot read {name}"), why);
    let mut text = String::new();
    std::fs::File::open(file)
        .and_then(|open| open.take(MOST + 1).read_to_string(&mut text))
        .map_err(|error| unreadable(error.to_string()))?;
    if text.len() as u64 > MOST {
        return Err(unreadable(format!("it has more than {MOST} bytes")).into());
    }
    let value: Result<Value, _> = serde_json::from_str(&text);
    value.map_err(|error| {
        let at = format!(" --> {name}:{}:{}", error.line(), error.column());
        Fault::new(Code::UsageArgument, format!("{name} is no JSON"), at).into()
    })
}

fn as_value(profile: &ProfileRecord) -> Value {
    let changed = (!profile.builtin).then(|| timestamp(profile.changed_ms));
    json!({ "name": profile.name, "version": profile.version, "builtin": profile.builtin, "changed": changed })
}
