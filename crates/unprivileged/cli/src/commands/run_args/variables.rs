//! Variables for the agent: `--env` and `--env-file`. Names are checked, values are never shown.
use super::RunArgs;
use bastle_contract::{Code, EnvName, Fault};
use std::path::Path;

impl RunArgs {
    /// Variables of `--env-file`, then of `--env`: the later wins.
    pub(crate) fn variables(&self) -> Result<Vec<(EnvName, String)>, Fault> {
        let mut found: Vec<(EnvName, String)> = Vec::new();
        let mut add = |name: EnvName, value: String| {
            found.retain(|(known, _)| *known != name);
            found.push((name, value));
        };
        for file in &self.env_file {
            for (number, line) in env_lines(file)?.lines().enumerate() {
                let line = line.trim_end_matches('\r');
                if line.trim().is_empty() || line.trim_start().starts_with('#') {
                    continue;
                }
                let at = || format!("{}:{}", file.display(), number + 1);
                let (name, value) = variable(line.trim_start()).map_err(|why| refused(&at(), &why))?;
                add(name, value);
            }
        }
        for text in &self.env {
            let (name, value) = variable(text).map_err(|why| refused("--env", &why))?;
            add(name, value);
        }
        Ok(found)
    }
}

/// Largest file of variables: people write far less, and it is read into memory.
const MOST_ENV: u64 = 1 << 20;

fn env_lines(path: &Path) -> Result<String, Fault> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let fault = |why: String| {
        Fault::new(
            Code::UsageEnv,
            format!("cannot read the variables of {}", path.display()),
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
    let mut text = String::new();
    file.take(MOST_ENV + 1)
        .read_to_string(&mut text)
        .map_err(|error| fault(error.to_string()))?;
    if text.len() as u64 > MOST_ENV {
        return Err(fault(format!("it is larger than {MOST_ENV} bytes")));
    }
    Ok(text)
}

/// `NAME=VALUE`, or `NAME` for the value it has here.
pub(crate) fn variable(text: &str) -> Result<(EnvName, String), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let known = EnvName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
    let value = match value {
        Some(value) => value,
        None => std::env::var(name).map_err(|_| format!("{name} has no value here, and none was given"))?,
    };
    if value.contains('\0') {
        return Err(format!("the value of {name} contains a NUL byte"));
    }
    Ok((known, value))
}

fn refused(place: &str, why: &str) -> Fault {
    Fault::new(Code::UsageEnv, format!("{place}: variable refused"), why)
        .help("write NAME=VALUE, one per line in a file")
}
