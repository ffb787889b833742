//! Rounds of secure aggregation as a whole, without the machines around them.

use std::collections::BTreeSet;

use super::boxes::{Kind, Route};
use super::*;
use crate::error::ProtocolError;
use crate::ids::{AgentId, RoundId};
use crate::random::Seed;

const ENTRIES: usize = 3;
const ROUND: RoundId = RoundId(7);

/// Which agents are still there in each of the four exchanges.
struct Presence([BTreeSet<u64>; 4]);

impl Presence {
    /// Everybody drops out at an exchange of its own: digit i of `code`, in base five, says at which; 4 is never.
    fn decode(mut code: u64, agents: u64) -> Self {
        let mut present: [BTreeSet<u64>; 4] = Default::default();
        for agent in 0..agents {
            let leaves = (code % 5) as usize;
            code /= 5;
            present.iter_mut().take(leaves).for_each(|present| {
                present.insert(agent);
            });
        }
        Self(present)
    }
}

struct Table {
    secure: SecureAggregation,
    agents: Vec<Participant>,
    collection: Collection,
    /// Everything that the coordinator received, as it would be in its log.
    masked: Vec<(AgentId, Vec<u128>)>,
}

fn numbers(agent: u64) -> Vec<u128> {
    // Small numbers of both signs, as sums of observations are.
    vec![u128::from(agent) + 1, (-5 - i128::from(agent)) as u128, 1 << (40 + agent)]
}

impl Table {
    fn new(agents: u64, secure: SecureAggregation) -> Self {
        let participant = |id: u64| {
            let mut stream = Seed(id).stream("secrets", 0, 0);
            Participant::new(AgentId(id), ROUND, &mut || stream.next_u64())
        };
        let all = (0..agents).map(AgentId).collect();
        Self {
            secure,
            agents: (0..agents).map(participant).collect(),
            collection: Collection::new(ROUND, all, ENTRIES),
            masked: Vec::new(),
        }
    }

    fn advance(&mut self) -> Collected {
        // As if it had been saved and restored before every exchange.
        self.collection = Collection::restored(self.collection.save(), ENTRIES).unwrap();
        self.collection.stop_waiting();
        self.collection.advance(&self.secure, 1)
    }

    fn agent(&mut self, id: AgentId) -> &mut Participant {
        let place = id.0 as usize;
        self.agents[place] = Participant::restored(id, self.agents[place].save()).unwrap();
        &mut self.agents[place]
    }

    /// Plays the round with agents that are there as `presence` says, and returns how it ends.
    fn play(&mut self, presence: &Presence) -> Collected {
        let Presence([keys, shares, masks, opening]) = presence;
        for &id in keys {
            let keys = self.agents[id as usize].keys();
            self.collection.take_keys(AgentId(id), 1, keys).unwrap();
        }
        let Collected::Next(calls) = self.advance() else { return Collected::TooFew };
        for (id, call) in calls.into_iter().filter(|(id, _)| shares.contains(&id.0)) {
            let SecureDownlink::Peers { peers, .. } = call else { panic!("{call:?}") };
            let secure = self.secure;
            let boxes = self.agent(id).share(&peers, &secure).unwrap();
            self.collection.take_shares(id, boxes).unwrap();
        }
        let Collected::Next(calls) = self.advance() else { return Collected::TooFew };
        for (id, call) in calls.into_iter().filter(|(id, _)| masks.contains(&id.0)) {
            let SecureDownlink::Boxes { boxes, .. } = call else { panic!("{call:?}") };
            let secure = self.secure;
            let sum: Vec<u128> = self
                .agent(id)
                .masks(&boxes, &secure, ENTRIES)
                .unwrap()
                .iter()
                .zip(numbers(id.0))
                .map(|(mask, number)| mask.wrapping_add(number))
                .collect();
            self.collection.take_masked(id, &sum).unwrap();
            self.masked.push((id, sum));
        }
        let Collected::Next(calls) = self.advance() else { return Collected::TooFew };
        for (id, call) in calls.into_iter().filter(|(id, _)| opening.contains(&id.0)) {
            let SecureDownlink::Open { survivors, .. } = call else { panic!("{call:?}") };
            let secure = self.secure;
            let opened = self.agent(id).open(&survivors, &secure).unwrap();
            self.collection.take_opened(id, &opened.seeds, &opened.keys).unwrap();
        }
        self.advance()
    }
}

fn plain(agents: impl Iterator<Item = u64>) -> Vec<u128> {
    agents.fold(vec![0u128; ENTRIES], |mut sum, agent| {
        sum.iter_mut().zip(numbers(agent)).for_each(|(sum, number)| *sum = sum.wrapping_add(number));
        sum
    })
}

/// All 5⁴ ways in which four agents can drop out, and one of 23 in which five can.
#[test]
fn the_sum_of_the_survivors_comes_out_exactly_whoever_drops_out_when_and_with_too_few_nothing_does() {
    let three = SecureAggregation { survivors: 3, colluders: 0 };
    let cases = (0..625).map(|code| (4, code)).chain((0..3125).step_by(23).map(|code| (5, code)));
    let (mut sums, mut failures) = (0, 0);
    for (agents, code) in cases {
        let presence = Presence::decode(code, agents);
        let Presence([keys, shares, masks, opening]) = &presence;
        let threshold = three.threshold(keys.len());
        let enough =
            keys.len() >= 3 && [shares, masks, opening].iter().all(|present| present.len() >= threshold);
        let mut table = Table::new(agents, three);
        let end = table.play(&presence);
        if enough {
            assert_eq!(end, Collected::Sum(plain(masks.iter().copied())), "{agents} agents, {code}");
            sums += 1;
        } else {
            assert_eq!(end, Collected::TooFew, "{agents} agents, {code}");
            failures += 1;
        }
    }
    assert!(sums > 20 && failures > 500, "{sums} {failures}");
}

/// What a coordinator can do with everything that it has: add up any of the masked numbers, and take out every mask of one agent that
/// opened shares give. Sums that are small are sums without masks.
fn bare(table: &Table) -> Vec<Vec<AgentId>> {
    let mut found = Vec::new();
    for subset in 1u32..1 << table.masked.len() {
        let chosen: Vec<&(AgentId, Vec<u128>)> =
            table.masked.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1).map(|(_, m)| m).collect();
        let mut collection = table.collection.clone();
        let all = collection.survivors.clone();
        collection.sum = vec![0; ENTRIES];
        for (_, numbers) in &chosen {
            collection.sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = sum.wrapping_add(*number));
        }
        // The masks of the seeds of the others are left in.
        collection.survivors = chosen.iter().map(|(id, _)| *id).collect();
        for other in all.difference(&collection.survivors.clone()) {
            collection.boxes.remove(other);
        }
        if let Collected::Sum(sum) = collection.advance(&table.secure, 1)
            && sum.iter().all(|number| (*number as i128).unsigned_abs() < 1 << 64)
        {
            found.push(chosen.iter().map(|(id, _)| *id).collect());
        }
    }
    found
}

#[test]
fn of_all_sums_that_the_coordinator_can_make_only_that_of_all_survivors_is_without_masks() {
    let secure = SecureAggregation { survivors: 3, colluders: 0 };
    let everybody = Presence::decode(3124, 5);
    let mut table = Table::new(5, secure);
    assert!(matches!(table.play(&everybody), Collected::Sum(_)));
    assert_eq!(bare(&table), vec![(0..5).map(AgentId).collect::<Vec<_>>()]);
    // One drops out before its numbers are sent, which opens the key of its masks.
    let mut table = Table::new(5, secure);
    assert!(matches!(table.play(&Presence::decode(3124 - 2 * 25, 5)), Collected::Sum(_)));
    assert_eq!(bare(&table), vec![[0, 1, 3, 4].map(AgentId).to_vec()]);
}

/// The same search finds the numbers of an agent that has no masks in common with the others.
#[test]
fn an_agent_without_masks_in_common_is_found_bare() {
    let secure = SecureAggregation { survivors: 3, colluders: 0 };
    let mut table = Table::new(5, secure);
    assert!(matches!(table.play(&Presence::decode(3124, 5)), Collected::Sum(_)));
    // Agent 2 sends its numbers under its own mask alone.
    let mut leaky = numbers(2);
    let mut stream = Seed(2).stream("secrets", 0, 0);
    let words: Vec<u8> = (0..16).flat_map(|_| stream.next_u64().to_le_bytes()).collect();
    let seed: [u8; 32] = words[64..96].try_into().unwrap();
    super::masks::apply(&mut leaky, &seed, super::masks::Sign::Plus);
    table.masked[2].1 = leaky;
    assert!(bare(&table).contains(&vec![AgentId(2)]), "{:?}", bare(&table));
}

#[test]
fn an_agent_never_opens_both_shares_of_an_agent_and_never_for_too_few() {
    let secure = SecureAggregation { survivors: 3, colluders: 1 };
    let mut table = Table::new(5, secure);
    // Nobody is there for the opening.
    assert_eq!(
        table.play(&Presence::decode(5u64.pow(5) - 1 - (1 + 5 + 25 + 125 + 625), 5)),
        Collected::TooFew
    );
    let all: Vec<AgentId> = (0..5).map(AgentId).collect();
    let refused = |result: Result<_, ProtocolError>| matches!(result, Err(ProtocolError::Aggregation(_)));
    let agent = &mut table.agents[0];
    for wrong in [&all[..3], &all[1..], &[AgentId(1), AgentId(0), AgentId(2), AgentId(3)], &[]] {
        assert!(refused(agent.open(wrong, &secure)), "{wrong:?}");
        assert!(!agent.has_opened());
    }
    let opening = agent.open(&all[..4], &secure).unwrap();
    assert_eq!(opening.seeds.iter().map(|share| share.agent).collect::<Vec<_>>(), all[..4]);
    assert_eq!(opening.keys.iter().map(|share| share.agent).collect::<Vec<_>>(), all[4..]);
    // Another story about who survived would open the other share of agent 4.
    assert!(refused(agent.open(&all, &secure)));
    assert!(refused(agent.open(&all[..4], &secure)), "not even the same again");
}

#[test]
fn lies_of_the_coordinator_are_refused_and_change_nothing() {
    let secure = SecureAggregation { survivors: 3, colluders: 0 };
    let mut table = Table::new(4, secure);
    let keys: Vec<PublicKeys> = table.agents.iter().map(Participant::keys).collect();
    let refused = |result: Result<Vec<SealedShares>, ProtocolError>| {
        matches!(result, Err(ProtocolError::Aggregation(_)))
    };
    let before = table.agents[0].save();
    let swapped = vec![keys[1], keys[0], keys[2]];
    let forged = vec![PublicKeys { masking: keys[3].masking, ..keys[0] }, keys[1], keys[2]];
    let weak = vec![keys[0], keys[1], PublicKeys { sealing: [0; 32], ..keys[2] }];
    let twice = vec![keys[0], keys[1], keys[1]];
    for lie in [vec![], keys[..2].to_vec(), keys[1..].to_vec(), swapped, forged, weak, twice] {
        assert!(refused(table.agents[0].share(&lie.clone().into(), &secure)), "{lie:?}");
        assert_eq!(table.agents[0].save(), before);
    }
    let peers: std::sync::Arc<Vec<PublicKeys>> = keys.into();
    let mut boxes: Vec<Vec<SealedShares>> =
        table.agents.iter_mut().map(|agent| agent.share(&peers, &secure).unwrap()).collect();
    assert!(refused(table.agents[0].share(&peers, &secure)), "a second time");
    let for_first = |boxes: &[Vec<SealedShares>]| -> Vec<SealedShares> {
        let from = (0..).map(AgentId).zip(boxes);
        from.map(|(agent, boxes)| SealedShares { agent, ..boxes[0].clone() }).collect()
    };
    let right = for_first(&boxes);
    let before = table.agents[0].save();
    let stranger =
        vec![right[0].clone(), right[1].clone(), SealedShares { agent: AgentId(9), ..right[2].clone() }];
    for lie in [right[..2].to_vec(), right[1..].to_vec(), stranger] {
        assert!(table.agents[0].masks(&lie, &secure, ENTRIES).is_err(), "{lie:?}");
        assert_eq!(table.agents[0].save(), before);
    }
    // A box that was changed on its way, or sealed for another agent, is not opened: its shares are left out.
    boxes[1][0].sealed[5] ^= 1;
    boxes[2][0] = boxes[2][3].clone();
    table.agents[0].masks(&for_first(&boxes), &secure, ENTRIES).unwrap();
    let all: Vec<AgentId> = (0..4).map(AgentId).collect();
    let opening = table.agents[0].open(&all, &secure).unwrap();
    assert_eq!(opening.seeds.iter().map(|share| share.agent.0).collect::<Vec<_>>(), [0, 3]);
}

/// Every share that is opened is the one that its maker published a hash of, or its opener is refused by name.
#[test]
fn wrong_shares_are_refused_from_their_opener_and_wrong_secrets_name_their_maker() {
    let secure = SecureAggregation { survivors: 3, colluders: 0 };
    let nobody_opens = Presence::decode(5u64.pow(4) - 1 - (1 + 5 + 25 + 125), 4);
    let mut table = Table::new(4, secure);
    table.play(&nobody_opens);
    table.collection.waiting = (0..4).map(AgentId).collect();
    let all: Vec<AgentId> = (0..4).map(AgentId).collect();
    let good = table.agents[0].open(&all, &secure).unwrap();
    let before = table.collection.save();
    let mut changed = good.seeds.clone();
    changed[1].share = changed[2].share;
    let mut doubled = good.seeds.clone();
    doubled[1] = doubled[0];
    let mut foreign = good.seeds.clone();
    foreign[1].agent = AgentId(9);
    for (seeds, keys) in
        [(&changed, &vec![]), (&doubled, &vec![]), (&foreign, &vec![]), (&vec![], &good.seeds)]
    {
        let refused = table.collection.take_opened(AgentId(0), seeds, keys);
        assert!(matches!(refused, Err(ProtocolError::Aggregation(_))), "{refused:?}");
        assert_eq!(table.collection.save(), before);
    }
    table.collection.take_opened(AgentId(0), &good.seeds, &[]).unwrap();
    assert_eq!(table.collection.take_opened(AgentId(0), &good.seeds, &[]), Err(ProtocolError::Round(ROUND)));
    // Agent 3 has published hashes of shares that give no secret: everybody opens them, and they are what it published.
    for opener in 1..4u64 {
        let mut opening = table.agents[opener as usize].open(&all, &secure).unwrap();
        let other = opening.seeds[0].share;
        opening.seeds[3].share = other;
        let route = Route { round: ROUND, from: AgentId(3), to: AgentId(opener) };
        let boxes = table.collection.boxes.get_mut(&AgentId(3)).unwrap();
        boxes[opener as usize].seed = route.commit(Kind::Seed, other);
        table.collection.take_opened(AgentId(opener), &opening.seeds, &[]).unwrap();
    }
    assert_eq!(table.collection.advance(&secure, 1), Collected::Cheated(AgentId(3)));
}

#[test]
fn parts_of_a_round_that_do_not_fit_it_are_refused_and_change_nothing() {
    let secure = SecureAggregation { survivors: 3, colluders: 0 };
    let mut table = Table::new(4, secure);
    let keys: Vec<PublicKeys> = table.agents.iter().map(Participant::keys).collect();
    let before = table.collection.save();
    let aggregation =
        |result: Result<(), ProtocolError>| matches!(result, Err(ProtocolError::Aggregation(_)));
    assert!(aggregation(table.collection.take_keys(AgentId(0), 1, keys[1])), "in another's name");
    let weak = PublicKeys { masking: [0; 32], ..keys[0] };
    assert!(aggregation(table.collection.take_keys(AgentId(0), 1, weak)), "a key without a secret");
    assert_eq!(table.collection.take_keys(AgentId(9), 1, keys[0]), Err(ProtocolError::Round(ROUND)));
    assert_eq!(table.collection.take_masked(AgentId(0), &[0; ENTRIES]), Err(ProtocolError::Round(ROUND)));
    assert_eq!(table.collection.save(), before);
    for (agent, keys) in (0..).map(AgentId).zip(&keys) {
        table.collection.take_keys(agent, 1, *keys).unwrap();
    }
    let Collected::Next(_) = table.collection.advance(&secure, 1) else { panic!("all keys are there") };
    let boxes = table.agents[0].share(&keys.into(), &secure).unwrap();
    let before = table.collection.save();
    let mut empty = boxes.clone();
    empty[1].sealed.clear();
    for wrong in [boxes[1..].to_vec(), empty, vec![]] {
        assert!(aggregation(table.collection.take_shares(AgentId(0), wrong)));
        assert_eq!(table.collection.save(), before);
    }
    table.collection.take_shares(AgentId(0), boxes).unwrap();
}

#[test]
fn as_many_agents_as_may_collude_cannot_use_up_slots() {
    let secure = SecureAggregation { survivors: 3, colluders: 2 };
    for (slots, agreed) in
        [([1, 1, 1, 1, 1], 1), ([1, 1, 1, 99, 99], 1), ([3, 3, 3, 1, 1], 3), ([1, 4, 4, 4, 9], 4)]
    {
        let mut table = Table::new(5, secure);
        for (id, slot) in (0..).zip(slots) {
            let keys = table.agents[id as usize].keys();
            table.collection.take_keys(AgentId(id), slot, keys).unwrap();
        }
        assert!(matches!(table.collection.advance(&secure, 1), Collected::Next(_)));
        assert_eq!(table.collection.slot(), agreed, "{slots:?}");
    }
}
