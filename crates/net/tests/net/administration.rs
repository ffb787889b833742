//! What an operator can see and do while a coordinator runs, and what an embedding program does not have to compile.

use std::net::SocketAddr;
use std::process::Command;

use posse_core::{Algorithm, SyncLinUcb, Threshold, TimeSpan};
use posse_net::coordinator::{AdminAccess, Options, ServeConfig, serve};
use posse_net::federation::FederationConfig;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{agent, federation, in_a_minute, interact};

/// Asks the admin port, showing a token or none.
async fn ask(admin: SocketAddr, token: &str, method: &str, path: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(admin).await.unwrap();
    let request = format!(
        "{method} /v1/federations/test/agents{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         connection: close\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap_or(Value::Null))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_every_agent_and_can_evict_one_that_holds_up_the_rounds() {
    let data = tempfile::tempdir().unwrap();
    let rounds = SyncLinUcb { round_threshold: Threshold(0.5), ..SyncLinUcb::default() };
    // A deadline so long that only the eviction can end the round.
    let rounds = FederationConfig {
        deadline: TimeSpan::from_secs(86_400),
        ..federation(Algorithm::SyncLinUcb(rounds))
    };
    let config = ServeConfig {
        admin: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        ..ServeConfig::on_loopback(data.path(), vec![rounds])
    };
    let running = serve(config, Options::default()).await.unwrap();
    let admin = running.admin.unwrap();
    let access = std::fs::read(AdminAccess::file(data.path())).unwrap();
    let access: AdminAccess = serde_json::from_slice(&access).unwrap();
    assert_eq!(access.address, admin);
    assert_eq!(ask(admin, "", "GET", "").await.0, 401);
    assert_eq!(ask(admin, "guessed", "POST", "/1/evict").await.0, 401);
    let token = access.token.as_str();

    let (stops, goes_on) = (agent(running.address, 1).await, agent(running.address, 2).await);
    in_a_minute(stops.settled()).await;
    in_a_minute(goes_on.settled()).await;
    stops.clone().close().await.unwrap();
    for step in 0..20 {
        interact(&goes_on, step);
    }
    // The open round waits for the agent that stopped.
    in_a_minute(async {
        loop {
            let (_, known) = ask(admin, token, "GET", "/1").await;
            if known["connected"] == false && known["life"] == 1 {
                break;
            }
        }
    })
    .await;
    let (status, all) = ask(admin, token, "GET", "").await;
    assert_eq!((status, all.as_array().unwrap().len()), (200, 2));
    assert!(all[1]["last_seen"].as_u64() > Some(0) && all[1]["connected"] == true, "{all}");
    assert_eq!(running.federations[0].look().await.unwrap().observations, 0);

    assert_eq!(ask(admin, token, "POST", "/1/evict").await.0, 200);
    assert_eq!(ask(admin, token, "POST", "/1/evict").await.0, 404, "it is gone already");
    assert_eq!(ask(admin, token, "POST", "/9/evict").await.0, 404);
    assert_eq!(ask(admin, token, "POST", "/1/promote").await.0, 404);
    in_a_minute(async {
        while running.federations[0].look().await.unwrap().observations == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(ask(admin, token, "GET", "/1").await.1["gone"], true);
    // It may come back, in a new life.
    let again = agent(running.address, 1).await;
    in_a_minute(again.settled()).await;
    assert_eq!(ask(admin, token, "GET", "/1").await.1["life"], 2);
}

#[test]
fn embedding_an_agent_compiles_no_server() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "-p", "posse-net", "--no-default-features", "--features", "agent"])
        .args(["--edges", "normal", "--prefix", "none", "--offline", "--locked"])
        .output()
        .unwrap();
    let packages = String::from_utf8(tree.stdout).unwrap();
    assert!(packages.contains("tonic v"), "{packages}\n{}", String::from_utf8_lossy(&tree.stderr));
    for server in ["axum", "prometheus-client", "tonic-health", "tonic-reflection"] {
        assert!(!packages.contains(server), "{server} is compiled:\n{packages}");
    }
}
