//! The one pipeline from a launch request to a receipt.
