//! What the fuzz targets do with their bytes, and the seeds from which they start.
//!
//! The targets are ordinary functions, so that they compile with the workspace and run over their seeds in
//! `cargo test` without libFuzzer. The programs in `fuzz_targets` hand them to libFuzzer.
#![forbid(unsafe_code)]

mod seeds;
mod targets;

pub use seeds::{Seeds, seeds};
pub use targets::{decode_downlink, decode_frames, decode_uplink, restore_state};

/// What a fuzz target does with its bytes.
pub type Target = fn(&[u8]);

/// The targets by name, in the order in which `cargo xtask fuzz` runs them.
pub const TARGETS: [(&str, Target); 4] = [
    ("decode_uplink", decode_uplink),
    ("decode_downlink", decode_downlink),
    ("decode_frames", decode_frames),
    ("restore_state", restore_state),
];

/// If the variable `POSSE_SEEDS` names a directory, writes the seeds of a target there and ends the process.
/// Each libFuzzer program calls it first; so the seeds are always those of the current wire format.
///
/// # Panics
/// If the directory cannot be written.
pub fn write_seeds_if_asked(target: &str) {
    let Some(directory) = std::env::var_os("POSSE_SEEDS") else { return };
    let directory = std::path::PathBuf::from(directory);
    std::fs::create_dir_all(&directory).expect("a directory for seeds");
    for (number, seed) in seeds().of(target).iter().enumerate() {
        std::fs::write(directory.join(format!("seed-{number:04}")), seed).expect("a seed");
    }
    std::process::exit(0);
}
