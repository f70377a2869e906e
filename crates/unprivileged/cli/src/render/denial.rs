//! The stable code of a denial.
use bastle_contract::{Code, DenialKind, Denied};

/// The code that explains a recorded denial.
pub(crate) fn denial_code(denied: &Denied) -> Code {
    match denied.kind {
        DenialKind::Write => Code::FsWrite,
        DenialKind::Hidden => Code::FsHidden,
        DenialKind::Protected => Code::FsProtected,
        DenialKind::Syscall => Code::SysDenied,
        DenialKind::Exec => Code::ExecDenied,
        DenialKind::Limit => limit_code(&denied.rule),
    }
}

/// The rule of a limit's denial names the limit.
fn limit_code(rule: &str) -> Code {
    let named = |name: &str| rule.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == name);
    if named("bytesWritten") {
        Code::LimitBytes
    } else if named("files") || named("inodes") {
        Code::LimitFiles
    } else {
        Code::LimitDisk
    }
}
