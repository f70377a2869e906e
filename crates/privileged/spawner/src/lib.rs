//! The small process that may create sandboxes.
