//! The only way out of a sandbox: proxy, resolver, TLS, credentials, budgets.
//!
//! **Trust:** its own process and uid. It reads the agent's bytes and the internet's bytes and trusts neither; it
//! trusts the table that control hands it. It has no file system and executes nothing.
#![forbid(unsafe_code)]
