//! The one pipeline from a launch request to a receipt: policy, plan, record, spawner, relay.
//!
//! Runs as the invoking user, trusts the policy crate's values and the spawner; agent output and workspace
//! content are untrusted.
#![forbid(unsafe_code)]

pub mod acp;
mod afterwards;
pub mod anomaly;
pub mod backend;
mod bench;
pub mod beside;
pub mod caches;
pub mod containment;
mod egress;
mod execute;
pub mod fence_steps;
mod fileops;
pub mod fleet;
pub mod grants;
pub mod host;
mod interrupts;
pub mod keeper;
pub mod learn;
pub mod live;
mod load;
mod lookup;
mod name_watch;
mod naming;
mod newer_kernel;
mod pipeline;
mod place;
pub mod presets;
pub mod processes;
pub mod provenance;
mod record;
mod relay;
pub mod review;
pub mod runs;
mod secrets;
mod signals;
mod spawner;
mod standalone;
mod store;
mod streams;
pub mod trial;
mod voice;
pub mod workspaces;
mod writers;

pub use afterwards::AFTERWARDS;
/// How a file of a project is read on the host side; for front ends that look for settings there.
pub use bastle_workspace::project::read_project_file;
pub use bench::{Launched, Repeated, launch_once};
pub use egress::{Attendance, EGRESS_VERB, Egress, NetTotals, Rules, table_digest};
pub use execute::Receipt;
pub use interrupts::Interrupts;
pub use load::{Loaded, Sources, load, opened_path, required as read_layer};
pub use lookup::look_up;
pub use naming::new_run_id;
pub use newer_kernel::newer_kernel;
pub use pipeline::{Helpers, Launch, Ready, prepare, prepare_in, run};
pub use place::Place;
pub use record::Record;
pub use secrets::{Store, Stored, typed_secret, variable_secret};
pub use spawner::{SPAWNER_VERB, Spawner, has_spawner_daemon, is_spawner_bound, offer_spawner};
pub use standalone::{StandaloneArgs, StandaloneRequest, StandaloneWish, Wishes, standalone};
pub use streams::choose as choose_stdio;
pub use voice::{About, AfterLoss, Question, Reply, ToolWish, Voice};
pub use writers::Sharing;
