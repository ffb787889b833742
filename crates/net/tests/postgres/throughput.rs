//! Uploads a second into files and into a replicated database, in one run.

use std::time::Duration;

use posse_core::TimeSpan;
use posse_net::coordinator::{Options, ServeConfig, serve};
use posse_net::load::{Uploaded, upload};
use posse_net::log::StorageConfig;

use crate::support::{DIMENSION, Place, federation};

/// Seconds are those of `POSSE_THROUGHPUT_SECONDS`, or short: then it only shows that both take uploads.
#[test]
#[allow(clippy::print_stdout, reason = "how long it took is for people who ask with --nocapture")]
fn files_and_a_replicated_database_take_uploads_of_many_agents() {
    let Some(place) = Place::replicated("throughput") else { return };
    let seconds = std::env::var("POSSE_THROUGHPUT_SECONDS").map_or(0.3, |seconds| seconds.parse().unwrap());
    let replicated = StorageConfig { lease: TimeSpan::from_secs(3), ..place.storage() };
    let mut measured: Vec<(&str, Uploaded)> = Vec::new();
    for (name, storage) in [("files", StorageConfig::default()), ("postgres", replicated)] {
        for agents in [64, 512] {
            let data = place.directory.path().join(format!("{name}-{agents}"));
            let config = ServeConfig {
                storage: storage.clone(),
                ..ServeConfig::on_loopback(&data, vec![federation()])
            };
            let uploaded = place.runtime.block_on(async {
                let running = serve(config, Options::default()).await.unwrap();
                while !running.federations[0].standing().leads {
                    tokio::task::yield_now().await;
                }
                let url = format!("http://{}", running.address);
                let duration = Duration::from_secs_f64(seconds);
                let uploaded = upload(&url, agents, 8, DIMENSION as usize, duration).await.unwrap();
                running.drain().await;
                uploaded
            });
            measured.push((name, uploaded));
        }
    }
    for (name, uploaded) in &measured {
        println!(
            "{name}: {} agents, {:.0} uploads a second, {:.1} ms for half, {:.1} ms for 99 %",
            uploaded.agents, uploaded.per_second, uploaded.p50, uploaded.p99
        );
        assert!(uploaded.acknowledged > 0, "{name}");
    }
}
