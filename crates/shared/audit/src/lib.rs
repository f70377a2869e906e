//! Append-only, hash-chained, signed log.
