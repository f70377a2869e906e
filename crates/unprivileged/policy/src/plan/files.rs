//! What a plan gets for a known agent: files for its fresh home, and its program under its own name.
//!
//! **Trust:** control read the files on the host. They are copies: nothing that happens to them inside reaches it.
use super::{PlanLine, Planned};
use crate::effective::Origin;
use crate::layers::LayerKind;
use bastle_contract::{AbsPath, Code, Digest, EnvName, Fault, Guarantee, Mechanism, Mount, MountKind};

/// The home directory inside.
pub const HOME: &str = "/home/agent";
/// Where programs of agents are found inside.
pub const PROGRAMS: &str = "/run/bastle/agent";

/// A file that the agent finds in its home and may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenFile {
    /// Below [`HOME`].
    pub to: String,
    /// What it begins with.
    pub bytes: Vec<u8>,
    /// Where it comes from, for the listing.
    pub note: String,
}

impl Planned {
    /// Puts files into the home; their bytes join the attachments. A place that a rule of the policy shows something
    /// at keeps that: a person's grant is not replaced.
    pub fn with_files(
        &mut self,
        preset: &str,
        files: &[GivenFile],
        attachments: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        for file in files {
            let at = path(&format!("{HOME}/{}", file.to))?;
            let scratch = |mount: &Mount| matches!(mount.kind, MountKind::Scratch { .. });
            let taken = self
                .plan
                .mounts
                .iter()
                .any(|mount| mount.at.is_within(&at) || (at.is_within(&mount.at) && !scratch(mount)));
            let home = self
                .plan
                .mounts
                .iter()
                .any(|mount| scratch(mount) && at.is_within(&mount.at));
            if taken || !home {
                continue;
            }
            self.plan.mounts.push(Mount {
                at: at.clone(),
                kind: MountKind::Given {
                    offset: attachments.len() as u64,
                    length: file.bytes.len() as u64,
                },
            });
            attachments.extend_from_slice(&file.bytes);
            self.listing
                .push(line(preset, "agent.files", at.as_str(), &file.note));
        }
        if !attachments.is_empty() {
            let digest = blake3::hash(attachments).to_hex().to_string();
            let digest = Digest::try_from(digest).map_err(|error| broken(&error.to_string()))?;
            self.plan.attachments = Some(digest);
        }
        self.plan.check().map_err(|error| broken(&error.to_string()))
    }

    /// Makes programs be found by their names: links in a directory that comes first in `PATH`.
    pub fn with_programs(&mut self, preset: &str, programs: &[(String, AbsPath)]) -> Result<(), Fault> {
        if programs.is_empty() {
            return Ok(());
        }
        for (name, target) in programs {
            let at = path(&format!("{PROGRAMS}/{name}"))?;
            if let Some(list) = &mut self.plan.exec {
                if self.names.contains(name) && !list.programs.contains(target) {
                    list.programs.push(target.clone());
                }
                // It comes first in `PATH`.
                if self.plan.argv.program() == name {
                    list.launch = Some(target.clone());
                }
            }
            self.listing.push(line(
                preset,
                "agent.program",
                at.as_str(),
                &format!("is {target}"),
            ));
            self.plan.mounts.push(Mount {
                at,
                kind: MountKind::Symlink {
                    target: target.to_string(),
                },
            });
        }
        let variable = EnvName::try_from("PATH".to_owned()).map_err(|error| broken(&error.to_string()))?;
        for (_, value) in self.plan.env.iter_mut().filter(|(name, _)| *name == variable) {
            *value = format!("{PROGRAMS}:{value}");
        }
        self.plan.check().map_err(|error| broken(&error.to_string()))
    }
}

fn path(text: &str) -> Result<AbsPath, Fault> {
    AbsPath::new(text).map_err(|error| broken(&error.to_string()))
}

fn broken(why: &str) -> Fault {
    Fault::new(Code::FenceStep, "the agent's own files cannot be planned", why)
        .help("--preset none starts it without them")
}

fn line(preset: &str, section: &str, rule: &str, note: &str) -> PlanLine {
    PlanLine {
        section: section.to_owned(),
        rule: rule.to_owned(),
        origin: Origin {
            layer: LayerKind::Preset,
            file: preset.to_owned(),
            line: 0,
        },
        mechanism: Mechanism::Mount,
        probe: Some(Guarantee::ReadsConfined),
        note: note.to_owned(),
    }
}
