//! What a look finds: on the host, in a copy, below a layer.
use super::*;
use bastle_contract::NamePattern;
use bastle_workspace::manifest::{Content, Entry, Kind, LinkTarget, Manifest, Mode as FileMode};
use bastle_workspace::path::TreePath;
use std::os::unix::fs::symlink;

fn abs(path: &Path) -> AbsPath {
    AbsPath::from_path(path).unwrap()
}

fn patterns(texts: &[&str]) -> Vec<NamePattern> {
    texts
        .iter()
        .map(|text| NamePattern::try_from((*text).to_owned()).unwrap())
        .collect()
}

fn file() -> Kind {
    Kind::File {
        digest: Content::of(b"x"),
        size: 1,
        mode: FileMode::default(),
        attributes: None,
    }
}

fn manifest(names: &[(&str, Kind)]) -> Manifest {
    let entries = names.iter().map(|(path, kind)| Entry {
        path: TreePath::new(*path).unwrap(),
        kind: kind.clone(),
    });
    Manifest::new(entries.collect()).unwrap()
}

fn need(root: AbsPath, hide: &[&str], protect: Vec<NamePattern>) -> TreeNeed {
    TreeNeed {
        root,
        hide: patterns(hide).into(),
        protect: protect.into(),
        live: bastle_contract::BuiltInNames::None,
    }
}

fn found(tree: &TreeNeed, view: View<'_>) -> (Vec<String>, Vec<String>) {
    let mut facts = FsFacts::default();
    search(tree, view, &mut facts, &mut Parents::default()).unwrap();
    let text = |paths: Vec<AbsPath>| {
        let mut names: Vec<String> = paths.iter().map(ToString::to_string).collect();
        names.sort();
        names
    };
    (text(facts.hidden), text(facts.protected))
}

/// A project on disk that differs from what the overlay shows: the host's repository and a hidden name are not in it.
struct Ground {
    _stage: tempfile::TempDir,
    project: AbsPath,
    shown: Manifest,
}

fn ground() -> Ground {
    let stage = tempfile::tempdir().unwrap();
    let project = stage.path().canonicalize().unwrap().join("project");
    for directory in [".git/hooks", "a/.husky", "a-b", "hooks"] {
        std::fs::create_dir_all(project.join(directory)).unwrap();
    }
    for name in [".git/config", ".env", "a/file", "a/.husky/config"] {
        std::fs::write(project.join(name), "x").unwrap();
    }
    std::fs::hard_link(project.join("a/file"), stage.path().join("elsewhere")).unwrap();
    let shown = manifest(&[
        (".git", Kind::Dir),
        (".git/config", file()),
        ("a", Kind::Dir),
        ("a-b", Kind::Dir),
        ("a/.husky", Kind::Dir),
        ("a/.husky/config", file()),
        (
            "a/config",
            Kind::Symlink {
                target: LinkTarget(b"file".to_vec()),
            },
        ),
        ("a/file", file()),
    ]);
    Ground {
        project: abs(&project),
        _stage: stage,
        shown,
    }
}

#[test]
fn names_below_a_layer_come_from_what_it_shows_and_not_from_the_host() {
    let ground = ground();
    let view = View::Layered {
        project: &ground.project,
        shown: &ground.shown,
    };
    let protect = patterns(&["**/.git/hooks", "**/config", "**/.husky"]);
    let tree = need(ground.project.clone(), &["**/.env"], protect);
    let (hidden, protected) = found(&tree, view);
    let project = &ground.project;
    assert!(hidden.is_empty(), "marked as gone in the layer: {hidden:?}");
    assert_eq!(
        protected,
        [format!("{project}/.git/config"), format!("{project}/a/.husky")],
        "the layer has no hooks, a link is not covered, what is below a cover needs none"
    );
    let (hidden, protected) = found(&tree, View::Host);
    assert_eq!(hidden.len(), 1, "control: {hidden:?}");
    assert!(protected.contains(&format!("{project}/.git/hooks")), "control");
    assert!(
        protected.contains(&format!("{project}/a/file")),
        "control: a file with a link elsewhere is written through in place, and copied up in a layer"
    );
}

#[test]
fn trees_inside_and_around_a_layered_project_are_searched_by_their_own_paths() {
    let ground = ground();
    let view = View::Layered {
        project: &ground.project,
        shown: &ground.shown,
    };
    let project = &ground.project;
    let inner = need(project.join("a").unwrap(), &[], patterns(&[".husky", "file"]));
    let (_, protected) = found(&inner, view);
    assert_eq!(
        protected,
        [format!("{project}/a/.husky"), format!("{project}/a/file")]
    );
    let above = abs(project.as_path().parent().unwrap());
    let outer = need(above.clone(), &[], patterns(&["project/.git/*", "elsewhere"]));
    let (_, protected) = found(&outer, view);
    assert_eq!(
        protected,
        [format!("{above}/elsewhere"), format!("{project}/.git/config")],
        "outside the project the disk is asked, inside it the record"
    );
}

#[test]
fn a_protected_name_that_the_plan_cannot_carry_stops_a_layered_run_too() {
    let ground = ground();
    let path = TreePath::new(b"bad-\xff.key".to_vec()).unwrap();
    let shown = Manifest::new(vec![Entry { path, kind: file() }]).unwrap();
    let view = View::Layered {
        project: &ground.project,
        shown: &shown,
    };
    let tree = need(ground.project.clone(), &[], patterns(&["*.key"]));
    assert!(search(&tree, view, &mut FsFacts::default(), &mut Parents::default()).is_err());
}

#[test]
fn a_path_is_found_where_the_kernel_finds_it_whatever_was_looked_up_before() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(at.join("real/inner")).unwrap();
    std::fs::write(at.join("real/file"), "x").unwrap();
    for (name, target) in [
        ("way", "real"),
        ("real/up", "../real/file"),
        ("round", "round"),
        ("nowhere", "real/gone"),
        ("through", "real/file/.."),
    ] {
        symlink(target, at.join(name)).unwrap();
    }
    let mut parents = Parents::default();
    let names = [
        "real",
        "real/file",
        "real/inner",
        "real/gone",
        "real/file/x",
        "real/up",
        "way",
        "way/file",
        "way/inner",
        "way/up",
        "round",
        "round/x",
        "nowhere",
        "through",
        "through/file",
        "gone/x",
    ];
    // Twice: the second time every directory is known.
    for name in names.iter().chain(&names) {
        let path = at.join(name);
        let kernel = path.canonicalize().ok().map(|real| {
            let is_directory = real.is_dir();
            (real, is_directory)
        });
        assert_eq!(parents.find(&path), kernel, "{name}");
    }
    assert_eq!(parents.find(Path::new("/")), Some((PathBuf::from("/"), true)));
}
