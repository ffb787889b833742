//! The coordinator of synchronous rounds under secure aggregation: it sees, keeps and shares only sums over many agents.

mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clustered::secure_agent::SecurePlan;
use crate::coordinator::{AgentStanding, Coordinator, CoordinatorView, Entrance};
use crate::error::{DecodeError, ProtocolError};
use crate::evidence::Evidence;
use crate::exchange::JoinPolicy;
use crate::ids::{AgentId, RoundId, Tick, Version};
use crate::message::{Downlink, Outgoing, SecureDownlink, SecureOutcome, SecureUplink, Uplink};
use crate::privacy::masking::{Collected, Collection, SecureAggregation, Stage};
use crate::privacy::shared_noise::SharedNoise;
use crate::privacy::{Budget, repair};
use crate::ridge::Ridge;
use crate::time_span::TimeSpan;

/// The coordinator of `sync-lin-ucb` with secure aggregation: it runs one round at a time.
#[derive(Debug)]
pub(crate) struct SecureRounds {
    name: &'static str,
    join: JoinPolicy,
    patience: Option<TimeSpan>,
    secure: SecureAggregation,
    budget: Budget,
    shared: SharedNoise,
    model: Ridge,
    version: Version,
    /// The sums over all rounds on the lattice of the noise, modulo 2¹²⁸.
    totals: Vec<u128>,
    /// What `totals` stand for, made positive definite, and the variance of the noise in it.
    evidence: Arc<Evidence>,
    variance: f64,
    repairs: u64,
    agents: BTreeMap<AgentId, SecureSeat>,
    /// Slots of lives that are over, by the number of the life: their noise is still in the sums.
    ended: BTreeMap<u64, Vec<u64>>,
    lives: u64,
    round: RoundId,
    /// The newest slot of the noise whose sum was opened, or may have been.
    slot: u64,
    /// A round was asked for when there were too few agents for one.
    wanted: bool,
    /// Agents that made shares which do not give their secret. They take part in no more rounds in this life.
    cheats: BTreeSet<AgentId>,
    open: Option<OpenSecureRound>,
}

/// A life of an agent.
#[derive(Clone, Debug, PartialEq)]
struct SecureSeat {
    life: u64,
    /// The newest round with its part.
    newest: RoundId,
    /// The slots whose sums have its part.
    slots: Vec<u64>,
}

#[derive(Clone, Debug)]
struct OpenSecureRound {
    opened: Tick,
    collection: Collection,
    /// The lives whose numbers are in the sum.
    lives: BTreeMap<AgentId, u64>,
}

impl SecureRounds {
    pub(crate) fn new(
        plan: &SecurePlan<'_>,
        join: JoinPolicy,
        patience: Option<TimeSpan>,
        dimension: usize,
    ) -> Self {
        let budget = Budget::new(plan.privacy, dimension, false);
        let shared = SharedNoise::new(plan.privacy, plan.secure, &budget, dimension);
        Self {
            name: plan.name,
            join,
            patience,
            secure: *plan.secure,
            budget,
            totals: vec![0; shared.entries()],
            shared,
            model: plan.model.model(dimension),
            version: Version(0),
            evidence: Arc::new(Evidence::none(dimension)),
            variance: 0.0,
            repairs: 0,
            agents: BTreeMap::new(),
            ended: BTreeMap::new(),
            lives: 0,
            round: RoundId(0),
            slot: 0,
            wanted: false,
            cheats: BTreeSet::new(),
            open: None,
        }
    }

    /// Begins a round if one is wanted, none is open, a slot is left and there are enough agents.
    fn start_if_wanted(&mut self, now: Tick) -> Vec<Outgoing> {
        let invited: BTreeSet<AgentId> =
            self.agents.keys().copied().filter(|agent| !self.cheats.contains(agent)).collect();
        let enough = invited.len() as u64 >= self.secure.survivors;
        if !self.wanted || self.open.is_some() || !enough || self.slot >= self.shared.slots() {
            return Vec::new();
        }
        self.wanted = false;
        self.round = RoundId(self.round.0 + 1);
        let round = self.round;
        let begin = |agent: &AgentId| Outgoing::to(*agent, Downlink::Secure(SecureDownlink::Begin { round }));
        let outgoing = invited.iter().map(begin).collect();
        let collection = Collection::new(round, invited, self.shared.entries());
        self.open = Some(OpenSecureRound { opened: now, collection, lives: BTreeMap::new() });
        outgoing
    }

    /// Goes on with the open round as far as its answers allow.
    fn advance(&mut self, now: Tick) -> Vec<Outgoing> {
        let next_slot = self.slot + 1;
        let Some(open) = &mut self.open else { return Vec::new() };
        match open.collection.advance(&self.secure, next_slot) {
            Collected::Nothing => Vec::new(),
            Collected::Next(messages) => {
                open.opened = now;
                if open.collection.slot() > self.shared.slots() {
                    // More agents than may collude say that they have used all slots. This coordinator has lost the history of it.
                    self.slot = self.shared.slots();
                    return self.fail();
                }
                messages.into_iter().map(|(to, call)| Outgoing::to(to, Downlink::Secure(call))).collect()
            }
            Collected::TooFew => self.fail(),
            Collected::Cheated(agent) => {
                self.cheats.insert(agent);
                self.fail()
            }
            Collected::Sum(sum) => self.commit(&sum),
        }
    }

    /// Ends the open round without a result.
    fn fail(&mut self) -> Vec<Outgoing> {
        let Some(open) = self.open.take() else { return Vec::new() };
        if open.collection.stage() == Stage::Opening {
            // Some agents have opened their shares, and never use the slot again.
            self.slot = self.slot.max(open.collection.slot());
        }
        vec![Outgoing::to_everyone(Downlink::Abort { round: open.collection.round() })]
    }

    /// Adds the sum of the open round to the totals and tells everybody.
    fn commit(&mut self, sum: &[u128]) -> Vec<Outgoing> {
        let Some(open) = &self.open else { return Vec::new() };
        let slot = open.collection.slot();
        let totals: Vec<u128> = self.totals.iter().zip(sum).map(|(a, b)| a.wrapping_add(*b)).collect();
        let possible = self.shared.is_possible(sum, open.collection.survivors().len());
        let lives: BTreeSet<u64> = open.lives.values().copied().collect();
        let variance = self.variance_with(slot, &lives);
        let evidence = self.shared.evidence(&totals).filter(|_| possible);
        let made = evidence.and_then(|mut evidence| {
            let d = evidence.dimension();
            let repaired =
                !evidence.is_empty() && repair(evidence.gram_mut(), d, self.budget.floor(variance));
            self.model.refresh([&evidence].into_iter()).ok()?;
            Some((evidence, repaired))
        });
        // No honest agents can have such a sum. At least one has sent something else, and masks hide which one.
        let Some((evidence, repaired)) = made else { return self.fail() };
        let Some(open) = self.open.take() else { return Vec::new() };
        (self.totals, self.slot, self.variance) = (totals, slot, variance);
        self.evidence = Arc::new(evidence);
        self.version = self.version.next();
        self.repairs += u64::from(repaired);
        let seats = self.agents.values_mut().filter(|seat| lives.contains(&seat.life));
        for seat in seats {
            seat.newest = self.round;
            seat.slots.push(slot);
        }
        self.ended
            .iter_mut()
            .filter(|(life, _)| lives.contains(life))
            .for_each(|(_, slots)| slots.push(slot));
        self.ended.retain(|_, slots| !slots.is_empty());
        let round = open.collection.round();
        let told = self.agents.iter().map(|(agent, seat)| {
            let included = lives.contains(&seat.life);
            Outgoing::to(*agent, self.outcome(false, round, included))
        });
        told.collect()
    }

    /// The variance of the noise in the totals if these lives are in the sum of one more slot.
    fn variance_with(&self, slot: u64, lives: &BTreeSet<u64>) -> f64 {
        let seats = self.agents.values().map(|seat| (seat.life, &seat.slots));
        let all = seats.chain(self.ended.iter().map(|(life, slots)| (*life, slots)));
        let mut patterns: BTreeMap<Vec<u64>, u64> = BTreeMap::new();
        for (life, slots) in all {
            let more = lives.contains(&life).then_some(slot);
            let slots: Vec<u64> = slots.iter().copied().chain(more).collect();
            *patterns.entry(slots).or_default() += 1;
        }
        patterns.iter().map(|(slots, agents)| *agents as f64 * self.shared.variance(slots)).sum()
    }

    fn outcome(&self, authoritative: bool, round: RoundId, included: bool) -> Downlink {
        let of_agents = self.agents.values().filter(|seat| !seat.slots.is_empty()).count();
        Downlink::Secure(SecureDownlink::Outcome(SecureOutcome {
            authoritative,
            round,
            included,
            slot: self.slot,
            version: self.version,
            members: (of_agents + self.ended.len()) as u64,
            variance: self.variance,
            evidence: Arc::clone(&self.evidence),
        }))
    }

    /// A life of an agent is over, and its secrets are gone with it.
    fn end_life(&mut self, agent: AgentId) {
        let Some(seat) = self.agents.remove(&agent) else { return };
        self.cheats.remove(&agent);
        let in_open = self.open.as_ref().is_some_and(|open| open.lives.get(&agent) == Some(&seat.life));
        if in_open || !seat.slots.is_empty() {
            self.ended.insert(seat.life, seat.slots);
        }
        if let Some(open) = &mut self.open {
            open.collection.drop_out(agent);
        }
    }

    fn take_part(&mut self, from: AgentId, life: u64, part: SecureUplink) -> Result<(), ProtocolError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        match part {
            SecureUplink::Keys { slot, keys, .. } => open.collection.take_keys(from, slot, keys),
            SecureUplink::Shares { boxes, .. } => open.collection.take_shares(from, boxes),
            SecureUplink::Masked { sums, .. } => {
                open.collection.take_masked(from, &sums)?;
                open.lives.insert(from, life);
                Ok(())
            }
            SecureUplink::Opened { seeds, keys, .. } => open.collection.take_opened(from, &seeds, &keys),
        }
    }
}

/// The exchange that a message belongs to.
const fn stage_of(part: &SecureUplink) -> Stage {
    match part {
        SecureUplink::Keys { .. } => Stage::Keys,
        SecureUplink::Shares { .. } => Stage::Shares,
        SecureUplink::Masked { .. } => Stage::Masks,
        SecureUplink::Opened { .. } => Stage::Opening,
    }
}

impl Coordinator for SecureRounds {
    fn join(&mut self, now: Tick, agent: AgentId, entrance: Entrance) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        let returning = entrance == Entrance::Returning;
        let known = self.agents.contains_key(&agent);
        if returning {
            // The history that the open round belongs to is gone, for the agents of that round as well.
            outgoing.extend(self.fail());
        } else {
            self.end_life(agent);
        }
        if !(returning && known) {
            self.lives += 1;
            let seat = SecureSeat { life: self.lives, newest: RoundId(0), slots: Vec::new() };
            self.agents.insert(agent, seat);
        }
        let newest = self.agents[&agent].newest;
        let pull = known || self.join == JoinPolicy::PullOnJoin;
        if returning || (pull && self.version > Version(0)) {
            outgoing.push(Outgoing::to(agent, self.outcome(returning, newest, newest > RoundId(0))));
        }
        outgoing.extend(self.advance(now));
        outgoing.extend(self.start_if_wanted(now));
        outgoing
    }

    fn leave(&mut self, now: Tick, agent: AgentId) -> Vec<Outgoing> {
        self.end_life(agent);
        self.advance(now)
    }

    fn receive(&mut self, now: Tick, from: AgentId, message: Uplink) -> Result<Vec<Outgoing>, ProtocolError> {
        let life = self.agents.get(&from).ok_or(ProtocolError::UnknownAgent(from))?.life;
        match message {
            Uplink::RoundRequest { .. } => {
                self.wanted |= self.open.is_none();
                Ok(self.start_if_wanted(now))
            }
            Uplink::Secure(part) => {
                let round = part.round();
                if round > self.round {
                    return Err(ProtocolError::Round(round));
                }
                let stage = self.open.as_ref().map(|open| open.collection.stage());
                // Too late for its round or its exchange: the agent has dropped out and hears so when the round ends.
                if round < self.round || stage.is_none_or(|stage| stage_of(&part) < stage) {
                    return Ok(Vec::new());
                }
                self.take_part(from, life, part)?;
                Ok(self.advance(now))
            }
            other => Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() }),
        }
    }

    fn tick(&mut self, now: Tick) -> Vec<Outgoing> {
        if self.deadline().is_some_and(|deadline| deadline <= now)
            && let Some(open) = &mut self.open
        {
            open.collection.stop_waiting();
        }
        self.advance(now)
    }

    fn deadline(&self) -> Option<Tick> {
        Some(self.open.as_ref()?.opened.after(self.patience?))
    }

    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        self.open.as_ref().map(|open| open.collection.waiting())
    }

    fn inspect(&self) -> CoordinatorView<'_> {
        // Noise may lower the information of the sums from one round to the next.
        CoordinatorView::of(self.version, &self.evidence, 0.0, self.agents.len())
    }

    fn agent(&self, agent: AgentId) -> Option<AgentStanding> {
        let seat = self.agents.get(&agent)?;
        Some(AgentStanding { uploads: seat.newest.0, version: self.version, information: 0.0 })
    }

    fn repairs(&self) -> u64 {
        self.repairs
    }

    fn save(&self) -> Vec<u8> {
        self.encode()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        self.decode(state)
    }
}
