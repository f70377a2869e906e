//! What every verb is given: how to print, and how to fail.
use crate::args::ColorWhen;
use crate::render::{self, Style};
use bastle_contract::{Code, Fault};
use std::io::{self, ErrorKind, Write};

/// The two streams and how each is painted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// For data.
    pub(crate) out: Style,
    /// For everything else.
    pub(crate) err: Style,
}

/// For people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text.
    Human,
    /// One JSON object.
    Json,
}

impl From<bool> for Format {
    /// From the flag `--json`.
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Human }
    }
}

/// How a verb ends: its exit code, or why it could not.
pub(crate) type Ended = Result<u8, Failed>;

/// Why a verb could not answer.
#[derive(Debug)]
pub(crate) struct Failed {
    cause: Cause,
    code: Option<u8>,
}

#[derive(Debug)]
enum Cause {
    Faults(Vec<Fault>),
    Output(io::Error),
}

impl Context {
    /// Looks at the terminal and the environment once.
    pub(crate) fn new(color: ColorWhen) -> Self {
        Self {
            out: Style::choose(color, &io::stdout()),
            err: Style::choose(color, &io::stderr()),
        }
    }

    /// Writes data to standard output. A reader that went away wants no more: that is no failure.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failed> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failed {
                cause: Cause::Output(error),
                code: None,
            }),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Writes one JSON object to standard output.
    pub(crate) fn print_json(&self, value: &serde_json::Value) -> Result<(), Failed> {
        self.print(&format!("{}\n", render::json(value)))
    }

    /// Writes a line for people to standard error.
    pub(crate) fn note(&self, text: &str) {
        // Nobody is left to be told that standard error is gone.
        match writeln!(io::stderr().lock(), "{text}") {
            Ok(()) | Err(_) => {}
        }
    }

    /// Tells faults on standard error.
    pub(crate) fn report(&self, faults: &[Fault], format: Format) {
        for fault in faults {
            match format {
                Format::Human => self.note(&render::fault(fault, self.err)),
                Format::Json => self.note(&render::json(&render::fault_json(fault))),
            }
        }
    }
}

impl Failed {
    /// The same with another exit code.
    pub(crate) fn exit(self, code: u8) -> Self {
        Self {
            code: Some(code),
            ..self
        }
    }

    /// Says it and gives the exit code: 1 failed, 2 usage, 3 not found, 4 not permitted.
    pub(crate) fn tell(self, cx: &Context, format: Format) -> u8 {
        match self.cause {
            Cause::Faults(faults) => {
                cx.report(&faults, format);
                self.code.unwrap_or_else(|| exit_code(&faults))
            }
            Cause::Output(error) => {
                cx.note(&format!("error: cannot write to standard output: {error}"));
                self.code.unwrap_or(1)
            }
        }
    }
}

fn exit_code(faults: &[Fault]) -> u8 {
    match faults.first().map(|fault| fault.code) {
        Some(Code::UsageArgument | Code::UsageEnv) => 2,
        Some(Code::AuditMissing | Code::PolicyReference | Code::WorkspaceMissing) => 3,
        Some(Code::RunMissing | Code::ApprovalMissing | Code::TokenMissing | Code::ProfileMissing) => 3,
        Some(Code::ApiMissing | Code::ContextMissing) => 3,
        Some(Code::ApiUnauthorized | Code::ApiForbidden | Code::TokenRefused | Code::TokenCeiling) => 4,
        Some(_) | None => 1,
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        vec![fault].into()
    }
}

impl From<Vec<Fault>> for Failed {
    fn from(faults: Vec<Fault>) -> Self {
        Self {
            cause: Cause::Faults(faults),
            code: None,
        }
    }
}
