//! A short play of every algorithm, written down in full, for people to read and for changes to show.
//!
//! Three agents, twenty steps. `UPDATE=1 cargo test -p posse-sim --test sim transcripts` writes them anew.

use std::fmt::Write;
use std::path::PathBuf;

use posse_core::{
    Algorithm, AsyncLinPhe, AsyncLinTs, AsyncLinUcb, AsyncLinUcbAm, CdpFclubDc, ClusterConfig, ClusterUpload,
    Cost, Downlink, ExchangeConfig, ExchangeLinIgw, ExchangeLinTs, ExchangeLinUcb, Fclub, FclubDc, FedGlbUcb,
    FedGlbUcb3, FedLinUcb, FedUcb, GroupSnapshot, JoinPolicy, PrivacyConfig, PrivateGlmUcb, ScheduledGlbUcb,
    SecureDownlink, SyncLinUcb, Threshold, Uplink,
};
use posse_sim::world::{ClusteredConfig, GlmWorldConfig, HeterogeneousConfig, WorldConfig};
use posse_sim::{Event, Observer, RunConfig, Stage, Tally};

use crate::support::{linear, protocol, small};

/// Writes down what happens.
#[derive(Default)]
struct Transcript {
    text: String,
    /// The choice whose reward is not known yet.
    choice: String,
}

impl Transcript {
    /// A line without a step of its own.
    fn note(&mut self, line: &str) {
        writeln!(self.text, "         {line}").expect("a string takes everything");
    }
}

impl Observer for Transcript {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        match event {
            Event::Joined { agent, .. } => self.note(&format!("{agent} joined")),
            Event::Chose { step, agent, arm, .. } => {
                self.choice = format!("step {step:>2}  {agent} chose arm {arm}");
            }
            Event::Learned { agent, reward } => {
                let choice = std::mem::take(&mut self.choice);
                let reward = significant(*reward);
                let view = stage.agent(*agent).or(stage.agent(posse_core::AgentId(0)));
                let cold = view.filter(|agent| agent.clusters().is_empty());
                let withheld = cold.map_or(0, |agent| agent.inspect().withheld);
                let cold = if withheld > 0 { "  cold" } else { "" };
                writeln!(self.text, "{choice}  reward {reward:>8}{cold}").expect("a string takes everything");
            }
            Event::Up { agent, message, .. } => self.note(&format!("{agent} → {}", uplink(message))),
            Event::Down { agent, message } => self.note(&format!("{agent} ← {}", downlink(message))),
            _ => {}
        }
    }
}

fn uplink(message: &Uplink) -> String {
    match message {
        Uplink::Extension(extension) => format!("extension of {}", extension.algorithm),
        Uplink::Evidence(upload) => format!(
            "evidence #{} ({}, information {})",
            upload.number,
            observations(upload.evidence.count()),
            significant(upload.information),
        ),
        Uplink::Pull(pull) => {
            let doubt = significant(pull.doubt);
            let upload =
                pull.upload.clone().map(|upload| format!(" with {}", uplink(&Uplink::Evidence(upload))));
            format!("pull at v{}, doubt {doubt}{}", pull.based_on.0, upload.unwrap_or_default())
        }
        Uplink::RoundLoss { round, shared } => format!("loss in round {}, shared: {shared}", round.0),
        Uplink::RoundRequest { observations: 0 } => "round request".to_owned(),
        Uplink::RoundRequest { observations } => format!("round request with {observations}"),
        Uplink::RoundEvidence { round, evidence } => {
            format!("round {}: {}", round.0, observations(evidence.count()))
        }
        Uplink::RoundParts { round, parts } => {
            let count = parts.iter().map(|part| part.evidence.count()).sum();
            format!("round {}: {} of {} agents", round.0, observations(count), parts.len())
        }
        Uplink::Gradient(gradient) => {
            let curvature = if gradient.curvature.is_some() { " and curvature" } else { "" };
            let norm = gradient.gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
            let (round, step) = (gradient.round.0, gradient.step);
            format!("round {round}: gradient {step} of length {}{curvature}", significant(norm))
        }
        Uplink::Secure(part) => format!("round {}: {}", part.round().0, part.kind()),
        Uplink::Cluster(upload) => cluster(upload),
        Uplink::Clusters(list) => {
            let kept = list.kept.iter().map(|kept| format!("cluster {} as before", kept.0));
            let all: Vec<String> = kept.chain(list.uploads.iter().map(cluster)).collect();
            format!("phase {}: {}", list.phase.0, all.join("; "))
        }
        Uplink::NetworkRequest { observations: made } => {
            format!("network request after {}", observations(*made))
        }
        Uplink::NetworkPart(part) => {
            let (round, alpha) = (part.round.0, significant(part.alpha));
            let trained = if part.trained { ", trained" } else { "" };
            format!(
                "round {round}: {}, a network{trained}, alpha {alpha}",
                observations(part.evidence.count())
            )
        }
        Uplink::Weights(weights) => {
            format!("round {}: a network after average {}", weights.round.0, weights.step)
        }
    }
}

fn cluster(upload: &ClusterUpload) -> String {
    let noise = if upload.released { ", with noise" } else { "" };
    let all = observations(upload.evidence.count());
    format!("cluster {} #{} ({all} in all{noise})", upload.cluster.0, upload.number)
}

fn downlink(message: &Downlink) -> String {
    match message {
        Downlink::Extension(extension) => format!("extension of {}", extension.algorithm),
        Downlink::Snapshot(snapshot) => {
            format!("snapshot v{} ({})", snapshot.version.0, observations(snapshot.evidence.count()))
        }
        Downlink::Answer(answer) => {
            let news = &answer.news;
            let to = if answer.pulled { "to a pull" } else { "to all" };
            let snapshot = answer.snapshot.clone().map(|snapshot| downlink(&Downlink::Snapshot(snapshot)));
            format!(
                "answer {to} #{}: v{}, {}, doubt {}{}",
                answer.number,
                news.version.0,
                observations(news.count),
                significant(news.doubt),
                snapshot.map_or(String::new(), |snapshot| format!(", {snapshot}")),
            )
        }
        Downlink::Receipt { number, version: Some(version) } => {
            format!("receipt #{number}, up to date at v{}", version.0)
        }
        Downlink::Receipt { number, version: None } => format!("receipt #{number}, behind"),
        Downlink::Collect { round, .. } => format!("collect for round {}", round.0),
        Downlink::Commit { round, included, version, evidence } => {
            let part = if *included { "" } else { ", without it" };
            format!("commit of round {}, v{} ({}){part}", round.0, version.0, observations(evidence.count()))
        }
        Downlink::GradientRequest { round, step, .. } => {
            format!("gradient {step} of round {}, please", round.0)
        }
        Downlink::Model(model) => {
            let (version, own) = (model.version.0, observations(model.contains));
            format!("model v{version} ({}, of which {own} here)", observations(model.evidence.count()))
        }
        Downlink::Secure(SecureDownlink::Outcome(outcome)) => format!(
            "sums of {} agents, v{} ({}){}",
            outcome.members,
            outcome.version.0,
            observations(outcome.evidence.count()),
            if outcome.included { "" } else { ", without it" }
        ),
        Downlink::Secure(call) => call.kind().to_owned(),
        Downlink::Abort { round } => format!("round {} ends without a result", round.0),
        Downlink::Group(GroupSnapshot { cluster, members, snapshot, .. }) => format!(
            "group of cluster {}: {members} contributed, v{} ({})",
            cluster.0,
            snapshot.version.0,
            observations(snapshot.evidence.count())
        ),
        Downlink::ClusterReceipt { cluster, number, version } => {
            let state = version.map_or("behind".to_owned(), |v| format!("up to date at v{}", v.0));
            format!("receipt for cluster {} #{number}, {state}", cluster.0)
        }
        Downlink::Regroup { phase, .. } => format!("phase {} begins", phase.0),
        Downlink::NetworkCollect { round, observations: made } => {
            format!("collect for round {} of networks, after {}", round.0, observations(*made))
        }
        Downlink::Average(weights) => format!("average {} of round {}", weights.step, weights.round.0),
        Downlink::Network(model) => {
            let (version, own) = (model.version.0, observations(model.contains));
            let all = observations(model.shared.count);
            format!(
                "network v{version} ({all}, of which {own} here), alpha {}",
                significant(model.shared.alpha)
            )
        }
    }
}

fn observations(count: u64) -> String {
    if count == 1 { "1 observation".to_owned() } else { format!("{count} observations") }
}

/// Writes a number with four significant digits.
fn significant(value: f64) -> String {
    let scientific = format!("{value:.3e}");
    let (_, exponent) = scientific.split_once('e').expect("this is how it is written");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    let decimals = usize::try_from((3 - exponent).max(0)).expect("it is not negative");
    format!("{value:.decimals$}")
}

fn summary(tally: &Tally) -> String {
    let line = |cost: &Cost| {
        format!(
            "{} messages, {} control, {} scalars ({} as the papers count), {} bytes",
            cost.messages, cost.control, cost.scalars, cost.paper_scalars, cost.bytes
        )
    };
    let mut text = format!("\nregret {}, reward {}\n", significant(tally.regret), significant(tally.reward));
    text += &format!("up    {}\ndown  {}\n", line(&tally.up), line(&tally.down));
    if tally.rounds > 0 {
        text += &format!("{} rounds\n", tally.rounds);
    }
    text
}

/// A seed with which every agent acts now and then.
const SEED: u64 = 21;

fn is_clustered(algorithm: &Algorithm) -> bool {
    let name = algorithm.name();
    name.contains("club") || name.contains("homo") || name == "user-lin-ucb"
}

/// Users are told apart, and clusters are found alike, sooner than is wise.
fn clusters() -> ClusterConfig {
    ClusterConfig {
        edge_scale: Threshold(0.5),
        merge_gate: Threshold(f64::INFINITY),
        ..ClusterConfig::default()
    }
}

fn exchange() -> ExchangeConfig {
    ExchangeConfig { message_price: 0.008, ..ExchangeConfig::default() }
}

/// Settings under which something happens in twenty steps.
fn play(algorithm: Algorithm) -> RunConfig {
    let lazy = protocol(3.0, 5.0, JoinPolicy::Lazy);
    let algorithm = match algorithm {
        Algorithm::AsyncLinUcb(config) => Algorithm::AsyncLinUcb(AsyncLinUcb { protocol: lazy, ..config }),
        Algorithm::AsyncLinTs(config) => {
            let protocol = protocol(1.5, 1.5, JoinPolicy::Eager);
            Algorithm::AsyncLinTs(AsyncLinTs { protocol, ..config })
        }
        Algorithm::AsyncLinPhe(config) => {
            let protocol = protocol(2.0, 4.0, JoinPolicy::PullOnJoin);
            Algorithm::AsyncLinPhe(AsyncLinPhe { protocol, ..config })
        }
        Algorithm::SyncLinUcb(config) => {
            Algorithm::SyncLinUcb(SyncLinUcb { round_threshold: Threshold(4.0), ..config })
        }
        Algorithm::FedLinUcb(config) => {
            Algorithm::FedLinUcb(FedLinUcb { upload_threshold: Some(Threshold(2.0)), ..config })
        }
        Algorithm::ExchangeLinUcb(config) => {
            Algorithm::ExchangeLinUcb(ExchangeLinUcb { exchange: exchange(), ..config })
        }
        Algorithm::ExchangeLinTs(config) => {
            Algorithm::ExchangeLinTs(ExchangeLinTs { exchange: exchange(), ..config })
        }
        Algorithm::ExchangeLinIgw(config) => {
            Algorithm::ExchangeLinIgw(ExchangeLinIgw { exchange: exchange(), ..config })
        }
        Algorithm::AsyncLinUcbAm(config) => {
            let protocol = protocol(1.5, 2.0, JoinPolicy::Lazy);
            Algorithm::AsyncLinUcbAm(AsyncLinUcbAm { protocol, ..config })
        }
        Algorithm::FedGlbUcb(config) => {
            Algorithm::FedGlbUcb(FedGlbUcb { round_threshold: Threshold(0.5), ..config })
        }
        Algorithm::FedGlbUcb1(config) => Algorithm::FedGlbUcb1(ScheduledGlbUcb { round_every: 7, ..config }),
        Algorithm::FedGlbUcb2(config) => Algorithm::FedGlbUcb2(ScheduledGlbUcb { round_every: 7, ..config }),
        Algorithm::FedGlbUcb3(config) => Algorithm::FedGlbUcb3(FedGlbUcb3 { round_every: 7, ..config }),
        Algorithm::Fclub(config) => Algorithm::Fclub(Fclub { clusters: clusters(), ..config }),
        Algorithm::FclubDc(config) => Algorithm::FclubDc(FclubDc { clusters: clusters(), ..config }),
        Algorithm::CdpFclubDc(config) => {
            let privacy = PrivacyConfig { first_release: 3, max_releases: 4, ..config.privacy };
            Algorithm::CdpFclubDc(CdpFclubDc { clusters: clusters(), privacy, ..config })
        }
        Algorithm::FedUcb(config) => {
            Algorithm::FedUcb(FedUcb { first_release: 3, max_releases: 4, ..config })
        }
        Algorithm::PrivateGlmUcb(config) => {
            let privacy = PrivacyConfig { first_release: 3, max_releases: 4, ..config.privacy };
            Algorithm::PrivateGlmUcb(PrivateGlmUcb { privacy, ..config })
        }
        other => other,
    };
    let clicks =
        ClusteredConfig { users: 6, clusters: 2, dimension: 2, arms: 4, ..ClusteredConfig::default() };
    let mixed = HeterogeneousConfig { dimension: 3, shared: 2, arms: 4, ..HeterogeneousConfig::default() };
    let world = match &algorithm {
        Algorithm::AsyncLinUcbAm(_) => WorldConfig::Heterogeneous(mixed),
        other if is_clustered(other) => WorldConfig::Clustered(clicks),
        other => match other.link_function() {
            Some(link) => {
                WorldConfig::Glm(GlmWorldConfig { link, dimension: 2, arms: 4, ..Default::default() })
            }
            None => linear(2, 4),
        },
    };
    RunConfig { world, ..small(SEED, 3, 20, algorithm) }
}

fn perform(algorithm: Algorithm) -> String {
    let (name, about) = (algorithm.name(), algorithm.summary());
    let mut transcript = Transcript::default();
    let tally = play(algorithm).run(&mut transcript).unwrap();
    format!("{name}: {about}\n\n{}{}", transcript.text, summary(&tally))
}

#[test]
fn every_algorithm_plays_as_written() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let rewrite = std::env::var_os("UPDATE").is_some_and(|value| value == "1");
    for algorithm in Algorithm::all() {
        let name = algorithm.name();
        let path = folder.join(format!("{name}.txt"));
        let played = perform(algorithm);
        if rewrite {
            std::fs::write(&path, &played).unwrap();
            continue;
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        if played == written {
            continue;
        }
        let same = played.lines().zip(written.lines()).take_while(|(a, b)| a == b).count();
        let line = |text: &str| text.lines().nth(same).unwrap_or("(the end)").to_owned();
        panic!(
            "{name}.txt, line {}:\n  written: {}\n  played:  {}\nIf the new play is right: \
             UPDATE=1 cargo test -p posse-sim --test sim transcripts",
            same + 1,
            line(&written),
            line(&played),
        );
    }
}

#[test]
fn numbers_have_four_digits() {
    let cases = [(0.0, "0.000"), (1.0, "1.000"), (-0.012_346, "-0.01235"), (9.999_96, "10.00")];
    for (value, written) in cases.into_iter().chain([(1234.6, "1235"), (98_765.4, "98765")]) {
        assert_eq!(significant(value), written);
    }
}
