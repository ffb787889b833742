//! See `decode_frames` in `src/targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: posse_fuzz::write_seeds_if_asked("decode_frames"),
    |bytes: &[u8]| posse_fuzz::decode_frames(bytes)
);
