//! What is said to a working agent reaches its model, an interruption ends its turn and not its run, and turns are counted
//! outside of it.
