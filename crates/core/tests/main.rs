//! The machines through their public methods, one subject a file. All files are one program: linking a program for each took longer
//! than running it.

mod alternating;
mod conformance;
mod deadlines;
mod gradient_rounds;
mod kernel;
mod layers;
mod model_relays;
mod network_relays;
mod neural;
mod part_relays;
mod privacy;
mod refusals;
mod relays;
mod release_relays;
mod rounds;
mod scenarios;
mod secure;
mod session;
mod settings;
mod support;
mod wire;
mod workers;

/// Cargo does not look for test files here (`autotests = false`), so a new file that nothing names would not run.
#[test]
fn every_file_beside_this_one_is_named_in_it() {
    let named: Vec<&str> =
        include_str!("main.rs").lines().filter_map(|line| line.strip_prefix("mod ")).collect();
    let files =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).expect("the folder of this file");
    for file in files {
        let path = file.expect("an entry of the folder").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name in UTF-8").to_owned();
        let is_program_of_its_own = ["main", "allocation"].contains(&name.as_str());
        if path.extension().is_some_and(|ending| ending == "rs") && !is_program_of_its_own {
            assert!(named.contains(&format!("{name};").as_str()), "add `mod {name};` to tests/main.rs");
        }
    }
}
