//! The greedy program of these tests, compiled once.
use crate::support::Lab;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

static HOG: LazyLock<PathBuf> = LazyLock::new(|| {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/hog.c");
    let changed = source.metadata().expect("the source is there").mtime();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hog-{changed}"));
    if !program.exists() {
        let partial = program.with_extension(format!("{}", std::process::id()));
        let compiled = Command::new("cc")
            .args(["-static", "-pthread", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&partial, &source])
            .status()
            .expect("a C compiler is needed: cc");
        assert!(
            compiled.success(),
            "the hog does not compile (a static C library is needed)"
        );
        std::fs::rename(&partial, &program).expect("can be put in place");
    }
    program
});

/// Puts it beside the attacker, where every run of the lab can execute it.
pub(crate) fn hog(lab: &Lab) -> String {
    let place = lab.tools().join("hog");
    if !place.exists() {
        std::fs::copy(&*HOG, &place).expect("can be copied");
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).expect("own file");
    }
    place.to_str().expect("places of the tests are UTF-8").to_owned()
}
