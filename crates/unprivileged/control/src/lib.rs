//! The one pipeline from a launch request to a receipt: policy, plan, record, spawner, relay.
//!
//! Runs as the invoking user, trusts the policy crate's values and the spawner; agent output and workspace
//! content are untrusted.
#![forbid(unsafe_code)]

mod bench;
mod execute;
pub mod host;
mod load;
mod lookup;
mod naming;
mod pipeline;
mod place;
mod record;
mod relay;
mod signals;
mod spawner;
mod streams;
mod voice;

pub use bench::{Launched, launch_once};
pub use execute::{Receipt, execute};
pub use load::{Loaded, Sources, load, required as read_layer};
pub use lookup::look_up;
pub use naming::new_run_id;
pub use pipeline::{Launch, Ready, prepare, run};
pub use place::Place;
pub use record::Record;
pub use spawner::{SPAWNER_VERB, Spawner};
pub use streams::choose as choose_stdio;
pub use voice::Voice;
