//! The agent's objects in a repository of bastle's own.
//!
//! **Trust:** loose objects and packs are contents under names that are hashes. Indexes of packs are made anew, so that git
//! reads none that the agent wrote; what the copy began with was written by bastle and is taken as it is.
use crate::blobs::{Checked, copy_checked};
use crate::faults::io_fault;
use crate::git::{Call, HostGit, ObjectFormat, ObjectId, Scratch};
use crate::manifest::{Content, Entry, Kind, Manifest};
use crate::workspace::Workspace;
use bastle_contract::{Code, Fault};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

/// Who wrote a file of the agent's repository.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Author {
    /// The copy began with it.
    Bastle,
    /// It is new or changed since.
    Agent,
}

/// Reads what references lead to.
pub(super) struct AgentObjects {
    pub(super) git: HostGit,
    pub(super) scratch: Scratch,
}

impl AgentObjects {
    /// `sample` is the name of any object: its length tells the format.
    pub(super) fn open(
        space: &Workspace,
        now: &Manifest,
        base: &Manifest,
        sample: &str,
    ) -> Result<Self, Fault> {
        let format = match sample.len() {
            64 => ObjectFormat::Sha256,
            _ => ObjectFormat::Sha1,
        };
        let parent = space.path("scratch");
        space.place.durable().make_dir(&parent)?;
        let repo = space.host_repo().filter(|repo| repo.format == format);
        let borrowed = match &repo {
            Some(repo) => vec![
                repo.objects()
                    .canonicalize()
                    .map_err(|e| io_fault("open", &repo.objects(), e))?,
            ],
            None => Vec::new(),
        };
        let objects = Self {
            git: HostGit::find()?,
            scratch: Scratch::new(&parent, format, &borrowed)?,
        };
        for entry in now.entries() {
            let author = match base.get(&entry.path) == Some(&entry.kind) {
                true => Author::Bastle,
                false => Author::Agent,
            };
            objects.take(space, entry, author)?;
        }
        Ok(objects)
    }

    fn take(&self, space: &Workspace, entry: &Entry, author: Author) -> Result<(), Fault> {
        let Kind::File { digest, .. } = &entry.kind else {
            return Ok(());
        };
        let name = entry.path.as_bytes().strip_prefix(b".git/objects/");
        let Some(name) = name.and_then(|name| std::str::from_utf8(name).ok()) else {
            return Ok(());
        };
        let Some((folder, file)) = name.split_once('/') else {
            return Ok(());
        };
        let wanted = match folder {
            "pack" => is_pack(file) && (author == Author::Bastle || file.ends_with(".pack")),
            _ => is_hex(folder, 2) && (is_hex(file, 38) || is_hex(file, 62)),
        };
        if !wanted {
            return Ok(());
        }
        let at = self.scratch.path().join("objects").join(folder);
        std::fs::create_dir_all(&at).map_err(|e| io_fault("make", &at, e))?;
        let to = at.join(file);
        let from = match space.git_content(digest, &entry.path) {
            Ok(from) => from,
            // The host may have it; if not, what needs it is told as unreadable.
            Err(_) => return Ok(()),
        };
        match copy(from, &to, digest).map_err(|e| io_fault("copy", &to, e))? {
            Checked::Right if author == Author::Agent && folder == "pack" => self.index(&to),
            Checked::Right => Ok(()),
            Checked::Wrong => std::fs::remove_file(&to).map_err(|e| io_fault("remove", &to, e)),
        }
    }

    /// A pack that is damaged is no pack.
    fn index(&self, pack: &Path) -> Result<(), Fault> {
        let Some(text) = pack.to_str() else { return Ok(()) };
        let call = Call {
            arguments: vec!["index-pack", text],
            ..Call::default()
        };
        if self.git.run(&self.scratch, call).is_err() {
            std::fs::remove_file(pack).map_err(|e| io_fault("remove", pack, e))?;
        }
        Ok(())
    }

    /// Commits that `id` leads to and `known` do not; none where they cannot be read.
    pub(super) fn count(&self, id: &str, known: &BTreeSet<&String>) -> Result<Option<u64>, Fault> {
        if self.commit(id)?.is_none() {
            return Ok(None);
        }
        let mut input = format!("{id}\n");
        for other in known.iter().filter(|other| other.len() == id.len()) {
            input.push_str(&format!("^{other}\n"));
        }
        let counted = self.git.run(
            &self.scratch,
            Call {
                arguments: vec!["rev-list", "--count", "--ignore-missing", "--stdin"],
                input: input.into_bytes(),
                ..Call::default()
            },
        );
        Ok(counted
            .ok()
            .and_then(|text| String::from_utf8_lossy(&text).trim().parse().ok()))
    }

    /// The commit that an object is or leads to.
    pub(super) fn commit(&self, id: &str) -> Result<Option<ObjectId>, Fault> {
        let listed = self.git.run(
            &self.scratch,
            Call {
                arguments: vec!["cat-file", "--batch-check=%(objectname) %(objecttype)"],
                input: format!("{id}^{{commit}}\n").into_bytes(),
                ..Call::default()
            },
        );
        let Ok(listed) = listed else { return Ok(None) };
        let text = String::from_utf8_lossy(&listed);
        Ok(text.trim().strip_suffix(" commit").and_then(ObjectId::parse))
    }

    pub(super) fn unreadable(name: &str) -> Fault {
        let what = format!("what {name} leads to cannot be read");
        Fault::new(
            Code::WorkspaceGit,
            what,
            "objects of the agent's repository are missing or damaged",
        )
        .help("bastle export keeps the files of the tree")
    }
}

fn copy(from: File, to: &Path, digest: &Content) -> std::io::Result<Checked> {
    let target = File::create_new(to)?;
    copy_checked(&from, &target, digest)
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_pack(name: &str) -> bool {
    let Some((stem, kind)) = name.rsplit_once('.') else {
        return false;
    };
    let hash = stem
        .strip_prefix("pack-")
        .is_some_and(|hash| is_hex(hash, 40) || is_hex(hash, 64));
    hash && matches!(kind, "pack" | "idx" | "rev")
}
