//! See `decode_downlink` in `src/targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: posse_fuzz::write_seeds_if_asked("decode_downlink"),
    |bytes: &[u8]| posse_fuzz::decode_downlink(bytes)
);
