//! Relays of rounds of networks: their parts give the root what it would have without relays, and a child may go, come back or
//! be silent in the middle of a round.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::support::NOW;
use posse_core::privacy::Unit;
use posse_core::*;

const FEDERATION: Federation = Federation { agents: 5, horizon: 1000, seed: Seed(11) };
const SHAPE: Shape = Shape::shared(3);

fn networks(statistic: Precondition, training: TrainingMode) -> FnUcb {
    let neural = NeuralConfig { hidden_width: 4, training_steps: 6, statistic, ..Default::default() };
    FnUcb { neural, training, averaging_rounds: 3, ..Default::default() }
}

fn diagonal() -> FnUcb {
    networks(Precondition::Diagonal, TrainingMode::Fedavg)
}

/// What a relay does to the messages that it sends up: nothing, if it is as it should be.
type Fault = fn(Uplink) -> Uplink;

enum Letter {
    /// From an agent to its relay or the root, from a relay to the root.
    FromAgent(usize, Uplink),
    FromRelay(usize, Uplink),
    ToAgent(usize, Downlink),
    ToRelay(usize, Downlink),
}

/// Agents below relays below a root, or without relays, whose messages all arrive at once.
struct Bed {
    agents: Vec<Box<dyn Agent>>,
    relays: Vec<Box<dyn Relay>>,
    root: Box<dyn Coordinator>,
    /// The relay of each agent.
    above: Vec<usize>,
    fault: Fault,
    letters: VecDeque<Letter>,
    /// The newest state that agents were told.
    told: Option<NetworkModel>,
}

impl Bed {
    /// A federation with this relay above each agent; without relays if there are no `relays`.
    fn new(config: &FnUcb, above: &[usize], relays: usize, fault: Fault) -> Self {
        let algorithm = Algorithm::FnUcb(config.clone());
        let levels = vec![LevelConfig::default(); 1 + usize::from(relays > 0)];
        let levels = Levels::new(&algorithm, &FEDERATION, &levels).unwrap();
        let agent = |id: usize| levels.agent(AgentId(id as u64), SHAPE, &FEDERATION).unwrap();
        let mut bed = Self {
            agents: (0..above.len()).map(agent).collect(),
            relays: (0..relays).map(|_| levels.relay(1, SHAPE).unwrap()).collect(),
            root: levels.coordinator(SHAPE).unwrap(),
            above: above.to_vec(),
            fault,
            letters: VecDeque::new(),
            told: None,
        };
        for relay in 0..relays {
            assert_eq!(bed.root.join(NOW, AgentId(relay as u64), Entrance::NewLife), []);
        }
        for (agent, relay) in above.iter().enumerate() {
            let id = AgentId(agent as u64);
            if relays == 0 {
                assert_eq!(bed.root.join(NOW, id, Entrance::NewLife), []);
            } else {
                assert_eq!(bed.relays[*relay].join(NOW, id, Entrance::NewLife), Passed::default());
            }
        }
        bed
    }

    fn learn(&mut self, agent: usize, step: u64) {
        let mut stream = Seed(7).stream("network-relays", agent as u64, step);
        let x: Vec<f64> = (0..3).map(|_| stream.normal()).collect();
        let said = self.agents[agent].learn(UserId(0), &x, x[0].abs()).unwrap();
        self.letters.extend(said.map(|message| Letter::FromAgent(agent, message)));
        while let Some(letter) = self.letters.pop_front() {
            match letter {
                Letter::FromAgent(agent, message) => {
                    let id = AgentId(agent as u64);
                    if self.relays.is_empty() {
                        let outgoing = self.root.receive(NOW, id, message).unwrap();
                        self.post(None, outgoing);
                    } else {
                        let relay = self.above[agent];
                        let passed = self.relays[relay].receive(NOW, id, message).unwrap();
                        self.pass(relay, passed);
                    }
                }
                Letter::FromRelay(relay, message) => {
                    let outgoing = self.root.receive(NOW, AgentId(relay as u64), message).unwrap();
                    self.post(None, outgoing);
                }
                Letter::ToAgent(agent, message) => {
                    if let Downlink::Network(model) = &message {
                        self.told = Some(model.clone());
                    }
                    let said = self.agents[agent].receive(message).unwrap();
                    self.letters.extend(said.map(|message| Letter::FromAgent(agent, message)));
                }
                Letter::ToRelay(relay, message) => {
                    let passed = self.relays[relay].hear(NOW, message).unwrap();
                    self.pass(relay, passed);
                }
            }
        }
    }

    fn pass(&mut self, relay: usize, passed: Passed) {
        let up = passed.up.into_iter().map(|message| Letter::FromRelay(relay, (self.fault)(message)));
        self.letters.extend(up);
        self.post(Some(relay), passed.down);
    }

    fn post(&mut self, from: Option<usize>, outgoing: Vec<Outgoing>) {
        for Outgoing { to, message } in outgoing {
            for child in 0..self.agents.len() {
                if from.is_none() && !self.relays.is_empty() {
                    if child < self.relays.len() && to.includes(AgentId(child as u64)) {
                        self.letters.push_back(Letter::ToRelay(child, message.clone()));
                    }
                } else if from.is_none_or(|relay| self.above[child] == relay)
                    && to.includes(AgentId(child as u64))
                {
                    self.letters.push_back(Letter::ToAgent(child, message.clone()));
                }
            }
        }
    }

    /// The state after some interactions, of which agent 0 has three times as many as the others.
    fn played(mut self) -> NetworkModel {
        for step in 0..12 {
            for agent in 0..self.agents.len() {
                (0..if agent == 0 { 3 } else { 1 }).for_each(|again| self.learn(agent, 3 * step + again));
            }
        }
        self.told.expect("there were rounds")
    }
}

/// How far the statistics of two states are apart, and their networks, in numbers of their size.
fn apart(one: &NetworkState, other: &NetworkState) -> (f64, f64) {
    assert_eq!((one.count, one.alpha), (other.count, other.alpha));
    let off = |a: &[f64], b: &[f64]| {
        assert_eq!(a.len(), b.len());
        let size = b.iter().fold(1e-12_f64, |size, v| size.max(v.abs()));
        a.iter().zip(b).fold(0.0_f64, |far, (a, b)| far.max((a - b).abs())) / size
    };
    let widths = one.widths.iter().zip(&other.widths).map(|(a, b)| off(a, b)).fold(0.0, f64::max);
    let statistic = off(one.matrix(), other.matrix()).max(off(one.vector(), other.vector()));
    (statistic.max(widths), off(&one.weights, &other.weights))
}

/// Whether that is no more than sums in another order explain. Networks are trained in single precision.
fn is_rounding((statistics, networks): (f64, f64)) -> bool {
    statistics <= 1e-9 && networks <= 1e-6
}

/// Four agents below one relay, one below another.
const UNEVEN: [usize; 5] = [0, 0, 0, 0, 1];

#[test]
fn what_relays_say_gives_the_root_what_it_has_without_them() {
    for statistic in [Precondition::Full, Precondition::Diagonal] {
        for training in [TrainingMode::Independent, TrainingMode::Fedavg, TrainingMode::FedavgRounds] {
            let config = networks(statistic, training);
            let flat = Bed::new(&config, &UNEVEN, 0, |message| message).played();
            for (above, relays) in [(UNEVEN, 2), ([0; 5], 1), ([0, 1, 2, 3, 4], 5)] {
                let tree = Bed::new(&config, &above, relays, |message| message).played();
                let far = apart(&tree.shared, &flat.shared);
                assert!(is_rounding(far), "{statistic:?}, {training:?}, {relays} relays: {far:?}");
            }
        }
    }
}

#[test]
fn updates_with_noise_are_averaged_over_agents_and_not_over_relays() {
    let privacy =
        PrivacyConfig { unit: Unit::Agent, first_release: 3, max_releases: 4, ..Default::default() };
    let config = FnUcb { privacy: Some(privacy), update_steps: 5, ..diagonal() };
    let flat = Bed::new(&config, &UNEVEN, 0, |message| message).played();
    let tree = Bed::new(&config, &UNEVEN, 2, |message| message).played();
    // Agents draw the same noise in both: if relays added any, the states would differ by it.
    let far = apart(&tree.shared, &flat.shared);
    assert!(is_rounding(far), "{far:?}");
}

/// What the check above is worth: each of these relays is found.
#[test]
fn relays_that_add_up_wrongly_are_found_out() {
    fn parts(message: Uplink, change: fn(&mut NetworkPart)) -> Uplink {
        match message {
            Uplink::NetworkPart(mut part) => {
                change(&mut part);
                Uplink::NetworkPart(part)
            }
            other => other,
        }
    }
    fn sum(part: &mut NetworkPart) -> &mut NetworkSum {
        part.sum.as_mut().expect("it is a relay's")
    }
    let faults: [(&str, Fault); 5] = [
        ("the mean over relays, not over agents", |message| {
            parts(message, |part| {
                let widths = &mut sum(part).widths;
                let agents = std::mem::replace(&mut widths.agents, 1) as f64;
                widths.entries.iter_mut().for_each(|entry| *entry /= agents);
                sum(part).networks = 1;
            })
        }),
        ("widths of one agent forgotten", |message| {
            parts(message, |part| {
                let widths = &mut sum(part).widths;
                let share = (widths.agents as f64 - 1.0) / widths.agents as f64;
                widths.entries.iter_mut().for_each(|entry| *entry *= share);
            })
        }),
        ("networks weighted by agents", |message| {
            parts(message, |part| sum(part).seen = 100 * sum(part).networks)
        }),
        ("sums counted twice", |message| {
            parts(message, |part| {
                if let NetworkEvidence::Diagonal { squares, moment, .. } = &mut part.evidence {
                    squares.iter_mut().chain(moment).for_each(|value| *value *= 2.0);
                }
            })
        }),
        ("sums forgotten", |message| {
            parts(message, |part| {
                if let NetworkEvidence::Diagonal { squares, moment, .. } = &mut part.evidence {
                    squares.iter_mut().chain(moment).for_each(|value| *value = 0.0);
                }
            })
        }),
    ];
    let flat = Bed::new(&diagonal(), &UNEVEN, 0, |message| message).played();
    for (what, fault) in faults {
        let tree = Bed::new(&diagonal(), &UNEVEN, 2, fault).played();
        let far = apart(&tree.shared, &flat.shared);
        assert!(far.0.max(far.1) > 1e-3, "{what}: {far:?}");
    }
}

/// A relay of the root with children 0, 1 and 2, and a part that each could send.
fn relay_of(config: &FnUcb) -> (Box<dyn Relay>, impl Fn(u64, u64, u64) -> Uplink + use<>) {
    let algorithm = Algorithm::FnUcb(config.clone());
    let levels = Levels::new(&algorithm, &FEDERATION, &vec![LevelConfig::default(); 2]).unwrap();
    let mut relay = levels.relay(1, SHAPE).unwrap();
    for child in 0..3 {
        assert_eq!(relay.join(NOW, AgentId(child), Entrance::NewLife), Passed::default());
    }
    let part = move |child: u64, round: u64, observations: u64| {
        let mut agent = levels.agent(AgentId(child), SHAPE, &FEDERATION).unwrap();
        for step in 0..observations {
            let mut stream = Seed(3).stream("part", child, step);
            let x: Vec<f64> = (0..3).map(|_| stream.normal()).collect();
            agent.learn(UserId(0), &x, x[0]).unwrap();
        }
        agent.receive(Downlink::NetworkCollect { round: RoundId(round), observations }).unwrap().unwrap()
    };
    (relay, part)
}

fn collect(relay: &mut dyn Relay, round: u64, observations: u64) -> Passed {
    relay.hear(NOW, Downlink::NetworkCollect { round: RoundId(round), observations }).unwrap()
}

fn say(relay: &mut dyn Relay, child: u64, message: Uplink) -> Passed {
    relay.receive(NOW, AgentId(child), message).unwrap()
}

/// The only part that went up: its round, its observations, how many networks it is over and of how many agents.
fn sent(up: &[Uplink]) -> (u64, u64, u64, u64) {
    let [Uplink::NetworkPart(part)] = up else { panic!("{up:?}") };
    let sum = part.sum.as_ref().unwrap();
    (part.round.0, part.evidence.count(), sum.networks, sum.widths.agents)
}

fn model(version: u64, contains: u64, authoritative: bool) -> Downlink {
    let p = diagonal().neural.parameters(3);
    let widths = vec![Arc::new(vec![0.5; p])];
    let shared = NetworkState::from_parts(20, vec![1.5; p], vec![0.5; p], vec![0.25; p], 0.5, widths);
    let shared = Arc::new(shared.unwrap());
    Downlink::Network(NetworkModel { authoritative, version: Version(version), contains, shared })
}

/// To whom models went, and how many observations of each they contain.
fn told(passed: &Passed) -> Vec<(u64, u64)> {
    let one = |outgoing: &Outgoing| match (outgoing.to, &outgoing.message) {
        (Recipient::Agent(agent), Downlink::Network(model)) => (agent.0, model.contains),
        other => panic!("{other:?}"),
    };
    passed.down.iter().map(one).collect()
}

/// The recipient, round and observations of every question for parts that a relay passed on; `None` stands for all children.
fn asked(passed: &Passed) -> Vec<(Option<u64>, u64, u64)> {
    let one = |outgoing: &Outgoing| {
        let to = match outgoing.to {
            Recipient::Agent(agent) => Some(agent.0),
            _ => None,
        };
        let Downlink::NetworkCollect { round, observations } = outgoing.message else {
            panic!("{outgoing:?}")
        };
        (to, round.0, observations)
    };
    passed.down.iter().map(one).collect()
}

#[test]
fn parts_of_children_go_up_as_one_and_models_come_down_with_each_ones_count() {
    let (mut relay, part) = relay_of(&diagonal());
    let request = || Uplink::NetworkRequest { observations: 2 };
    assert_eq!(say(&mut *relay, 1, request()).up, [request()]);
    assert_eq!(say(&mut *relay, 2, request()), Passed::default(), "one is enough");
    assert_eq!(asked(&collect(&mut *relay, 5, 2)), [(None, 1, 2)], "the relay's own first round");
    assert_eq!(say(&mut *relay, 0, part(0, 1, 2)), Passed::default());
    assert_eq!(say(&mut *relay, 2, part(2, 1, 1)), Passed::default());
    assert_eq!(sent(&say(&mut *relay, 1, part(1, 1, 3)).up), (5, 6, 3, 3));
    assert_eq!(say(&mut *relay, 1, part(1, 1, 3)), Passed::default(), "too late");
    assert_eq!(told(&relay.hear(NOW, model(1, 6, false)).unwrap()), [(0, 2), (1, 3), (2, 1)]);
    assert_eq!(relay.hear(NOW, model(1, 6, false)).unwrap(), Passed::default(), "an old one");
    // The next round ends without this relay: the counts stay.
    collect(&mut *relay, 6, 0);
    assert_eq!(told(&relay.hear(NOW, model(2, 6, false)).unwrap()), [(0, 2), (1, 3), (2, 1)]);
    collect(&mut *relay, 7, 0);
    let abort = relay.hear(NOW, Downlink::Abort { round: RoundId(7) }).unwrap();
    assert_eq!(abort.down, [Outgoing::to_everyone(Downlink::Abort { round: RoundId(3) })]);
}

#[test]
fn who_has_news_already_hurries_everybody_else() {
    let (mut relay, part) = relay_of(&diagonal());
    collect(&mut *relay, 5, 2);
    say(&mut *relay, 0, part(0, 1, 2));
    let request = || Uplink::NetworkRequest { observations: 3 };
    assert_eq!(asked(&say(&mut *relay, 0, request())), [(Some(1), 1, 0), (Some(2), 1, 0)]);
    assert_eq!(say(&mut *relay, 2, request()), Passed::default(), "it is waited for itself");
    say(&mut *relay, 1, part(1, 1, 0));
    let up = say(&mut *relay, 2, part(2, 1, 0)).up;
    let [Uplink::NetworkPart(answer)] = &up[..] else { panic!("{up:?}") };
    assert!(answer.sum.as_ref().unwrap().hurried, "the parent hears of it with the part");
    assert_eq!(say(&mut *relay, 1, request()), Passed::default(), "and not once more");

    // News after the part are told by themselves, once; a hurry from above is passed on.
    let (mut relay, part) = relay_of(&diagonal());
    collect(&mut *relay, 5, 2);
    assert_eq!(asked(&collect(&mut *relay, 5, 0)), [(Some(0), 1, 0), (Some(1), 1, 0), (Some(2), 1, 0)]);
    (0..3).for_each(|child| drop(say(&mut *relay, child, part(child, 1, 2))));
    assert_eq!(say(&mut *relay, 1, request()).up, [request()]);
    assert_eq!(say(&mut *relay, 2, request()), Passed::default());
    assert_eq!(collect(&mut *relay, 5, 0), Passed::default());
}

#[test]
fn a_child_that_goes_before_the_part_is_not_in_it_and_one_that_goes_after_stays_in_it() {
    let (mut relay, part) = relay_of(&diagonal());
    collect(&mut *relay, 5, 0);
    say(&mut *relay, 0, part(0, 1, 2));
    say(&mut *relay, 1, part(1, 1, 3));
    assert_eq!(relay.leave(NOW, AgentId(0)), Passed::default());
    assert_eq!(sent(&relay.leave(NOW, AgentId(2)).up), (5, 3, 1, 1), "nobody else is waited for");
    // A new life of the child whose part is on its way.
    assert_eq!(relay.join(NOW, AgentId(1), Entrance::NewLife), Passed::default());
    assert_eq!(told(&relay.hear(NOW, model(1, 3, false)).unwrap()), [(1, 0)], "those are not of this life");
    // They still count for the relay.
    collect(&mut *relay, 6, 0);
    assert_eq!(sent(&say(&mut *relay, 1, part(1, 2, 2)).up), (6, 2, 1, 1));
    assert_eq!(told(&relay.hear(NOW, model(2, 5, false)).unwrap()), [(1, 2)]);
}

#[test]
fn a_child_that_comes_back_has_forgotten_the_round_and_hears_later_whether_its_part_counted() {
    let (mut relay, part) = relay_of(&diagonal());
    collect(&mut *relay, 5, 0);
    (0..3).for_each(|child| drop(say(&mut *relay, child, part(child, 1, 2))));
    let back = relay.join(NOW, AgentId(1), Entrance::Returning);
    assert_eq!((told(&back), back.up), (vec![(1, 0)], Vec::new()));
    assert_eq!(told(&relay.hear(NOW, model(1, 6, false)).unwrap()), [(0, 2), (1, 2), (2, 2)]);
    // Before the part is sent, it is simply left out.
    collect(&mut *relay, 6, 0);
    (0..2).for_each(|child| drop(say(&mut *relay, child, part(child, 2, 3))));
    relay.join(NOW, AgentId(1), Entrance::Returning);
    assert_eq!(sent(&say(&mut *relay, 2, part(2, 2, 1)).up), (6, 4, 2, 3));
    assert_eq!(told(&relay.hear(NOW, model(2, 10, false)).unwrap()), [(0, 5), (1, 2), (2, 3)]);
}

#[test]
fn averages_go_down_and_the_mean_of_the_childrens_networks_comes_back() {
    let config = networks(Precondition::Diagonal, TrainingMode::FedavgRounds);
    let (mut relay, part) = relay_of(&config);
    collect(&mut *relay, 5, 0);
    (0..3).for_each(|child| drop(say(&mut *relay, child, part(child, 1, 2))));
    let p = config.neural.parameters(3);
    let weights =
        |round, value: f64| Weights { round: RoundId(round), step: 1, weights: Arc::new(vec![value; p]) };
    let passed = relay.hear(NOW, Downlink::Average(weights(5, 0.5))).unwrap();
    let asked: Vec<_> = passed.down.iter().map(|outgoing| (outgoing.to, outgoing.message.clone())).collect();
    let one = |child| (Recipient::Agent(AgentId(child)), Downlink::Average(weights(1, 0.5)));
    assert_eq!(asked, [one(0), one(1), one(2)]);
    say(&mut *relay, 0, Uplink::Weights(weights(1, 1.0)));
    say(&mut *relay, 2, Uplink::Weights(weights(1, 2.0)));
    let up = say(&mut *relay, 1, Uplink::Weights(weights(1, 3.0))).up;
    let [Uplink::Weights(mean)] = &up[..] else { panic!("{up:?}") };
    assert_eq!((mean.round, mean.step), (RoundId(5), 1));
    assert!(mean.weights.iter().all(|value| (value - 2.0).abs() < 1e-12));
    // Who is gone before the next average counts with what it said last, and is not asked.
    relay.leave(NOW, AgentId(1));
    let next = |round, value: f64| Weights { step: 2, ..weights(round, value) };
    assert_eq!(relay.hear(NOW, Downlink::Average(next(5, 0.5))).unwrap().down.len(), 2);
    say(&mut *relay, 0, Uplink::Weights(next(1, 0.0)));
    let up = say(&mut *relay, 2, Uplink::Weights(next(1, 0.0))).up;
    let [Uplink::Weights(mean)] = &up[..] else { panic!("{up:?}") };
    assert!(mean.weights.iter().all(|value| (value - 1.0).abs() < 1e-12));
}

#[test]
fn a_relay_waits_half_as_long_as_its_parent_and_answers_only_for_a_quorum() {
    let rounds = RoundConfig { round_deadline: Some(TimeSpan::from_millis(400)), ..Default::default() };
    let (mut relay, part) = relay_of(&FnUcb { rounds, ..diagonal() });
    collect(&mut *relay, 5, 0);
    say(&mut *relay, 0, part(0, 1, 2));
    say(&mut *relay, 2, part(2, 1, 1));
    let deadline = relay.deadline().unwrap();
    assert_eq!(deadline, NOW.after(TimeSpan::from_millis(200)));
    assert_eq!(relay.tick(NOW), Passed::default());
    assert_eq!(sent(&relay.tick(deadline).up), (5, 3, 2, 3), "two of three, and the widths of all");
    assert_eq!(told(&relay.hear(NOW, model(1, 3, false)).unwrap()), [(0, 2), (1, 0), (2, 1)]);
    collect(&mut *relay, 6, 0);
    say(&mut *relay, 0, part(0, 2, 2));
    assert_eq!(relay.tick(deadline), Passed::default(), "one of three is no quorum");
    assert_eq!(relay.deadline(), None);
    assert_eq!(told(&relay.hear(NOW, model(2, 3, false)).unwrap()), [(0, 2), (1, 0), (2, 1)]);
}

#[test]
fn a_relay_without_children_has_an_empty_part() {
    let algorithm = Algorithm::FnUcb(diagonal());
    let levels = Levels::new(&algorithm, &FEDERATION, &vec![LevelConfig::default(); 2]).unwrap();
    let mut relay = levels.relay(1, SHAPE).unwrap();
    let up = collect(&mut *relay, 5, 3).up;
    assert_eq!(sent(&up), (5, 0, 0, 0));
    // The root takes it, and has nothing to average.
    let mut root = levels.coordinator(SHAPE).unwrap();
    root.join(NOW, AgentId(0), Entrance::NewLife);
    root.receive(NOW, AgentId(0), Uplink::NetworkRequest { observations: 1 }).unwrap();
    let [Uplink::NetworkPart(part)] = &up[..] else { panic!("{up:?}") };
    let part = NetworkPart { round: RoundId(1), ..part.clone() };
    let ended = root.receive(NOW, AgentId(0), Uplink::NetworkPart(part)).unwrap();
    assert_eq!(ended, [Outgoing::to_everyone(Downlink::Abort { round: RoundId(1) })]);
}

#[test]
fn children_keep_their_counts_when_the_parent_lost_history() {
    let (mut relay, part) = relay_of(&diagonal());
    collect(&mut *relay, 5, 0);
    (0..3).for_each(|child| drop(say(&mut *relay, child, part(child, 1, 2))));
    relay.hear(NOW, model(1, 6, false)).unwrap();
    let version = relay.below().version;
    // The parent goes on from before that round. Agents have forgotten what it had.
    assert_eq!(told(&relay.hear(NOW, model(0, 0, true)).unwrap()), [(0, 2), (1, 2), (2, 2)]);
    assert!(relay.below().version > version, "versions below go on");
    collect(&mut *relay, 1, 0);
    (0..3).for_each(|child| drop(say(&mut *relay, child, part(child, 2, 1))));
    assert_eq!(told(&relay.hear(NOW, model(1, 3, false)).unwrap()), [(0, 3), (1, 3), (2, 3)]);
}

#[test]
fn parts_and_models_that_cannot_be_are_refused_and_change_nothing() {
    let (mut relay, part) = relay_of(&diagonal());
    collect(&mut *relay, 5, 0);
    (0..2).for_each(|child| drop(say(&mut *relay, child, part(child, 1, 2))));
    let before = relay.save();
    let Uplink::NetworkPart(good) = part(2, 1, 2) else { panic!("a part") };
    let p = good.weights.len();
    let sum = NetworkSum {
        networks: 1,
        seen: 2,
        widths: WidthSum { agents: 1, entries: vec![0.1; p] },
        hurried: false,
    };
    let widths = |agents, entries| NetworkSum { widths: WidthSum { agents, entries }, ..sum.clone() };
    let bad = [
        NetworkSum { networks: 0, ..sum.clone() },
        NetworkSum { networks: 2, ..sum.clone() },
        NetworkSum { seen: 1, ..sum.clone() },
        NetworkSum { seen: u64::MAX, ..sum.clone() },
        widths(0, Vec::new()),
        widths(1, vec![0.1; p - 1]),
        widths(1, vec![1e9; p]),
        widths(1, vec![-0.1; p]),
        widths(1, vec![f64::NAN; p]),
    ];
    for sum in bad {
        let part = NetworkPart { sum: Some(sum.clone()), ..good.clone() };
        assert!(relay.receive(NOW, AgentId(2), Uplink::NetworkPart(part)).is_err(), "{sum:?}");
        assert_eq!(relay.save(), before);
    }
    let stranger = NetworkPart { start: 7, ..good.clone() };
    assert!(relay.receive(NOW, AgentId(2), Uplink::NetworkPart(stranger)).is_err());
    assert!(relay.hear(NOW, model(1, 3, false)).is_err(), "three of four observations");
    assert_eq!(relay.save(), before);
    let good = NetworkPart { sum: Some(sum), ..good };
    assert_eq!(sent(&say(&mut *relay, 2, Uplink::NetworkPart(good)).up), (5, 6, 3, 3));
}

#[test]
fn settings_without_relays_say_which_and_why() {
    let refused = |config: FnUcb| {
        let levels = vec![LevelConfig::default(); 2];
        Levels::new(&Algorithm::FnUcb(config), &FEDERATION, &levels).unwrap_err().allowed
    };
    assert!(refused(FnUcb { less_communication: false, ..diagonal() }).contains("less_communication"));
    assert!(refused(FnUcb { training: TrainingMode::Pooled, ..diagonal() }).contains("never speak"));
}
