//! Live attach: looking on while an allocator works.
//!
//! [`Tap`] offers an allocator on a local socket (and records it into a file, if asked to, from
//! the same events); [`Client`] connects. What goes over the socket are the chunks of a trace
//! file, in their order: first where it comes from, the names and a keyframe of the full state,
//! then events as they happen, and every half second the figures that only the allocator knows.
//! Nothing flows back. Who reads too slowly is let go and may come again; it gets the full state
//! anew. The allocating threads do not wait for anybody.
//!
//! Sockets lie in one folder that only their user may enter ([`folder`]), one for each process.

mod client;
mod folder;
mod server;

pub use client::{Client, Message};
pub use folder::{folder, sockets};
pub(crate) use server::Server;

pub use crate::file::{Status, Tap};
