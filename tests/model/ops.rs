//! What an agent and a user do to a tree: in the model, and as lines of a shell script that do the same to a real one.
//!
//! An operation makes room for itself, so that any sequence remains one when operations are taken out of it.
use super::tree::{Name, Thing, Tree, above, is_at_or_below};

/// What a name becomes.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Absent,
    File(Vec<u8>),
    Executable(Vec<u8>),
    Link(Vec<u8>),
    EmptyDir,
    /// A directory with one file.
    FullDir(Vec<u8>),
    /// A repository of its own with one file.
    Repository(Vec<u8>),
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Whatever a name was, it becomes this.
    Put(Name, Kind),
    /// Bytes at the end of a file.
    Append(Name, Vec<u8>),
    /// One line of a file gets another text; without one it goes.
    Line(Name, usize, Option<Vec<u8>>),
    /// The right to execute.
    Mode(Name, bool),
    /// A name moves with all below it.
    Rename(Name, Name),
    /// A file gets a second name.
    Hard(Name, Name),
    /// A file gets a time long ago.
    Old(Name, u32),
}

/// A name or bytes for the shell.
fn quoted(name: &[u8]) -> Vec<u8> {
    let mut out = b"'./".to_vec();
    for byte in name {
        match byte {
            b'\'' => out.extend(b"'\\''"),
            other => out.push(*other),
        }
    }
    out.push(b'\'');
    out
}

/// A `printf` of exactly these bytes.
fn printed(bytes: &[u8]) -> Vec<u8> {
    let mut out = b"printf '".to_vec();
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b' ' => out.push(*byte),
            other => out.extend(format!("\\{other:03o}").bytes()),
        }
    }
    out.push(b'\'');
    out
}

fn line(script: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        script.extend(*part);
    }
    script.push(b'\n');
}

impl Op {
    /// Does it in the model, and adds the lines that do it to a tree on the disk.
    pub(crate) fn perform(&self, tree: &mut Tree, script: &mut Vec<u8>) {
        match self {
            Self::Put(name, kind) => put(tree, script, name, kind),
            Self::Append(name, bytes) => {
                if tree.change(name, |content, _| content.extend(bytes)) {
                    line(script, &[&printed(bytes), b" >> ", &quoted(name)]);
                }
            }
            Self::Line(name, number, text) => edit(tree, script, name, *number, text.as_deref()),
            Self::Mode(name, executable) => {
                if tree.change(name, |_, bit| *bit = *executable) {
                    let word: &[u8] = if *executable { b"chmod +x " } else { b"chmod -x " };
                    line(script, &[word, &quoted(name)]);
                }
            }
            Self::Rename(from, to) => {
                if tree.at(from).is_none() || is_at_or_below(to, from) || is_at_or_below(from, to) {
                    return;
                }
                make_room(tree, script, to);
                tree.rename(from, to);
                line(script, &[b"mv -T ", &quoted(from), b" ", &quoted(to)]);
            }
            Self::Hard(from, to) => {
                let is_file = matches!(tree.at(from), Some(Thing::File(..)));
                if !is_file || is_at_or_below(to, from) || is_at_or_below(from, to) {
                    return;
                }
                make_room(tree, script, to);
                tree.link(from, to);
                line(script, &[b"ln -T ", &quoted(from), b" ", &quoted(to)]);
            }
            Self::Old(name, year) => {
                if tree
                    .at(name)
                    .is_some_and(|thing| matches!(thing, Thing::File(..) | Thing::Dir))
                {
                    let day = format!("touch -d {year}-05-06T07:08:09.123456789 ");
                    line(script, &[day.as_bytes(), &quoted(name)]);
                }
            }
        }
    }

    /// Names that it is about.
    pub(crate) fn names(&self) -> Vec<&Name> {
        match self {
            Self::Put(name, _) | Self::Append(name, _) | Self::Line(name, ..) => vec![name],
            Self::Mode(name, _) | Self::Old(name, _) => vec![name],
            Self::Rename(from, to) | Self::Hard(from, to) => vec![from, to],
        }
    }
}

/// A name becomes free, and everything above it a directory.
fn make_room(tree: &mut Tree, script: &mut Vec<u8>, name: &[u8]) {
    for directory in above(name) {
        match tree.at(&directory) {
            Some(Thing::Dir) => continue,
            Some(_) => line(script, &[b"rm -f ", &quoted(&directory)]),
            None => {}
        }
        line(script, &[b"mkdir ", &quoted(&directory)]);
        tree.set(&directory, Some(&Thing::Dir));
    }
    if tree.at(name).is_some() {
        line(script, &[b"rm -rf ", &quoted(name)]);
        tree.clear(name);
    }
}

fn put(tree: &mut Tree, script: &mut Vec<u8>, name: &[u8], kind: &Kind) {
    if matches!(kind, Kind::Absent) {
        if tree.at(name).is_some() {
            line(script, &[b"rm -rf ", &quoted(name)]);
            tree.clear(name);
        }
        return;
    }
    make_room(tree, script, name);
    let inside = [name, b"/in.txt"].concat();
    let write = |tree: &mut Tree, script: &mut Vec<u8>, name: &[u8], bytes: &[u8], executable: bool| {
        line(script, &[&printed(bytes), b" > ", &quoted(name)]);
        if executable {
            line(script, &[b"chmod +x ", &quoted(name)]);
        }
        tree.set(name, Some(&Thing::File(bytes.to_vec(), executable)));
    };
    match kind {
        Kind::Absent => {}
        Kind::File(bytes) => write(tree, script, name, bytes, false),
        Kind::Executable(bytes) => write(tree, script, name, bytes, true),
        Kind::Link(to) => {
            // `quoted` begins with "./", which a target must not.
            let target = [b"\"$(", &printed(to)[..], b")\""].concat();
            line(script, &[b"ln -sT ", &target, b" ", &quoted(name)]);
            tree.set(name, Some(&Thing::Link(to.clone())));
        }
        Kind::EmptyDir | Kind::FullDir(_) | Kind::Repository(_) => {
            line(script, &[b"mkdir ", &quoted(name)]);
            tree.set(name, Some(&Thing::Dir));
        }
    }
    if let Kind::Repository(_) = kind {
        // Inside, the fence keeps a repository from getting hooks or settings; what is there of it is enough.
        let git = quoted(&[name, b"/.git"].concat());
        line(
            script,
            &[
                b"git init -q --template= ",
                &quoted(name),
                b" 2>/dev/null || mkdir -p ",
                &git,
            ],
        );
        tree.set(&[name, b"/.git"].concat(), Some(&Thing::Git));
    }
    if let Kind::FullDir(bytes) | Kind::Repository(bytes) = kind {
        write(tree, script, &inside, bytes, false);
    }
}

fn edit(tree: &mut Tree, script: &mut Vec<u8>, name: &[u8], number: usize, text: Option<&[u8]>) {
    let Some(Thing::File(bytes, _)) = tree.at(name) else {
        return;
    };
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    if number >= lines.len() {
        return;
    }
    match text {
        Some(text) => lines[number] = text,
        None => {
            lines.remove(number);
        }
    }
    let bytes = lines.concat();
    line(script, &[&printed(&bytes), b" > ", &quoted(name)]);
    tree.change(name, |content, _| *content = bytes);
}
