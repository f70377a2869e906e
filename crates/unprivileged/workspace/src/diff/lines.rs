//! Which lines two texts share: Myers' shortest edit, in linear space, with a bound on the work.
//!
//! **Trust:** any bytes. Texts made to be slow cost a fixed amount of work, after which the rest counts as
//! replaced: the result is longer, never wrong.
use std::collections::HashMap;

/// Edits looked for in one step from either side; a file with more is mostly rewritten.
const MAX_EDITS: usize = 3_000;
/// Comparisons over all steps: about a quarter of a second.
const MAX_WORK: usize = 60_000_000;

/// Lines with their newlines; the last may lack one.
pub(crate) fn split(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

/// For each line of `a`, the line of `b` that it is, in increasing order.
pub(crate) fn matching(a: &[&[u8]], b: &[&[u8]]) -> Vec<Option<usize>> {
    let mut names: HashMap<&[u8], usize> = HashMap::new();
    let mut numbers = Vec::with_capacity(a.len() + b.len());
    for line in a.iter().chain(b) {
        let next = names.len();
        numbers.push(*names.entry(line).or_insert(next));
    }
    let (left, right) = numbers.split_at(a.len());
    let mut search = Search {
        a: left,
        b: right,
        pairs: vec![None; a.len()],
        work: 0,
    };
    search.compare((0, a.len()), (0, b.len()));
    search.pairs
}

struct Search<'a> {
    a: &'a [usize],
    b: &'a [usize],
    pairs: Vec<Option<usize>>,
    work: usize,
}

impl Search<'_> {
    fn compare(&mut self, (mut a0, mut a1): (usize, usize), (mut b0, mut b1): (usize, usize)) {
        while a0 < a1 && b0 < b1 && self.a[a0] == self.b[b0] {
            self.pairs[a0] = Some(b0);
            (a0, b0) = (a0 + 1, b0 + 1);
        }
        while a0 < a1 && b0 < b1 && self.a[a1 - 1] == self.b[b1 - 1] {
            (a1, b1) = (a1 - 1, b1 - 1);
            self.pairs[a1] = Some(b1);
        }
        if a0 == a1 || b0 == b1 {
            return;
        }
        // Both ends differ, so at least two edits remain and the middle lies strictly inside.
        if let Some((x, y)) = self.middle((a0, a1), (b0, b1)) {
            self.compare((a0, a0 + x), (b0, b0 + y));
            self.compare((a0 + x, a1), (b0 + y, b1));
        }
    }

    /// A point on a shortest path from corner to corner; `None` when it would cost too much.
    fn middle(&mut self, (a0, a1): (usize, usize), (b0, b1): (usize, usize)) -> Option<(usize, usize)> {
        let (a, b) = (&self.a[a0..a1], &self.b[b0..b1]);
        let (n, m) = (a.len(), b.len());
        let most = (n + m).div_ceil(2).min(MAX_EDITS);
        let offset = most + 1;
        // Index of diagonal `k` is `k + offset`; forward and backward keep the furthest `x` per diagonal.
        let mut ahead = vec![0_usize; 2 * offset + 1];
        let mut behind = vec![0_usize; 2 * offset + 1];
        let delta = n.cast_signed() - m.cast_signed();
        let odd = delta % 2 != 0;
        for edits in 0..=most.cast_signed() {
            for pass in [Pass::Ahead, Pass::Behind] {
                let (own, other) = match pass {
                    Pass::Ahead => (&mut ahead, &behind),
                    Pass::Behind => (&mut behind, &ahead),
                };
                let mut k = -edits;
                while k <= edits {
                    let (x, y) = step(own, k, edits, offset);
                    let (x, y) = slide(a, b, x, y, pass, &mut self.work);
                    own[index(k, offset)] = x;
                    let reach = match pass {
                        Pass::Ahead => edits - 1,
                        Pass::Behind => edits,
                    };
                    let mirrored = delta - k;
                    let meets = (odd == matches!(pass, Pass::Ahead)) && mirrored.abs() <= reach && y >= 0;
                    let y = y.unsigned_abs();
                    if meets && x <= n && y <= m && x + other[index(mirrored, offset)] >= n {
                        return Some(match pass {
                            Pass::Ahead => (x, y),
                            Pass::Behind => (n - x, m - y),
                        });
                    }
                    k += 2;
                }
            }
            if self.work > MAX_WORK {
                return None;
            }
        }
        None
    }
}

#[derive(Clone, Copy)]
enum Pass {
    Ahead,
    Behind,
}

fn index(k: isize, offset: usize) -> usize {
    (k + offset.cast_signed()).unsigned_abs()
}

/// One edit further on diagonal `k`: from the neighbour that reaches further.
fn step(reached: &[usize], k: isize, edits: isize, offset: usize) -> (usize, isize) {
    let (left, right) = (reached[index(k - 1, offset)], reached[index(k + 1, offset)]);
    let x = if edits == 0 {
        0
    } else if k == -edits || (k != edits && left < right) {
        right
    } else {
        left + 1
    };
    (x, x.cast_signed() - k)
}

/// Along equal lines as far as they go, from the front or from the back.
fn slide(
    a: &[usize],
    b: &[usize],
    mut x: usize,
    mut y: isize,
    pass: Pass,
    work: &mut usize,
) -> (usize, isize) {
    while let Some((left, right)) = usize::try_from(y).ok().and_then(|y| {
        Some(match pass {
            Pass::Ahead => (a.get(x)?, b.get(y)?),
            Pass::Behind => (
                a.get(a.len().checked_sub(x + 1)?)?,
                b.get(b.len().checked_sub(y + 1)?)?,
            ),
        })
    }) {
        *work += 1;
        if left != right {
            break;
        }
        x += 1;
        y += 1;
    }
    *work += 1;
    (x, y)
}
