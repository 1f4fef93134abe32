//! The recorded CSV.

use crate::{Op, Trace};
use std::io::{self, Write};

/// Writes a workload as `t_us,op,block,size,stream`.
///
/// # Errors
/// The sink's.
pub fn csv(trace: &Trace, mut sink: impl Write) -> io::Result<()> {
    sink.write_all(b"t_us,op,block,size,stream\n")?;
    for event in trace {
        let op = match event.op {
            Op::Alloc => 'a',
            Op::FreeRequested => 'r',
            Op::FreeCompleted => 'f',
        };
        writeln!(sink, "{},{op},{},{},{}", event.time_us, event.block, event.bytes, event.stream)?;
    }
    sink.flush()
}
