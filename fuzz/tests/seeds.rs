//! The targets over their seeds, whole and damaged, without libFuzzer.

use posse_fuzz::{TARGETS, seeds};

#[test]
fn every_target_has_seeds_and_takes_them_whole_cut_and_changed() {
    let seeds = seeds();
    for (name, target) in TARGETS {
        let own = seeds.of(name);
        assert!(own.len() >= 20, "{name} has only {} seeds", own.len());
        // A few of each length: taking all of them in all forms would take minutes.
        let mut by_length: Vec<&[u8]> = own;
        by_length.sort_by_key(|seed| seed.len());
        for seed in by_length.iter().step_by(by_length.len().div_ceil(20)) {
            target(seed);
            target(&seed[..seed.len() / 2]);
            let mut changed = seed.to_vec();
            for place in (0..changed.len()).step_by(changed.len().div_ceil(3).max(1)) {
                changed[place] ^= 0x81;
                target(&changed);
            }
        }
    }
}
