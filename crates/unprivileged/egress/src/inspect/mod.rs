//! Requests inside a connection, judged one by one: TLS is terminated, HTTP is parsed, and what goes out is written
//! anew from the parsed form.
//!
//! **Trust:** reads the agent's requests and the servers' responses and trusts neither. Nothing is sent before policy
//! allowed this request and, where it has an effect, before the decision is on disk.
mod begun;
mod body;
mod canonical;
mod decode;
mod decoy;
mod destination;
mod dress;
mod forge;
mod forward;
mod frames;
mod h1;
mod h2;
mod headers;
mod judge;
mod ledger;
mod media;
mod operation;
mod overrides;
mod pool;
mod push;
mod reply;
mod socket;
#[cfg(test)]
mod tests;
mod turn;
mod websocket;

pub(crate) use canonical::fuzz_canonical;
pub(crate) use h1::{Next, inspect_plain};

use crate::denial::Asked;
use crate::state::State;
use crate::tls::{self, Declined};
use crate::via::Via;
use bastle_contract::Code;
use bastle_contract::egress::Face;
use pool::Pool;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// What the requests of one client connection share.
#[derive(Debug)]
pub(crate) struct Session {
    state: Arc<State>,
    pool: Pool,
}

/// Where the requests of a connection go.
#[derive(Clone, Debug)]
struct Site {
    via: Via,
    scheme: Scheme,
}

/// Whether the wire is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// No: credentials are never sent.
    Http,
    /// Yes.
    Https,
}

impl Session {
    /// For one client connection; connections to servers are kept as long as it lives.
    pub(crate) fn new(state: Arc<State>) -> Arc<Self> {
        Arc::new(Self {
            state,
            pool: Pool::default(),
        })
    }
}

impl Site {
    /// The port that need not be written.
    fn usual_port(&self) -> u16 {
        match self.scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }

    /// Host and port as a client writes them.
    fn authority(&self) -> String {
        if self.via.port == self.usual_port() {
            self.via.host.to_string()
        } else {
            self.via.authority()
        }
    }
}

/// Terminates TLS for an admitted connection and serves its requests until it ends.
pub(crate) async fn inspect_tls<S>(state: Arc<State>, via: Via, client: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(authority) = state.authority.as_ref() else {
        let reason = "this run has no authority to look into TLS with";
        drop(
            state
                .refuse(&Asked::connection(&via), Code::NetProtocol, reason)
                .await,
        );
        return;
    };
    let accepted = match tls::accept(authority, &via, client).await {
        Ok(accepted) => accepted,
        Err(declined) => {
            let code = match &declined {
                Declined::Name(_) => Code::NetMismatch,
                Declined::Failed(_) => Code::NetProtocol,
            };
            drop(
                state
                    .refuse(&Asked::connection(&via), code, declined.to_string())
                    .await,
            );
            return;
        }
    };
    let site = Site {
        via: Via {
            face: Face::Https,
            ..via
        },
        scheme: Scheme::Https,
    };
    let session = Session::new(state);
    if accepted.h2 {
        h2::serve(session, site, accepted.stream).await;
    } else {
        h1::serve(session, site, accepted.stream).await;
    }
}
