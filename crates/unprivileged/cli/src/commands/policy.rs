//! `bastle policy`: show, check, test and compare policies. Executes nothing.
mod check;
mod compare;
mod import;
mod lists;
mod show;

pub(super) use lists::purpose;

use super::source::{PolicySource, kind_of};
use crate::context::{Context, Ended, Format};
use bastle_policy::LayerKind;
use std::path::PathBuf;

/// Arguments of `policy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle policy show --origin            every rule, what holds it, and where it stands
  bastle policy check agent-permissions.json
  bastle policy diff default dev         what one policy reaches that another does not
  bastle policy schema > schema.json     for editors
  bastle policy import --from claude     a policy of another tool's settings

Exit codes: 0 ok, 1 failed, 2 usage, 3 unknown preset.")]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    verb: PolicyVerb,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
enum PolicyVerb {
    /// Show the effective policy of this project
    Show {
        /// Show the file and line of every rule
        #[arg(long)]
        origin: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Check policy files: syntax, schema and their own tests (exit 1 on failure)
    Check {
        /// Policy files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        standing: Standing,
        #[command(flatten)]
        common: Common,
    },
    /// Find rules that do nothing, or allow more than they seem to (exit 1 if there are any)
    Lint {
        /// Look at this file instead of the effective policy
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        standing: Standing,
        #[command(flatten)]
        common: Common,
    },
    /// Run the tests written in policies (exit 1 on failure)
    Test {
        /// Test this file on top of the preset, instead of the effective policy
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        standing: Standing,
        #[command(flatten)]
        common: Common,
    },
    /// Show what the second policy reaches that the first does not, and the other way round
    Diff {
        /// Preset name or policy file
        a: String,
        /// Preset name or policy file
        b: String,
        /// Exit with 1 if they differ
        #[arg(long)]
        exit_code: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Rate the exposure of the effective policy, 0 (none) to 10 (no fence)
    Score {
        #[command(flatten)]
        common: Common,
    },
    /// Let a living run read its policy again; its network rules are replaced as a whole
    Reload {
        /// The run (name, unique prefix, or @last for the only one)
        run: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of policy files
    Schema,
    /// List the built-in presets
    Presets {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a policy of another tool's settings, with a report of what became of each rule
    Import(import::ImportArgs),
    /// List what this policy denies or asks about, each with the decision on an example
    BlockedCommands {
        #[command(flatten)]
        common: Common,
    },
    /// Print the danger matrix: every classified operation and its tier
    DangerMatrix {
        /// Print JSON
        #[arg(long, conflicts_with = "markdown")]
        json: bool,
        /// Print the page of the documentation
        #[arg(long)]
        markdown: bool,
    },
}

/// As what a file is read.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Standing {
    /// Read FILE as your own word, or as a project's file, which only restricts
    /// [default: project for agent-permissions.json and agent-permissions.local.json, user otherwise]
    #[arg(long = "as", value_enum, value_name = "LAYER", hide_possible_values = true)]
    layer: Option<StandingLayer>,
}

/// Whose file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum StandingLayer {
    /// The user's.
    User,
    /// The project's.
    Project,
}

/// Options of most of them.
#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    source: PolicySource,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl PolicyArgs {
    /// Whether JSON was asked for.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            PolicyVerb::Show { common, .. }
            | PolicyVerb::Check { common, .. }
            | PolicyVerb::Lint { common, .. }
            | PolicyVerb::Test { common, .. }
            | PolicyVerb::Diff { common, .. }
            | PolicyVerb::Score { common }
            | PolicyVerb::BlockedCommands { common } => common.json,
            PolicyVerb::Presets { json }
            | PolicyVerb::Reload { json, .. }
            | PolicyVerb::DangerMatrix { json, .. } => *json,
            PolicyVerb::Import(args) => args.json,
            PolicyVerb::Schema => false,
        }
    }
}

impl Standing {
    fn of(self, file: &std::path::Path) -> LayerKind {
        match self.layer {
            Some(StandingLayer::User) => LayerKind::User,
            Some(StandingLayer::Project) => LayerKind::Project,
            None => kind_of(file),
        }
    }
}

/// Does it.
pub(crate) fn run(args: PolicyArgs, cx: &Context) -> Ended {
    match args.verb {
        PolicyVerb::Show { origin, common } => {
            let columns = if origin {
                show::Columns::WithOrigin
            } else {
                show::Columns::Short
            };
            show::show(&common, columns, cx)
        }
        PolicyVerb::Check {
            files,
            standing,
            common,
        } => check::check(&files, standing, &common, cx),
        PolicyVerb::Lint {
            file,
            standing,
            common,
        } => check::lint(file.as_deref(), standing, &common, cx),
        PolicyVerb::Test {
            file,
            standing,
            common,
        } => check::test(file.as_deref(), standing, &common, cx),
        PolicyVerb::Diff {
            a,
            b,
            exit_code,
            common,
        } => {
            let differs = compare::diff(&a, &b, &common, cx)?;
            Ok(u8::from(differs && exit_code))
        }
        PolicyVerb::Score { common } => compare::score(&common, cx),
        PolicyVerb::Reload { run, json } => {
            super::live::reload(&run, if json { Format::Json } else { Format::Human }, cx)
        }
        PolicyVerb::Schema => {
            cx.print(bastle_policy::SCHEMA)?;
            Ok(0)
        }
        PolicyVerb::Presets { json } => lists::presets(if json { Format::Json } else { Format::Human }, cx),
        PolicyVerb::Import(args) => import::run(&args, cx),
        PolicyVerb::BlockedCommands { common } => lists::blocked(&common, cx),
        PolicyVerb::DangerMatrix { json: true, .. } => lists::matrix(lists::MatrixForm::Json, cx),
        PolicyVerb::DangerMatrix { markdown: true, .. } => lists::matrix(lists::MatrixForm::Markdown, cx),
        PolicyVerb::DangerMatrix { .. } => lists::matrix(lists::MatrixForm::Table, cx),
    }
}
