//! For tests: a table from text, and a whole egress on loopback whose frames can be read.
use crate::accept::Handshakes;
use crate::budget::Attendance;
use crate::cpu::CpuAccount;
use crate::dns;
use crate::record::Said;
use crate::serve::{serve_http, serve_socks, start_housekeeping};
use crate::state::State;
use bastle_contract::egress::{EGRESS_CPU, FromEgress, NetClosed, NetDecision, NetVerdict};
use bastle_contract::{AbsPath, RunId};
use bastle_policy::{
    Host, Layer, LayerKind, MergeOptions, NetPolicy, Surroundings, floor, merge, parse, preset,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Notify;

/// The table of a user's file with this `net` section, and names that resolve to these addresses.
pub(crate) fn table(net: &str, hosts: &[(&str, &str)]) -> NetPolicy {
    table_of(&format!(r#""net": {net}"#), hosts)
}

/// The same with these sections.
pub(crate) fn table_of(sections: &str, hosts: &[(&str, &str)]) -> NetPolicy {
    let text = format!(r#"{{"version": 1, {sections}}}"#);
    let document = parse("user.json", text.as_bytes()).unwrap_or_else(|faults| panic!("{text}: {faults:#?}"));
    let layers = [
        floor().unwrap(),
        preset("default").unwrap(),
        Layer {
            kind: LayerKind::User,
            name: "user.json".to_owned(),
            document: document.into(),
        },
    ];
    let surroundings = Surroundings {
        home: AbsPath::new("/home/u").unwrap(),
        workspace: AbsPath::new("/home/u/w").unwrap(),
    };
    let mut policy = merge(&layers, &surroundings, &MergeOptions::default())
        .unwrap()
        .net;
    policy.hosts = hosts
        .iter()
        .map(|(name, address)| (Host::new(name).unwrap(), address.parse::<IpAddr>().unwrap()))
        .collect();
    policy
}

/// A running egress.
pub(crate) struct Egress {
    pub(crate) state: Arc<State>,
    pub(crate) http: SocketAddr,
    pub(crate) socks: SocketAddr,
    pub(crate) dns: SocketAddr,
    pub(crate) handshakes: Handshakes,
    frames: Arc<Mutex<Vec<FromEgress>>>,
    news: Arc<Notify>,
}

/// Starts one; held decisions are acknowledged at once, questions are answered with `answer`.
pub(crate) async fn egress_asking(
    policy: NetPolicy,
    attendance: Attendance,
    answer: impl Into<Said>,
) -> Egress {
    egress_paced(
        policy,
        (attendance, answer.into()),
        CpuAccount::of_run(EGRESS_CPU),
    )
    .await
}

/// The same with this account of processor time.
pub(crate) async fn egress_paced(
    policy: NetPolicy,
    (attendance, answer): (Attendance, Said),
    cpu: CpuAccount,
) -> Egress {
    let run = RunId::try_from("calm-otter".to_owned()).unwrap();
    let (state, mut outbox) = State::new(run, attendance, policy, Vec::new(), None, cpu).unwrap();
    let (frames, news) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
    let (kept, bell, shared) = (Arc::clone(&frames), Arc::clone(&news), Arc::clone(&state));
    tokio::spawn(async move {
        while let Some(frame) = outbox.next().await {
            match &frame {
                FromEgress::Decided(decision) if decision.held => shared.recorder.recorded(decision.seq),
                FromEgress::Ask { ask, .. } => shared.recorder.answer(*ask, answer),
                _ => {}
            }
            kept.lock().unwrap().push(frame);
            bell.notify_waiters();
        }
    });
    let handshakes = Handshakes::new(Arc::clone(&state.cpu));
    let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socks = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dns = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let started = Egress {
        http: http.local_addr().unwrap(),
        socks: socks.local_addr().unwrap(),
        dns: dns.local_addr().unwrap(),
        handshakes: handshakes.clone(),
        state: Arc::clone(&state),
        frames,
        news,
    };
    serve_http(&state, http, &handshakes);
    serve_socks(&state, socks, &handshakes);
    tokio::spawn(dns::serve_udp(Arc::clone(&state), dns));
    start_housekeeping(&state);
    started
}

/// Starts one with nobody there.
pub(crate) async fn egress(policy: NetPolicy) -> Egress {
    egress_asking(policy, Attendance::Unattended, Said::No).await
}

impl Egress {
    /// Every frame so far.
    pub(crate) fn frames(&self) -> Vec<FromEgress> {
        self.frames.lock().unwrap().clone()
    }

    /// Every decision so far.
    pub(crate) fn decisions(&self) -> Vec<NetDecision> {
        let decided = |frame| match frame {
            FromEgress::Decided(decision) => Some(decision),
            _ => None,
        };
        self.frames().into_iter().filter_map(decided).collect()
    }

    /// The first frame that `pick` picks, now or within [`HANG`].
    pub(crate) async fn wait_for<T>(&self, pick: impl Fn(&FromEgress) -> Option<T>) -> T {
        self.wait_until(|frames| frames.iter().find_map(&pick)).await
    }

    /// Waits until all frames together are what `pick` looks for.
    pub(crate) async fn wait_until<T>(&self, pick: impl Fn(&[FromEgress]) -> Option<T>) -> T {
        let waiting = async {
            loop {
                let news = self.news.notified();
                // A copy: whoever looks may ask for frames again.
                let found = pick(&self.frames());
                if let Some(found) = found {
                    return found;
                }
                news.await;
            }
        };
        tokio::time::timeout(HANG, waiting)
            .await
            .unwrap_or_else(|_| panic!("not among {:#?}", self.frames()))
    }

    /// The first denial.
    pub(crate) async fn denial(&self) -> NetDecision {
        self.wait_for(|frame| match frame {
            FromEgress::Decided(d) if d.verdict == NetVerdict::Denied => Some(d.clone()),
            _ => None,
        })
        .await
    }

    /// The first end of something allowed.
    pub(crate) async fn closed(&self) -> NetClosed {
        self.wait_for(|frame| match frame {
            FromEgress::Closed(closed) => Some(closed.clone()),
            _ => None,
        })
        .await
    }

    /// Sends bytes to the HTTP proxy and reads until it closes or two seconds pass.
    pub(crate) async fn say(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.http).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        read_all(&mut stream).await
    }

    /// A CONNECT that is let through.
    pub(crate) async fn tunnel(&self, authority: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.http).await.unwrap();
        let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 39];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(
            String::from_utf8(answer).unwrap(),
            "HTTP/1.1 200 Connection established\r\n\r\n"
        );
        stream
    }
}

/// How long anything that must come may take on a slow, loaded machine.
pub(crate) const HANG: Duration = Duration::from_secs(60);
/// How long nothing more may come before a peer counts as one that keeps its connection open.
const QUIET: Duration = Duration::from_secs(2);

/// Everything until the peer closes, or until nothing more came for a while after something had.
pub(crate) async fn read_all(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    loop {
        let most = if answer.is_empty() { HANG } else { QUIET };
        match tokio::time::timeout(most, stream.read_buf(&mut answer)).await {
            Ok(Ok(1..)) => {}
            Ok(_) => return String::from_utf8_lossy(&answer).into_owned(),
            Err(_) => return format!("{}<still open>", String::from_utf8_lossy(&answer)),
        }
    }
}

/// A server that sends `greeting` to everybody, echoes what it hears and counts connections and bytes.
pub(crate) struct Echo {
    pub(crate) address: SocketAddr,
    pub(crate) heard: Arc<Mutex<Vec<u8>>>,
}

/// Starts one on loopback.
pub(crate) async fn echo(greeting: &'static [u8]) -> Echo {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let all = Arc::clone(&all);
            tokio::spawn(async move {
                stream.write_all(greeting).await.unwrap();
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(n) = stream.read(&mut buffer).await {
                    if n == 0 {
                        break;
                    }
                    if all.lock().unwrap().len() < 1 << 20 {
                        all.lock().unwrap().extend_from_slice(&buffer[..n]);
                    }
                    if stream.write_all(&buffer[..n]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    Echo { address, heard }
}
