//! cgroups of a run: limits, freezing, killing, readings. v2 where the controllers are there, v1 where they are
//! bound to the old hierarchies, and the empty unified hierarchy of a hybrid host for kill and freeze.
mod declared;
mod detect;
mod given;
mod group;
mod hand_down;
mod watch;

pub(crate) use detect::detect;
pub(crate) use group::Group;
pub(crate) use watch::LimitWatch;
