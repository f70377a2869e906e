//! AppArmor's restriction of user namespaces: the profile that lifts it for this program, and profiles that are installed.
use super::cause::Fix;
use std::path::{Path, PathBuf};

/// Where the Debian package installs the program, and the profile for it.
const PACKAGED: (&str, &str) = ("/usr/bin/bastle", "/etc/apparmor.d/bastle");
/// Larger files are no profile of one program.
const MOST: u64 = 64 << 10;

/// A profile file that speaks of a program of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Installed {
    pub(super) file: PathBuf,
    pub(super) text: String,
}

impl Installed {
    /// The files of a directory of profiles that let a bastle make user namespaces.
    pub(super) fn find(directory: &Path) -> Vec<Self> {
        let Ok(entries) = std::fs::read_dir(directory) else {
            return Vec::new();
        };
        let mut found: Vec<Self> = entries
            .filter_map(Result::ok)
            .filter(|entry| {
                entry
                    .metadata()
                    .is_ok_and(|meta| meta.is_file() && meta.len() <= MOST)
            })
            .filter_map(|entry| {
                let text = std::fs::read_to_string(entry.path()).ok()?;
                let ours = text.contains("bastle") && text.contains("userns");
                ours.then(|| Self {
                    file: entry.path(),
                    text,
                })
            })
            .collect();
        found.sort_by(|one, other| one.file.cmp(&other.file));
        found
    }

    /// Whether it is attached to that program.
    pub(super) fn is_for(&self, binary: &Path) -> bool {
        let binary = binary.to_string_lossy();
        self.text.lines().any(|line| {
            let line = line.trim_start();
            !line.starts_with('#')
                && line.contains('{')
                && line
                    .split(|c: char| c.is_whitespace() || c == '"')
                    .any(|word| word == binary)
        })
    }
}

/// The profile for a program: it confines nothing and lets it make user namespaces.
pub(super) fn profile(binary: &Path) -> String {
    let path = binary.to_string_lossy();
    let quoted: String = path
        .chars()
        .flat_map(|c| {
            // What means something in a pattern is taken as it is.
            let escape = "\\\"{}[]*?^".contains(c);
            escape.then_some('\\').into_iter().chain([c])
        })
        .collect();
    let name = if path == PACKAGED.0 { "bastle " } else { "" };
    format!(
        "abi <abi/4.0>,\ninclude <tunables/global>\n\nprofile {name}\"{quoted}\" flags=(unconfined) {{\n  userns,\n}}\n"
    )
}

/// The file that AppArmor's tools would give the profile of a program.
fn file_for(binary: &Path) -> String {
    let path = binary.to_string_lossy();
    if path == PACKAGED.0 {
        return PACKAGED.1.to_owned();
    }
    let name: String = path
        .trim_start_matches('/')
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '.'
            }
        })
        .collect();
    format!("/etc/apparmor.d/{name}")
}

/// Writes the profile and loads it.
pub(super) fn install(binary: &Path, sudo: &str) -> Fix {
    let (program, file) = (super::fix::quoted(&binary.to_string_lossy()), file_for(binary));
    Fix::Command(format!(
        "{program} doctor --apparmor-profile | {sudo}tee {file} >/dev/null && {sudo}apparmor_parser -r {file}"
    ))
}

/// Loads a profile that is installed.
pub(super) fn load(file: &Path, sudo: &str) -> Fix {
    let file = super::fix::quoted(&file.to_string_lossy());
    Fix::Command(format!("{sudo}apparmor_parser -r {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packaged_profile_is_the_one_for_the_packaged_program() {
        let packaged = include_str!("../../../../../../packaging/apparmor/bastle");
        let rules = |text: &str| {
            text.lines()
                .filter(|line| !line.trim_start().starts_with('#'))
                .map(|line| line.trim().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(rules(packaged), rules(&profile(Path::new(PACKAGED.0))));
        let installed = Installed {
            file: PACKAGED.1.into(),
            text: packaged.to_owned(),
        };
        assert!(installed.is_for(Path::new("/usr/bin/bastle")));
        assert!(!installed.is_for(Path::new("/usr/local/bin/bastle")));
    }

    #[test]
    fn a_profile_for_another_place_has_that_place_as_its_name_and_its_file() {
        let binary = Path::new("/home/ada/my bin/bastle");
        let text = profile(binary);
        assert!(
            text.contains("profile \"/home/ada/my bin/bastle\" flags=(unconfined) {"),
            "{text}"
        );
        let Fix::Command(line) = install(binary, "sudo ") else {
            panic!("a command");
        };
        assert_eq!(
            line,
            "'/home/ada/my bin/bastle' doctor --apparmor-profile | sudo tee /etc/apparmor.d/home.ada.my.bin.bastle >/dev/null \
             && sudo apparmor_parser -r /etc/apparmor.d/home.ada.my.bin.bastle"
        );
        let spaced = profile(Path::new("/a{b}/bastle"));
        assert!(spaced.contains("\"/a\\{b\\}/bastle\""), "{spaced}");
    }
}
