//! Presets of agents from outside: the real binary, and a program that is called like an agent and tells what it sees.
//!
//! | file | what must not happen |
//! |---|---|
//! | `agent` | an agent that reads or changes the person's own files, or sees a real key |
//! | `choice` | a preset that a project chooses, or that a person cannot refuse |
//! | `verbs` | a preset or an import that is kept unchecked, or reported otherwise than it is |
// Helpers of tests stop the test that called them.
#![allow(clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../cli_support/mod.rs"]
mod cli_support;

#[allow(dead_code)]
#[path = "../net/world.rs"]
mod world;

mod agent;
mod choice;
mod verbs;

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use support::{Fence, Lab};

/// Installs a program called `claude` as npm does, and gives a run that finds it.
pub(crate) fn installed<'a>(lab: &'a Lab, script: &str) -> Fence<'a> {
    let package = "home/npm/lib/node_modules/@anthropic-ai/claude-code";
    lab.plant(
        format!("{package}/package.json").as_ref(),
        r#"{ "name": "@anthropic-ai/claude-code", "version": "2.1.100" }"#,
    );
    lab.plant(format!("{package}/own.txt").as_ref(), "own file\n");
    lab.plant(
        "home/npm/lib/node_modules/other/private.txt".as_ref(),
        "other package\n",
    );
    let program = lab.plant(
        format!("{package}/cli.sh").as_ref(),
        &format!("#!/bin/sh\n{script}"),
    );
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("own file");
    let bin = lab.plant("home/npm/bin/.keep".as_ref(), "");
    let link = bin.with_file_name("claude");
    if link.symlink_metadata().is_err() {
        symlink("../lib/node_modules/@anthropic-ai/claude-code/cli.sh", &link).expect("a fresh link");
        let uid = lab.identity.uid();
        lchown(&link, Some(uid), Some(uid)).expect("own link");
    }
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin",
        bin.parent().expect("has one").display()
    );
    lab.fence().env("PATH", &path)
}
