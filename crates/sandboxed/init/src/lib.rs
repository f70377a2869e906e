//! PID 1 of a sandbox: confine, probe, execute, guard, reap.
