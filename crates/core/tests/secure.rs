//! Rounds under secure aggregation, machine by machine: what comes out, what does not, and who is refused.

use std::collections::{BTreeMap, BTreeSet};

use posse_core::wire::encode_uplink;
use posse_core::*;

use crate::support::NOW;

const D: usize = 2;
const AGENTS: u64 = 5;

/// Promises so little that noise is far below the units of sums, so that sums can be compared exactly.
fn bare() -> PrivacyConfig {
    PrivacyConfig {
        epsilon: 1e30,
        first_release: 4,
        max_releases: 6,
        release_growth: 1.5,
        ..Default::default()
    }
}

fn algorithm(privacy: PrivacyConfig, secure_aggregation: Option<SecureAggregation>) -> Algorithm {
    let round_deadline = Some(TimeSpan::from_millis(100));
    Algorithm::SyncLinUcb(SyncLinUcb {
        privacy: Some(privacy),
        secure_aggregation,
        round_deadline,
        ..Default::default()
    })
}

fn three() -> Option<SecureAggregation> {
    Some(SecureAggregation { survivors: 3, colluders: 0 })
}

/// The exchange that a message of an agent belongs to, from 0.
fn exchange(message: &Uplink) -> Option<usize> {
    let Uplink::Secure(part) = message else { return None };
    Some(match part {
        SecureUplink::Keys { .. } => 0,
        SecureUplink::Shares { .. } => 1,
        SecureUplink::Masked { .. } => 2,
        SecureUplink::Opened { .. } => 3,
    })
}

/// A coordinator and its agents, with links that deliver everything, and agents that fall silent when they are told to.
struct Room {
    agents: Vec<Box<dyn Agent>>,
    coordinator: Box<dyn Coordinator>,
    /// Messages that an agent sends in this exchange or a later one are lost.
    silent_from: BTreeMap<u64, usize>,
    /// Everything that the coordinator accepted, as bytes.
    log: Vec<u8>,
    outcomes: Vec<(u64, bool)>,
    now: Tick,
}

impl Room {
    fn new(algorithm: &Algorithm) -> Self {
        let shape = Shape::shared(D);
        let federation = Federation { agents: AGENTS, horizon: 100, seed: Seed(3) };
        let agent = |id| algorithm.agent(AgentId(id), shape, &federation).unwrap();
        let mut coordinator = algorithm.coordinator(shape).unwrap();
        for id in 0..AGENTS {
            coordinator.join(NOW, AgentId(id), Entrance::NewLife);
        }
        Self {
            agents: (0..AGENTS).map(agent).collect(),
            coordinator,
            silent_from: BTreeMap::new(),
            log: Vec::new(),
            outcomes: Vec::new(),
            now: NOW,
        }
    }

    /// An observation whose numbers are exact in units of sums and tell agents apart.
    fn observation(id: u64, step: u64) -> ([f64; D], f64) {
        let x = (1.0 + 7.0 * id as f64 + step as f64) / 1024.0;
        ([x, 0.5], if step.is_multiple_of(2) { 0.25 } else { -0.5 })
    }

    /// Every agent learns `each` observations. Then the round is played that they ask for.
    fn round(&mut self, each: u64, first: u64) {
        let mut requests = Vec::new();
        for id in 0..AGENTS {
            for step in first..first + each {
                let (x, y) = Self::observation(id, step);
                requests.extend(
                    self.agents[id as usize].learn(UserId(id), &x, y).unwrap().map(|said| (id, said)),
                );
            }
        }
        assert_eq!(requests.len() as u64, AGENTS, "everybody is due");
        self.deliver(requests);
    }

    fn deliver(&mut self, mut letters: Vec<(u64, Uplink)>) {
        loop {
            while !letters.is_empty() {
                // In order: what an agent said first arrives first.
                let (from, message) = letters.remove(0);
                let silent = self.silent_from.get(&from).copied().unwrap_or(4);
                if exchange(&message).is_some_and(|exchange| exchange >= silent) {
                    continue;
                }
                self.log.extend(encode_uplink(&message));
                let outgoing = self.coordinator.receive(self.now, AgentId(from), message).unwrap();
                self.hand_out(outgoing, &mut letters);
            }
            // Nobody says anything any more: time passes until the next deadline.
            let Some(deadline) = self.coordinator.deadline() else { return };
            self.now = deadline;
            let outgoing = self.coordinator.tick(self.now);
            self.hand_out(outgoing, &mut letters);
        }
    }

    fn hand_out(&mut self, outgoing: Vec<Outgoing>, letters: &mut Vec<(u64, Uplink)>) {
        for Outgoing { to, message } in outgoing {
            for id in (0..AGENTS).filter(|id| to.includes(AgentId(*id))) {
                let agent = &mut self.agents[id as usize];
                letters.extend(agent.receive(message.clone()).unwrap().map(|answer| (id, answer)));
                if let Downlink::Secure(SecureDownlink::Outcome(outcome)) = &message {
                    self.outcomes.push((id, outcome.included));
                }
            }
        }
    }

    fn count(&self) -> u64 {
        self.coordinator.inspect().observations
    }

    fn held(&self, id: u64) -> (u64, u64) {
        let view = self.agents[id as usize].inspect();
        assert_eq!(view.in_flight, None, "agent {id} waits");
        (view.unsent, view.withheld)
    }
}

/// The sums of all observations of these agents.
fn plain(agents: &BTreeSet<u64>, steps: u64) -> Evidence {
    let mut sum = Evidence::none(D);
    for &id in agents {
        for step in 0..steps {
            let (x, y) = Room::observation(id, step);
            sum.observe(&x, y).unwrap();
        }
    }
    sum
}

/// Every way in which two of five agents fall silent, each in any of the four exchanges.
#[test]
fn the_sum_is_that_of_the_agents_whose_numbers_arrived_whoever_falls_silent_in_which_exchange() {
    for one in 0..=4usize {
        for other in 0..=4usize {
            let mut room = Room::new(&algorithm(bare(), three()));
            room.silent_from = BTreeMap::from([(1, one), (4, other)]);
            room.round(4, 0);
            let included: BTreeSet<u64> =
                (0..AGENTS).filter(|id| room.silent_from.get(id).is_none_or(|from| *from > 2)).collect();
            let (sum, expected) = (room.coordinator.inspect().evidence.unwrap(), plain(&included, 4));
            assert_eq!(sum.count(), expected.count(), "{one} {other}");
            for (a, b) in
                sum.gram().iter().chain(sum.moment()).zip(expected.gram().iter().chain(expected.moment()))
            {
                assert!((a - b).abs() < 1e-8, "{one} {other}: {sum:?} is not {expected:?}");
            }
            for id in 0..AGENTS {
                let waits = if included.contains(&id) { 0 } else { 4 };
                assert_eq!(room.held(id), (waits, 0), "{one} {other}: agent {id}");
            }
            // Once they speak again, what was left out joins the next round.
            room.silent_from.clear();
            room.round(3, 4);
            assert_eq!(room.count(), 7 * AGENTS, "{one} {other}");
        }
    }
}

#[test]
fn with_too_few_survivors_nothing_is_opened_and_a_later_round_has_everything() {
    for silent_from in 0..3 {
        let mut room = Room::new(&algorithm(bare(), three()));
        room.silent_from = (0..3).map(|id| (id, silent_from)).collect();
        room.round(4, 0);
        assert_eq!((room.count(), room.outcomes.len()), (0, 0));
        assert_eq!(room.coordinator.inspect().version, Version(0));
        for id in 0..AGENTS {
            assert_eq!(room.held(id), (4, 0), "nothing is lost");
        }
        room.silent_from.clear();
        room.round(3, 4);
        assert_eq!(room.count(), 7 * AGENTS);
    }
}

/// Who has opened shares cannot know whether the sum came out. What it sent never leaves again.
#[test]
fn observations_that_were_opened_in_a_round_that_failed_are_never_sent_again() {
    let mut room = Room::new(&algorithm(bare(), three()));
    room.silent_from = (0..3).map(|id| (id, 3)).collect();
    room.round(4, 0);
    assert_eq!(room.count(), 0);
    for id in 0..AGENTS {
        // All five opened; the messages of three were lost.
        assert_eq!(room.held(id), (0, 4));
    }
    room.silent_from.clear();
    room.round(4, 4);
    assert_eq!(room.count(), 4 * AGENTS, "later observations go on");
}

/// With real noise: the coordinator's log and state under secure aggregation, and without it.
fn search(algorithm: &Algorithm) -> Vec<u64> {
    let mut room = Room::new(algorithm);
    room.round(4, 0);
    assert!(room.count() > 0, "something was shared");
    let seen = [room.log.clone(), room.coordinator.save()].concat();
    let holds = |number: &[u8]| seen.windows(number.len()).any(|window| window == number);
    let found = |id: &u64| {
        let own = plain(&BTreeSet::from([*id]), 4);
        // The sums of one agent as numbers of messages, and as integers on the lattice of the noise and its neighbours.
        own.gram().iter().chain(own.moment()).filter(|v| **v != 0.0).any(|v| {
            let on_lattice = |power: i32| ((v * f64::from(power).exp2()) as i128).to_le_bytes();
            holds(&v.to_le_bytes()) || (20..=75).any(|power| holds(&on_lattice(power)))
        })
    };
    (0..AGENTS).filter(found).collect()
}

#[test]
fn neither_the_log_nor_the_state_holds_the_sums_of_one_agent_and_without_masks_the_search_finds_them() {
    assert_eq!(search(&algorithm(bare(), three())), Vec::<u64>::new());
    let leaking = search(&algorithm(bare(), None));
    assert!(!leaking.is_empty(), "the same search finds sums that are sent as they are");
}

#[test]
fn messages_out_of_turn_are_refused_or_ignored_and_change_nothing() {
    let mut room = Room::new(&algorithm(bare(), three()));
    // Everything that agents say in one round, kept for later.
    let mut said: Vec<(u64, Uplink)> = Vec::new();
    let mut letters = Vec::new();
    for step in 0..4 {
        let (x, y) = Room::observation(0, step);
        letters.extend(room.agents[0].learn(UserId(0), &x, y).unwrap().map(|message| (0, message)));
    }
    while let Some((from, message)) = letters.pop() {
        // Before every message: all that was said before, once more, and from other agents.
        for (other, old) in &said {
            for from in [*other, (*other + 1) % AGENTS, 9] {
                // Under masks, the numbers of one agent are as good as those of another.
                if exchange(old) == Some(2) && from != *other && from < AGENTS {
                    continue;
                }
                let before = room.coordinator.save();
                let answer = room.coordinator.receive(room.now, AgentId(from), old.clone());
                let nothing = answer.as_ref().is_ok_and(Vec::is_empty);
                assert!(nothing || answer.is_err(), "{from}: {old:?} gave {answer:?}");
                assert!(room.coordinator.save() == before, "{from}: {old:?}");
            }
        }
        // A request may be said at any time.
        if exchange(&message).is_some() {
            said.push((from, message.clone()));
        }
        let outgoing = room.coordinator.receive(room.now, AgentId(from), message).unwrap();
        room.hand_out(outgoing, &mut letters);
    }
    assert!(room.count() > 0 && said.len() as u64 > 4 * AGENTS - 2);
    let future = Uplink::Secure(SecureUplink::Masked { round: RoundId(99), sums: vec![0; 6] });
    let refused = room.coordinator.receive(room.now, AgentId(0), future);
    assert_eq!(refused, Err(ProtocolError::Round(RoundId(99))));
}

#[test]
fn garbage_under_masks_spoils_its_round_and_no_sums() {
    let mut room = Room::new(&algorithm(bare(), three()));
    let mut letters = Vec::new();
    for step in 0..4 {
        let (x, y) = Room::observation(0, step);
        letters.extend(room.agents[0].learn(UserId(0), &x, y).unwrap().map(|message| (0, message)));
    }
    while let Some((from, mut message)) = letters.pop() {
        if let Uplink::Secure(SecureUplink::Masked { sums, .. }) = &mut message
            && from == 2
        {
            sums.fill(12345);
        }
        let outgoing = room.coordinator.receive(room.now, AgentId(from), message).unwrap();
        room.hand_out(outgoing, &mut letters);
    }
    assert_eq!((room.count(), room.coordinator.inspect().version), (0, Version(0)));
    room.round(4, 4);
    assert!(room.count() > 0, "a later round is fine");
}

#[test]
fn an_agent_adds_its_part_of_the_noise_and_says_who_adds_the_rest() {
    let privacy = PrivacyConfig { first_release: 4, max_releases: 6, ..Default::default() };
    let secure = SecureAggregation { survivors: 5, colluders: 1 };
    let mut room = Room::new(&algorithm(privacy.clone(), Some(secure)));
    room.round(4, 0);
    let report = room.agents[0].privacy().unwrap();
    assert_eq!((report.secure_aggregation, report.releases), (Some(secure), 1));
    assert!(report.epsilon > 0.0 && report.epsilon <= 1.0, "{report:?}");
    assert!(report.guarantee().contains("sums of 5 agents or more"), "{}", report.guarantee());
    let uncovered = report.uncovered().join("; ");
    assert!(uncovered.contains("invents agents") && uncovered.contains("more than"), "{uncovered}");
    let local = algorithm(privacy, None);
    let mut alone = Room::new(&local);
    alone.round(4, 0);
    assert_eq!(alone.agents[0].privacy().unwrap().secure_aggregation, None);
}

#[test]
fn settings_that_do_not_fit_are_refused_by_name() {
    let refused = |algorithm: Algorithm| algorithm.check(Shape::shared(D)).unwrap_err().name;
    let secure = |survivors, colluders| Some(SecureAggregation { survivors, colluders });
    assert_eq!(refused(algorithm(bare(), secure(1, 0))), "survivors");
    assert_eq!(refused(algorithm(bare(), secure(3, 3))), "colluders");
    let raw = PrivacyConfig { raw_buffer: true, ..bare() };
    assert_eq!(refused(algorithm(raw, three())), "raw_buffer");
    let alone = SyncLinUcb { secure_aggregation: three(), ..Default::default() };
    assert_eq!(refused(Algorithm::SyncLinUcb(alone)), "secure_aggregation");
}
