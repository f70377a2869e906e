//! Whether the token of an open stream still holds: whoever lost it is not told, and does, anything more.
//!
//! **Trust:** a request was recognised once; a stream outlives that by hours. What cannot be looked up does not hold.
use crate::app::App;
use crate::errors::Refusal;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a stream may go on with a token that was revoked or has expired.
pub(crate) const RECHECK: Duration = Duration::from_secs(5);

/// The token behind one stream.
pub(crate) struct Recheck {
    app: App,
    /// Whoever needs none has none that could end.
    secret: Option<Arc<str>>,
    looked: Instant,
}

impl Recheck {
    /// Of a request that was recognised in this moment.
    pub(crate) fn new(app: App, secret: Option<Arc<str>>) -> Self {
        Self {
            app,
            secret,
            looked: Instant::now(),
        }
    }

    /// Whether it held within the last [`RECHECK`].
    pub(crate) async fn held_lately(&mut self) -> bool {
        if self.looked.elapsed() < RECHECK {
            return true;
        }
        self.looked = Instant::now();
        self.holds().await
    }

    /// Whether it holds in this moment.
    pub(crate) async fn holds(&self) -> bool {
        let Some(secret) = self.secret.clone() else {
            return true;
        };
        let known = self
            .app
            .ask(move |fleet| Ok::<_, Refusal>(fleet.authenticate(&secret).is_some()))
            .await;
        known.unwrap_or(false)
    }

    /// Waits until it does not hold any more; looks every [`RECHECK`].
    pub(crate) async fn lost(&self) {
        loop {
            tokio::time::sleep(RECHECK).await;
            if !self.holds().await {
                return;
            }
        }
    }
}
