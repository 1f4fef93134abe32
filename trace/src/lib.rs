//! Traces of GPU memory: reading, recording, replaying and explaining them.
