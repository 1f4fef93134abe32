//! The program `terrane`.

fn main() {}
