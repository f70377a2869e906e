//! Files of a run's own tree, for reading.
//!
//! **Trust:** the tree is the agent's and may change while it is read. Every name is opened beneath a descriptor of the
//! tree's root, and no symlink is followed; only plain files and directories are served. Trees that are the host's own
//! (runs in place) are not served: what is hidden from the agent there would be shown here.
use super::{Params, PathOf, Route};
use crate::app::App;
use crate::dto::Choosing;
use crate::errors::Refusal;
use crate::guard::{Need, Who};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode, header};
use bastle_contract::{Code, RunId};
use bastle_control::fleet::Verb;
use bastle_control::review::library::meta::WorkMode;
use bastle_control::review::library::place::Place;
use bastle_control::review::library::workspace::Workspace;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use serde::Serialize;
use std::os::fd::OwnedFd;
use std::path::Path;
use utoipa::ToSchema;

/// Names of one directory in one answer.
const MOST_NAMES: usize = 10_000;
/// Bytes of one answer.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/runs/{id}/files",
            Need::OnRun(Verb::Read),
            "List a directory of a run's tree",
            list,
        )
        .params::<Choosing>()
        .gives::<Listing>(),
        Route::get(
            "/api/v1/runs/{id}/files/content",
            Need::OnRun(Verb::Read),
            "Content of a file of a run's tree, at most 16 MiB at once; more by range",
            content,
        )
        .params::<Choosing>()
        .bytes("application/octet-stream"),
    ]
}

/// A directory.
#[derive(Serialize, ToSchema)]
pub(crate) struct Listing {
    /// Its path.
    path: String,
    /// What is in it, by name.
    items: Vec<Entry>,
    /// Whether there is more than is listed.
    truncated: bool,
}

/// Something in a directory.
#[derive(Serialize, ToSchema)]
struct Entry {
    /// Its name. Given by the agent: show it escaped.
    name: String,
    /// `file`, `directory`, `symlink` or `other`.
    kind: &'static str,
    /// Bytes of a file.
    size: u64,
    /// Whether the name is exactly this; names that are no text are shown with replacements and cannot be asked for.
    exact: bool,
}

pub(crate) async fn list(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(asked): Params<Choosing>,
) -> Result<Json<Listing>, Refusal> {
    let name = app.entered(&caller, Verb::Read, &id).await?;
    let state = app.state.clone();
    let listing = app
        .ask(move |_| {
            // Asked for as a directory, a symlink at the end would be told as missing.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            let directory = beneath(&root(&state, &name)?, &asked.path, flags)?;
            read_directory(&directory, asked.path)
        })
        .await?;
    Ok(Json(listing))
}

pub(crate) async fn content(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(asked): Params<Choosing>,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    let name = app.entered(&caller, Verb::Read, &id).await?;
    let state = app.state.clone();
    let range = headers
        .get(header::RANGE)
        .and_then(|range| range.to_str().ok().map(str::to_owned));
    app.ask(move |_| {
        // Not blocking: a pipe of the agent's must not hold the reader.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = beneath(&root(&state, &name)?, &asked.path, flags)?;
        read_part(&file, range.as_deref())
    })
    .await
}

/// The root of the run's own tree, open.
pub(crate) fn root(state: &Path, name: &RunId) -> Result<OwnedFd, Refusal> {
    let space = Workspace::open(&Place::new(state.to_path_buf()), name)?;
    match space.mode() {
        WorkMode::Copy | WorkMode::Worktree => {}
        WorkMode::Overlay | WorkMode::InPlace => {
            return Err(Refusal::new(
                Code::ApiConflict,
                "this run has no tree of its own",
                "it works on the project itself, or on a layer above it",
            )
            .help("GET /api/v1/runs/RUN/diff"));
        }
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(
        CWD,
        space.tree(),
        flags,
        Mode::empty(),
        ResolveFlags::NO_MAGICLINKS,
    )
    .map_err(|errno| failed(errno, ""))
}

fn outside(why: &str) -> Refusal {
    Refusal::new(Code::ApiPath, "the path does not lie in the run's tree", why)
}

/// Opens a name beneath the root. The words are checked first so that the refusal says why; the kernel holds it anyway.
pub(crate) fn beneath(root: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Refusal> {
    let lower = path.to_ascii_lowercase();
    if path.starts_with('/') || path.contains("://") || path.contains('\0') || path.len() > 4096 {
        return Err(outside("it is absolute, or no path"));
    }
    if path.split('/').any(|part| part == "..") || lower.contains("%2e") || lower.contains("%2f") {
        return Err(outside("it leads upwards"));
    }
    let path = if path.is_empty() { "." } else { path };
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    openat2(
        root,
        path,
        flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        resolve,
    )
    .map_err(|errno| failed(errno, path))
}

fn failed(errno: Errno, path: &str) -> Refusal {
    match errno {
        Errno::LOOP | Errno::XDEV => outside("it goes through a symlink or a mount"),
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL => {
            Refusal::missing(format!("the tree has no {}", crate::dto::plain(path)))
        }
        Errno::ACCESS | Errno::PERM | Errno::NXIO => {
            Refusal::new(Code::ApiConflict, "this name cannot be opened", errno.to_string())
        }
        other => Refusal::new(Code::WorkspaceIo, "the tree cannot be read", other.to_string()),
    }
}

fn read_directory(directory: &OwnedFd, path: String) -> Result<Listing, Refusal> {
    let fail = |errno: Errno| failed(errno, &path);
    let stat = rustix::fs::fstat(directory).map_err(fail)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Refusal::new(Code::ApiConflict, "this is no directory", ""));
    }
    let mut items = Vec::new();
    let mut truncated = false;
    for entry in Dir::read_from(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let bytes = entry.file_name().to_bytes();
        if bytes == b"." || bytes == b".." {
            continue;
        }
        if items.len() >= MOST_NAMES {
            truncated = true;
            break;
        }
        // One that went away meanwhile is not there.
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let Ok(stat) = rustix::fs::statat(directory, entry.file_name(), flags) else {
            continue;
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        items.push(Entry {
            name: String::from_utf8_lossy(bytes).into_owned(),
            kind: match kind {
                FileType::RegularFile => "file",
                FileType::Directory => "directory",
                FileType::Symlink => "symlink",
                _ => "other",
            },
            size: match kind {
                FileType::RegularFile => u64::try_from(stat.st_size).unwrap_or(0),
                _ => 0,
            },
            exact: std::str::from_utf8(bytes).is_ok(),
        });
    }
    items.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Listing {
        path,
        items,
        truncated,
    })
}

fn read_part(file: &OwnedFd, range: Option<&str>) -> Result<Response<Body>, Refusal> {
    let stat = rustix::fs::fstat(file).map_err(|errno| failed(errno, ""))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Refusal::new(Code::ApiConflict, "this is no plain file", ""));
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let (from, to) = match range {
        Some(range) => part(range, size).ok_or_else(|| {
            Refusal::bad(format!("range: one part of {size} bytes")).status(StatusCode::RANGE_NOT_SATISFIABLE)
        })?,
        None => (0, size),
    };
    if to - from > MOST_BYTES {
        return Err(Refusal::new(
            Code::ApiTooLarge,
            format!("the file has {size} bytes; at most {MOST_BYTES} are given at once"),
            "",
        )
        .help("range: bytes=0-16777215"));
    }
    let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(0)];
    let mut filled = 0;
    while filled < bytes.len() {
        let at = from + u64::try_from(filled).unwrap_or(0);
        match rustix::io::pread(file, &mut bytes[filled..], at) {
            // It became shorter meanwhile.
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno, "")),
        }
    }
    bytes.truncate(filled);
    let mut response = Response::builder()
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::CONTENT_DISPOSITION, "attachment")
        .header(header::ACCEPT_RANGES, "bytes");
    if range.is_some() {
        response = response.status(StatusCode::PARTIAL_CONTENT).header(
            header::CONTENT_RANGE,
            format!("bytes {from}-{}/{size}", to.saturating_sub(1)),
        );
    }
    response.body(Body::from(bytes)).map_err(|error| {
        Refusal::new(
            Code::ApiInternal,
            "the answer cannot be written",
            error.to_string(),
        )
    })
}

/// One part as `[from, to)`; `None` when it is not understood or not there.
fn part(range: &str, size: u64) -> Option<(u64, u64)> {
    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| text.parse::<u64>().ok();
    let (from, to) = match (from, to) {
        ("", last) => (size.checked_sub(number(last)?.min(size))?, size),
        (from, "") => (number(from)?, size),
        (from, to) => (number(from)?, number(to)?.checked_add(1)?.min(size)),
    };
    (from < to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_beneath_the_root_open_and_no_symlink_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("sub")).unwrap();
        std::fs::write(tree.join("sub/a"), "inside").unwrap();
        std::fs::write(dir.path().join("secret"), "outside").unwrap();
        std::os::unix::fs::symlink("../secret", tree.join("up")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", tree.join("abs")).unwrap();
        std::os::unix::fs::symlink("sub", tree.join("within")).unwrap();
        let root = rustix::fs::open(&tree, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        for bad in [
            "..",
            "../secret",
            "sub/../../secret",
            "/etc/passwd",
            "/workspace-evil",
            "file:///etc/passwd",
            "%2e%2e/secret",
            "up",
            "abs",
            "within/a",
            "a\0b",
        ] {
            let refusal = beneath(&root, bad, OFlags::RDONLY).unwrap_err();
            assert_eq!(refusal.faults[0].code, Code::ApiPath, "{bad:?}");
        }
        let file = beneath(&root, "sub/a", OFlags::RDONLY).unwrap();
        assert_eq!(read_part(&file, None).unwrap().status(), 200);
        let gone = beneath(&root, "sub/b", OFlags::RDONLY).unwrap_err();
        assert_eq!(gone.faults[0].code, Code::ApiMissing);
        let listed = read_directory(&beneath(&root, "", OFlags::RDONLY).unwrap(), String::new()).unwrap();
        let kinds: Vec<_> = listed
            .items
            .iter()
            .map(|entry| (entry.name.as_str(), entry.kind))
            .collect();
        assert_eq!(
            kinds,
            [
                ("abs", "symlink"),
                ("sub", "directory"),
                ("up", "symlink"),
                ("within", "symlink")
            ]
        );
    }

    #[test]
    fn a_range_outside_the_file_or_of_another_form_is_refused() {
        for bad in [
            "",
            "bytes=",
            "bytes=5-4",
            "bytes=10-",
            "bytes=-0",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=x-",
        ] {
            assert_eq!(part(bad, 10), None, "{bad}");
        }
        assert_eq!(part("bytes=0-3", 10), Some((0, 4)));
        assert_eq!(part("bytes=8-99", 10), Some((8, 10)));
        assert_eq!(part("bytes=-4", 10), Some((6, 10)));
        assert_eq!(part("bytes=18446744073709551615-", 10), None);
        assert_eq!(part("bytes=0-18446744073709551615", 10), None);
    }
}
