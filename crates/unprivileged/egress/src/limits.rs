//! Every number that bounds what a peer can make this process hold, wait for or repeat.
//!
//! **Trust:** the peers are the agent and the internet; neither may grow memory or time beyond these.
use std::time::Duration;

/// Connections beyond their first message, per run. A thousand must be held; a tenth is reserve for short requests.
pub(crate) const MAX_TUNNELS: usize = 1_100;
/// Connections that have not yet said what they want. Others wait in the kernel's backlog.
pub(crate) const MAX_HANDSHAKES: usize = 256;
/// From accepting a connection to its complete first message, and for each further request head.
pub(crate) const HEAD_DEADLINE: Duration = Duration::from_secs(10);
/// How long a kept-alive client connection may rest between two requests.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(120);
/// Longest pause inside a request body.
pub(crate) const BODY_PAUSE: Duration = Duration::from_secs(60);
/// A tunnel in which nothing moves for this long is closed. Long polls and event streams of model APIs rest minutes.
pub(crate) const IDLE_TUNNEL: Duration = Duration::from_secs(3_600);
/// How often idle tunnels are looked for.
pub(crate) const SWEEP: Duration = Duration::from_secs(60);

/// Largest request head: as much as the common servers take with their largest settings.
pub(crate) const MAX_HEAD: usize = 64 * 1024;
/// Longest request line; paths above 8 KiB are refused by most servers anyway.
pub(crate) const MAX_REQUEST_LINE: usize = 16 * 1024;
/// Most header lines.
pub(crate) const MAX_HEADERS: usize = 190;
/// Longest chunk extension; nobody needs one, some clients send a signature.
pub(crate) const MAX_CHUNK_EXTENSION: usize = 256;
/// Most bytes of trailers.
pub(crate) const MAX_TRAILERS: usize = 8 * 1024;
/// Piece in which bodies are handed on, and the most that is read at once.
pub(crate) const PIECE: usize = 16 * 1024;

/// Largest ClientHello; with post-quantum shares and a long session ticket about 4 KiB are seen.
pub(crate) const MAX_CLIENT_HELLO: usize = 16 * 1024;
/// How long a refused transparent connection is given to send its first bytes, so that it can be answered in kind.
pub(crate) const REFUSED_WAIT: Duration = Duration::from_secs(2);
/// How long what a refused peer still sends is thrown away, so that the answer is not lost to a reset.
pub(crate) const DRAIN: Duration = Duration::from_millis(500);

/// One resolver, one try.
pub(crate) const RESOLVE_TRY: Duration = Duration::from_millis(2_500);
/// Tries per lookup: two in all make five seconds.
pub(crate) const RESOLVE_TRIES: usize = 2;
/// Largest answer taken over UDP: the size that is announced.
pub(crate) const MAX_UDP_ANSWER: usize = 1_232;
/// Largest answer taken over TCP.
pub(crate) const MAX_TCP_ANSWER: usize = 16 * 1024;
/// Most addresses of one answer that are looked at; more is refused, so that none goes unchecked.
pub(crate) const MAX_ADDRESSES: usize = 64;
/// Longest time that an answer is kept, whatever its own lifetime.
pub(crate) const MAX_CACHE: Duration = Duration::from_secs(60);
/// Most names kept.
pub(crate) const MAX_CACHED_NAMES: usize = 1_024;

/// From the first dial to a connection.
pub(crate) const DIAL_DEADLINE: Duration = Duration::from_secs(10);
/// Before the next address is tried beside the first.
pub(crate) const DIAL_NEXT: Duration = Duration::from_millis(250);
/// Most addresses dialled for one request.
pub(crate) const MAX_DIALS: usize = 8;
/// Largest answer head of a company proxy.
pub(crate) const MAX_PROXY_HEAD: usize = 16 * 1024;

/// Largest query that the resolver face reads.
pub(crate) const MAX_QUERY: usize = 1_232;
/// Most names that have a synthetic address at once.
pub(crate) const MAX_SYNTHETIC: usize = 65_536;
/// A synthetic address belongs to its name at least this long after it was last used.
pub(crate) const SYNTHETIC_HOLD: Duration = Duration::from_secs(600);
/// Queries on one TCP connection of the resolver face.
pub(crate) const MAX_TCP_QUERIES: usize = 64;

/// Distinct denials whose repetitions are counted.
pub(crate) const MAX_DENIALS: usize = 1_024;
/// Repetitions are reported at most this often.
pub(crate) const DENIAL_PAUSE: Duration = Duration::from_secs(1);
/// More identical denials than this within [`LOOP_WINDOW`] are a loop.
pub(crate) const LOOP_COUNT: u32 = 20;
/// Window of the loop breaker.
pub(crate) const LOOP_WINDOW: Duration = Duration::from_secs(60);
/// By how much the answer to a loop is delayed.
pub(crate) const LOOP_DELAY: Duration = Duration::from_secs(1);
/// By how much the answer to a flood is delayed, for each of [`MAX_DELAYED`] at once.
pub(crate) const FLOOD_DELAY: Duration = Duration::from_millis(100);
/// The same for lookups.
pub(crate) const LOOKUP_DELAY: Duration = Duration::from_millis(1);
/// Most answers delayed at once; beyond, they go out at once, because holding them would cost more than it saves.
pub(crate) const MAX_DELAYED: usize = 64;

/// Frames waiting for control. When they are used up, faces wait: what is not recorded does not happen faster.
pub(crate) const MAX_QUEUED: usize = 1_024;
/// Answers to control that wait. One per frame of control, which waits for each: never more than a few.
pub(crate) const MAX_REPLIES: usize = 64;
/// Questions that wait for a person.
pub(crate) const MAX_ASKS: usize = 64;
/// Longest wait for a person; control answers earlier by its own rule.
pub(crate) const ASK_DEADLINE: Duration = Duration::from_secs(3_600);
/// Longest wait for a record to reach the disk; without it nothing goes out.
pub(crate) const RECORD_DEADLINE: Duration = Duration::from_secs(30);

/// Pipes kept for splicing when no bytes move.
pub(crate) const MAX_IDLE_PIPES: usize = 16;
/// Wanted size of a pipe: the largest that an unprivileged process may ask for by default.
pub(crate) const PIPE_SIZE: usize = 1024 * 1024;

/// What may wait for a client on this machine. The kernel doubles it, for its own needs. Less, and the two sides wake each
/// other too often; more, and with several tunnels the bytes get cold.
pub(crate) const NEAR_BUFFER: usize = 192 * 1024;

/// Body of a request to [`bastle_contract::egress::LOCAL_NAME`]: rule and reason at their largest, escaped.
pub(crate) const MAX_WANTED: usize = 32 * 1024;

/// How long the last words may take: control waits for two seconds.
pub(crate) const FAREWELL: Duration = Duration::from_millis(1_500);

/// How long records gather before they are written, when nobody waits for one: long enough that a flood of tunnels is
/// written in a few hundred strokes a second, too short for a person to see.
pub(crate) const GATHER: Duration = Duration::from_millis(4);
