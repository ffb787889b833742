//! O4 and O7: whatever links and machines do, evidence is conserved, nothing counts twice, and a
//! coordinator's log gives its bits back.
//!
//! Every run derives from one seed. A failure prints the line that repeats it.

use posse_core::privacy::Unit;
use posse_core::{
    Algorithm, AsyncLinPhe, AsyncLinTs, AsyncLinUcb, AsyncLinUcbAm, CdpFclubDc, ClusterConfig,
    ExchangeConfig, ExchangeLinIgw, ExchangeLinTs, ExchangeLinUcb, Fclub, FclubDc, FeaturePoint, FedGlbUcb,
    FedGlbUcb3, FedLinUcb, FedUcb, FnUcb, HomoDc, JoinPolicy, Linkage, NeuralConfig, Precondition,
    PrivacyConfig, PrivateGlmUcb, ProtocolConfig, RoundConfig, ScheduledGlbUcb, SecureAggregation, Seed,
    Solver, SolverConfig, Stream, SyncLinUcb, Threshold, TimeSpan, TrainingMode,
};
use posse_sim::network::{FaultConfig, NetworkConfig, Preset};
use posse_sim::world::{
    ArrivalConfig, ClusteredConfig, GlmWorldConfig, HeterogeneousConfig, LinearConfig, WorldConfig,
};
use posse_sim::{AdversaryConfig, Invariants, RunConfig, Tally};

const SEEDS: u64 = 600;

/// What kind of trouble a run is in.
#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    Links,
    Crashes,
    Restarts,
    LostHistory,
}

fn pick<T: Copy>(stream: &mut Stream, among: &[T]) -> T {
    among[stream.below(among.len() as u64) as usize]
}

/// An exchange that speaks often or seldom, for one reason or another.
fn exchange(draw: &mut Stream) -> Algorithm {
    let exchange = ExchangeConfig {
        message_price: pick(draw, &[0.0, 0.001, 0.1]),
        min_growth: pick(draw, &[0.0, 0.3]),
        max_growth: pick(draw, &[0.5, f64::INFINITY]),
        min_news: Threshold(pick(draw, &[1.0, 1.2])),
        min_upload: pick(draw, &[1, 4]),
        rounding: pick(draw, &[0.0, 0.05]),
        ..Default::default()
    };
    match draw.below(3) {
        0 => Algorithm::ExchangeLinUcb(ExchangeLinUcb { exchange, ..Default::default() }),
        1 => Algorithm::ExchangeLinTs(ExchangeLinTs { exchange, ..Default::default() }),
        _ => Algorithm::ExchangeLinIgw(ExchangeLinIgw { exchange, ..Default::default() }),
    }
}

/// Rounds of small networks; in lockstep only where a deadline ends what the last interaction left open.
fn network_rounds(rounds: RoundConfig, draw: &mut Stream) -> Algorithm {
    let neural = NeuralConfig {
        hidden_width: 2,
        training_steps: 2,
        statistic: pick(draw, &[Precondition::Full, Precondition::Diagonal]),
        ..Default::default()
    };
    if draw.below(3) == 0 {
        let privacy = PrivacyConfig {
            unit: Unit::Agent,
            epsilon: pick(draw, &[1.0, 1e6]),
            first_release: pick(draw, &[1, 5]),
            max_releases: pick(draw, &[2, 64]),
            release_growth: pick(draw, &[1.01, 2.0]),
            ..Default::default()
        };
        let privacy = Some(privacy);
        return Algorithm::FnUcb(FnUcb { neural, rounds, privacy, update_steps: 3, ..Default::default() });
    }
    let modes = [TrainingMode::Independent, TrainingMode::Fedavg, TrainingMode::FedavgRounds];
    Algorithm::FnUcb(FnUcb {
        neural,
        round_threshold: Threshold(pick(draw, &[0.0, 0.5, 3.0])),
        lockstep: rounds.round_deadline.is_some() && draw.below(2) == 0,
        rounds,
        training: pick(draw, &modes),
        averaging_rounds: 2,
        features_at: pick(draw, &[FeaturePoint::Start, FeaturePoint::Current]),
        less_communication: draw.below(2) == 0,
        alpha_ramp: 20,
        ..Default::default()
    })
}

/// A run in which everything is drawn from the seed.
fn chaotic(seed: u64, trouble: Trouble) -> RunConfig {
    let mut draw = Seed(seed).stream("chaos", 0, 0);
    let threshold = |draw: &mut Stream| Threshold(pick(draw, &[1.0, 1.01, 1.2, 1.5, 2.0, 3.0]));
    let protocol = ProtocolConfig {
        upload_threshold: threshold(&mut draw),
        download_threshold: threshold(&mut draw),
        join: pick(&mut draw, &[JoinPolicy::Lazy, JoinPolicy::Eager, JoinPolicy::PullOnJoin]),
        min_upload: pick(&mut draw, &[1, 1, 3]),
        snapshot_in_receipt: draw.below(2) == 0,
        overrides: Vec::new(),
    };
    let join = protocol.join;
    let rounds = RoundConfig {
        join,
        round_deadline: Some(TimeSpan::from_millis(400)).filter(|_| draw.below(2) == 0),
        quorum: pick(&mut draw, &[0.0, 0.5, 0.9]),
    };
    let solvers = [Solver::Auto, Solver::Restart, Solver::Newton, Solver::Preconditioned];
    let update = SolverConfig { solver: pick(&mut draw, &solvers), ..Default::default() };
    let round_every = pick(&mut draw, &[1, 10, 30]);
    let scheduled =
        ScheduledGlbUcb { rounds: rounds.clone(), update: update.clone(), round_every, ..Default::default() };
    let algorithm = match draw.below(12) {
        11 => exchange(&mut draw),
        10 => network_rounds(rounds, &mut draw),
        6 => Algorithm::FedGlbUcb(FedGlbUcb {
            round_threshold: Threshold(pick(&mut draw, &[0.0, 0.5, 3.0])),
            rounds,
            update,
            ..Default::default()
        }),
        7 => Algorithm::FedGlbUcb1(scheduled),
        8 => Algorithm::FedGlbUcb2(scheduled),
        9 => Algorithm::FedGlbUcb3(FedGlbUcb3 { rounds, round_every, ..Default::default() }),
        0 => Algorithm::AsyncLinTs(AsyncLinTs { protocol, ..Default::default() }),
        1 => Algorithm::AsyncLinPhe(AsyncLinPhe { protocol, ..Default::default() }),
        2 => Algorithm::SyncLinUcb(SyncLinUcb {
            round_threshold: Threshold(pick(&mut draw, &[0.0, 0.5, 3.0])),
            join,
            round_deadline: Some(TimeSpan::from_millis(400)).filter(|_| draw.below(2) == 0),
            ..Default::default()
        }),
        3 => Algorithm::FedLinUcb(FedLinUcb {
            upload_threshold: Some(threshold(&mut draw)),
            ..Default::default()
        }),
        4 => {
            let cold_start = draw.below(2) == 0;
            Algorithm::AsyncLinUcbAm(AsyncLinUcbAm { protocol, cold_start, ..Default::default() })
        }
        _ => Algorithm::AsyncLinUcb(AsyncLinUcb { protocol, ..Default::default() }),
    };
    let dimension = 2 + draw.below(3) as usize;
    let world = match algorithm {
        Algorithm::AsyncLinUcbAm(_) => WorldConfig::Heterogeneous(HeterogeneousConfig {
            dimension: dimension + 1,
            shared: 2,
            local_spread: draw.below(dimension as u64) as usize,
            arms: 3,
            ..Default::default()
        }),
        _ if algorithm.link_function().is_some() => {
            WorldConfig::Glm(GlmWorldConfig { dimension, arms: 3, ..Default::default() })
        }
        _ => WorldConfig::Linear(LinearConfig { dimension, arms: 3, ..Default::default() }),
    };
    let crashes = trouble != Trouble::Links;
    let restarts = matches!(trouble, Trouble::Restarts | Trouble::LostHistory);
    RunConfig {
        seed: Seed(seed),
        agents: 2 + draw.below(5),
        horizon: 40 + draw.below(80),
        world,
        arrival: match draw.below(4) {
            0 => ArrivalConfig::Churn { lifetime: 0.4 },
            1 => ArrivalConfig::Bursts { mean_length: 5.0 },
            _ => ArrivalConfig::Uniform,
        },
        network: NetworkConfig {
            preset: Preset::Hostile,
            interval: TimeSpan::from_millis(pick(&mut draw, &[1, 20, 200])),
            reward_delay: TimeSpan::from_millis(pick(&mut draw, &[0, 0, 300])),
            loss: Some(pick(&mut draw, &[0.0, 0.2, 0.6])),
            repeat: Some(pick(&mut draw, &[0.0, 0.3, 0.7])),
            ..Default::default()
        },
        topology: posse_sim::TopologyConfig::default(),
        faults: FaultConfig {
            agent_crash: if crashes { pick(&mut draw, &[0.02, 0.1]) } else { 0.0 },
            volatile: pick(&mut draw, &[0.0, 0.5, 1.0]),
            downtime: TimeSpan::from_millis(pick(&mut draw, &[0, 100, 2_000])),
            coordinator_restart: if restarts { 0.08 } else { 0.0 },
            lost_entries: if trouble == Trouble::LostHistory { 1 + draw.below(6) } else { 0 },
        },
        adversaries: AdversaryConfig::default(),
        algorithm,
    }
}

/// One of the algorithms without clusters that may be private.
fn private(draw: &mut Stream, privacy: PrivacyConfig) -> Algorithm {
    let which = draw.below(6);
    if which == 4 {
        return Algorithm::PrivateGlmUcb(PrivateGlmUcb { privacy, ..Default::default() });
    }
    if which == 5 {
        let PrivacyConfig { epsilon, max_releases, first_release, release_growth, .. } = privacy;
        let round_deadline = Some(TimeSpan::from_millis(400)).filter(|_| draw.below(2) == 0);
        return Algorithm::FedUcb(FedUcb {
            epsilon,
            max_releases,
            first_release,
            release_growth,
            round_deadline,
            ..Default::default()
        });
    }
    let privacy = Some(privacy);
    match which {
        0 => Algorithm::AsyncLinUcb(AsyncLinUcb { privacy, ..Default::default() }),
        1 => Algorithm::AsyncLinTs(AsyncLinTs { privacy, ..Default::default() }),
        2 => Algorithm::FedLinUcb(FedLinUcb { privacy, ..Default::default() }),
        _ => Algorithm::SyncLinUcb(SyncLinUcb {
            privacy,
            round_deadline: Some(TimeSpan::from_millis(400)).filter(|_| draw.below(2) == 0),
            ..Default::default()
        }),
    }
}

/// The same with clustered users.
fn clustered(seed: u64, trouble: Trouble) -> RunConfig {
    let config = chaotic(seed, trouble);
    let mut draw = Seed(seed).stream("chaos", 1, 0);
    let scale = |draw: &mut Stream| Threshold(pick(draw, &[0.0, 0.3, 1.0, f64::INFINITY]));
    let clusters = ClusterConfig {
        edge_scale: scale(&mut draw),
        merge_scale: scale(&mut draw),
        merge_gate: Threshold(pick(&mut draw, &[0.8, f64::INFINITY])),
        linkage: pick(&mut draw, &[Linkage::Complete, Linkage::Transitive]),
        phase_deadline: Some(TimeSpan::from_millis(400)).filter(|_| draw.below(2) == 0),
        ..Default::default()
    };
    let privacy = PrivacyConfig {
        first_release: pick(&mut draw, &[1, 5]),
        max_releases: pick(&mut draw, &[2, 5, 64]),
        epsilon: pick(&mut draw, &[1.0, 1e6]),
        edge_first: pick(&mut draw, &[1, 10]),
        edge_growth: pick(&mut draw, &[1.5, 4.0]),
        edge_releases: pick(&mut draw, &[2, 30]),
        release_growth: pick(&mut draw, &[1.01, 1.3]),
        raw_buffer: draw.below(2) == 0,
        ..Default::default()
    };
    let (upload_threshold, download_threshold) =
        (Threshold(pick(&mut draw, &[1.0, 1.2, 2.0])), Threshold(pick(&mut draw, &[1.0, 1.2, 2.0])));
    let algorithm = match draw.below(5) {
        0 => Algorithm::Fclub(Fclub { clusters, ..Default::default() }),
        1 => {
            Algorithm::CdpFclubDc(CdpFclubDc { clusters, download_threshold, privacy, ..Default::default() })
        }
        2 => Algorithm::HomoDc(HomoDc { upload_threshold, download_threshold, ..Default::default() }),
        3 => private(&mut draw, privacy),
        _ => Algorithm::FclubDc(FclubDc {
            clusters,
            upload_threshold,
            download_threshold,
            ..Default::default()
        }),
    };
    let world = ClusteredConfig { users: 12, clusters: 3, dimension: 3, arms: 3, ..Default::default() };
    RunConfig { world: WorldConfig::Clustered(world), algorithm, ..config }
}

/// The same under secure aggregation.
fn secure(seed: u64, trouble: Trouble) -> RunConfig {
    let config = chaotic(seed, trouble);
    let mut draw = Seed(seed).stream("chaos", 2, 0);
    let privacy = PrivacyConfig {
        first_release: pick(&mut draw, &[1, 5]),
        max_releases: pick(&mut draw, &[3, 30]),
        epsilon: pick(&mut draw, &[1.0, 1e6]),
        release_growth: pick(&mut draw, &[1.01, 1.3]),
        ..Default::default()
    };
    let survivors = pick(&mut draw, &[2, 3]);
    let algorithm = Algorithm::SyncLinUcb(SyncLinUcb {
        privacy: Some(privacy),
        secure_aggregation: Some(SecureAggregation { survivors, colluders: draw.below(2) }),
        join: pick(&mut draw, &[JoinPolicy::Lazy, JoinPolicy::Eager, JoinPolicy::PullOnJoin]),
        round_deadline: Some(TimeSpan::from_millis(400)).filter(|_| draw.below(4) > 0),
        ..Default::default()
    });
    let world = LinearConfig { dimension: 2, arms: 3, ..Default::default() };
    RunConfig { world: WorldConfig::Linear(world), algorithm, ..config }
}

/// Runs one seed with all invariants; the error has the line that repeats it.
fn survives(test: &str, seed: u64, config: &RunConfig) -> Result<(Tally, u64), String> {
    let mut invariants = Invariants::of(&config.algorithm);
    let outcome = config.run(&mut invariants);
    let repeat = format!("CHAOS_SEED={seed} cargo test -p posse-sim --test sim {test}");
    if let Some(violation) = invariants.violation() {
        return Err(format!("{}: {violation}\nrepeat with: {repeat}", config.algorithm.name()));
    }
    let tally =
        outcome.map_err(|error| format!("{}: {error}\nrepeat with: {repeat}", config.algorithm.name()))?;
    Ok((tally, invariants.events()))
}

fn all_seeds_survive(test: &str, trouble: Trouble) {
    seeds_survive(test, SEEDS, |seed| chaotic(seed, trouble));
}

fn seeds_survive(test: &str, seeds: u64, of: impl Fn(u64) -> RunConfig) {
    let seeds = match std::env::var("CHAOS_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("CHAOS_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..seeds,
    };
    let (mut uploads, mut events) = (0, 0);
    for seed in seeds {
        let (tally, seen) = survives(test, seed, &of(seed)).unwrap_or_else(|failure| panic!("{failure}"));
        uploads += tally.up.messages;
        events += seen;
    }
    assert!(uploads > 0 && events > 0, "nothing happened");
}

#[test]
fn evidence_survives_hostile_links() {
    all_seeds_survive("evidence_survives_hostile_links", Trouble::Links);
}

#[test]
fn evidence_survives_crashing_agents() {
    all_seeds_survive("evidence_survives_crashing_agents", Trouble::Crashes);
}

#[test]
fn evidence_survives_coordinator_restarts_from_the_log() {
    all_seeds_survive("evidence_survives_coordinator_restarts_from_the_log", Trouble::Restarts);
}

#[test]
fn only_what_a_truncated_log_held_is_lost() {
    all_seeds_survive("only_what_a_truncated_log_held_is_lost", Trouble::LostHistory);
}

#[test]
fn evidence_of_clusters_survives_hostile_links() {
    let test = "evidence_of_clusters_survives_hostile_links";
    seeds_survive(test, SEEDS / 4, |seed| clustered(seed, Trouble::Links));
}

#[test]
fn evidence_of_clusters_survives_crashing_agents() {
    let test = "evidence_of_clusters_survives_crashing_agents";
    seeds_survive(test, SEEDS / 4, |seed| clustered(seed, Trouble::Crashes));
}

#[test]
fn evidence_of_clusters_survives_coordinator_restarts_from_the_log() {
    let test = "evidence_of_clusters_survives_coordinator_restarts_from_the_log";
    seeds_survive(test, SEEDS / 4, |seed| clustered(seed, Trouble::Restarts));
}

#[test]
fn a_truncated_log_loses_nothing_of_clusters_that_can_be_said_again() {
    let test = "a_truncated_log_loses_nothing_of_clusters_that_can_be_said_again";
    seeds_survive(test, SEEDS / 4, |seed| clustered(seed, Trouble::LostHistory));
}

/// Every exchange of a round meets loss, delay, repetition, crashes, restarts and a log that lost its end.
#[test]
fn sums_under_masks_survive_everything() {
    for trouble in [Trouble::Links, Trouble::Crashes, Trouble::Restarts, Trouble::LostHistory] {
        seeds_survive("sums_under_masks_survive_everything", 25, |seed| secure(seed, trouble));
    }
}

#[test]
fn the_harness_notices_a_repeated_upload_that_counts_twice() {
    let noticed = (0..100).any(|seed| {
        let config = chaotic(seed, Trouble::Links);
        let mut invariants = Invariants::of(&config.algorithm);
        // The run may end in an error as well: the agents' numbers no longer fit.
        let _ = config.run_with_planted_bug(&mut invariants);
        invariants.violation().is_some_and(|what| what.contains("the coordinator holds"))
    });
    assert!(noticed, "a hundred hostile runs with a planted bug, and no invariant said a word");
}
