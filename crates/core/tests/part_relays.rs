//! Relays where agents are held against each other: every agent's part goes up by itself, and the root judges agents as if
//! they spoke to it.

use std::collections::{BTreeMap, VecDeque};

use crate::support::{NOW, random_evidence};
use posse_core::*;

const FEDERATION: Federation = Federation { agents: 12, horizon: 1000, seed: Seed(11) };
const D: usize = 3;
const SHAPE: Shape = Shape::shared(D);

fn settings() -> SyncLinUcb {
    SyncLinUcb { robust: Robust::Trimmed, ..SyncLinUcb::default() }
}

fn levels(settings: SyncLinUcb, levels: usize) -> Levels {
    Levels::new(&Algorithm::SyncLinUcb(settings), &FEDERATION, &vec![LevelConfig::default(); levels]).unwrap()
}

fn path(agent: u64, relays: &[u64]) -> AgentPath {
    AgentPath { agent: AgentId(agent), relays: relays.iter().copied().map(AgentId).collect() }
}

fn part(agent: u64, relays: &[u64], evidence: &Evidence) -> AgentPart {
    AgentPart { agent: path(agent, relays), evidence: Parcel::wrap(evidence) }
}

fn own(round: u64, evidence: &Evidence) -> Uplink {
    Uplink::RoundEvidence { round: RoundId(round), evidence: Parcel::wrap(evidence) }
}

fn list(round: u64, parts: Vec<AgentPart>) -> Uplink {
    Uplink::RoundParts { round: RoundId(round), parts }
}

fn collect(round: u64) -> Downlink {
    Downlink::Collect { round: RoundId(round), whole: false }
}

const REQUEST: Uplink = Uplink::RoundRequest { observations: 0 };

/// A relay, `depth` links below the root of a federation with so many levels, that collects round 1 from its children.
fn collecting(settings: SyncLinUcb, depth: usize, of: usize, children: &[u64]) -> Box<dyn Relay> {
    let mut relay = levels(settings, of).relay(depth, SHAPE).unwrap();
    for child in children {
        relay.join(NOW, AgentId(*child), Entrance::NewLife);
    }
    assert_eq!(relay.hear(NOW, collect(1)).unwrap().up, []);
    relay
}

/// A root with these relays that collects round 1.
fn root(settings: SyncLinUcb, of: usize, relays: &[u64]) -> Box<dyn Coordinator> {
    let mut root = levels(settings, of).coordinator(SHAPE).unwrap();
    for relay in relays {
        root.join(NOW, AgentId(*relay), Entrance::NewLife);
    }
    root.receive(NOW, AgentId(relays[0]), REQUEST).unwrap();
    root
}

#[test]
fn parts_go_up_one_by_one_and_those_with_nothing_in_them_stay_out() {
    let mut relay = collecting(settings(), 1, 2, &[4, 9, 7]);
    let (one, two) = (random_evidence(D, 1, 1), random_evidence(D, 8, 2));
    assert_eq!(relay.receive(NOW, AgentId(9), own(1, &two)).unwrap(), Passed::default());
    assert_eq!(relay.receive(NOW, AgentId(7), own(1, &Evidence::none(D))).unwrap(), Passed::default());
    let sent = relay.receive(NOW, AgentId(4), own(1, &one)).unwrap();
    assert_eq!(sent.up, [list(1, vec![part(4, &[], &one), part(9, &[], &two)])]);
    assert!(
        matches!(&sent.up[0], Uplink::RoundParts { parts, .. } if matches!(parts[0].evidence, Parcel::LowRank(_)))
    );
}

#[test]
fn a_relay_of_relays_names_agents_by_their_paths() {
    let mut relay = collecting(settings(), 1, 3, &[2, 1]);
    let (one, two) = (random_evidence(D, 1, 1), random_evidence(D, 8, 2));
    relay.receive(NOW, AgentId(2), list(1, vec![part(4, &[], &one), part(9, &[], &two)])).unwrap();
    let sent = relay.receive(NOW, AgentId(1), list(1, vec![part(4, &[], &two)])).unwrap();
    let parts = vec![part(4, &[1], &two), part(4, &[2], &one), part(9, &[2], &two)];
    assert_eq!(sent.up, [list(1, parts)], "by the agents' own numbers first");

    let mut root = root(settings(), 3, &[5]);
    root.receive(NOW, AgentId(5), sent.up[0].clone()).unwrap();
    let names: Vec<String> = root.accounts().iter().map(|account| account.agent.to_string()).collect();
    assert_eq!(names, ["5/1/4", "5/2/4", "5/2/9"]);
    let counts: Vec<u64> = root.accounts().iter().map(|account| account.observations).collect();
    assert_eq!((counts, root.inspect().observations), (vec![8, 1, 8], 17));
}

/// Agents below relays, each level of which has so many; messages are delivered at once.
struct Tree {
    root: Box<dyn Coordinator>,
    relays: Vec<Vec<Box<dyn Relay>>>,
    evidence: Evidence,
    version: u64,
}

impl Tree {
    fn new(agents: u64, counts: &[usize]) -> Self {
        let levels = levels(settings(), counts.len() + 1);
        let relay = |depth| levels.relay(depth, SHAPE).unwrap();
        let made =
            counts.iter().enumerate().map(|(depth, count)| (0..*count).map(|_| relay(depth + 1)).collect());
        let mut tree = Self {
            root: levels.coordinator(SHAPE).unwrap(),
            relays: made.collect(),
            evidence: Evidence::none(D),
            version: 0,
        };
        for level in 0..=counts.len() {
            let children = counts.get(level).map_or(agents, |count| *count as u64);
            for child in 0..children {
                match level.checked_sub(1) {
                    None => drop(tree.root.join(NOW, AgentId(child), Entrance::NewLife)),
                    Some(above) => {
                        let parent = child as usize % counts[above];
                        tree.relays[above][parent].join(NOW, AgentId(child), Entrance::NewLife);
                    }
                }
            }
        }
        tree
    }

    /// A round in which every agent has this part.
    fn round(&mut self, parts: &BTreeMap<u64, Evidence>) {
        let lowest = self.relays.len();
        let mut letters = VecDeque::from([(lowest, 0, REQUEST)]);
        while let Some((level, child, message)) = letters.pop_front() {
            let parent = level.checked_sub(1).map(|above| child as usize % self.relays[above].len());
            let (up, down) = match parent {
                None => (Vec::new(), self.root.receive(NOW, AgentId(child), message).unwrap()),
                Some(parent) => {
                    let passed =
                        self.relays[level - 1][parent].receive(NOW, AgentId(child), message).unwrap();
                    (passed.up, passed.down)
                }
            };
            letters.extend(up.into_iter().map(|message| (level - 1, parent.unwrap() as u64, message)));
            self.down(level, parent.unwrap_or(0), down, parts, &mut letters);
        }
    }

    fn down(
        &mut self,
        level: usize,
        parent: usize,
        down: Vec<Outgoing>,
        parts: &BTreeMap<u64, Evidence>,
        letters: &mut VecDeque<(usize, u64, Uplink)>,
    ) {
        let above = level.checked_sub(1).map_or(1, |above| self.relays[above].len());
        let children = self.relays.get(level).map_or(parts.len(), Vec::len);
        for Outgoing { to, message } in down {
            let own = (0..children).filter(|child| above == 1 || child % above == parent);
            for child in own.filter(|child| to.includes(AgentId(*child as u64))).collect::<Vec<_>>() {
                let id = child as u64;
                if level < self.relays.len() {
                    let passed = self.relays[level][child].hear(NOW, message.clone()).unwrap();
                    letters.extend(passed.up.into_iter().map(|message| (level, id, message)));
                    self.down(level + 1, child, passed.down, parts, letters);
                    continue;
                }
                match &message {
                    Downlink::Collect { round, .. } => {
                        letters.push_back((level, id, in_round(*round, &parts[&id])));
                    }
                    Downlink::Commit { included, version, evidence, .. } => {
                        assert!(included);
                        self.version = version.0;
                        self.evidence = Evidence::clone(evidence);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Who is not believed, by the agents' own numbers.
    fn set_aside(&self) -> Vec<(u64, Suspicion)> {
        let accounts = self.root.accounts().into_iter();
        accounts.filter_map(|account| Some((account.agent.agent.0, account.suspicion?))).collect()
    }
}

fn in_round(round: RoundId, evidence: &Evidence) -> Uplink {
    own(round.0, evidence)
}

/// What agents observe in a round. The first three report the opposite of the truth.
fn observed(round: u64) -> BTreeMap<u64, Evidence> {
    let mut stream = Seed(round).stream("observed", 0, 0);
    let mut part = |agent: u64| {
        let mut evidence = Evidence::none(D);
        for _ in 0..(agent + round) % 5 {
            let x = [stream.normal(), stream.normal(), stream.normal()];
            let truth = x[0] - 0.5 * x[1] + 0.1 * stream.normal();
            evidence.observe(&x, if agent < 3 { -truth } else { truth }).unwrap();
        }
        (agent, evidence)
    };
    (0..12).map(&mut part).collect()
}

/// The evidence of every round, the agents that are believed and the reasons why others are not are those of the flat
/// federation, bit for bit, whatever tree agents are in.
#[test]
fn the_root_judges_agents_below_relays_as_if_they_spoke_to_it() {
    let mut flat = Tree::new(12, &[]);
    let mut trees = [&[1][..], &[2], &[5], &[2, 4], &[3, 5, 6]].map(|counts| Tree::new(12, counts));
    let mut liars = 0;
    for round in 1..=12 {
        let parts = observed(round);
        flat.round(&parts);
        liars = flat.set_aside().len();
        for tree in &mut trees {
            tree.round(&parts);
            assert_eq!(tree.evidence, flat.evidence, "round {round}");
            assert_eq!(tree.set_aside(), flat.set_aside(), "round {round}");
            assert_eq!(tree.root.inspect().information.to_bits(), flat.root.inspect().information.to_bits());
        }
    }
    assert_eq!(liars, 3, "{:?}", flat.set_aside());
    assert_eq!(flat.version, 12);
    let everything: u64 =
        (1..=12).flat_map(|round| observed(round).into_values()).map(|part| part.count()).sum();
    let held = |tree: &Tree| tree.root.accounts().iter().map(|account| account.observations).sum::<u64>();
    assert!(trees.iter().all(|tree| held(tree) == everything), "nothing is lost, believed or not");
    assert!(flat.evidence.count() < everything);
}

#[test]
fn lists_that_make_no_sense_are_refused_and_change_nothing() {
    let good = random_evidence(D, 4, 1);
    // Twice that is more than numbers can hold.
    let endless = Evidence::from_parts(vec![1e308, 0.0, 1e308, 0.0, 0.0, 1e308], vec![0.0; D], 9).unwrap();
    let wrong = [
        ("another dimension", vec![part(1, &[], &random_evidence(D + 1, 2, 1))]),
        ("an agent twice", vec![part(1, &[], &good), part(1, &[], &good)]),
        ("out of order", vec![part(2, &[], &good), part(1, &[], &good)]),
        ("deeper than the tree", vec![part(1, &[3], &good)]),
        ("nothing in it", vec![part(1, &[], &good), part(2, &[], &Evidence::none(D))]),
        ("more than numbers hold", vec![part(1, &[], &endless), part(2, &[], &endless)]),
        ("no sums of squares", vec![part(1, &[], &good), part(2, &[], &indefinite())]),
    ];
    let mut root = root(settings(), 2, &[0, 1]);
    let mut relay = collecting(settings(), 1, 3, &[0, 1]);
    let (before, relay_before) = (root.save(), relay.save());
    for (what, parts) in wrong {
        root.receive(NOW, AgentId(0), list(1, parts.clone())).unwrap_err();
        assert_eq!(root.save(), before, "{what}");
        relay.receive(NOW, AgentId(0), list(1, parts)).unwrap_err();
        assert_eq!(relay.save(), relay_before, "{what}");
    }
    let parts = vec![part(1, &[], &good)];
    assert_eq!(
        root.receive(NOW, AgentId(7), list(1, parts.clone())),
        Err(ProtocolError::UnknownAgent(AgentId(7)))
    );
    assert_eq!(root.receive(NOW, AgentId(0), list(9, parts.clone())), Err(ProtocolError::Round(RoundId(9))));
    assert_eq!(root.receive(NOW, AgentId(0), list(0, parts.clone())), Ok(Vec::new()), "too late");
    assert_eq!(root.save(), before);
    root.receive(NOW, AgentId(0), list(1, parts.clone())).unwrap();
    let with_part = root.save();
    assert_eq!(root.receive(NOW, AgentId(0), list(1, parts)), Err(ProtocolError::Round(RoundId(1))), "twice");
    assert_eq!(root.save(), with_part);
}

/// Sums that each pair of features allows, and all together do not.
fn indefinite() -> Evidence {
    Evidence::from_parts(vec![9.0, -8.0, 9.0, -8.0, -8.0, 9.0], vec![0.0; D], 9).unwrap()
}

/// Otherwise one agent could invent a majority.
#[test]
fn agents_speak_for_themselves_only() {
    let message = list(1, vec![part(1, &[], &random_evidence(D, 4, 1))]);
    let unexpected = ProtocolError::Unexpected { algorithm: "sync-lin-ucb", message: "round parts" };
    let refused = |answer: Result<(), ProtocolError>| assert_eq!(answer, Err(unexpected.clone()));
    let mut flat = root(settings(), 1, &[0]);
    refused(flat.receive(NOW, AgentId(0), message.clone()).map(drop));
    let mut lowest = collecting(settings(), 1, 2, &[0]);
    refused(lowest.receive(NOW, AgentId(0), message.clone()).map(drop));
    let mut lower = collecting(settings(), 2, 3, &[0]);
    refused(lower.receive(NOW, AgentId(0), message.clone()).map(drop));
    let mut trusting = root(SyncLinUcb::default(), 2, &[0]);
    refused(trusting.receive(NOW, AgentId(0), message).map(drop));
}

#[test]
fn a_relay_speaks_for_as_many_agents_as_it_may_and_the_others_are_told_so() {
    let two = SyncLinUcb { agents_per_relay: 2, ..settings() };
    let mut relay = collecting(two.clone(), 1, 2, &[1, 2, 3]);
    let evidence = random_evidence(D, 4, 1);
    for child in [3, 1] {
        assert_eq!(relay.receive(NOW, AgentId(child), own(1, &evidence)).unwrap().up, []);
    }
    let sent = relay.receive(NOW, AgentId(2), own(1, &evidence)).unwrap().up;
    assert_eq!(sent, [list(1, vec![part(1, &[], &evidence), part(3, &[], &evidence)])]);
    let commit = Downlink::Commit {
        round: RoundId(1),
        included: true,
        version: Version(1),
        evidence: evidence.clone().into(),
    };
    let told: Vec<bool> = relay
        .hear(NOW, commit)
        .unwrap()
        .down
        .into_iter()
        .map(|outgoing| matches!(outgoing.message, Downlink::Commit { included: true, .. }))
        .collect();
    assert_eq!(told, [true, false, true], "agent 2 keeps its part");

    // A relay that does not keep to it is not heard at all, at the root and at a relay of relays.
    let three: Vec<AgentPart> = (1..4).map(|agent| part(agent, &[], &evidence)).collect();
    let mut root = root(two.clone(), 2, &[0, 1]);
    root.receive(NOW, AgentId(0), list(1, three[..2].to_vec())).unwrap();
    let ended = root.receive(NOW, AgentId(1), list(1, three.clone())).unwrap();
    let included: Vec<bool> = ended
        .iter()
        .map(|outgoing| matches!(outgoing.message, Downlink::Commit { included: true, .. }))
        .collect();
    assert_eq!((included, root.accounts().len()), (vec![true, false], 2));
    // Nor for others in a later round: what counts is for whom it ever spoke.
    root.receive(NOW, AgentId(0), REQUEST).unwrap();
    root.receive(NOW, AgentId(0), list(2, three[2..].to_vec())).unwrap();
    root.receive(NOW, AgentId(1), list(2, three[2..].to_vec())).unwrap();
    let names: Vec<String> = root.accounts().iter().map(|account| account.agent.to_string()).collect();
    assert_eq!(names, ["0/1", "0/2", "1/3"]);
    let mut above = collecting(two, 1, 3, &[0]);
    assert_eq!(above.receive(NOW, AgentId(0), list(1, three)).unwrap().up, [list(1, Vec::new())]);
}

#[test]
fn a_child_that_comes_back_in_the_middle_of_a_round_takes_only_its_own_part_out() {
    let mut relay = collecting(settings(), 1, 3, &[0, 1]);
    let evidence = random_evidence(D, 4, 1);
    relay.receive(NOW, AgentId(0), list(1, vec![part(0, &[], &evidence), part(1, &[], &evidence)])).unwrap();
    assert_eq!(relay.join(NOW, AgentId(0), Entrance::Returning).up, []);
    let sent = relay.receive(NOW, AgentId(1), list(1, vec![part(0, &[], &evidence)])).unwrap().up;
    assert_eq!(sent, [list(1, vec![part(0, &[1], &evidence)])]);
}

#[test]
fn machines_that_are_restored_in_the_middle_of_a_round_go_on_with_the_same_parts() {
    let evidence = random_evidence(D, 4, 1);
    let first = list(1, vec![part(3, &[], &evidence), part(4, &[], &random_evidence(D, 1, 2))]);
    let second = list(1, vec![part(3, &[], &random_evidence(D, 7, 3))]);
    let mut relay = collecting(settings(), 1, 3, &[0, 1]);
    relay.receive(NOW, AgentId(0), first.clone()).unwrap();
    let mut restored = levels(settings(), 3).relay(1, SHAPE).unwrap();
    restored.restore(&relay.save()).unwrap();
    assert_eq!(restored.save(), relay.save());
    let sent = restored.receive(NOW, AgentId(1), second.clone()).unwrap();
    assert_eq!(sent, relay.receive(NOW, AgentId(1), second.clone()).unwrap());
    assert_eq!(restored.save(), relay.save());

    let mut whole = root(settings(), 2, &[0, 1]);
    whole.receive(NOW, AgentId(0), first).unwrap();
    let mut again = levels(settings(), 2).coordinator(SHAPE).unwrap();
    again.restore(&whole.save()).unwrap();
    let ended = again.receive(NOW, AgentId(1), second.clone()).unwrap();
    assert_eq!(ended, whole.receive(NOW, AgentId(1), second).unwrap());
    assert_eq!((again.save(), again.accounts()), (whole.save(), whole.accounts()));
    assert_eq!(again.accounts().len(), 3);
}

/// An agent that changes relays is another agent to the root, which cannot know that both are one.
#[test]
fn an_agent_at_another_relay_has_an_account_of_its_own() {
    let mut root = root(settings(), 2, &[0, 1]);
    let evidence = random_evidence(D, 4, 1);
    root.receive(NOW, AgentId(0), list(1, vec![part(7, &[], &evidence)])).unwrap();
    root.receive(NOW, AgentId(1), list(1, vec![part(7, &[], &evidence)])).unwrap();
    let names: Vec<String> = root.accounts().iter().map(|account| account.agent.to_string()).collect();
    assert_eq!(names, ["0/7", "1/7"]);
}

#[test]
fn a_part_that_leaves_out_its_vector_is_refused() {
    use posse_core::wire::{decode_uplink, v1};
    use prost::Message;
    // A few bytes for a part of a dimension that would need a hundred kilobytes.
    let low_rank = v1::LowRank { pivots: Vec::new(), columns: Vec::new() };
    let matrix = Some(v1::evidence::Matrix::LowRank(low_rank));
    let evidence = Some(v1::Evidence { count: 1, moment: Vec::new(), matrix, dimension: 16_384 });
    let parts = vec![v1::AgentPart { agent: 1, relays: vec![2], evidence: evidence.map(Box::new) }; 3];
    let kind = Some(v1::uplink::Kind::RoundParts(v1::RoundParts { round: 1, parts }));
    assert!(decode_uplink(&v1::Uplink { kind }.encode_to_vec()).is_err());
    let mut silent = Evidence::none(9);
    silent.observe(&[1.0; 9], 0.0).unwrap();
    let message = list(1, vec![part(1, &[2], &silent)]);
    let bytes = posse_core::wire::encode_uplink(&message);
    assert_eq!((decode_uplink(&bytes).unwrap(), message.cost().bytes), (message, bytes.len() as u64));
}

#[test]
fn a_list_costs_one_message_and_the_numbers_of_all_its_parts() {
    let evidence = random_evidence(D, 9, 1);
    let cost = list(1, vec![part(1, &[], &evidence), part(2, &[], &evidence)]).cost();
    let (scalars, paper) = (2 * (packed(D) + D + 1) as u64, 2 * (D * D + D) as u64);
    assert_eq!((cost.messages, cost.control, cost.scalars, cost.paper_scalars), (1, 0, scalars, paper));
}
