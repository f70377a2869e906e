//! The authority ceiling on the command line: flags that state it, and how it is shown.
use bastle_contract::{Code, Fault};
use bastle_policy::{AuthorityCeiling, CeilingForm};
use serde_json::Value;
use std::path::PathBuf;

/// Largest file with a ceiling.
const MOST: u64 = 64 * 1024;

/// Flags of `token create` that state a ceiling. A field that no flag names is as the daemon's default has it.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct CeilingArgs {
    /// Projects may lie in or below this directory; may be repeated
    #[arg(long = "root", value_name = "DIRECTORY", help_heading = "Authority ceiling")]
    roots: Vec<PathBuf>,
    /// This profile may be named; may be repeated
    #[arg(long = "profile", value_name = "NAME", help_heading = "Authority ceiling")]
    profiles: Vec<String>,
    /// This preset may be used; may be repeated
    #[arg(long = "preset", value_name = "NAME", help_heading = "Authority ceiling")]
    presets: Vec<String>,
    /// This host (NAME or *.NAME) may be reached where the policy allows it; may be repeated
    #[arg(long = "allow-net", value_name = "HOST", help_heading = "Authority ceiling")]
    hosts: Vec<String>,
    /// This secret of the configuration may be used; may be repeated
    #[arg(long = "secret", value_name = "NAME", help_heading = "Authority ceiling")]
    secrets: Vec<String>,
    /// The widest network mode: none, offline, allowlist or open
    #[arg(long, value_name = "MODE", help_heading = "Authority ceiling")]
    net: Option<String>,
    /// This workspace mode may be used: copy, overlay, worktree or in-place; may be repeated
    #[arg(long = "mode", value_name = "MODE", help_heading = "Authority ceiling")]
    modes: Vec<String>,
    /// This backend may be used: native or host; may be repeated
    #[arg(long = "backend", value_name = "NAME", help_heading = "Authority ceiling")]
    backends: Vec<String>,
    /// The most of a limit or budget, such as memory=4GiB, timeout=1h or turns=50; may be repeated
    #[arg(long = "limit", value_name = "KEY=VALUE", help_heading = "Authority ceiling")]
    limits: Vec<String>,
    /// Most runs at once, waiting ones included
    #[arg(long, value_name = "NUMBER", help_heading = "Authority ceiling")]
    max_runs: Option<u32>,
    /// Read the ceiling from a JSON file; flags state the other fields
    #[arg(long = "ceiling", value_name = "FILE", help_heading = "Authority ceiling")]
    file: Option<PathBuf>,
}

impl CeilingArgs {
    /// The fields that were stated. Checked here, so that a mistake is told before anything is asked of the daemon.
    pub(crate) fn form(&self) -> Result<Value, Fault> {
        let mut form = self
            .file
            .as_ref()
            .map_or_else(|| Ok(CeilingForm::default()), read)?;
        let stated = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
        let roots = self.roots.iter().map(|root| absolute(root));
        let roots = roots.collect::<Result<Vec<_>, _>>()?;
        for (field, flags) in [
            (&mut form.roots, stated(&roots)),
            (&mut form.profiles, stated(&self.profiles)),
            (&mut form.presets, stated(&self.presets)),
            (&mut form.hosts, stated(&self.hosts)),
            (&mut form.secrets, stated(&self.secrets)),
            (&mut form.modes, stated(&self.modes)),
            (&mut form.backends, stated(&self.backends)),
        ] {
            if flags.is_some() {
                *field = flags;
            }
        }
        form.net = self.net.clone().or(form.net);
        form.max_runs = self.max_runs.or(form.max_runs);
        for limit in &self.limits {
            let (key, value) = limit
                .split_once('=')
                .ok_or_else(|| wrong(format!("--limit {limit}: no '='")))?;
            let number = value.parse::<u64>().map(Value::from);
            let number = number.or_else(|_| value.parse::<f64>().map(Value::from));
            form.limits
                .insert(key.to_owned(), number.unwrap_or_else(|_| value.into()));
        }
        let checked = AuthorityCeiling::try_from(form).map_err(wrong)?;
        serde_json::to_value(checked).map_err(|error| wrong(error.to_string()))
    }
}

fn wrong(why: impl Into<String>) -> Fault {
    Fault::new(Code::UsageArgument, "the authority ceiling cannot be used", why)
        .help("bastle token create --help")
}

/// A directory as the daemon finds it: the daemon has another working directory.
fn absolute(path: &std::path::Path) -> Result<String, Fault> {
    let whole = std::path::absolute(path).map_err(|error| wrong(format!("{}: {error}", path.display())))?;
    let text = whole.to_str().map(str::to_owned);
    text.ok_or_else(|| wrong(format!("{} is no text", path.display())))
}

fn read(path: &PathBuf) -> Result<CeilingForm, Fault> {
    use std::io::Read;
    let unusable = |why: String| wrong(format!("{}: {why}", path.display()));
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MOST + 1).read_to_string(&mut text))
        .map_err(|error| unusable(error.to_string()))?;
    if text.len() as u64 > MOST {
        return Err(unusable("it is larger than 64 KiB".to_owned()));
    }
    serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))
}

/// Lines for people, one field each; `unstated` is what an absent field means.
pub(crate) fn lines(ceiling: &AuthorityCeiling, unstated: &str) -> Vec<String> {
    let form = CeilingForm::from(ceiling.clone());
    let list = |list: Option<Vec<String>>| match list {
        None => unstated.to_owned(),
        Some(list) if list.is_empty() => "none".to_owned(),
        Some(list) => list.join(", "),
    };
    let limits: Vec<String> = form
        .limits
        .iter()
        .map(|(key, value)| {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("{key}={shown}")
        })
        .collect();
    let limits = Some(limits).filter(|limits| !limits.is_empty());
    let rows = [
        ("roots", list(form.roots)),
        ("profiles", list(form.profiles)),
        ("presets", list(form.presets)),
        ("hosts", list(form.hosts)),
        ("secrets", list(form.secrets)),
        ("net", form.net.unwrap_or_else(|| unstated.to_owned())),
        ("modes", list(form.modes)),
        ("backends", list(form.backends)),
        ("limits", list(limits)),
        (
            "max runs",
            form.max_runs
                .map_or_else(|| unstated.to_owned(), |most| most.to_string()),
        ),
    ];
    rows.iter()
        .map(|(name, value)| format!("{name:<9} {}", crate::render::clean(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_state_a_ceiling_and_what_cannot_be_held_is_refused_here() {
        let args = CeilingArgs {
            roots: vec!["/srv/projects/./a".into(), "/srv/projects".into()],
            hosts: vec!["API.Example.com".to_owned()],
            limits: vec![
                "memory=4GiB".to_owned(),
                "turns=50".to_owned(),
                "usd=1.5".to_owned(),
            ],
            net: Some("allowlist".to_owned()),
            max_runs: Some(3),
            ..CeilingArgs::default()
        };
        let form = args.form().unwrap();
        assert_eq!(form["roots"], serde_json::json!(["/srv/projects"]));
        assert_eq!(form["hosts"], serde_json::json!(["api.example.com"]));
        assert_eq!(
            form["limits"],
            serde_json::json!({ "memory": "4GiB", "turns": 50, "usd": 1.5 })
        );
        for bad in ["memory", "memory=much", "nothing=1", "turns=-1", "=1"] {
            let args = CeilingArgs {
                limits: vec![bad.to_owned()],
                ..CeilingArgs::default()
            };
            assert!(args.form().is_err(), "{bad}");
        }
        let args = CeilingArgs {
            hosts: vec!["*".to_owned()],
            ..CeilingArgs::default()
        };
        assert!(args.form().is_err());
        assert_eq!(CeilingArgs::default().form().unwrap(), serde_json::json!({}));
    }
}
