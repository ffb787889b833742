//! Rounds of updates with noise, message by message.

use super::*;
use crate::agent::Agent;
use crate::federation::Federation;
use crate::ids::UserId;
use crate::neural::NeuralConfig;
use crate::neural::message::NetworkEvidence;
use crate::neural::update_agent::UpdateAgent;
use crate::privacy::{PrivacyConfig, Unit};
use crate::random::{Seed, Stream};
use crate::time_span::TimeSpan;

/// When the tests begin: far from zero, as every real clock is.
const NOW: Tick = Tick(1_700_000_000_000_000);
const D: usize = 3;

/// Agents and a coordinator whose messages all arrive, and every part that was sent.
struct Table {
    agents: Vec<UpdateAgent>,
    coordinator: UpdateRounds,
    parts: Vec<(usize, NetworkPart)>,
    stream: Stream,
}

/// A promise that takes next to no noise, unless `epsilon` says otherwise.
fn config(epsilon: f64, max_releases: u64) -> FnUcb {
    let privacy = PrivacyConfig {
        epsilon,
        unit: Unit::Agent,
        max_releases,
        first_release: 4,
        release_growth: 2.0,
        ..Default::default()
    };
    let neural = NeuralConfig { hidden_width: 3, training_steps: 2, ..Default::default() };
    FnUcb { neural, privacy: Some(privacy), update_bound: 0.1, update_steps: 20, ..Default::default() }
}

impl Table {
    fn new(config: &FnUcb, agents: u64) -> Self {
        config.check(D).unwrap();
        let federation = Federation { agents, horizon: 100, seed: Seed(3) };
        let mut coordinator = UpdateRounds::new(config, D);
        (0..agents).for_each(|id| drop(coordinator.join(NOW, AgentId(id), Entrance::NewLife)));
        let agent = |id| config.private_agent(D, AgentId(id), &federation).unwrap();
        Self {
            agents: (0..agents).map(agent).collect(),
            coordinator,
            parts: Vec::new(),
            stream: Seed(5).stream("table", 0, 0),
        }
    }

    /// An agent learns something; returns what it says.
    fn learn(&mut self, agent: usize) -> Option<Uplink> {
        let x: Vec<f64> = (0..D).map(|_| self.stream.normal()).collect();
        self.agents[agent].learn(UserId(0), &x, x[0].abs()).unwrap()
    }

    /// An agent learns something, and all that follows from it happens.
    fn learn_all(&mut self, agent: usize) {
        let said = self.learn(agent);
        let mut letters: Vec<_> = said.map(|message| (agent, message)).into_iter().collect();
        while !letters.is_empty() {
            let (from, message) = letters.remove(0);
            if let Uplink::NetworkPart(part) = &message {
                self.parts.push((from, part.clone()));
            }
            let outgoing = self.coordinator.receive(NOW, AgentId(from as u64), message).unwrap();
            letters.extend(self.post(outgoing));
        }
    }

    fn post(&mut self, outgoing: Vec<Outgoing>) -> Vec<(usize, Uplink)> {
        let mut answers = Vec::new();
        for Outgoing { to, message } in outgoing {
            for id in (0..self.agents.len()).filter(|id| to.includes(AgentId(*id as u64))) {
                let answer = self.agents[id].receive(message.clone()).unwrap();
                answers.extend(answer.map(|answer| (id, answer)));
            }
        }
        answers
    }

    fn held(&self) -> u64 {
        self.agents.iter().map(|agent| agent.inspect().held()).sum()
    }
}

fn length(numbers: &[f64]) -> f64 {
    numbers.iter().map(|v| v * v).sum::<f64>().sqrt()
}

#[test]
fn what_is_shared_is_the_sum_of_the_mean_updates_of_all_rounds() {
    let mut table = Table::new(&config(1e12, 3), 2);
    for _ in 0..20 {
        table.learn_all(0);
        table.learn_all(1);
    }
    let parameters = table.coordinator.layout.parameters();
    let mut expected = vec![0.0; parameters];
    for round in 1..=table.coordinator.round.0 {
        let of_round = || table.parts.iter().filter(|(_, part)| part.round.0 == round && part.trained);
        let n = of_round().count() as f64;
        assert!(n > 0.0, "every round that was asked for has a result");
        for (_, part) in of_round() {
            assert!(length(&part.weights) <= 0.1 * (1.0 + 1e-6), "{}", length(&part.weights));
            assert!(length(&part.weights) > 1e-3, "training moves the network");
            assert_eq!(part.evidence.parameters(), 0, "no statistics");
            expected.iter_mut().zip(&part.weights).for_each(|(sum, value)| *sum += value / n);
        }
    }
    let off = table.coordinator.shared.weights.iter().zip(&expected);
    assert!(off.clone().all(|(a, b)| (a - b).abs() < 1e-9), "{off:?}");
    let given = table.parts.iter().filter(|(_, part)| part.trained).count();
    assert_eq!(given, 6, "two agents with three releases each");
    assert_eq!(table.agents[0].privacy().unwrap().silent, 1);
    assert_eq!(table.held() + table.coordinator.shared.count, 40, "every interaction is counted once");
    assert!(table.coordinator.shared.count > 0);
}

#[test]
fn agents_that_learned_little_give_nothing_and_rounds_that_are_called_again_cost_nothing() {
    let mut table = Table::new(&config(1.0, 4), 3);
    table.learn_all(1);
    (0..4).for_each(|_| table.learn_all(0));
    let gave: Vec<bool> = table.parts.iter().map(|(_, part)| part.trained).collect();
    assert_eq!(gave, [true, false, false], "one interaction is less than half of four");
    assert_eq!(table.parts[1].1.weights, Vec::<f64>::new());
    let spent = table.agents[0].privacy().unwrap();
    for round in 2..50 {
        let collect = Downlink::NetworkCollect { round: RoundId(round), observations: 1 };
        let Some(Uplink::NetworkPart(part)) = table.agents[0].receive(collect).unwrap() else {
            panic!("an answer")
        };
        assert!(!part.trained && part.weights.is_empty() && part.evidence.count() == 0);
    }
    assert_eq!(table.agents[0].privacy(), Some(spent));
}

#[test]
fn an_average_that_noise_explains_is_not_followed() {
    let noise: Vec<f64> = {
        let mut stream = Seed(9).stream("noise", 0, 0);
        (0..400).map(|_| stream.normal()).collect()
    };
    assert!(kept(&noise, 1.0) < 0.15, "{}", kept(&noise, 1.0));
    let moved: Vec<f64> = noise.iter().map(|v| 3.0 + v).collect();
    assert!((kept(&moved, 1.0) - 0.9).abs() < 0.02, "{}", kept(&moved, 1.0));
    assert_eq!(kept(&noise, 100.0), 0.0);
    assert_eq!((kept(&[0.0; 3], 1.0), kept(&noise, 0.0)), (0.0, 1.0));
}

#[test]
fn a_round_without_a_quorum_ends_with_nothing_and_a_late_update_counts_for_nothing() {
    let mut config = config(1e12, 3);
    config.rounds.round_deadline = Some(TimeSpan::from_micros(10));
    config.rounds.quorum = 0.6;
    let mut table = Table::new(&config, 3);
    let asked = (0..4).find_map(|_| table.learn(0)).expect("it is due at four");
    let outgoing = table.coordinator.receive(NOW, AgentId(0), asked).unwrap();
    let mut answers = table.post(outgoing);
    assert_eq!(table.coordinator.waits_for().unwrap().len(), 3);
    let (from, first) = answers.remove(0);
    table.coordinator.receive(NOW, AgentId(from as u64), first).unwrap();
    let later = NOW.after(TimeSpan::from_micros(10));
    let ended = table.coordinator.tick(later);
    assert!(matches!(ended[0].message, Downlink::Abort { .. }), "{ended:?}");
    table.post(ended);
    assert_eq!(table.agents[0].inspect().in_flight, None, "it counts its interactions as its own again");
    let (from, late) = answers.remove(0);
    assert_eq!(table.coordinator.receive(later, AgentId(from as u64), late), Ok(Vec::new()));
    assert_eq!((table.held(), table.coordinator.version), (4, Version(0)));
    // What was released is spent all the same.
    assert_eq!(table.agents[0].privacy().unwrap().releases, 1);
    // With the quorum, the round goes on without the one that is missing.
    (0..4).for_each(|_| {
        table.learn(1);
    });
    let asked = Uplink::NetworkRequest { observations: 4 };
    let outgoing = table.coordinator.receive(later, AgentId(1), asked).unwrap();
    for (from, answer) in table.post(outgoing).into_iter().take(2) {
        table.coordinator.receive(later, AgentId(from as u64), answer).unwrap();
    }
    let told = table.coordinator.tick(later.after(TimeSpan::from_micros(10)));
    assert_eq!((told.len(), table.coordinator.version), (3, Version(1)));
}

#[test]
fn parts_that_no_agent_can_have_sent_are_refused_and_change_nothing() {
    let mut table = Table::new(&config(1.0, 4), 2);
    table.learn_all(1);
    (0..4).for_each(|_| table.learn_all(0));
    let (_, good) = table.parts[0].clone();
    let asked = Uplink::NetworkRequest { observations: 4 };
    table.coordinator.receive(NOW, AgentId(0), asked).unwrap();
    let good = NetworkPart { round: table.coordinator.round, ..good };
    let before = table.coordinator.save();
    let squares = vec![1.0; 3];
    let statistics = NetworkEvidence::Diagonal { moment: squares.clone(), squares, count: 4 };
    let bad = [
        NetworkPart { start: 1, ..good.clone() },
        NetworkPart { evidence: statistics, ..good.clone() },
        NetworkPart { weights: vec![0.0; 2], ..good.clone() },
        NetworkPart { weights: vec![f64::NAN; good.weights.len()], ..good.clone() },
        NetworkPart { weights: vec![1e11; good.weights.len()], ..good.clone() },
        NetworkPart { weights: Vec::new(), ..good.clone() },
        NetworkPart { round: RoundId(good.round.0 + 1), ..good.clone() },
    ];
    for part in bad {
        table.coordinator.receive(NOW, AgentId(0), Uplink::NetworkPart(part)).unwrap_err();
        assert_eq!(table.coordinator.save(), before);
    }
    assert_eq!(
        table.coordinator.receive(NOW, AgentId(9), Uplink::NetworkPart(good.clone())),
        Err(ProtocolError::UnknownAgent(AgentId(9)))
    );
    assert_eq!(table.coordinator.receive(NOW, AgentId(0), Uplink::NetworkPart(good)), Ok(Vec::new()));
}

#[test]
fn models_that_do_not_fit_are_refused_and_change_nothing() {
    let mut table = Table::new(&config(1.0, 4), 1);
    (0..3).for_each(|_| table.learn_all(0));
    let model = |weights: Vec<f64>, contains| {
        let none = Vec::new;
        let shared = NetworkState::from_parts(1, none(), none(), weights, 0.0, Vec::new()).unwrap();
        let shared = Arc::new(shared);
        Downlink::Network(NetworkModel { authoritative: false, version: Version(1), contains, shared })
    };
    let parameters = table.coordinator.layout.parameters();
    let before = table.agents[0].save();
    for bad in [model(vec![0.0; 2], 0), model(vec![1e11; parameters], 0), model(vec![0.0; parameters], 4)] {
        table.agents[0].receive(bad).unwrap_err();
        assert_eq!(table.agents[0].save(), before);
    }
    table.agents[0].receive(model(vec![0.1; parameters], 3)).unwrap();
    assert_eq!(table.agents[0].inspect().version, Version(1));
}

/// An agent's newest observations decide whether it follows the shared network.
#[test]
fn the_shared_network_is_used_while_it_predicts_better() {
    // Fifty agents' worth of training in one place: what the others could have found.
    let mut teacher = Table::new(&config(1e12, 1), 1);
    (0..60).for_each(|_| drop(teacher.learn(0)));
    let parameters = teacher.coordinator.layout.parameters();
    let start = config(1e12, 1).neural.start(D, Seed(3));
    let taught = {
        let state: v1::NeuralAgentState = wire::decode(&teacher.agents[0].save()).unwrap();
        let weights = state.learner.unwrap().weights;
        weights.iter().zip(start.parameters()).map(|(a, b)| a - b).collect::<Vec<f64>>()
    };
    let model = |weights: Vec<f64>, version| {
        let none = Vec::new;
        let shared = NetworkState::from_parts(1, none(), none(), weights, 0.0, Vec::new()).unwrap();
        let (version, shared) = (Version(version), Arc::new(shared));
        Downlink::Network(NetworkModel { authoritative: false, version, contains: 0, shared })
    };
    let mut pupil = Table::new(&config(1e12, 1), 1);
    (0..2).for_each(|_| drop(pupil.learn(0)));
    assert!(!pupil.agents[0].follows_shared(), "there is none yet");
    pupil.agents[0].receive(model(taught, 1)).unwrap();
    assert!(pupil.agents[0].follows_shared(), "it knows more than two observations do");
    pupil.agents[0].receive(model(vec![3.0; parameters], 2)).unwrap();
    assert!(!pupil.agents[0].follows_shared(), "noise is worse than a little data");
}
