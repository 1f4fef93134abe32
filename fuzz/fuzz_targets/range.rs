#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrane_fuzz::ranges::range(bytes));
