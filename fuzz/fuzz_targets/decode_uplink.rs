//! See `decode_uplink` in `src/targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: posse_fuzz::write_seeds_if_asked("decode_uplink"),
    |bytes: &[u8]| posse_fuzz::decode_uplink(bytes)
);
