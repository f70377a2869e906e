//! As much HTTP/1.1 over TLS as a model needs: requests with a length or in chunks, answers with a length.
//!
//! The other end is egress on behalf of an agent: head and body are bounded, and a silent peer is left.
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

const MOST_HEAD: u64 = 64 * 1024;
const MOST_BODY: u64 = 32 * 1024 * 1024;
const SILENCE: Duration = Duration::from_secs(300);

/// One connection, with TLS or without.
pub(super) struct Peer {
    stream: BufReader<Box<dyn Wire>>,
}

trait Wire: Read + Write {}

impl<T: Read + Write> Wire for T {}

/// One request.
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Peer {
    pub(super) fn new(config: Option<Arc<ServerConfig>>, stream: TcpStream) -> Result<Self, String> {
        stream.set_read_timeout(Some(SILENCE)).map_err(told)?;
        stream.set_nodelay(true).map_err(told)?;
        let wire: Box<dyn Wire> = match config {
            Some(config) => {
                let connection = ServerConnection::new(config).map_err(told)?;
                Box::new(StreamOwned::new(connection, stream))
            }
            None => Box::new(stream),
        };
        Ok(Self {
            stream: BufReader::new(wire),
        })
    }

    /// The next request, unless the peer is done.
    pub(super) fn request(&mut self) -> Result<Option<Asked>, String> {
        let mut lines = Vec::new();
        loop {
            let line = self.line()?;
            match (line.is_empty(), lines.is_empty()) {
                (true, true) => return Ok(None),
                (true, false) => break,
                (false, _) => lines.push(line),
            }
            if lines.len() > 200 {
                return Err("too many headers".to_owned());
            }
        }
        let path = lines[0].split(' ').nth(1).unwrap_or_default().to_owned();
        let headers: Vec<(String, String)> = lines[1..]
            .iter()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let header = |name: &str| headers.iter().find(|(known, _)| known == name);
        let body = if header("transfer-encoding").is_some() {
            self.chunks()?
        } else {
            let length = header("content-length").map_or(Ok(0), |(_, value)| value.parse());
            self.exactly(length.map_err(told)?)?
        };
        Ok(Some(Asked { path, headers, body }))
    }

    /// Answers; the connection stays.
    pub(super) fn respond(&mut self, status: u16, kind: &str, body: &[u8]) -> Result<(), String> {
        let head = format!(
            "HTTP/1.1 {status} Told\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let stream = self.stream.get_mut();
        stream.write_all(head.as_bytes()).map_err(told)?;
        stream.write_all(body).map_err(told)?;
        stream.flush().map_err(told)
    }

    /// A line without its end; empty also where the peer has gone.
    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match (&mut self.stream).take(MOST_HEAD).read_line(&mut line) {
            Ok(_) => Ok(line.trim_end_matches(['\r', '\n']).to_owned()),
            // Peers that are done do not always say so.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(String::new()),
            Err(error) => Err(told(error)),
        }
    }

    fn exactly(&mut self, length: u64) -> Result<Vec<u8>, String> {
        if length > MOST_BODY {
            return Err("too large a body".to_owned());
        }
        let mut body = Vec::new();
        (&mut self.stream)
            .take(length)
            .read_to_end(&mut body)
            .map_err(told)?;
        Ok(body)
    }

    fn chunks(&mut self) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        loop {
            let size = self.line()?;
            let size = u64::from_str_radix(size.split(';').next().unwrap_or_default(), 16).map_err(told)?;
            body.extend(self.exactly(size)?);
            self.line()?;
            if size == 0 {
                return Ok(body);
            }
            if body.len() as u64 > MOST_BODY {
                return Err("too large a body".to_owned());
            }
        }
    }
}

fn told(error: impl ToString) -> String {
    error.to_string()
}
