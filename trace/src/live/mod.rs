//! Live attach: looking on while an allocator works.
//!
//! [`Tap`] offers an allocator on a local socket (and records it into a file, if asked to, from
//! the same events); [`Client`] connects. What goes over the socket are the chunks of a trace
//! file, in their order: first where it comes from, the names and a keyframe of the full state,
//! then events as they happen, and every half second the figures that only the allocator knows.
//! Who reads too slowly is let go and may come again; it gets the full state anew. The allocating
//! threads do not wait for anybody.
//!
//! Sockets lie in one folder that only their user may enter ([`folder`]), one for each process; a
//! client connects to none that belongs to another user. [`Tap::tcp`] offers the same over TCP of
//! this machine alone, to those whose first line is a token. Nothing flows back but one kind of
//! line, `compact GOAL BYTES MOVES MILLISECONDS full|background TOKEN` ([`Compact`]), where the
//! program gave a control token ([`Tap::control`]).

mod client;
mod compact;
mod conn;
mod folder;
mod server;

pub use client::{Client, Message};
pub use compact::{Aim, Compact};
pub(crate) use conn::Token;
pub use folder::{folder, sockets};
pub use server::Command;
pub(crate) use server::{Control, Offer, Server};

pub use crate::file::{Status, Tap};
