//! Undoes the content coding of an answer, so that what is inside can be looked through. Answers are asked for without
//! one; this is for servers that compress all the same.
//!
//! **Trust:** reads a server's bytes. What one piece may become and how much larger than what came the whole may be is
//! bounded, so that a small answer cannot fill the memory of egress.
use std::io::{self, Write};

/// Longest piece of input that is decoded at once.
const PIECE: usize = 4 * 1024;
/// Most bytes that one such piece may become; deflate reaches a thousandfold.
const MAX_PIECE: usize = 8 * 1024 * 1024;
/// How much larger the whole may be: text of real servers stays below thirtyfold.
const MAX_RATIO: u64 = 200;
/// What is allowed before the ratio counts.
const FREE: u64 = 4 * 1024 * 1024;
/// Largest window of zstd that is kept, as RFC 8878 recommends for HTTP.
const MAX_WINDOW: u64 = 8 * 1024 * 1024;
/// Longest header of a zstd frame.
const MAX_FRAME_HEADER: usize = 18;

/// Content codings that are undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// How an answer is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coded {
    /// The body has no content coding.
    Plain,
    /// In one way that can be undone.
    With(Coding),
    /// In an unknown way, or in several.
    Unknown,
}

impl Coded {
    /// Reads `Content-Encoding`.
    pub(super) fn of(headers: &http::HeaderMap) -> Self {
        let mut coded = Self::Plain;
        for value in headers.get_all(http::header::CONTENT_ENCODING) {
            let Ok(text) = value.to_str() else {
                return Self::Unknown;
            };
            for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                let coding = match name.to_ascii_lowercase().as_str() {
                    "identity" => continue,
                    "gzip" | "x-gzip" => Coding::Gzip,
                    "deflate" => Coding::Deflate,
                    "br" => Coding::Brotli,
                    "zstd" => Coding::Zstd,
                    _ => return Self::Unknown,
                };
                if coded != Self::Plain {
                    return Self::Unknown;
                }
                coded = Self::With(coding);
            }
        }
        coded
    }
}

/// Takes what was decoded, up to [`MAX_PIECE`] at once.
#[derive(Debug, Default)]
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len().saturating_add(bytes.len()) > MAX_PIECE {
            return Err(io::Error::other(
                "the answer grows too much when it is decompressed",
            ));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decodes one body.
pub(super) struct Decoder {
    engine: Engine,
    taken: u64,
    made: u64,
}

enum Engine {
    Gzip(Box<flate2::write::MultiGzDecoder<Bounded>>),
    /// `deflate` means zlib; some servers send it without its header, which the first two bytes tell.
    Undecided(Vec<u8>),
    Deflate(Box<Inflate>),
    Brotli(Box<brotli_decompressor::DecompressorWriter<Bounded>>),
    Zstd(Box<Zstd>),
}

impl Decoder {
    /// At the beginning of a body.
    pub(super) fn new(coding: Coding) -> Self {
        let out = Bounded::default();
        let engine = match coding {
            Coding::Gzip => Engine::Gzip(Box::new(flate2::write::MultiGzDecoder::new(out))),
            Coding::Deflate => Engine::Undecided(Vec::new()),
            Coding::Brotli => {
                Engine::Brotli(Box::new(brotli_decompressor::DecompressorWriter::new(out, PIECE)))
            }
            Coding::Zstd => Engine::Zstd(Box::default()),
        };
        Self {
            engine,
            taken: 0,
            made: 0,
        }
    }

    /// What these bytes become.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        for piece in bytes.chunks(PIECE) {
            self.taken += piece.len() as u64;
            self.engine.write(piece)?;
            let made = self.engine.take();
            self.count(made.len())?;
            all.extend_from_slice(&made);
        }
        Ok(all)
    }

    /// The rest, at the end of the body. An error: it ended too early.
    pub(super) fn finish(&mut self) -> io::Result<Vec<u8>> {
        // An empty body is no compressed one, and answers to HEAD have none.
        if self.taken == 0 {
            return Ok(Vec::new());
        }
        self.engine.finish()?;
        let made = self.engine.take();
        self.count(made.len())?;
        Ok(made)
    }

    fn count(&mut self, made: usize) -> io::Result<()> {
        self.made = self.made.saturating_add(made as u64);
        if self.made > self.taken.saturating_mul(MAX_RATIO).saturating_add(FREE) {
            return Err(io::Error::other(
                "the answer grows too much when it is decompressed",
            ));
        }
        Ok(())
    }
}

impl Engine {
    /// Takes what has come out.
    fn take(&mut self) -> Vec<u8> {
        let out = match self {
            Self::Gzip(engine) => engine.get_mut(),
            Self::Deflate(engine) => &mut engine.out,
            Self::Brotli(engine) => engine.get_mut(),
            Self::Zstd(engine) => &mut engine.out,
            Self::Undecided(_) => return Vec::new(),
        };
        std::mem::take(&mut out.0)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(engine) => engine.write_all(bytes),
            Self::Deflate(engine) => engine.write(bytes),
            Self::Brotli(engine) => engine.write_all(bytes),
            Self::Zstd(engine) => engine.write(bytes),
            Self::Undecided(first) => {
                first.extend_from_slice(bytes);
                let [a, b, ..] = first.as_slice() else {
                    return Ok(());
                };
                // RFC 1950: method 8, and a multiple of 31.
                let zlib = a & 0x0f == 8 && (u16::from(*a) << 8 | u16::from(*b)).is_multiple_of(31);
                let first = std::mem::take(first);
                *self = Self::Deflate(Box::new(Inflate {
                    inner: flate2::Decompress::new(zlib),
                    out: Bounded::default(),
                    done: false,
                }));
                self.write(&first)
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(engine) => engine.try_finish(),
            Self::Deflate(engine) if engine.done => Ok(()),
            Self::Deflate(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Self::Brotli(engine) => engine.close(),
            Self::Zstd(engine) => engine.finish(),
            Self::Undecided(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    }
}

/// Deflate with or without the header of zlib. The writer of the library does not tell that its input was cut off.
struct Inflate {
    inner: flate2::Decompress,
    out: Bounded,
    done: bool,
}

impl Inflate {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut buffer = vec![0u8; 8 * PIECE];
        while !self.done {
            let (taken, made) = (self.inner.total_in(), self.inner.total_out());
            let status = self
                .inner
                .decompress(bytes, &mut buffer, flate2::FlushDecompress::None)?;
            let length = |before: u64, now: u64| usize::try_from(now - before).unwrap_or_default();
            let (taken, made) = (
                length(taken, self.inner.total_in()),
                length(made, self.inner.total_out()),
            );
            self.out.write_all(buffer.get(..made).unwrap_or_default())?;
            bytes = bytes.get(taken..).unwrap_or_default();
            self.done = status == flate2::Status::StreamEnd;
            if taken == 0 && made == 0 || (bytes.is_empty() && made < buffer.len()) {
                return Ok(());
            }
        }
        if bytes.is_empty() {
            return Ok(());
        }
        Err(io::Error::other("bytes after the end of the compressed answer"))
    }
}

/// zstd, one block at a time: a block is at most 128 KiB, however small it came.
#[derive(Default)]
struct Zstd {
    input: Vec<u8>,
    frame: Option<Frame>,
    out: Bounded,
    begun: bool,
}

struct Frame {
    decoder: ruzstd::decoding::FrameDecoder,
    checksum: bool,
}

/// One block that was decoded.
struct Block {
    used: usize,
    last: bool,
}

/// Whether more input may come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    More,
    Ended,
}

impl Zstd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.input.extend_from_slice(bytes);
        self.advance(Input::More)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.advance(Input::Ended)?;
        if self.begun && self.frame.is_none() && self.input.is_empty() {
            return Ok(());
        }
        Err(io::Error::from(io::ErrorKind::UnexpectedEof))
    }

    fn advance(&mut self, input: Input) -> io::Result<()> {
        loop {
            let used = match &mut self.frame {
                None if self.input.is_empty()
                    || (input == Input::More && self.input.len() < MAX_FRAME_HEADER) =>
                {
                    return Ok(());
                }
                None => {
                    let (frame, used) = Frame::begin(&self.input)?;
                    self.frame = Some(frame);
                    self.begun = true;
                    used
                }
                Some(frame) => match frame.block(&self.input, &mut self.out)? {
                    Some(Block { used, last }) => {
                        if last {
                            self.frame = None;
                        }
                        used
                    }
                    None => return Ok(()),
                },
            };
            self.input.drain(..used.min(self.input.len()));
        }
    }
}

impl Frame {
    fn begin(input: &[u8]) -> io::Result<(Self, usize)> {
        let mut decoder = ruzstd::decoding::FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        let mut rest = input;
        decoder.init(&mut rest).map_err(io::Error::other)?;
        // RFC 8878, 3.1.1.1.1: the descriptor follows the magic number; bit 2 announces a checksum.
        let checksum = input.get(4).is_some_and(|descriptor| descriptor & 4 != 0);
        let frame = Self { decoder, checksum };
        Ok((frame, input.len() - rest.len()))
    }

    /// Decodes the next block; `None` where it is not there yet.
    fn block(&mut self, input: &[u8], out: &mut Bounded) -> io::Result<Option<Block>> {
        let Some([a, b, c]) = input.get(..3) else {
            return Ok(None);
        };
        let header = u32::from(*a) | u32::from(*b) << 8 | u32::from(*c) << 16;
        let size = usize::try_from(header >> 3).unwrap_or(usize::MAX);
        // A run has one byte, whatever its length.
        let length = 3 + if header >> 1 & 3 == 1 { 1 } else { size };
        let last = header & 1 == 1;
        // The checksum follows the last block, and the decoder gives the end out only with it.
        let length = length + if last && self.checksum { 4 } else { 0 };
        let Some(block) = input.get(..length) else {
            return Ok(None);
        };
        self.decoder
            .decode_from_to(block, &mut [])
            .map_err(io::Error::other)?;
        self.decoder.collect_to_writer(&mut *out)?;
        Ok(Some(Block { used: length, last }))
    }
}

#[cfg(test)]
mod tests;
