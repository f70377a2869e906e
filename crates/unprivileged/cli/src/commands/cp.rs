//! `bastle cp`: one file into or out of a living run.
//!
//! The copying is done by a further command in the run, with the agent's own rights. What comes out is untrusted bytes
//! of a bounded number, written beside the target and renamed; what the file may do (its mode) does not come along.
use super::live::find;
use super::source::state_dir;
use crate::context::{Context, Ended, Failed};
use crate::render::{bytes, clean};
use bastle_contract::{Argv, Code, Fault, RunId};
use bastle_control::beside::{self, Ends, Finished, Heed};
use bastle_control::live::Command;
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What the script inside says about what it found; other codes are failures of its own.
const IS_DIRECTORY: u8 = 44;
const IS_NO_FILE: u8 = 45;

const OUT: &str = r#"[ -d "$1" ] && exit 44; [ -f "$1" ] || exit 45; exec cat < "$1""#;
/// Written beside and renamed, so that nobody inside sees half of it.
const IN: &str = r#"[ -d "$1" ] && exit 44
t="$1.bastle-cp.$$"; trap 'rm -f -- "$t"' EXIT; set -C
cat > "$t" && chmod -- "$2" "$t" && mv -f -- "$t" "$1""#;

/// Arguments of `cp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle cp calm-otter:target/report.html .
  bastle cp data.csv @last:data/input.csv

One side names a run. A path inside that does not begin with / begins where the agent started.
Regular files only: for a run's whole work use bastle export, or bastle apply.

Exit codes: 0 copied, 1 failed, 2 usage, 3 no such run.")]
pub(crate) struct CpArgs {
    /// RUN:PATH or FILE
    from: String,
    /// FILE, a directory for it, or RUN:PATH
    to: String,
    /// Largest file that is copied
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    max_size: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// One side of the copy.
enum Side {
    Inside { run: String, path: String },
    Here(PathBuf),
}

/// Copies.
pub(crate) fn run(args: &CpArgs, cx: &Context) -> Ended {
    let most = size(&args.max_size)?;
    let state = state_dir()?;
    let (run, copied, to) = match (side(&args.from), side(&args.to)) {
        (Side::Inside { run, path }, Side::Here(file)) => {
            let run = find(&state, &run)?;
            let target = target(&file, &path).ok_or_else(|| directory(&path, &run))?;
            let copied = out(&state, &run, &path, (&target, most))?;
            (run, copied, target.display().to_string())
        }
        (Side::Here(file), Side::Inside { run, path }) => {
            let run = find(&state, &run)?;
            let copied = into(&state, &run, (&file, most), &path)?;
            (run, copied, path)
        }
        (Side::Here(_), Side::Here(_)) | (Side::Inside { .. }, Side::Inside { .. }) => {
            return Err(Fault::new(
                Code::UsageArgument,
                "exactly one side names a run",
                "the other is a file here",
            )
            .help("bastle cp RUN:PATH FILE, or bastle cp FILE RUN:PATH")
            .into());
        }
    };
    if args.json {
        cx.print_json(&json!({
            "schema": "bastle.cp/v1", "run": run, "from": args.from, "to": to, "bytes": copied,
        }))?;
        return Ok(0);
    }
    cx.note(&format!(
        "{} {} copied to {}",
        cx.err.tick(),
        bytes(copied),
        clean(&to)
    ));
    Ok(0)
}

/// `RUN:PATH`, unless it begins like a path: `./a:b` and `/a:b` are files here.
fn side(text: &str) -> Side {
    match text.split_once(':') {
        Some((run, path)) if !run.is_empty() && !run.contains('/') && !path.is_empty() => Side::Inside {
            run: run.to_owned(),
            path: path.to_owned(),
        },
        Some(_) | None => Side::Here(PathBuf::from(text)),
    }
}

/// Where the file goes: into a directory under its own name. `None` where the path has none.
fn target(file: &Path, path: &str) -> Option<PathBuf> {
    if file.is_dir() {
        Path::new(path).file_name().map(|name| file.join(name))
    } else {
        Some(file.to_owned())
    }
}

fn out(state: &Path, run: &RunId, path: &str, (target, most): (&Path, u64)) -> Result<u64, Failed> {
    let mut beside =
        Beside::make(target).map_err(|error| cannot(path, &format!("{}: {error}", target.display())))?;
    let mut bounded = Bounded {
        file: &mut beside.file,
        written: 0,
        most,
    };
    let ended = script(state, run, (OUT, &[path]), None, &mut bounded);
    let (written, over) = (bounded.written, bounded.written > most);
    if over {
        let why = format!("it is larger than {}", bytes(most));
        return Err(cannot(path, &why).help("bastle cp --max-size SIZE").into());
    }
    judge(path, run, ended?)?;
    beside
        .finish(target)
        .map_err(|error| cannot(path, &format!("{}: {error}", target.display())))?;
    Ok(written)
}

fn into(state: &Path, run: &RunId, (file, most): (&Path, u64), path: &str) -> Result<u64, Failed> {
    let shown = file.display().to_string();
    // Without O_NONBLOCK opening a FIFO would wait for a writer for ever.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let open = File::options().read(true).custom_flags(flags).open(file);
    let open = open.map_err(|error| cannot(&shown, &error.to_string()))?;
    let meta = open
        .metadata()
        .map_err(|error| cannot(&shown, &error.to_string()))?;
    if meta.is_dir() {
        return Err(directory(&shown, run).into());
    }
    if !meta.is_file() {
        return Err(cannot(&shown, "it is no regular file").into());
    }
    if meta.len() > most {
        let why = format!("it is larger than {}", bytes(most));
        return Err(cannot(&shown, &why).help("bastle cp --max-size SIZE").into());
    }
    let mode = format!("{:o}", meta.permissions().mode() & 0o755);
    let arguments = [path, mode.as_str()];
    let ended = script(
        state,
        run,
        (IN, &arguments),
        Some(open.as_fd()),
        &mut std::io::sink(),
    )?;
    judge(path, run, ended)?;
    Ok(meta.len())
}

fn script(
    state: &Path,
    run: &RunId,
    (script, arguments): (&str, &[&str]),
    input: Option<BorrowedFd<'_>>,
    output: &mut dyn Write,
) -> Result<(Finished, String), Failed> {
    let words = ["sh", "-c", script, "bastle-cp"]
        .into_iter()
        .chain(arguments.iter().copied());
    let argv = Argv::try_from(words.map(str::to_owned).collect::<Vec<_>>())
        .map_err(|error| cannot("the path", &error.to_string()))?;
    let command = Command::Exec {
        argv,
        env: Vec::new(),
        cwd: None,
        tty: None,
    };
    let mut said = Said(Vec::new());
    let ends = Ends {
        signals: Heed::Ours,
        ..Ends::piped(input, output, &mut said)
    };
    let finished = beside::exec(state, run, &command, ends)?;
    Ok((finished, String::from_utf8_lossy(&said.0).trim().to_owned()))
}

fn judge(path: &str, run: &RunId, (finished, said): (Finished, String)) -> Result<(), Fault> {
    match finished {
        Finished {
            fault: Some(fault), ..
        } => Err(fault),
        Finished { code: 0, .. } => Ok(()),
        Finished {
            code: IS_DIRECTORY, ..
        } => Err(directory(path, run)),
        Finished { code: IS_NO_FILE, .. } => Err(cannot(
            path,
            "it is no regular file inside, or does not exist there",
        )),
        Finished { code, .. } => Err(cannot(
            path,
            &format!("the copying command ended with {code}: {}", clean(&said)),
        )),
    }
}

fn directory(path: &str, run: &RunId) -> Fault {
    cannot(path, "it is a directory").help(format!("bastle export {run} work.tar"))
}

fn cannot(path: &str, why: &str) -> Fault {
    Fault::new(Code::ExecCopy, format!("{} was not copied", clean(path)), why)
}

/// `4096`, `64K`, `10M`, `1G`.
fn size(text: &str) -> Result<u64, Fault> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        Some(_) | None => (text, 0),
    };
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| {
            let why = "write a number of bytes, or one with K, M or G";
            Fault::new(Code::UsageArgument, format!("{} is no size", clean(text)), why)
                .help("bastle cp --max-size 1G")
        })
}

/// Takes so many bytes and one more, then fails.
struct Bounded<'a> {
    file: &'a mut File,
    written: u64,
    most: u64,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.written += bytes.len() as u64;
        if self.written > self.most {
            return Err(std::io::Error::other("it is too large"));
        }
        self.file.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The first words of a failing command; the rest is not kept.
struct Said(Vec<u8>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let room = 1024_usize.saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A new file beside the target; removed unless it became the target.
struct Beside {
    file: File,
    at: PathBuf,
}

impl Beside {
    fn make(target: &Path) -> std::io::Result<Self> {
        let name = target
            .file_name()
            .ok_or_else(|| std::io::Error::other("it names no file"))?;
        let mut own = std::ffi::OsString::from(".");
        own.push(name);
        own.push(format!(".bastle-{}", std::process::id()));
        let at = target.with_file_name(own);
        let file = File::create_new(&at)?;
        Ok(Self { file, at })
    }

    fn finish(self, target: &Path) -> std::io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.at, target)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // After the renaming there is nothing at that name.
        drop(std::fs::remove_file(&self.at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_names_a_run_only_before_the_first_slash() {
        assert!(matches!(side("otter:a/b"), Side::Inside { run, path } if run == "otter" && path == "a/b"));
        assert!(matches!(side("@last:/etc/passwd"), Side::Inside { .. }));
        for here in ["./a:b", "/a:b", "a", ":a", "a:"] {
            assert!(matches!(side(here), Side::Here(_)), "{here}");
        }
    }

    #[test]
    fn a_size_that_is_none_or_overflows_is_refused() {
        assert_eq!(
            (size("1G").unwrap(), size("4096").unwrap(), size("2k").unwrap()),
            (1 << 30, 4096, 2048)
        );
        for bad in ["", "G", "-1", "1T", "99999999999G", "1 G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
