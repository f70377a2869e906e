//! `bastle grant` and the part of `bastle revoke` that is about paths: files and directories for a run that lives.
use super::live;
use super::source::state_dir;
use crate::context::{Context, Ended};
use crate::render::clean;
use bastle_contract::grants::GrantWay;
use bastle_contract::{AbsPath, Access, Code, Fault};
use bastle_control::backend::{GrantRequest, IsolationBackend, NativeBackend};
use serde_json::json;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// Arguments of `grant`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle grant calm-otter --ro ~/datasets           a directory, for reading, until the run ends
  bastle grant @last --rw ../shared --for 10m       also for writing, for ten minutes
  bastle grant @last --file notes.txt --rw          one file, served by the broker inside (bastle-fs)
  bastle revoke @last ~/datasets                    take it back at once

Inside, a mounted path appears below /grants, and under its own path where nothing stands in the way.
Exit codes: 0 done, 1 refused, 3 no such run.")]
pub(crate) struct GrantArgs {
    /// The run (name, unique prefix, or @last for the only one)
    run: String,
    /// A file or directory, for reading; after --file: for reading
    #[arg(long, value_name = "PATH", num_args = 0..=1, conflicts_with = "rw")]
    ro: Option<Option<PathBuf>>,
    /// A file or directory, also for writing; after --file: also for writing
    #[arg(long, value_name = "PATH", num_args = 0..=1)]
    rw: Option<Option<PathBuf>>,
    /// A single file, served by the broker: each access is recorded and can be revoked at once
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// End it after this time: 30s, 10m, 2h, 1d
    #[arg(long = "for", value_name = "TIME")]
    lasts: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Grants.
pub(crate) fn run(args: &GrantArgs, cx: &Context) -> Ended {
    let (path, access, way) = wish(args)?;
    let seconds = args.lasts.as_deref().map(seconds).transpose()?;
    let request = GrantRequest {
        path: absolute(&path)?,
        access,
        way,
        lasts: seconds.map(Duration::from_secs),
    };
    let state = state_dir()?;
    let run = live::find(&state, &args.run)?;
    let granted = NativeBackend::new(&state).get(&run)?.grant(&request)?;
    live::show(&run, &json!({ "granted": granted }), args.json.into(), cx)
}

fn wish(args: &GrantArgs) -> Result<(PathBuf, Access, GrantWay), Fault> {
    let wrong = |what: &str| {
        Fault::new(Code::UsageArgument, what, "")
            .help("bastle grant RUN --ro PATH, --rw PATH or --file PATH [--rw]")
    };
    match (&args.file, &args.ro, &args.rw) {
        (Some(file), None | Some(None), None) => Ok((file.clone(), Access::ReadOnly, GrantWay::Broker)),
        (Some(file), None, Some(None)) => Ok((file.clone(), Access::ReadWrite, GrantWay::Broker)),
        (Some(_), _, _) => Err(wrong(
            "--file takes the path; --ro and --rw stand alone beside it",
        )),
        (None, Some(Some(path)), None) => Ok((path.clone(), Access::ReadOnly, GrantWay::Mount)),
        (None, None, Some(Some(path))) => Ok((path.clone(), Access::ReadWrite, GrantWay::Mount)),
        (None, _, _) => Err(wrong("name a path")),
    }
}

/// A path as it was typed, made absolute by its letters alone: a symlink on the way is refused by the run, not followed.
pub(super) fn absolute(path: &Path) -> Result<AbsPath, Fault> {
    let wrong = |why: String| {
        let what = format!(
            "{} is no path that can be granted",
            clean(&path.display().to_string())
        );
        Fault::new(Code::UsageArgument, what, why)
    };
    let mut whole = PathBuf::new();
    let here = std::env::current_dir().map_err(|error| wrong(error.to_string()))?;
    for part in here.join(path).components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir => {}
            part => whole.push(part),
        }
    }
    AbsPath::from_path(&whole).map_err(|error| wrong(error.to_string()))
}

/// Whether a word of `revoke` is a path and not a network rule.
pub(super) fn is_path(word: &str) -> bool {
    word.starts_with('/') || word == "." || word == ".." || word.starts_with("./") || word.starts_with("../")
}

/// `30s`, `10m`, `2h`, `1d`, or seconds.
fn seconds(text: &str) -> Result<u64, Fault> {
    let wrong = || {
        Fault::new(
            Code::UsageArgument,
            format!("{} is no time", clean(text)),
            "a number and s, m, h or d are",
        )
        .help("bastle grant RUN --ro PATH --for 10m")
    };
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3_600),
        Some((at, 'd')) => (&text[..at], 86_400),
        Some(_) => (text, 1),
        None => return Err(wrong()),
    };
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let value = number.parse::<u64>().ok().filter(|_| digits);
    let whole = value
        .and_then(|value| value.checked_mul(unit))
        .filter(|whole| *whole > 0);
    whole.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_whole_number_of_seconds_above_nothing() {
        for (text, expected) in [
            ("30s", 30),
            ("10m", 600),
            ("2h", 7_200),
            ("1d", 86_400),
            ("45", 45),
        ] {
            assert_eq!(seconds(text).unwrap(), expected, "{text}");
        }
        for bad in [
            "",
            "0",
            "0m",
            "m",
            "-1",
            "+5",
            "1.5h",
            "10w",
            "99999999999999999999",
            "18446744073709551615d",
        ] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_network_rule_is_not_taken_for_a_path() {
        for rule in [
            "api.example.com",
            "api.example.com/v1/**",
            "GET api.example.com",
            "d_8f2k",
        ] {
            assert!(!is_path(rule), "{rule}");
        }
        for path in ["/a", "./a", "../a", ".", ".."] {
            assert!(is_path(path), "{path}");
        }
    }
}
