//! What the tests do on the host's side of a project: git outside the fence, and waiting for what a run brings about.
use super::child::{Limit, eventually, run};
use super::lab::Lab;
use std::path::Path;
use std::time::Duration;

/// A path as a word of a command line.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("places of the tests are UTF-8")
}

/// Runs git as the identity, outside the fence; its output without the last line feed.
pub(crate) fn git(lab: &Lab, directory: &Path, arguments: &[&str]) -> String {
    let settings = [
        "user.name=Ada",
        "user.email=ada@example.org",
        "init.defaultBranch=main",
        // Submodules of the tests are directories.
        "protocol.file.allow=always",
    ];
    let mut command = lab.command(Path::new("git"));
    command
        .current_dir(directory)
        .args(settings.iter().flat_map(|setting| ["-c", setting]))
        .args(arguments);
    let ended = run(&mut command, b"", Limit::HANG);
    assert_eq!(ended.code, 0, "git {arguments:?}: {ended:?}");
    ended.stdout.trim_end().to_owned()
}

/// Waits for something that another process brings about; the bound only ends a test that has failed.
pub(crate) fn wait_for(what: &str, there: impl FnMut() -> bool) {
    assert!(eventually(Limit::HANG, there), "{what} did not come about");
}

/// Lets this much time pass: that nothing happens in it is what is looked for.
pub(crate) fn pass(time: Duration) {
    assert!(!eventually(Limit(time), || false));
}
