//! See `restore_state` in `src/targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: posse_fuzz::write_seeds_if_asked("restore_state"),
    |bytes: &[u8]| posse_fuzz::restore_state(bytes)
);
