//! Deadlines of rounds over links that take their time.

use crate::support::small;
use posse_core::{
    Algorithm, FedGlbUcb, FnUcb, GlmConfig, LinkFunction, NeuralConfig, RoundConfig, SyncLinUcb, Threshold,
    TimeSpan,
};
use posse_sim::network::NetworkConfig;
use posse_sim::{Event, Invariants, Observer, RunConfig, Stage, Tally};

/// Links of 5 ms that lose nothing.
fn over_links(algorithm: Algorithm) -> RunConfig {
    let network = NetworkConfig { latency: Some(TimeSpan::from_millis(5)), ..NetworkConfig::default() };
    RunConfig { network, ..small(3, 6, 600, algorithm) }
}

/// One algorithm of each family with rounds, waiting so long in microseconds, or for everybody.
fn families(round_deadline: Option<TimeSpan>) -> Vec<Algorithm> {
    let rounds = || RoundConfig { round_deadline, ..Default::default() };
    let neural = NeuralConfig { hidden_width: 4, training_steps: 2, ..Default::default() };
    let model = GlmConfig { link: LinkFunction::Identity, ..Default::default() };
    vec![
        Algorithm::SyncLinUcb(SyncLinUcb {
            round_threshold: Threshold(0.5),
            round_deadline,
            ..Default::default()
        }),
        Algorithm::FedGlbUcb(FedGlbUcb {
            model,
            round_threshold: Threshold(0.5),
            rounds: rounds(),
            ..Default::default()
        }),
        Algorithm::FnUcb(FnUcb {
            neural,
            round_threshold: Threshold(2.0),
            lockstep: false,
            rounds: rounds(),
            ..Default::default()
        }),
    ]
}

/// How many observations the coordinator has at the end.
#[derive(Default)]
struct AtTheEnd(u64);

impl Observer for AtTheEnd {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        if let Event::Quiet = event {
            self.0 = stage.coordinator().inspect().observations;
        }
    }
}

fn run(algorithm: &Algorithm) -> (Tally, u64) {
    let mut end = AtTheEnd::default();
    let config = over_links(algorithm.clone());
    let tally = config.run(&mut end).unwrap();
    let mut invariants = Invariants::of(algorithm);
    config.run(&mut invariants).unwrap();
    assert_eq!(invariants.violation(), None, "{}", algorithm.name());
    (tally, end.0)
}

#[test]
fn a_deadline_that_everybody_keeps_changes_nothing() {
    for (patient, without) in families(Some(TimeSpan::from_micros(1_000_000))).into_iter().zip(families(None))
    {
        let name = patient.name();
        let (with, shared) = run(&patient);
        assert!(with.rounds > 5, "{name} had {} rounds", with.rounds);
        assert_eq!((with, shared), run(&without), "{name}");
    }
}

#[test]
fn rounds_that_nobody_can_keep_up_with_end_and_lose_nothing() {
    // A way there and back takes 10 ms.
    for hurried in families(Some(TimeSpan::from_micros(8_000))) {
        let name = hurried.name();
        let (tally, shared) = run(&hurried);
        assert!(tally.rounds > 5, "{name} had {} rounds", tally.rounds);
        assert!(shared < 600, "{name}: {shared} observations arrived in time");
    }
}
