//! The programs under test, where every identity can execute them.
use super::Lab;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

static BASTLE: LazyLock<Staged> = LazyLock::new(|| {
    let built = std::env::var_os("BASTLE_BIN")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_bastle")), PathBuf::from);
    Staged::of(&built)
});
static HOOKS: LazyLock<Staged> = LazyLock::new(|| {
    let built = std::env::var_os("BASTLE_HOOKS_BIN").map_or_else(build_with_hooks, PathBuf::from);
    Staged::of(&built)
});
static ATTACKER: LazyLock<PathBuf> = LazyLock::new(compile_attacker);

/// The shipped binary.
pub(crate) fn bastle() -> &'static Path {
    &BASTLE.program
}

/// The binary with the hooks that leave one layer of the fence out. Never shipped.
pub(crate) fn with_hooks() -> &'static Path {
    &HOOKS.program
}

/// The attacker: a static program that needs nothing of the root it runs in.
pub(crate) fn attacker() -> &'static Path {
    &ATTACKER
}

/// A program that all users can execute: itself, or a copy when its directory is private.
struct Staged {
    program: PathBuf,
}

impl Staged {
    fn of(built: &Path) -> Self {
        let built = built
            .canonicalize()
            .unwrap_or_else(|error| panic!("{}: {error}", built.display()));
        let open = |path: &Path| path.metadata().is_ok_and(|meta| meta.mode() & 0o005 == 0o005);
        if built.ancestors().all(open) {
            return Self { program: built };
        }
        // Left for the next run of the tests: a copy per run would be 70 MB each, and statics are never dropped.
        let meta = built.metadata().expect("was just found");
        let place = std::env::temp_dir().join(format!(
            "bastle-under-test-{}",
            rustix::process::geteuid().as_raw()
        ));
        make_own_directory(&place);
        let program = place.join(format!("bastle-{}-{}", meta.mtime(), meta.size()));
        if !program.exists() {
            let partial = place.join(format!("partial-{}", std::process::id()));
            std::fs::copy(&built, &partial).expect("can be copied");
            std::fs::set_permissions(&partial, PermissionsExt::from_mode(0o755))
                .expect("can be opened to all");
            std::fs::rename(&partial, &program).expect("can be put in place");
        }
        Self { program }
    }
}

/// A fixed name in a shared directory is believed only when it is ours and nobody else can write it.
fn make_own_directory(place: &Path) {
    if std::fs::create_dir(place).is_ok() {
        std::fs::set_permissions(place, PermissionsExt::from_mode(0o755)).expect("just made");
    }
    let meta = place.symlink_metadata().expect("just made or found");
    let ours = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0;
    assert!(ours, "{} belongs to somebody else", place.display());
}

fn build_with_hooks() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Beside the tests' own scratch directory, and never where a shipped binary is looked for.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("hooks");
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root)
        .args([
            "build",
            "--package",
            "bastle",
            "--features",
            "test-hooks",
            "--target-dir",
        ])
        .arg(&target)
        .env_remove("CARGO_TARGET_DIR")
        .status()
        .expect("cargo can be started");
    assert!(built.success(), "the binary with hooks does not build");
    target.join("debug/bastle")
}

/// Compiles the attacker once; later test processes of the same sources find it.
fn compile_attacker() -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/escape/attacker");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&sources)
        .expect("the attacker's sources are there")
        .map(|entry| entry.expect("can be listed").path())
        .collect();
    files.sort();
    let newest = files
        .iter()
        .map(|file| file.metadata().expect("is there").mtime())
        .max()
        .expect("there are sources");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("attacker-{newest}"));
    if !program.exists() {
        let partial = program.with_extension(format!("{}", std::process::id()));
        let compiled = Command::new("cc")
            .args(["-static", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&partial)
            .args(
                files
                    .iter()
                    .filter(|file| file.extension().is_some_and(|e| e == "c")),
            )
            .status()
            .expect("a C compiler is needed: cc");
        assert!(
            compiled.success(),
            "the attacker does not compile (a static C library is needed)"
        );
        std::fs::rename(&partial, &program).expect("can be put in place");
    }
    program
}

/// A static program of one C source, given below the repository's root, where every run of the lab can execute it. Compiled
/// once; later test processes of the same source find it.
pub(crate) fn compiled(lab: &Lab, source: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let name = source.file_stem().and_then(|stem| stem.to_str()).expect("UTF-8");
    let changed = source.metadata().expect("the source is there").mtime();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{changed}"));
    if !program.exists() {
        let partial = program.with_extension(format!("{}", std::process::id()));
        let compiled = Command::new("cc")
            .args(["-static", "-pthread", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&partial, &source])
            .status()
            .expect("a C compiler is needed: cc");
        assert!(
            compiled.success(),
            "{name} does not compile (a static C library is needed)"
        );
        std::fs::rename(&partial, &program).expect("can be put in place");
    }
    let place = lab.tools().join(name);
    if !place.exists() {
        std::fs::copy(&program, &place).expect("can be copied");
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).expect("own file");
    }
    place.to_str().expect("places of the tests are UTF-8").to_owned()
}
