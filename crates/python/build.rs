//! Lets linkers that insist on knowing every symbol (macOS) leave the interpreter's to the time of loading.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
