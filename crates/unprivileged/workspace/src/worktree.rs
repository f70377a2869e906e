//! The tracked files of the checked-out commit, and nothing else: what a work tree of the repository would hold.
//!
//! **Trust:** the files come out of the object store through hardened git with an index of ours. Line ends and encodings are
//! those of the user's own checkout; a filter does not run, because the repository that git runs in defines none.
use crate::finding::{About, Finding};
use crate::git::{Attributes, Call, HostGit, HostRepo, Scratch, own_attributes, remove_from_index, settings};
use crate::manifest::Manifest;
use crate::meta::Meta;
use crate::path::TreePath;
use crate::restore::sweep;
use crate::scan::scan;
use crate::seen::Alive;
use crate::store::Keep;
use crate::workspace::{CreateRequest, Fresh, Made, Workspace};
use bastle_contract::{Code, Fault};
use std::path::{Path, PathBuf};

/// What is told with every such tree.
const NOTE: &str = "only committed files are inside: changes that are not committed, and files that git does not track, are not";

impl Workspace {
    /// Checks the commit out.
    pub(crate) fn check_out(&self, meta: Meta, mut request: CreateRequest<'_>) -> Result<Manifest, Fault> {
        let tree = self.open_tree()?;
        let index = self.path("index");
        let absent = self.write_files(&index, &mut request)?;
        let git = (request.git)(&Fresh {
            source: &self.source,
            tree: &self.tree(),
            scratch: &self.path("tmp"),
            absent: &absent,
        })?;
        let own = self.tree().join(".git");
        if git.without_history {
            self.forget_names(&index, &absent)?;
        }
        sweep(&self.path("tmp"))?;
        if own.is_dir() {
            // The index of the checkout, not the host's: it fits these files and has nothing that is only staged.
            std::fs::rename(&index, own.join("index"))
                .map_err(|e| crate::faults::io_fault("rename to", &own, e))?;
        }
        let _shared = self.store.lock_shared()?;
        let batch = self.batch(Keep::Small);
        let scan = scan(&tree, &self.tree(), None, &batch, Alive::No)?;
        let hidden = absent.into_iter().map(|path| Finding {
            path,
            about: About::Hidden,
        });
        let note = TreePath::new(".git").ok().map(|path| Finding {
            path,
            about: About::Note(NOTE.to_owned()),
        });
        let findings = hidden.chain(note).collect();
        self.finish(
            meta,
            batch,
            Made {
                scan,
                source: None,
                findings,
                git,
            },
        )
    }

    /// Takes hidden names out of the index: the copy has no object for them.
    fn forget_names(&self, index: &Path, absent: &[TreePath]) -> Result<(), Fault> {
        let Some(repo) = HostRepo::open(&self.source)? else {
            return Ok(());
        };
        let scratch = Scratch::new(&self.path("tmp"), repo.format, &[repo.objects()])?;
        let empty = self.path("tmp").join("no-work-tree");
        std::fs::create_dir_all(&empty).map_err(|error| crate::faults::io_fault("make", &empty, error))?;
        remove_from_index(&HostGit::find()?, &scratch, index.to_path_buf(), &empty, absent)
    }

    /// Writes the files of the commit; returns the names that stay out.
    fn write_files(&self, index: &Path, request: &mut CreateRequest<'_>) -> Result<Vec<TreePath>, Fault> {
        let unfit = |why: &str| {
            Fault::new(
                Code::WorkspaceGit,
                format!("{} has no work tree to check out", self.source.display()),
                why,
            )
            .help("bastle run --workspace copy ...")
        };
        let repo =
            HostRepo::open(&self.source)?.ok_or_else(|| unfit("it is not the root of a git repository"))?;
        let commit = repo
            .head
            .commit()
            .ok_or_else(|| unfit("its branch has no commit yet"))?;
        let git = HostGit::find()?;
        let scratch = Scratch::new(&self.path("tmp"), repo.format, &[repo.objects()])?;
        own_attributes(&repo, &scratch)?;
        let settings = settings(&repo);
        let run = |arguments: Vec<&str>, input: Vec<u8>| {
            let settings = settings.iter().map(String::as_str);
            git.run(
                &scratch,
                Call {
                    arguments: settings.chain(arguments).collect(),
                    input,
                    directory: Some(self.tree()),
                    variables: variables(index, self.tree()),
                    attributes: Attributes::OfTree,
                    ..Call::default()
                },
            )
        };
        run(vec!["read-tree", commit.as_str()], Vec::new())?;
        let names = run(vec!["ls-files", "-z"], Vec::new())?;
        let mut absent = Vec::new();
        let mut skipped = Vec::new();
        let listed = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        for path in listed.filter_map(|name| TreePath::new(name).ok()) {
            let above = std::iter::successors(Some(path.clone()), TreePath::parent);
            if above.into_iter().any(|part| (request.hidden)(&part)) {
                skipped.extend_from_slice(path.as_bytes());
                skipped.push(0);
                absent.push(path);
            }
        }
        if !skipped.is_empty() {
            run(vec!["update-index", "--skip-worktree", "-z", "--stdin"], skipped)?;
        }
        let workers = format!("checkout.workers={}", crate::crew::threads());
        run(
            vec!["-c", &workers, "checkout-index", "--all", "--index", "--quiet"],
            Vec::new(),
        )?;
        Ok(absent)
    }
}

fn variables(index: &Path, tree: PathBuf) -> Vec<(&'static str, PathBuf)> {
    vec![("GIT_INDEX_FILE", index.to_path_buf()), ("GIT_WORK_TREE", tree)]
}
