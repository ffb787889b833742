//! Rounds of networks, message by message.

use super::*;
use crate::agent::Agent;
use crate::evidence::packed;
use crate::federation::Federation;
use crate::ids::UserId;
use crate::neural::fn_agent::FnAgent;
use crate::neural::rows::unwrap;
use crate::neural::seat_width::add;
use crate::neural::{
    AlphaRule, FeaturePoint, NetworkEvidence, NeuralConfig, Precondition, TrainingData, TrainingMode, Trigger,
};
use crate::parcel::LowRank;
use crate::random::{Seed, Stream};
use crate::trigger::Threshold;

/// When the tests begin: far from zero, as every real clock is.
const NOW: Tick = Tick(1_700_000_000_000_000);

/// Agents and a coordinator whose messages all arrive, and every message there was.
struct Table {
    agents: Vec<FnAgent>,
    coordinator: NetworkRounds,
    up: Vec<Uplink>,
    down: Vec<(AgentId, Downlink)>,
    stream: Stream,
}

impl Table {
    fn new(config: &FnUcb, agents: u64, dimension: usize) -> Self {
        let federation = Federation { agents, horizon: 100, seed: Seed(3) };
        let mut coordinator = config.coordinator(dimension);
        (0..agents).for_each(|id| drop(coordinator.join(NOW, AgentId(id), Entrance::NewLife)));
        Self {
            agents: (0..agents).map(|_| config.agent(dimension, &federation)).collect(),
            coordinator,
            up: Vec::new(),
            down: Vec::new(),
            stream: Seed(5).stream("table", 0, 0),
        }
    }

    fn x(&mut self, dimension: usize) -> Vec<f64> {
        (0..dimension).map(|_| self.stream.normal()).collect()
    }

    /// An agent learns something, and all that follows from it happens.
    fn learn(&mut self, agent: usize) {
        let x = self.x(self.coordinator.layout.dimension);
        let y = x[0].abs();
        let said = self.agents[agent].learn(UserId(0), &x, y).unwrap();
        self.deliver(said.map(|message| (agent, message)).into_iter().collect());
    }

    fn deliver(&mut self, mut letters: Vec<(usize, Uplink)>) {
        while !letters.is_empty() {
            let (agent, message) = letters.remove(0);
            self.up.push(message.clone());
            let outgoing = self.coordinator.receive(NOW, AgentId(agent as u64), message).unwrap();
            letters.extend(self.post(outgoing));
        }
    }

    fn post(&mut self, outgoing: Vec<Outgoing>) -> Vec<(usize, Uplink)> {
        let mut answers = Vec::new();
        for Outgoing { to, message } in outgoing {
            for id in (0..self.agents.len()).filter(|id| to.includes(AgentId(*id as u64))) {
                self.down.push((AgentId(id as u64), message.clone()));
                let answer = self.agents[id].receive(message.clone()).unwrap();
                answers.extend(answer.map(|answer| (id, answer)));
            }
        }
        answers
    }

    fn tick(&mut self, now: u64) {
        let outgoing = self.coordinator.tick(NOW.after(crate::TimeSpan::from_micros(now)));
        let answers = self.post(outgoing);
        self.deliver(answers);
    }

    fn held(&self) -> u64 {
        self.coordinator.shared.count + self.agents.iter().map(|agent| agent.inspect().held()).sum::<u64>()
    }
}

fn small() -> FnUcb {
    let neural = NeuralConfig { hidden_width: 3, training_steps: 6, ..Default::default() };
    FnUcb {
        neural,
        training: TrainingMode::Independent,
        features_at: FeaturePoint::Start,
        ..Default::default()
    }
}

fn parts(table: &Table) -> Vec<&NetworkPart> {
    let mut parts = Vec::new();
    for message in &table.up {
        if let Uplink::NetworkPart(part) = message {
            parts.push(part);
        }
    }
    parts
}

fn models(table: &Table) -> Vec<&NetworkModel> {
    let mut models = Vec::new();
    for (_, message) in &table.down {
        if let Downlink::Network(model) = message {
            models.push(model);
        }
    }
    models
}

#[test]
fn without_a_threshold_a_round_ends_every_iteration() {
    let mut table = Table::new(&small(), 4, 2);
    for iteration in 1..=5 {
        for agent in 0..4 {
            assert_eq!(table.coordinator.version.0, iteration - 1, "nobody runs ahead");
            table.learn(agent);
        }
        assert_eq!(table.coordinator.version.0, iteration);
        assert_eq!(table.coordinator.shared.count, 4 * iteration);
    }
    assert!(parts(&table).iter().all(|part| part.evidence.count() == 1));
}

/// A busy agent is not left waiting for a quiet one: what it has to say next ends the round with what there is.
#[test]
fn a_round_ends_when_an_agent_that_answered_has_news() {
    let mut table = Table::new(&small(), 3, 2);
    table.learn(0);
    assert_eq!(table.coordinator.version.0, 0, "two others have not acted yet");
    table.learn(0);
    assert_eq!(table.coordinator.version.0, 1);
    let counts: Vec<u64> = parts(&table).iter().map(|part| part.evidence.count()).collect();
    assert_eq!(counts.iter().sum::<u64>(), 1, "{counts:?}");
    assert_eq!(table.held(), 2, "nothing is lost");
    for _ in 0..20 {
        table.learn(0);
    }
    assert!(table.coordinator.version.0 >= 10, "only {} rounds", table.coordinator.version.0);
    assert_eq!(table.held(), 22);
    // Without lockstep nobody waits at all.
    let mut table = Table::new(&FnUcb { lockstep: false, ..small() }, 3, 2);
    (0..5).for_each(|_| table.learn(0));
    assert_eq!(table.coordinator.version.0, 5);
}

/// The network of an agent with three observations counts for three times that of an agent with one.
#[test]
fn networks_are_averaged_by_what_they_have_seen() {
    let mut table = Table::new(&FnUcb { lockstep: false, ..small() }, 2, 2);
    table.coordinator.config.rounds.quorum = 0.0;
    (0..3).for_each(|_| table.learn(0));
    table.learn(1);
    let last = parts(&table);
    let (busy, quiet) = (&last[last.len() - 2].weights, &last[last.len() - 1].weights);
    let found = &models(&table).last().unwrap().shared.weights;
    for ((found, busy), quiet) in found.iter().zip(busy).zip(quiet) {
        let one = (found - (0.75 * busy + 0.25 * quiet)).abs();
        let other = (found - (0.25 * busy + 0.75 * quiet)).abs();
        assert!(one.min(other) < 1e-12, "{found} of {busy} and {quiet}");
    }
}

/// An agent whose training has ended hands on the average instead of the network it had then.
#[test]
fn an_agent_past_its_training_stop_submits_the_average() {
    let neural = NeuralConfig { training_stop: 2, ..small().neural };
    let config = FnUcb { neural, training: TrainingMode::Fedavg, lockstep: false, ..small() };
    let mut table = Table::new(&config, 2, 2);
    (0..4).for_each(|_| table.learn(0));
    let average = models(&table).last().unwrap().shared.weights.clone();
    table.learn(0);
    let submitted = &parts(&table).iter().rev().find(|part| part.evidence.count() == 1).unwrap().weights;
    for (submitted, average) in submitted.iter().zip(&average) {
        assert!((submitted - average).abs() < 1e-6, "{submitted} is not {average}");
    }
}

#[test]
fn training_data_of_rounds_is_what_was_newest_when_they_were_answered() {
    let config = FnUcb { training_data: TrainingData::Rounds, round_threshold: Threshold(30.0), ..small() };
    let mut table = Table::new(&config, 2, 2);
    for _ in 0..30 {
        (0..2).for_each(|agent| table.learn(agent));
    }
    let rounds = table.coordinator.version.0;
    let trained = table.agents[0].trained_on() as u64;
    assert!(rounds > 1 && rounds < 30 && trained == rounds, "{trained} observations for {rounds} rounds");
}

#[test]
fn the_diagonal_trigger_measures_what_the_diagonal_statistic_does() {
    let rounds = |trigger, statistic| {
        let neural = NeuralConfig { statistic, ..small().neural };
        let config = FnUcb { neural, trigger, round_threshold: Threshold(30.0), ..small() };
        let mut table = Table::new(&config, 2, 2);
        let mut ended = Vec::new();
        for step in 0..60 {
            let before = table.coordinator.version;
            (0..2).for_each(|agent| table.learn(agent));
            if table.coordinator.version > before {
                ended.push(step);
            }
        }
        ended
    };
    // The gradients at the start are the same, so the sums of their squares are.
    let diagonal = rounds(Trigger::Diagonal, Precondition::Diagonal);
    assert_eq!(rounds(Trigger::Diagonal, Precondition::Full), diagonal);
    assert_eq!(rounds(Trigger::Whole, Precondition::Diagonal), diagonal);
    assert_ne!(rounds(Trigger::Whole, Precondition::Full), diagonal);
}

#[test]
fn with_a_threshold_a_round_waits_for_the_end_of_the_iteration() {
    let config = FnUcb { round_threshold: Threshold(30.0), ..small() };
    let mut table = Table::new(&config, 3, 2);
    for _ in 0..30 {
        (0..3).for_each(|agent| table.learn(agent));
        // Everybody has shared the same number of observations.
        let shared: Vec<u64> = table.coordinator.seats.values().map(|seat| seat.contained).collect();
        assert!(shared.iter().all(|count| *count == shared[0]), "{shared:?}");
    }
    let rounds = table.coordinator.version.0;
    assert!((2..20).contains(&rounds), "{rounds} rounds");
}

#[test]
fn agents_out_of_step_answer_at_once_if_told_to() {
    let config = FnUcb { lockstep: false, ..small() };
    let mut table = Table::new(&config, 3, 2);
    (0..4).for_each(|_| table.learn(0));
    assert_eq!(table.coordinator.version.0, 4, "the others have nothing and say so");
    assert_eq!(table.held(), 4);
}

/// O22: what is shared and what is not add up to the gradients of all observations, and so do the agents'
/// own parts of what is shared.
#[test]
fn statistics_are_conserved() {
    for threshold in [0.0, 4.0] {
        let config = FnUcb { round_threshold: Threshold(threshold), ..small() };
        let mut table = Table::new(&config, 3, 2);
        let parameters = table.coordinator.layout.parameters();
        let mut all = config.neural.none(parameters);
        for step in 0..40 {
            table.learn(step % 3);
        }
        // Gradients at the start do not change: take them again.
        let mut replay = Table::new(&config, 3, 2);
        for _ in 0..40 {
            let x = replay.x(2);
            let mut phi = crate::neural::sparse::Sparse::default();
            let start = config.neural.start(2, Seed(3));
            start.gradient(&x, &mut crate::neural::network::Scratch::default(), &mut phi);
            all.learn(&phi, x[0].abs());
        }
        let mut sum = table.coordinator.shared.statistic.clone();
        for agent in &table.agents {
            for row in agent.unshared() {
                sum.learn(&row.phi, row.reward);
            }
        }
        let close = |a: &[f64], b: &[f64]| {
            let scale = b.iter().fold(1e-9_f64, |scale, v| scale.max(v.abs()));
            a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-8 * scale)
        };
        assert!(close(&sum.inverse(), &all.inverse()) && close(&sum.vector, &all.vector), "{threshold}");
        assert_eq!(table.held(), 40);
        // λI + Σ(V_j − λI) = V of what is shared, in the form of information: replay the parts of one agent
        // after the other.
        let mut by_agent = config.neural.none(parameters);
        for part in parts(&table) {
            let NetworkEvidence::Full(factor) = &part.evidence else { panic!("whole matrices") };
            if part.round <= RoundId(table.coordinator.version.0) {
                for row in unwrap(factor).unwrap() {
                    by_agent.learn(&row.phi, row.reward);
                }
            }
        }
        assert!(close(&by_agent.inverse(), table.coordinator.shared.matrix()));
    }
}

#[test]
fn an_agents_own_matrix_is_that_of_what_it_sent() {
    let mut table = Table::new(&small(), 2, 2);
    (0..20).for_each(|step| table.learn(step % 2));
    let parameters = table.coordinator.layout.parameters();
    for (agent, seat) in &table.coordinator.seats {
        let mut own = small().neural.none(parameters);
        // Parts alternate between the two agents.
        for part in parts(&table).iter().skip(agent.0 as usize).step_by(2) {
            add(&mut own, &part.evidence, |_| ());
        }
        assert_eq!(own, seat.width.own);
    }
}

/// The table of payloads: scalars of a round, for p₀ parameters and N agents.
#[test]
fn a_round_costs_what_the_specification_says() {
    for (less, diagonal, agents) in [(true, false, 5), (false, false, 5), (true, true, 2), (false, true, 5)] {
        let statistic = if diagonal { Precondition::Diagonal } else { Precondition::Full };
        let neural = NeuralConfig { statistic, hidden_width: 2, training_steps: 1, ..Default::default() };
        let config =
            FnUcb { neural, less_communication: less, round_threshold: Threshold(1e4), ..Default::default() };
        let mut table = Table::new(&config, agents, 2);
        let p = table.coordinator.layout.parameters();
        assert_eq!(p, 9);
        let mut step = 0;
        while table.coordinator.version.0 == 0 {
            table.learn(step % agents as usize);
            step += 1;
        }
        // Enough observations for as high a rank as there is: what a unit puts out is a combination of the
        // gradients before it, so that one for each of the two units is missing.
        assert!(step > p * agents as usize);
        let matrix = if diagonal { p } else { packed(p) };
        let factor = if diagonal { p } else { LowRank::column_scalars(p, p - 2) };
        let widths = if less { 1 } else { agents as usize };
        for part in parts(&table) {
            assert_eq!(Uplink::NetworkPart(part.clone()).cost().scalars, (factor + 2 * p + 1) as u64);
            assert!(factor <= matrix);
            // Of full rank, a factor is as large as the matrix.
            if let NetworkEvidence::Full(_) = part.evidence {
                let (columns, moment) = (vec![1.0; packed(p)], vec![1.0; p]);
                let full = LowRank::new((0..p as u32).collect(), columns, moment, 50);
                let full = NetworkPart { evidence: NetworkEvidence::Full(full), ..part.clone() };
                let cost = Uplink::NetworkPart(full).cost();
                assert_eq!(cost.scalars, (matrix + 2 * p + 1) as u64);
                assert_eq!(cost.paper_scalars, (2 * p * p + 2 * p + 1) as u64);
            }
        }
        for model in models(&table) {
            let scalars = matrix + widths * matrix + 2 * p + 1;
            assert_eq!(Downlink::Network(model.clone()).cost().scalars, scalars as u64);
        }
    }
}

#[test]
fn the_numbers_of_the_published_settings() {
    let up = |p: usize| packed(p) + 2 * p + 1;
    let down = |p: usize, widths: usize| (widths + 1) * packed(p) + 2 * p + 1;
    assert_eq!([up(241), up(441), up(1301)], [29_644, 98_344, 849_554]);
    assert_eq!([down(241, 5), down(441, 5), down(1301, 5)], [175_449, 585_649, 5_084_309]);
    assert_eq!([down(241, 1), down(441, 1), down(1301, 1)], [58_805, 195_805, 1_696_505]);
}

#[test]
fn several_averages_a_round_are_sent_while_there_is_training() {
    let neural = NeuralConfig { training_stop: 3, ..small().neural };
    let config = FnUcb { neural, training: TrainingMode::FedavgRounds, averaging_rounds: 3, ..small() };
    let mut table = Table::new(&config, 2, 2);
    (0..10).for_each(|step| table.learn(step % 2));
    let averages = |round: u64| {
        let of = |message: &&Uplink| matches!(message, Uplink::Weights(w) if w.round == RoundId(round));
        table.up.iter().filter(of).count()
    };
    assert_eq!([averages(1), averages(2), averages(3)], [4, 4, 4]);
    assert_eq!([averages(4), averages(5)], [0, 0], "training has ended");
    assert_eq!(table.coordinator.version.0, 5);
}

#[test]
fn the_average_is_that_of_the_agents_networks() {
    let mut table = Table::new(&small(), 3, 2);
    (0..3).for_each(|agent| table.learn(agent));
    let networks: Vec<&Vec<f64>> = parts(&table).iter().map(|part| &part.weights).collect();
    for (index, average) in table.coordinator.shared.weights.iter().enumerate() {
        let sum: f64 = networks.iter().map(|network| network[index]).sum();
        assert!((average - sum / 3.0).abs() <= 1e-12);
    }
    assert_ne!(networks[0], networks[1], "each was trained on its own data");
}

#[test]
fn a_round_goes_on_without_the_silent_and_nothing_is_lost() {
    let rounds = crate::RoundConfig {
        round_deadline: Some(crate::TimeSpan::from_micros(10)),
        quorum: 0.5,
        ..Default::default()
    };
    let mut table = Table::new(&FnUcb { rounds, ..small() }, 4, 2);
    (0..3).for_each(|agent| table.learn(agent));
    assert_eq!((table.coordinator.version.0, table.held()), (0, 3), "agent 3 has not acted");
    table.tick(10);
    assert_eq!((table.coordinator.version.0, table.held()), (1, 3));
    // Its observation comes too late for the round it was asked for and is in the next one.
    table.learn(3);
    assert_eq!(table.held(), 4);
    (0..3).for_each(|agent| table.learn(agent));
    assert_eq!((table.coordinator.version.0, table.coordinator.shared.count), (2, 7));
}

#[test]
fn with_too_few_answers_a_round_ends_and_nothing_is_lost() {
    let rounds = crate::RoundConfig {
        round_deadline: Some(crate::TimeSpan::from_micros(10)),
        quorum: 0.9,
        ..Default::default()
    };
    let mut table = Table::new(&FnUcb { rounds, ..small() }, 3, 2);
    (0..2).for_each(|agent| table.learn(agent));
    table.tick(10);
    assert_eq!((table.coordinator.version.0, table.held()), (0, 2));
    assert!(table.agents.iter().all(|agent| agent.inspect().in_flight.is_none()));
    (0..3).for_each(|agent| table.learn(agent));
    table.learn(2);
    assert_eq!(table.held(), 6);
    assert!(table.coordinator.version.0 >= 1);
}

#[test]
fn agents_that_are_away_do_not_count_for_the_quorum() {
    let rounds = crate::RoundConfig {
        round_deadline: Some(crate::TimeSpan::from_micros(10)),
        quorum: 0.9,
        ..Default::default()
    };
    let later = NOW.after(crate::TimeSpan::from_micros(10));
    for (absent, version) in [(vec![1, 2], 1), (vec![2], 0)] {
        let mut table = Table::new(&FnUcb { rounds: rounds.clone(), ..small() }, 3, 2);
        table.learn(0);
        let absent = absent.into_iter().map(AgentId).collect();
        let outgoing = table.coordinator.tick_without(later, &absent);
        let answers = table.post(outgoing);
        table.deliver(answers);
        assert_eq!((table.coordinator.version.0, table.held()), (version, 1), "{absent:?}");
    }
}

#[test]
fn a_new_life_does_not_answer_for_the_old_one() {
    let mut table = Table::new(&small(), 2, 2);
    table.learn(0);
    assert!(table.coordinator.open.as_ref().is_some_and(|open| open.parts.contains_key(&AgentId(0))));
    let outgoing = table.coordinator.join(NOW, AgentId(0), Entrance::NewLife);
    assert!(outgoing.is_empty());
    let open = table.coordinator.open.as_ref().unwrap();
    assert!(!open.parts.contains_key(&AgentId(0)) && open.waiting.contains(&AgentId(1)));
}

#[test]
fn parts_that_do_not_fit_are_refused_and_change_nothing() {
    let mut table = Table::new(&small(), 2, 2);
    (0..4).for_each(|step| table.learn(step % 2));
    let good = (*parts(&table)[0]).clone();
    // A round that waits for both.
    let _ = table.coordinator.receive(NOW, AgentId(0), Uplink::NetworkRequest { observations: 1 }).unwrap();
    let round = table.coordinator.round;
    let good = NetworkPart { round, ..good };
    let p = table.coordinator.layout.parameters();
    let squares = NetworkEvidence::Diagonal { squares: vec![1.0; p], moment: vec![0.0; p], count: 1 };
    let bad = [
        NetworkPart { start: 7, ..good.clone() },
        NetworkPart { weights: vec![0.0; p - 1], ..good.clone() },
        NetworkPart { weights: vec![f64::NAN; p], ..good.clone() },
        NetworkPart { weights: vec![1e12; p], ..good.clone() },
        NetworkPart { alpha: 1.5, ..good.clone() },
        NetworkPart { alpha: f64::NAN, ..good.clone() },
        NetworkPart { evidence: squares, ..good.clone() },
        NetworkPart { round: RoundId(round.0 + 1), ..good.clone() },
    ];
    let before = table.coordinator.save();
    for part in bad {
        assert!(table.coordinator.receive(NOW, AgentId(0), Uplink::NetworkPart(part)).is_err());
        assert_eq!(table.coordinator.save(), before);
    }
    assert!(table.coordinator.receive(NOW, AgentId(0), Uplink::NetworkPart(good)).is_ok());
    assert_ne!(table.coordinator.save(), before);
}

#[test]
fn models_that_do_not_fit_are_refused_and_change_nothing() {
    let mut table = Table::new(&small(), 2, 2);
    (0..4).for_each(|step| table.learn(step % 2));
    let good = NetworkModel { version: Version(50), ..(*models(&table).last().unwrap()).clone() };
    let agent = &mut table.agents[1];
    let before = agent.save();
    let other =
        NetworkState::from_parts(1, vec![1.0; 2], vec![0.0; 2], vec![], 0.0, vec![vec![1.0; 2].into()]);
    let p = good.shared.parameters();
    let diagonal =
        NetworkState::from_parts(1, vec![1.0; p], vec![0.0; p], vec![], 0.0, vec![vec![1.0; p].into()]);
    for model in [
        NetworkModel { contains: 3, ..good.clone() },
        NetworkModel { contains: 1, ..good.clone() },
        NetworkModel { shared: Arc::new(other.unwrap()), ..good.clone() },
        NetworkModel { shared: Arc::new(diagonal.unwrap()), ..good.clone() },
        NetworkModel {
            shared: Arc::new(NetworkState { widths: vec![], ..(*good.shared).clone() }),
            ..good.clone()
        },
    ] {
        assert!(agent.receive(Downlink::Network(model)).is_err());
        assert_eq!(agent.save(), before);
    }
    assert!(agent.receive(Downlink::Network(NetworkModel { version: Version(1), ..good.clone() })).is_ok());
    assert_eq!(agent.save(), before, "an old one changes nothing");
    assert!(agent.receive(Downlink::Network(good)).is_ok());
    assert_ne!(agent.save(), before);
}

#[test]
fn the_ratio_of_uncertainties_falls_when_some_are_resolved() {
    let config = FnUcb { alpha: AlphaRule::Ratio, probes: 50, ..small() };
    let mut table = Table::new(&config, 1, 2);
    (0..30).for_each(|_| table.learn(0));
    let alphas: Vec<f64> = parts(&table).iter().map(|part| part.alpha).collect();
    assert!(alphas.iter().all(|alpha| (0.0..=1.0).contains(alpha)), "{alphas:?}");
    assert!(alphas.windows(2).any(|pair| pair[0] != pair[1]));
}
