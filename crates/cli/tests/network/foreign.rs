//! A client that is not ours: Python's grpcio, with nothing but the published `.proto` files.

use std::path::Path;
use std::process::Command;

use posse_core::{Algorithm, AsyncLinUcb, JoinPolicy};
use posse_net::coordinator::{Options, ServeConfig, serve};
use posse_net::federation::FederationConfig;

const SCRIPT: &str = include_str!("foreign.py");

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_client_joins_uploads_and_receives_a_snapshot() {
    let Some(python) = posse_testing::python("grpc, grpc_tools") else { return };
    let data = tempfile::tempdir().unwrap();
    let mut algorithm = AsyncLinUcb::default();
    algorithm.protocol.join = JoinPolicy::PullOnJoin;
    let federation = FederationConfig::new("shop", Algorithm::AsyncLinUcb(algorithm), 3);
    let config = ServeConfig::on_loopback(data.path(), vec![federation]);
    let running = serve(config, Options::default()).await.unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned();
    let (address, place) = (running.address.to_string(), data.path().to_owned());
    let output = tokio::task::spawn_blocking(move || {
        let script = place.join("foreign.py");
        std::fs::write(&script, SCRIPT).unwrap();
        let protos = [root.join("crates/core/proto"), root.join("crates/net/proto")];
        Command::new(python).arg(script).arg(address).args(protos).current_dir(place).output().unwrap()
    });
    let output = output.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("snapshot of 2 observations"), "{said}");
    assert_eq!(running.federations[0].look().await.unwrap().observations, 2);
}
