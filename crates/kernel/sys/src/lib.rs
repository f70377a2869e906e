//! The only unsafe code of bastle: one function per system call.
