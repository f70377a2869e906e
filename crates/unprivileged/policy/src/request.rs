//! A launch request and the only way from it to a [`Grant`].
//!
//! **Trust:** the request comes from the operator's command line; the policy has already been merged.
use crate::decide::{Outcome, decide};
use crate::effective::Effective;
use crate::query::Query;
use bastle_contract::{AbsPath, Argv, BackendKind, Code, EnvName, Fault, RunId, Stdio, Waiver};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchRequest {
    /// Name of the run.
    pub run: RunId,
    /// What to run.
    pub argv: Argv,
    /// Working directory; within the workspace.
    pub cwd: AbsPath,
    /// Terminal or pipes.
    pub stdio: Stdio,
    /// Variables of `--env`.
    pub env: Vec<(EnvName, String)>,
    /// The host's environment; only names in `env.pass` are taken.
    pub host_env: Vec<(String, String)>,
    /// What is to enforce it.
    pub backend: BackendKind,
    /// Limits given up by name.
    pub waivers: Vec<Waiver>,
    /// Whether debuggers work between the agent's own processes.
    pub debuggers: bool,
    /// Whether a person approved the command line.
    pub approval: LaunchApproval,
}

/// Whether a person approved a command line that asks. Never taken from a request of a client or an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaunchApproval {
    /// Nobody was asked, or nobody can be.
    #[default]
    None,
    /// The person at the command line approved exactly this line.
    Person,
}

/// The answer to a request. Must be read.
#[must_use]
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It may be planned.
    Granted(Grant),
    /// A person must decide, and none has.
    NeedsApproval(Fault),
    /// Policy refuses the launch.
    Denied(Fault),
}

/// Proof that the policy allows a launch. Made only by [`decide_launch`].
#[must_use]
#[derive(Clone, Debug)]
pub struct Grant(Box<(LaunchRequest, Effective)>);

impl Grant {
    pub(crate) fn into_parts(self) -> (LaunchRequest, Effective) {
        *self.0
    }
}

/// Programs that the host backend refuses by name: without a fence a shell or a network tool is anything.
const UNFENCED_REFUSES: &[&str] = &[
    "sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "busybox", "curl", "wget", "nc", "ncat",
    "netcat", "socat", "ssh", "scp", "sftp", "rsync", "ftp", "telnet", "rm", "rmdir", "shred", "sudo", "su",
    "doas",
];

/// Decides on a launch.
pub fn decide_launch(effective: &Effective, request: LaunchRequest) -> Verdict {
    if let Err(fault) = check(effective, &request) {
        return Verdict::Denied(fault);
    }
    let granted = |request| Verdict::Granted(Grant(Box::new((request, effective.clone()))));
    match (
        launch_asks(effective, request.argv.as_slice(), request.backend),
        request.approval,
    ) {
        (LaunchAnswer::Allowed, _) | (LaunchAnswer::Asks(_), LaunchApproval::Person) => granted(request),
        (LaunchAnswer::Asks(fault), LaunchApproval::None) => Verdict::NeedsApproval(fault),
        (LaunchAnswer::Denied(fault), _) => Verdict::Denied(fault),
    }
}

/// What the command rules and the danger matrix say about a command line that is to be launched.
#[must_use]
#[derive(Clone, Debug)]
pub enum LaunchAnswer {
    /// It may be launched.
    Allowed,
    /// A person must approve it first; the fault is for where nobody can.
    Asks(Fault),
    /// Policy refuses the launch.
    Denied(Fault),
}

/// Answers for the line alone, so that whoever can ask a person does it before anything is started.
pub fn launch_asks(effective: &Effective, argv: &[String], backend: BackendKind) -> LaunchAnswer {
    let line = shell_line(argv);
    let decision = decide(effective, &Query::Exec(line.clone()));
    let shown = crate::text::shown(&line);
    let origin = decision
        .rule
        .as_ref()
        .map(|(rule, origin)| format!("{rule} ({origin}): "))
        .unwrap_or_default();
    let why = format!("{origin}{}", decision.reason);
    // Without an allow list only a rule stops a launch: that a line cannot be read for certain is no rule, and the fence holds.
    let listed = effective.exec.iter().any(|tier| tier.allow.is_some());
    let unruled = decision.rule.is_none() && !listed;
    match decision.outcome {
        Outcome::Ask | Outcome::Deny if unruled && backend == BackendKind::Native => LaunchAnswer::Allowed,
        Outcome::Allow => LaunchAnswer::Allowed,
        Outcome::Ask => LaunchAnswer::Asks(
            Fault::new(
                Code::ExecCommand,
                format!("`{shown}` needs approval, and nobody can be asked"),
                why,
            )
            .help(format!("bastle run --approve -- {shown}"))
            .help("or remove the ask rule from the layer that states it, or run the command yourself"),
        ),
        Outcome::Deny => LaunchAnswer::Denied(
            Fault::new(Code::ExecDenied, format!("`{shown}` is denied"), why)
                .help("remove the rule from the layer that states it: bastle policy show --origin"),
        ),
    }
}

fn check(effective: &Effective, request: &LaunchRequest) -> Result<(), Fault> {
    let workspace = &effective.surroundings.workspace;
    if !request.cwd.is_within(workspace) {
        return Err(Fault::new(
            Code::WorkspaceInvalid,
            format!(
                "working directory {} is outside the workspace {workspace}",
                request.cwd
            ),
            "only the workspace exists inside under its own name",
        )
        .help("start in the workspace, or name it with --workspace-dir"));
    }
    match request.backend {
        BackendKind::Native => Ok(()),
        BackendKind::Host => {
            let program = request.argv.program().rsplit('/').next().unwrap_or_default();
            if UNFENCED_REFUSES.contains(&program) {
                return Err(Fault::new(
                    Code::HostTool,
                    format!("{program} is off without a fence"),
                    "the host backend enforces nothing",
                ));
            }
            Ok(())
        }
    }
}

/// The arguments as one shell line, each quoted, so that the command rules see exactly these words.
pub(crate) fn shell_line(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    let quoted = argv.iter().map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}
