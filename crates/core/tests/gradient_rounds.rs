//! Rounds of gradients that lose agents: they go on with who is left, or end, and nothing is lost.

use posse_core::TimeSpan;
use posse_core::*;

/// When the tests begin: far from zero, as every real clock is.
const NOW: Tick = Tick(1_700_000_000_000_000);

const AGENTS: u64 = 3;
const DIMENSION: usize = 2;

struct Federated {
    agents: Vec<Box<dyn Agent>>,
    coordinator: Box<dyn Coordinator>,
    learned: Vec<u64>,
}

impl Federated {
    fn new(quorum: f64) -> Self {
        let rounds =
            RoundConfig { round_deadline: Some(TimeSpan::from_micros(10)), quorum, ..RoundConfig::default() };
        let never = FedGlbUcb { round_threshold: Threshold::NEVER, rounds, ..FedGlbUcb::default() };
        let algorithm = Algorithm::FedGlbUcb(never);
        let federation = Federation { agents: AGENTS, horizon: 100, seed: Seed(1) };
        let shape = Shape::shared(DIMENSION);
        let mut coordinator = algorithm.coordinator(shape).unwrap();
        (0..AGENTS).for_each(|id| drop(coordinator.join(NOW, AgentId(id), Entrance::NewLife)));
        let agents = (0..AGENTS).map(|id| algorithm.agent(AgentId(id), shape, &federation).unwrap());
        Self { agents: agents.collect(), coordinator, learned: vec![0; AGENTS as usize] }
    }

    fn learn(&mut self, id: usize, times: u64) {
        for step in 0..times {
            let x = [1.0 - step as f64 / 10.0, 0.3 * id as f64];
            let said = self.agents[id].learn(UserId(0), &x, (step % 2) as f64).unwrap();
            assert_eq!(said, None);
            self.learned[id] += 1;
        }
    }

    /// Brings messages to agents that answer, until nobody has anything to say.
    fn deliver(&mut self, outgoing: Vec<Outgoing>, answers: &[u64]) {
        let mut outgoing = outgoing;
        while !outgoing.is_empty() {
            let mut next = Vec::new();
            for Outgoing { to, message } in outgoing {
                for id in (0..AGENTS).filter(|id| to.includes(AgentId(*id)) && answers.contains(id)) {
                    if let Some(up) = self.agents[id as usize].receive(message.clone()).unwrap() {
                        next.extend(self.coordinator.receive(NOW, AgentId(id), up).unwrap());
                    }
                }
            }
            outgoing = next;
        }
    }

    fn round(&mut self, answers: &[u64]) {
        let begun =
            self.coordinator.receive(NOW, AgentId(0), Uplink::RoundRequest { observations: 0 }).unwrap();
        self.deliver(begun, answers);
    }

    fn late(&mut self, tick: u64, answers: &[u64]) {
        let outgoing = self.coordinator.tick(NOW.after(TimeSpan::from_micros(tick)));
        self.deliver(outgoing, answers);
    }

    fn shared(&self) -> u64 {
        self.coordinator.inspect().observations
    }

    /// What an agent learned is in the model or with the agent.
    fn nothing_is_lost(&self) {
        for id in 0..AGENTS {
            let contained = self.coordinator.agent(AgentId(id)).unwrap().uploads;
            let held = self.agents[id as usize].inspect().held();
            assert_eq!(contained + held, self.learned[id as usize], "agent {id}");
        }
    }
}

const ALL: [u64; 3] = [0, 1, 2];

#[test]
fn a_round_takes_in_everybody_and_a_second_one_only_news() {
    let mut federated = Federated::new(0.5);
    (0..3).for_each(|id| federated.learn(id, 4));
    federated.round(&ALL);
    assert_eq!(federated.shared(), 12);
    federated.learn(1, 2);
    federated.round(&ALL);
    assert_eq!(federated.shared(), 14);
    federated.nothing_is_lost();
}

#[test]
fn an_agent_that_misses_the_collection_joins_the_next_round() {
    let mut federated = Federated::new(0.5);
    (0..3).for_each(|id| federated.learn(id, 4));
    federated.round(&[0, 1]);
    assert_eq!(federated.shared(), 0, "it waits for agent 2");
    federated.late(10, &ALL);
    assert_eq!(federated.shared(), 8);
    federated.nothing_is_lost();
    federated.round(&ALL);
    assert_eq!(federated.shared(), 12);
    federated.nothing_is_lost();
}

#[test]
fn agents_that_are_away_do_not_count_for_the_quorum_and_others_do() {
    let away = |agents: &[u64]| agents.iter().copied().map(AgentId).collect();
    for (absent, shared) in [(away(&[1, 2]), 4), (away(&[2]), 0), (away(&[]), 0)] {
        let mut federated = Federated::new(0.9);
        (0..3).for_each(|id| federated.learn(id, 4));
        federated.round(&[0]);
        let later = NOW.after(TimeSpan::from_micros(10));
        let outgoing = federated.coordinator.tick_without(later, &absent);
        federated.deliver(outgoing, &[0]);
        assert_eq!(federated.shared(), shared, "{absent:?}");
        assert!(federated.coordinator.waits_for().is_none(), "the round is over, with a result or without");
    }
    // An agent that answered and went away then has answered.
    let mut federated = Federated::new(0.5);
    (0..3).for_each(|id| federated.learn(id, 4));
    federated.round(&[0, 1]);
    let outgoing = federated.coordinator.tick_without(NOW.after(TimeSpan::from_micros(10)), &away(&[1, 2]));
    federated.deliver(outgoing, &[0, 1]);
    assert_eq!(federated.shared(), 8);
    federated.nothing_is_lost();
}

#[test]
fn observations_of_an_agent_that_does_not_answer_leave_the_loss_and_come_back() {
    let mut federated = Federated::new(0.5);
    (0..3).for_each(|id| federated.learn(id, 4));
    federated.round(&ALL);
    (0..3).for_each(|id| federated.learn(id, 1));
    // Agent 2 is silent: gradients of its old observations cannot be had, so they leave the model too.
    federated.round(&[0, 1]);
    federated.late(10, &[0, 1]);
    assert_eq!(federated.shared(), 10);
    // It hears of the model without it, and has everything still.
    let outgoing = federated.coordinator.join(NOW, AgentId(2), Entrance::Returning);
    federated.deliver(outgoing, &ALL);
    federated.nothing_is_lost();
    federated.round(&ALL);
    assert_eq!(federated.shared(), 15);
    federated.nothing_is_lost();
}

#[test]
fn an_agent_that_vanishes_between_gradients_does_not_spoil_the_round() {
    let mut federated = Federated::new(0.5);
    (0..3).for_each(|id| federated.learn(id, 4));
    let begun =
        federated.coordinator.receive(NOW, AgentId(0), Uplink::RoundRequest { observations: 0 }).unwrap();
    // Everybody sends its part; agent 1 then answers no request.
    let mut requests = Vec::new();
    for id in 0..AGENTS {
        let up = federated.agents[id as usize].receive(begun[0].message.clone()).unwrap().unwrap();
        requests.extend(federated.coordinator.receive(NOW, AgentId(id), up).unwrap());
    }
    assert!(matches!(requests[0].message, Downlink::GradientRequest { .. }));
    federated.deliver(requests, &[0, 2]);
    assert_eq!(federated.shared(), 0);
    federated.late(10, &ALL);
    assert_eq!(federated.shared(), 8, "the round was collected anew without agent 1");
    federated.nothing_is_lost();
    federated.round(&ALL);
    assert_eq!(federated.shared(), 12);
    federated.nothing_is_lost();
}

#[test]
fn too_few_answers_end_the_round_and_everybody_keeps_its_part() {
    let mut federated = Federated::new(0.9);
    (0..3).for_each(|id| federated.learn(id, 4));
    federated.round(&[0]);
    federated.late(10, &ALL);
    assert_eq!((federated.shared(), federated.coordinator.deadline()), (0, None));
    federated.nothing_is_lost();
    federated.round(&ALL);
    assert_eq!(federated.shared(), 12);
    federated.nothing_is_lost();
}

#[test]
fn an_agent_that_lost_its_data_takes_them_out_of_the_model() {
    let mut federated = Federated::new(0.5);
    (0..3).for_each(|id| federated.learn(id, 4));
    federated.round(&ALL);
    let reborn = federated.coordinator.join(NOW, AgentId(1), Entrance::NewLife);
    let federation = Federation { agents: AGENTS, horizon: 100, seed: Seed(1) };
    let algorithm =
        Algorithm::FedGlbUcb(FedGlbUcb { round_threshold: Threshold::NEVER, ..Default::default() });
    federated.agents[1] = algorithm.agent(AgentId(1), Shape::shared(DIMENSION), &federation).unwrap();
    federated.learned[1] = 0;
    federated.deliver(reborn, &ALL);
    federated.learn(1, 1);
    federated.round(&ALL);
    assert_eq!(federated.shared(), 4 + 1 + 4);
    federated.nothing_is_lost();
}

#[test]
fn gradients_that_cannot_be_are_refused_and_change_nothing() {
    let mut federated = Federated::new(0.5);
    (0..3).for_each(|id| federated.learn(id, 4));
    let begun =
        federated.coordinator.receive(NOW, AgentId(0), Uplink::RoundRequest { observations: 0 }).unwrap();
    for id in 0..AGENTS {
        let up = federated.agents[id as usize].receive(begun[0].message.clone()).unwrap().unwrap();
        drop(federated.coordinator.receive(NOW, AgentId(id), up).unwrap());
    }
    let before = federated.coordinator.save();
    let gradient =
        |gradient: Vec<f64>, curvature| Gradient { round: RoundId(1), step: 0, gradient, curvature };
    for bad in [
        gradient(vec![0.0; 3], None),
        gradient(vec![f64::NAN, 0.0], None),
        gradient(vec![1e9, 0.0], None),
        gradient(vec![0.0, 0.0], Some(vec![1.0; 3])),
        Gradient { round: RoundId(9), ..gradient(vec![0.0, 0.0], None) },
    ] {
        let refused = federated.coordinator.receive(NOW, AgentId(1), Uplink::Gradient(bad.clone()));
        assert!(refused.is_err(), "{bad:?}");
        assert_eq!(federated.coordinator.save(), before, "{bad:?}");
    }
}

#[test]
fn models_that_cannot_be_are_refused_and_change_nothing() {
    let mut federated = Federated::new(0.5);
    federated.learn(0, 3);
    let agent = &mut federated.agents[0];
    let before = agent.save();
    let evidence = std::sync::Arc::new(Evidence::none(DIMENSION));
    let good = Model {
        authoritative: true,
        version: Version(4),
        contains: 0,
        evidence,
        estimate: std::sync::Arc::new(vec![0.0; DIMENSION]),
        fit: Fit::Minimised { gap: 0.0, information: 0.0, unit_information: 0.0 },
    };
    let curvature = std::sync::Arc::new(vec![0.0; 3]);
    for bad in [
        Model { contains: 4, ..good.clone() },
        Model { estimate: std::sync::Arc::new(vec![0.0; 3]), ..good.clone() },
        Model { estimate: std::sync::Arc::new(vec![f64::NAN; 2]), ..good.clone() },
        Model { fit: Fit::Online { curvature, potential: 0.0, squares: 0.0 }, ..good.clone() },
        Model { fit: Fit::Minimised { gap: -1.0, information: 0.0, unit_information: 0.0 }, ..good.clone() },
    ] {
        assert!(agent.receive(Downlink::Model(bad.clone())).is_err(), "{bad:?}");
        assert_eq!(agent.save(), before, "{bad:?}");
    }
    assert_eq!(agent.receive(Downlink::Model(good)), Ok(None));
}
