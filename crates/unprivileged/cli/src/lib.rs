//! The bastle command line.
