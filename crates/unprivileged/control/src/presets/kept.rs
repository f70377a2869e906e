//! Presets that the operator keeps in the configuration directory: `presets/NAME@VERSION.json`.
//!
//! **Trust:** the directory is the operator's own. A file there that cannot be used is an error, never skipped.
use bastle_contract::{Code, Fault};
use bastle_policy::Layer;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Largest preset, as of any document; one byte more shows that one is larger.
const MOST_BYTES: u64 = 64 * 1024 + 1;
/// Most that are kept.
const MOST_FILES: usize = 256;

/// A preset that is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// What it says.
    pub layer: Layer,
    /// Its text.
    pub text: String,
    /// Its file.
    pub file: PathBuf,
}

/// All that are kept, sorted by name.
pub fn kept(config: &Path) -> Result<Vec<Kept>, Vec<Fault>> {
    let folder = config.join("presets");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(vec![unusable(&folder, &error.to_string())]),
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(|error| vec![unusable(&folder, &error.to_string())])?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    if files.len() > MOST_FILES {
        return Err(vec![unusable(
            &folder,
            &format!("it has more than {MOST_FILES} presets"),
        )]);
    }
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

/// Reads the preset of one file; its name tells the preset's.
pub fn read(file: &Path) -> Result<Kept, Vec<Fault>> {
    let named = file
        .file_stem()
        .and_then(|stem| stem.to_str()?.split_once('@'))
        .and_then(|(name, version)| Some((name.to_owned(), version.parse::<u32>().ok()?)));
    let Some((name, version)) = named else {
        return Err(vec![unusable(
            file,
            "its name is not NAME@VERSION.json, such as claude@2.json",
        )]);
    };
    let one = |why: String| vec![unusable(file, &why)];
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    let opened =
        rustix::fs::open(file, flags, rustix::fs::Mode::empty()).map_err(|error| one(error.to_string()))?;
    let opened = std::fs::File::from(opened);
    if !opened.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(one("it is not a regular file".to_owned()));
    }
    let mut text = String::new();
    opened
        .take(MOST_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| one(error.to_string()))?;
    let layer = bastle_policy::read_preset(&name, version, text.as_bytes())?;
    Ok(Kept {
        layer,
        text,
        file: file.to_path_buf(),
    })
}

/// Keeps a preset that was read elsewhere. A version that is kept never changes.
pub fn keep(config: &Path, preset: &Kept) -> Result<PathBuf, Fault> {
    let folder = config.join("presets");
    let fault = |error: std::io::Error| unusable(&folder, &error.to_string());
    std::fs::create_dir_all(&folder).map_err(fault)?;
    let file = folder.join(format!("{}.json", preset.layer.name));
    match std::fs::read_to_string(&file) {
        Ok(known) if known == preset.text => return Ok(file),
        Ok(_) => {
            return Err(Fault::new(
                Code::PolicySchema,
                format!("{} is kept already and says something else", preset.layer.name),
                "a version never changes",
            )
            .help(format!("give it a higher version, or remove {}", file.display())));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(fault(error)),
    }
    // Whole or not at all: a half-written preset would stop every run.
    let fresh = folder.join(format!(".{}.{}", preset.layer.name, std::process::id()));
    std::fs::write(&fresh, &preset.text).map_err(fault)?;
    std::fs::rename(&fresh, &file).map_err(fault)?;
    Ok(file)
}

fn unusable(path: &Path, why: &str) -> Fault {
    Fault::new(
        Code::PolicyUnreadable,
        format!("cannot use the preset {}", path.display()),
        why,
    )
    .help("bastle preset ls shows what is kept; remove or mend the file")
}
