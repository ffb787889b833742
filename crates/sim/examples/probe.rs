//! probe
use posse_core::*;
use posse_sim::network::*;
use posse_sim::world::*;
use posse_sim::*;
fn main() {
    let gamma = |g: f64| {
        Algorithm::AsyncLinUcb(AsyncLinUcb {
            model: ModelConfig { width: WidthForm::DetTrace, ..Default::default() },
            protocol: ProtocolConfig {
                upload_threshold: Threshold(g),
                download_threshold: Threshold(g),
                ..Default::default()
            },
        })
    };
    let sync = |d: f64| {
        Algorithm::SyncLinUcb(SyncLinUcb {
            model: ModelConfig { width: WidthForm::DetTrace, ..Default::default() },
            round_threshold: Threshold(d),
            ..Default::default()
        })
    };
    for (name, algorithm) in [
        ("g=5", gamma(5.0)),
        ("g=2", gamma(2.0)),
        ("g=inf", gamma(f64::INFINITY)),
        ("sync116", sync(116.4)),
        ("sync.1164", sync(0.1164)),
    ] {
        let mut line = String::new();
        for seed in 0..3 {
            let config = RunConfig {
                seed: Seed(seed),
                agents: 1000,
                horizon: 30000,
                world: WorldConfig::Linear(LinearConfig { form: Form::Authors, ..Default::default() }),
                arrival: ArrivalConfig::Uniform,
                network: NetworkConfig::default(),
                faults: FaultConfig::default(),
                algorithm: algorithm.clone(),
            };
            let t = std::time::Instant::now();
            let tally = config.run(&mut ()).unwrap();
            line += &format!(
                " | R {:.0} C {} {:.2}us",
                tally.regret,
                tally.messages(),
                t.elapsed().as_secs_f64() * 1e6 / 30000.0
            );
        }
        println!("{name} {line}");
    }
}
