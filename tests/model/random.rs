//! Cases from seeds: a project, what the agent does, and what happens afterwards.
use super::ops::{Kind, Op};
use super::tree::Name;

/// Small and the same everywhere; quality does not matter.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from((self.next() >> 11) % bound as u64).expect("is small")
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// How the project is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Copy,
    Overlay,
    Worktree,
    InPlace,
}

impl Mode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Overlay => "overlay",
            Self::Worktree => "worktree",
            Self::InPlace => "in-place",
        }
    }
}

/// How the project's repository lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Plain,
    /// The project is a linked work tree of a repository elsewhere.
    Linked,
    /// With a submodule `sub`.
    Submodule,
    /// Without a commit.
    Unborn,
    /// HEAD is a commit.
    Detached,
}

/// What the agent does with git; none of it changes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GitDeed {
    Commit,
    /// A branch with a commit of its own.
    Branch(usize),
    Stash,
}

/// Where both sides changed the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolve {
    Refuse,
    Ours,
    Theirs,
}

/// How held changes are approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approve {
    Nothing,
    /// By the hash of the whole set.
    Set,
    /// Each by its own hash.
    Each,
}

/// What happens after the run.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    User(Op),
    Agent(Op),
    Diff,
    Apply(Resolve, Vec<Name>, Approve),
    Undo,
    Branch(Vec<Name>),
    SideBranch,
    Patch(Vec<Name>),
    Snapshot,
    Rollback(usize),
    Fork,
    Export,
    Remove,
}

/// One round.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) mode: Mode,
    pub(crate) layout: Layout,
    /// Whether the project has git attributes.
    pub(crate) attributes: bool,
    pub(crate) committed: Vec<Op>,
    /// Done to the project and not committed.
    pub(crate) dirty: Vec<Op>,
    /// Whether what is dirty is in the index.
    pub(crate) staged: bool,
    pub(crate) agent: Vec<Op>,
    pub(crate) deeds: Vec<GitDeed>,
    pub(crate) steps: Vec<Step>,
}

const NAMES: [&[u8]; 26] = [
    b"a.txt",
    b"A.txt",
    b"b.md",
    b"d",
    b"d/e",
    b"d/e/f.txt",
    b"d/g.txt",
    b"d/G.txt",
    b"src/m.c",
    b"src/n.c",
    b"src",
    b"lnk",
    b"with space.txt",
    b"d/new\nline.txt",
    b"caf\xe9.txt",
    b"tool",
    b"run.sh",
    b"img.bin",
    b"crlf.txt",
    b"wide.u16",
    b"-dash.txt",
    b"out",
    b"out/o.txt",
    b"sub",
    b"sub/in.txt",
    b"nest/in.txt",
];

/// Files that most projects have.
const COMMITTED: [&[u8]; 6] = [
    b"a.txt",
    b"d/e/f.txt",
    b"d/g.txt",
    b"src/m.c",
    b"crlf.txt",
    b"run.sh",
];

impl Random {
    fn name(&mut self) -> Name {
        // Most operations need a file that is there.
        if self.below(2) == 0 {
            return self.pick(&COMMITTED).to_vec();
        }
        self.pick(&NAMES).to_vec()
    }

    /// Lines that no other content has, so that how they merge is beyond dispute.
    fn text(&mut self) -> Vec<u8> {
        let id = self.next() % 1_000_000;
        let ending = if self.below(5) == 0 { "\r\n" } else { "\n" };
        let lines = 1 + self.below(6);
        let mut text: String = (0..lines).map(|n| format!("line {n} of {id}{ending}")).collect();
        if self.below(8) == 0 {
            text.pop();
        }
        text.into_bytes()
    }

    fn bytes(&mut self) -> Vec<u8> {
        match self.below(10) {
            0 => Vec::new(),
            1 => vec![0, 255, 10, u8::try_from(self.below(256)).expect("is a byte")],
            2 => {
                let text = format!("wide {}\n", self.below(1000));
                text.encode_utf16().flat_map(u16::to_le_bytes).collect()
            }
            _ => self.text(),
        }
    }

    fn kind(&mut self, mode: Mode) -> Kind {
        match self.below(14) {
            0..3 => Kind::Absent,
            3..7 => Kind::File(self.bytes()),
            7 => Kind::Executable(self.text()),
            8 => Kind::Link(self.pick(&[&b"a.txt"[..], b"d", b"nowhere", b"d/e"]).to_vec()),
            9 | 10 => Kind::EmptyDir,
            11 | 12 => Kind::FullDir(self.bytes()),
            // In place no repository can be made.
            _ if mode == Mode::InPlace => Kind::EmptyDir,
            _ => Kind::Repository(self.text()),
        }
    }

    pub(crate) fn op(&mut self, mode: Mode) -> Op {
        let name = self.name();
        match self.below(18) {
            0..6 => Op::Put(name, self.kind(mode)),
            6 | 7 => Op::Append(name, self.text()),
            8..12 => {
                let text =
                    (self.below(4) > 0).then(|| format!("edited {}\n", self.next() % 1_000_000).into_bytes());
                Op::Line(name, self.below(5), text)
            }
            12 | 13 => Op::Mode(name, self.below(2) == 0),
            14 | 15 => Op::Rename(name, self.name()),
            16 => Op::Hard(name, self.name()),
            _ => Op::Old(name, 1990 + u32::try_from(self.below(30)).expect("is small")),
        }
    }

    fn ops(&mut self, most: usize, mode: Mode) -> Vec<Op> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.op(mode)).collect()
    }

    fn named(&mut self) -> Vec<Name> {
        if self.below(3) > 0 {
            return Vec::new();
        }
        let count = 1 + self.below(3);
        (0..count).map(|_| self.name()).collect()
    }

    fn step(&mut self, mode: Mode) -> Step {
        match self.below(27) {
            0..6 => Step::User(self.op(mode)),
            // The layers of an overlay are shown by a run alone.
            6..9 if mode == Mode::Overlay => Step::User(self.op(mode)),
            6..9 => Step::Agent(self.op(mode)),
            9 => Step::Diff,
            10..15 => {
                let resolve = self.pick(&[Resolve::Refuse, Resolve::Refuse, Resolve::Ours, Resolve::Theirs]);
                let approve = self.pick(&[Approve::Set, Approve::Set, Approve::Each, Approve::Nothing]);
                Step::Apply(resolve, self.named(), approve)
            }
            15..18 => Step::Undo,
            18 => Step::Branch(self.named()),
            19 => Step::Patch(self.named()),
            20 => Step::Snapshot,
            21 | 22 => Step::Rollback(self.below(4)),
            23 => Step::Fork,
            24 => Step::Export,
            25 => Step::SideBranch,
            _ => Step::Remove,
        }
    }

    /// A whole round.
    pub(crate) fn case(&mut self, mode: Mode) -> Case {
        let layouts = [
            Layout::Plain,
            Layout::Plain,
            Layout::Plain,
            Layout::Linked,
            Layout::Submodule,
            Layout::Unborn,
            Layout::Detached,
        ];
        let mut layout = self.pick(&layouts);
        if mode == Mode::Worktree && layout == Layout::Unborn {
            layout = Layout::Plain;
        }
        if mode == Mode::InPlace && layout == Layout::Submodule {
            layout = Layout::Plain;
        }
        let mut deeds = Vec::new();
        if mode != Mode::InPlace && self.below(4) == 0 {
            deeds = (0..=self.below(2))
                .map(|n| self.pick(&[GitDeed::Commit, GitDeed::Branch(n), GitDeed::Stash]))
                .collect();
        }
        let mut committed = vec![];
        for name in COMMITTED {
            if self.below(4) > 0 {
                committed.push(Op::Put(name.to_vec(), Kind::File(self.text())));
            }
        }
        committed.extend(self.ops(6, Mode::InPlace));
        let steps = 3 + self.below(8);
        Case {
            mode,
            layout,
            attributes: self.below(3) == 0,
            committed,
            dirty: self.ops(4, mode),
            staged: self.below(3) == 0,
            agent: self.ops(9, mode),
            deeds,
            steps: match mode {
                Mode::InPlace => Vec::new(),
                _ => {
                    // All of the work in the project first, in every other round.
                    let first = Step::Apply(Resolve::Refuse, Vec::new(), Approve::Set);
                    let first = (self.below(2) == 0).then_some(first);
                    first
                        .into_iter()
                        .chain((0..steps).map(|_| self.step(mode)))
                        .collect()
                }
            },
        }
    }
}
