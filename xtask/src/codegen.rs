//! The Rust types of the wire format, made from the `.proto` files without `protoc` and committed.

use std::path::{Path, PathBuf};

/// Where the types live, from the workspace's root.
const GENERATED: &str = "crates/core/src/wire/v1.rs";
const PROTO: &str = "crates/core/proto";
const FILES: [&str; 4] =
    ["posse/v1/message.proto", "posse/v1/frame.proto", "posse/v1/state.proto", "posse/v1/glm.proto"];

/// Writes the types, or with `check` only says whether they are fresh.
pub(crate) fn run(root: &Path, check: bool) -> Result<(), String> {
    let code = generate(root)?;
    let path = root.join(GENERATED);
    if check {
        let committed = std::fs::read_to_string(&path).map_err(|e| format!("{GENERATED}: {e}"))?;
        return if committed == code {
            Ok(())
        } else {
            Err(format!("{GENERATED} is not what {PROTO} gives: run `cargo xtask codegen`"))
        };
    }
    std::fs::write(&path, code).map_err(|e| format!("{GENERATED}: {e}"))
}

fn generate(root: &Path) -> Result<String, String> {
    let proto = root.join(PROTO);
    let files: Vec<PathBuf> = FILES.iter().map(|file| proto.join(file)).collect();
    let descriptors = protox::compile(files, [&proto]).map_err(|e| e.to_string())?;
    let requests = descriptors.file.into_iter().map(|file| {
        let module = prost_build::Module::from_protobuf_package_name(file.package());
        (module, file)
    });
    let mut config = prost_build::Config::new();
    let modules = config.generate(requests.collect()).map_err(|e| e.to_string())?;
    let code: Vec<String> = modules.into_values().collect();
    Ok(code.concat())
}
