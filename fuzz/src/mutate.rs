//! Mutations with a fixed seed: the same input on every machine, so that a failure can be had again.

/// Pieces that parsers of JSON, shell and paths stumble over.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"//",
    b"/*",
    b"*/",
    b",,",
    b":",
    b"null",
    b"-0",
    b"1e999",
    b"18446744073709551616",
    b"../",
    b"/proc/self/root",
    b"**/",
    b"\0",
    b"\r\n",
    b"\x1b[2J",
    b"\xff",
    b"\xe2\x80\xae",
    b"\xef\xbb\xbf",
    b"$(",
    b"`",
    b"${IFS}",
    b"<<EOF\n",
    b"&&",
    b";",
    b"|&",
    b">(",
    b"$'\\x73'",
    b"sudo ",
    b"bash -c ",
    b"\"type\":",
];

/// A source of changed inputs.
#[derive(Debug)]
pub struct Mutator {
    state: u64,
}

impl Mutator {
    /// A mutator whose whole output follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Zero is the one state xorshift cannot leave.
        Self { state: seed | 1 }
    }

    /// One of `seeds`, changed in a few places, at most `most` bytes long.
    pub fn next(&mut self, seeds: &[Vec<u8>], most: usize) -> Vec<u8> {
        let mut data = self.pick(seeds).cloned().unwrap_or_default();
        for _ in 0..=self.below(6) {
            self.change(&mut data, seeds);
        }
        data.truncate(most);
        data
    }

    fn change(&mut self, data: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(data.len() + 1);
        let end = (at + self.below(16)).min(data.len());
        match self.below(8) {
            0 => {
                if let Some(byte) = data.get_mut(at) {
                    *byte ^= 1 << (self.state % 8);
                }
            }
            1 => {
                let byte = u8::try_from(self.below(256)).unwrap_or_default();
                data.insert(at, byte);
            }
            2 => drop(data.drain(at..end)),
            3 => {
                let piece = data[at..end].to_vec();
                let times = self.below(64);
                data.splice(at..at, piece.repeat(times));
            }
            4 => {
                let other = self.pick(seeds).cloned().unwrap_or_default();
                let from = self.below(other.len() + 1);
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
            5 => data.truncate(at),
            _ => {
                let piece = PIECES[self.below(PIECES.len())];
                data.splice(at..at, piece.iter().copied());
            }
        }
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len().max(1)))
    }

    /// A number below `bound` (or 0): xorshift64.
    fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state >> 16).unwrap_or_default() % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_inputs_and_another_seed_gives_others() {
        let seeds = vec![b"{\"version\":1}".to_vec(), b"ls -l".to_vec()];
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..200).map(|_| mutator.next(&seeds, 4096)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(9));
        assert!(inputs(7).iter().any(|input| !seeds.contains(input)));
    }
}
