//! Hostile programs against the real binary, as root and as an ordinary user.
//!
//! Every attack has a twin that succeeds (outside the fence, or inside with the grant), asserts the errno that
//! refused it, and looks at the host afterwards. `attacker/` is the hostile program.
//!
//! | file | what must not happen |
//! |---|---|
//! | `filesystem` | writing by absolute path; reading secrets; climbing by `..` and descriptors; symlinks, renames and hard links out; shared inodes; odd working directories; sibling prefixes; odd names; the audit log |
//! | `kernel_files` | device nodes; kernel files; cgroup files; chroot and mounts; mounts of a run on the host |
//! | `ownership` | file capabilities; foreign ownership; set-uid programs |
//! | `inplace` | in the project itself: an exception that opens more than its file; a new repository, or one that a `.git` file leads to; names that the host replaces meanwhile |
//! | `names` | hidden or protected names that come into being later, by any call; ancestors moved about; order of nested rules; look-alike spellings |
//! | `syscalls` | each call of the must-deny list natively, by `int 0x80` and under x32; io_uring, userfaultfd, keyrings, bpf, perf, modules; personalities; real-time scheduling; namespaces by unshare, clone, clone3, setns; terminal injection; socket families; switching the filter off |
//! | `processes` | capabilities; seeing, signalling, tracing or reading host processes, other runs and PID 1; inherited descriptors and variables; nesting |
//! | `sockets` | abstract, path and loopback sockets of the host; routes out; raw sockets |
//! | `resources` | fork bombs, memory, disk, descriptors, bytes past the count; outliving a timeout or a killed bastle; leaving anything behind |
//! | `hostile_load` | 20 000 random system calls that change the host or another run |
//! | `layers` | a start with any one layer missing; a shipped binary that can leave one out; a preflight that does not see it |
//! | `ladder` | a part of Landlock that is missing and not replaced; a part that is claimed and was not tried |
//! | `default_limits` | using up a host with a run that states no limit: processes, files; filling the disk below its reserve |
//! | `exec_allow` | programs outside `exec.allow`: by child, copy, link, script, loader, descriptor, memory file; changing a listed program; a start with a layer of it missing |
//! | `pauses` | going on while paused: processes that continue each other, and one that a timer continues |
//! | `volumes` | subvolumes and snapshots of btrfs, by which hidden files would be copied |
//! | `requests` | a token that is no admin's reading the host, a foreign run or the daemon's own token; a program with a role it only claims |
//! | `egress` | another path, method, credential or push than the rules name |
//! | `grants` | a secret or a shared place behind a grant; a project's program with a credential; hooks in a shared cache |
//! | `truth` | a status, a log or a verification that says what is not so |
//! | `acceptance` | the minimum acceptance tests of a secure agent, and five attack scenarios, end to end |
// Helpers of tests stop the test that called them.
#![allow(clippy::expect_used, clippy::panic)]

#[path = "../live/agent.rs"]
#[allow(dead_code)]
mod agent;
#[path = "../api/daemon.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod daemon;
#[path = "../api/http.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod http;
#[path = "../support/mod.rs"]
mod support;

mod acceptance;
mod default_limits;
mod egress;
mod exec_allow;
mod filesystem;
mod grants;
mod hostile_load;
mod inplace;
mod kernel_files;
mod ladder;
mod layers;
mod names;
mod ownership;
mod pauses;
mod processes;
mod requests;
mod resources;
mod sockets;
mod syscalls;
mod truth;
mod volumes;
