//! The module that Python loads is built with the tests of the workspace, and with the same settings of everything it
//! contains: `cargo xtask test` packs that one, instead of compiling all of posse a second time.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};

#[test]
fn the_module_is_built_and_can_be_found_by_python() {
    let test = std::env::current_exe().expect("tests know where they are");
    let module = test.with_file_name(format!("{DLL_PREFIX}_posse{DLL_SUFFIX}"));
    let bytes = std::fs::read(&module).unwrap_or_else(|error| panic!("{}: {error}", module.display()));
    let name = b"PyInit__posse";
    assert!(bytes.windows(name.len()).any(|part| part == name), "Python looks for the function {name:?}");
}
