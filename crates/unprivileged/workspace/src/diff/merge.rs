//! Three texts into one: what only one side changed is taken, what both changed differently is a conflict.
use super::lines::{matching, split};
use crate::gate::is_binary;

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// All changes fit together.
    Clean(Vec<u8>),
    /// Some do not; the text shows both sides between markers.
    Conflict {
        /// The text with markers.
        marked: Vec<u8>,
        /// Number of conflicts.
        count: usize,
    },
    /// One of the three is not text.
    NotText,
}

/// Merges what `ours` (the host) and `theirs` (the agent) made of `base`.
#[must_use]
pub fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Merged {
    if [base, ours, theirs].into_iter().any(is_binary) {
        return Merged::NotText;
    }
    let (base, ours, theirs) = (split(base), split(ours), split(theirs));
    let (in_ours, in_theirs) = (matching(&base, &ours), matching(&base, &theirs));
    let mut out = Output {
        bytes: Vec::new(),
        conflicts: 0,
    };
    let (mut b, mut o, mut t) = (0, 0, 0);
    loop {
        // The next line that both sides kept ends a stretch.
        let stable = (b..base.len()).find_map(|at| Some((at, in_ours[at]?, in_theirs[at]?)));
        let (next_b, next_o, next_t) = stable.unwrap_or((base.len(), ours.len(), theirs.len()));
        out.stretch(&base[b..next_b], &ours[o..next_o], &theirs[t..next_t]);
        if stable.is_none() {
            break;
        }
        out.bytes.extend_from_slice(base[next_b]);
        (b, o, t) = (next_b + 1, next_o + 1, next_t + 1);
    }
    match out.conflicts {
        0 => Merged::Clean(out.bytes),
        count => Merged::Conflict {
            marked: out.bytes,
            count,
        },
    }
}

struct Output {
    bytes: Vec<u8>,
    conflicts: usize,
}

impl Output {
    fn stretch(&mut self, base: &[&[u8]], ours: &[&[u8]], theirs: &[&[u8]]) {
        if ours == theirs || theirs == base {
            self.lines(ours);
        } else if ours == base {
            self.lines(theirs);
        } else {
            self.conflicts += 1;
            self.marker(b"<<<<<<< host\n");
            self.lines(ours);
            self.marker(b"||||||| when the copy was made\n");
            self.lines(base);
            self.marker(b"=======\n");
            self.lines(theirs);
            self.marker(b">>>>>>> agent\n");
        }
    }

    fn lines(&mut self, lines: &[&[u8]]) {
        for line in lines {
            self.bytes.extend_from_slice(line);
        }
    }

    /// Markers stand on lines of their own even after a last line without a newline.
    fn marker(&mut self, text: &[u8]) {
        if self.bytes.last().is_some_and(|byte| *byte != b'\n') {
            self.bytes.push(b'\n');
        }
        self.bytes.extend_from_slice(text);
    }
}

/// Feeds any bytes, cut in three, to comparison and merge.
pub(crate) fn fuzz_merge(bytes: &[u8]) {
    let third = bytes.len() / 3;
    let (base, rest) = bytes.split_at(third);
    let (ours, theirs) = rest.split_at(third);
    if !is_binary(bytes) && !is_binary(ours) {
        assert_eq!(
            merge(base, base, theirs),
            if is_binary(base) || is_binary(theirs) {
                Merged::NotText
            } else {
                Merged::Clean(theirs.to_vec())
            }
        );
    }
    let _merged = merge(base, ours, theirs);
}
