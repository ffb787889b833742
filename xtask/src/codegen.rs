//! The Rust types of the wire format and of the service, made from the `.proto` files without `protoc` and
//! committed.

use std::path::{Path, PathBuf};

use prost::Message;
use tonic_prost_build::FileDescriptorSet;

/// Where the types of the wire format live, from the workspace's root.
const TYPES: &str = "crates/core/src/wire/v1.rs";
/// Where the service lives.
const SERVICE: &str = "crates/net/src/v1.rs";
/// Where the description of everything lives that the service hands out on request.
const DESCRIPTION: &str = "crates/net/src/v1.bin";
const CORE: &str = "crates/core/proto";
const NET: &str = "crates/net/proto";
const CORE_FILES: [&str; 5] = [
    "posse/v1/message.proto",
    "posse/v1/frame.proto",
    "posse/v1/state.proto",
    "posse/v1/glm.proto",
    "posse/v1/neural.proto",
];
const NET_FILES: [&str; 2] = ["posse/v1/service.proto", "posse/v1/journal.proto"];

/// Writes what is generated, or with `check` only says whether it is fresh.
pub(crate) fn run(root: &Path, check: bool) -> Result<(), String> {
    let (service, description) = service(root)?;
    for (path, fresh) in
        [(TYPES, types(root)?.into_bytes()), (SERVICE, service.into_bytes()), (DESCRIPTION, description)]
    {
        let said = |error| format!("{path}: {error}");
        if !check {
            std::fs::write(root.join(path), fresh).map_err(said)?;
        } else if std::fs::read(root.join(path)).map_err(said)? != fresh {
            return Err(format!("{path} is not what the .proto files give: run `cargo xtask codegen`"));
        }
    }
    Ok(())
}

/// Generates the types of the wire format, as text.
fn types(root: &Path) -> Result<String, String> {
    let proto = root.join(CORE);
    let files: Vec<PathBuf> = CORE_FILES.iter().map(|file| proto.join(file)).collect();
    let descriptors = protox::compile(files, [&proto]).map_err(|e| e.to_string())?;
    let mut config = prost_build::Config::new();
    config.format(false);
    // It is written by hand, to be fast.
    config.extern_path(".posse.v1.Packed", "crate::wire::packed::Packed");
    // A list may name many parts that have nothing in them, two bytes each: they are to take little memory.
    config.boxed(".posse.v1.AgentPart.evidence");
    Ok(generate(&mut config, descriptors)? + "pub use super::packed::Packed;\n")
}

/// The service around it, and the description of both. Frames are core's own types.
fn service(root: &Path) -> Result<(String, Vec<u8>), String> {
    let (core, net) = (root.join(CORE), root.join(NET));
    let files: Vec<PathBuf> = NET_FILES.iter().map(|file| net.join(file)).collect();
    let mut descriptors = protox::compile(files, [&net, &core]).map_err(|e| e.to_string())?;
    let description = descriptors.encode_to_vec();
    // What is core's is not made twice.
    descriptors.file.retain(|file| NET_FILES.contains(&file.name()));
    let mut config = prost_build::Config::new();
    for frame in ["UpFrame", "DownFrame"] {
        config.extern_path(format!(".posse.v1.{frame}"), format!("::posse_core::wire::v1::{frame}"));
    }
    // Whoever embeds an agent does not compile a server, nor the other way round.
    let builder = tonic_prost_build::configure()
        .codec_path("crate::codec::FrameCodec")
        .client_mod_attribute("posse.v1", "#[cfg(feature = \"agent\")]")
        .server_mod_attribute("posse.v1", "#[cfg(feature = \"coordinator\")]");
    config.service_generator(builder.service_generator());
    let code = generate(&mut config, descriptors)?;
    // Log and journal keep frames as they came, so what either side of the service receives has a type with its bytes.
    let (types, sides) = code.split_once("pub mod coordinator_client").ok_or("no client was generated")?;
    let (client, server) = sides.split_once("pub mod coordinator_server").ok_or("no server was generated")?;
    let received = |code: &str, frame: &str| {
        let frame = format!("::posse_core::wire::v1::{frame}");
        code.replace(&frame, &format!("crate::received::Received<{frame}>"))
    };
    let client =
        received(client, "DownFrame").replace("super::ExchangeReply", "crate::received::ReceivedReply");
    let server = received(server, "UpFrame");
    Ok((format!("{types}pub mod coordinator_client{client}pub mod coordinator_server{server}"), description))
}

fn generate(config: &mut prost_build::Config, descriptors: FileDescriptorSet) -> Result<String, String> {
    let requests = descriptors.file.into_iter().map(|file| {
        let module = prost_build::Module::from_protobuf_package_name(file.package());
        (module, file)
    });
    let modules = config.generate(requests.collect()).map_err(|e| e.to_string())?;
    let code: Vec<String> = modules.into_values().collect();
    Ok(code.concat())
}
