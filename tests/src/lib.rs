//! Terrane's conformance suite, for any device, and whole-system tests.
