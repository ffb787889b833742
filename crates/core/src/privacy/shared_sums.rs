//! What an agent gives to sums over many agents: observations, noise and what was spent.

use crate::error::DecodeError;
use crate::evidence::packed;
use crate::ids::{AgentId, RoundId};
use crate::privacy::budget::Budget;
use crate::privacy::config::PrivacyConfig;
use crate::privacy::fixed::Leaf;
use crate::privacy::intake::{Intake, Spent};
use crate::privacy::masking::{Participant, SecureAggregation};
use crate::privacy::noise::{Measurement, StreamId};
use crate::privacy::report::PrivacyReport;
use crate::privacy::shared_noise::SharedNoise;
use crate::random::Seed;
use crate::wire::v1;

/// The private side of an agent under secure aggregation.
///
/// Its state must be kept before an answer is sent: an agent that forgot what it sent in a slot and used the slot again
/// would give its noise away.
#[derive(Debug)]
pub(crate) struct SharedSums {
    pub(crate) intake: Intake,
    secure: SecureAggregation,
    budget: Budget,
    shared: SharedNoise,
    dimension: usize,
    /// What was learned since the last sum.
    filling: Leaf,
    /// What was sent under masks and is not known to be in a sum.
    frozen: Option<Leaf>,
    /// The draws of slots 1, 2, … so far.
    drawn: Vec<Vec<i64>>,
    /// The first slot that the agent may use: later than every slot whose sum it helped to open.
    next_slot: u64,
    /// The newest slot that it sent anything in.
    newest_slot: u64,
    opened: u64,
    /// Rounds that it drew keys for.
    begun: u64,
}

impl SharedSums {
    pub(crate) fn new(
        config: &PrivacyConfig,
        secure: &SecureAggregation,
        dimension: usize,
        id: AgentId,
        seed: Seed,
    ) -> Self {
        let budget = Budget::new(config, dimension, false);
        Self {
            shared: SharedNoise::new(config, secure, &budget, dimension),
            intake: Intake::new(config, id, seed),
            secure: *secure,
            budget,
            dimension,
            filling: Leaf::new(dimension),
            frozen: None,
            drawn: Vec::new(),
            next_slot: 1,
            newest_slot: 0,
            opened: 0,
            begun: 0,
        }
    }

    pub(crate) const fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) const fn secure(&self) -> &SecureAggregation {
        &self.secure
    }

    /// Adds an observation that was clipped before.
    pub(crate) fn add(&mut self, x: &[f64], y: f64) {
        self.filling.add(self.intake.units, x, y);
    }

    /// Counts an interaction without a reward, so that counts do not tell it from others.
    pub(crate) const fn add_nothing(&mut self) {
        self.filling.count += 1;
    }

    /// Whether an agent with `total` observations, `included` of which are in sums, should ask for a round.
    pub(crate) fn is_due(&self, total: u64, included: u64) -> bool {
        self.next_slot <= self.shared.slots() && self.intake.config.is_due(total, included)
    }

    /// How many numbers the agent sends.
    pub(crate) const fn entries(&self) -> usize {
        self.shared.entries()
    }

    /// The first slot that the agent may use.
    pub(crate) const fn next_slot(&self) -> u64 {
        self.next_slot
    }

    /// Whether the agent may send numbers in this slot.
    pub(crate) fn may_use(&self, slot: u64) -> bool {
        (self.next_slot..=self.shared.slots()).contains(&slot)
    }

    /// The agent takes part in a round, with new keys.
    pub(crate) fn participant(&mut self, id: AgentId, round: RoundId) -> Participant {
        // By its own count: numbers of rounds come again if a coordinator has lost part of its history, and keys must not.
        self.begun += 1;
        Participant::new(id, round, &mut *self.intake.noise.key_bits(self.begun))
    }

    /// The agent's numbers for a slot that it may use: everything that it learned and that is in no sum, with noise.
    pub(crate) fn numbers(&mut self, slot: u64) -> Vec<u128> {
        self.give_back();
        while (self.drawn.len() as u64) < slot {
            let number = self.drawn.len() as u64 + 1;
            let measurement = Measurement { stream: StreamId::Cluster(1), number };
            let drawn = self.shared.draw(number, &mut *self.intake.noise.bits(measurement));
            self.drawn.push(drawn);
        }
        let leaf = std::mem::replace(&mut self.filling, Leaf::new(self.dimension));
        let numbers = self.shared.numbers(&leaf, &self.drawn[..slot as usize]);
        self.frozen = Some(leaf);
        self.newest_slot = self.newest_slot.max(slot);
        numbers
    }

    /// The agent helps to open the sum of a slot: from here on its numbers may be known, in a sum with others.
    pub(crate) fn open(&mut self, slot: u64) {
        self.next_slot = self.next_slot.max(slot + 1);
        self.opened += 1;
    }

    /// What was sent under masks is in a sum, or may be: it is never sent again.
    pub(crate) fn settle(&mut self) {
        self.frozen = None;
    }

    /// What was sent under masks is in no sum: it waits for the next one.
    pub(crate) fn give_back(&mut self) {
        if let Some(frozen) = self.frozen.take() {
            self.filling.merge(&frozen);
        }
    }

    pub(crate) fn report(&self, most_of_a_user: u64) -> PrivacyReport {
        let spent = Spent {
            mu: self.budget.cluster.loss(self.newest_slot).sqrt(),
            calibration: self.budget.divided(self.secure.honest()).calibration(),
            secure_aggregation: Some(self.secure),
            streams: 1,
            releases: self.opened,
            silent: u64::from(self.next_slot > self.shared.slots()),
            interactive: true,
            private_partition: false,
        };
        self.intake.report(&spent, most_of_a_user)
    }

    pub(crate) fn save(&self) -> v1::SharedSumsState {
        let leaf = |leaf: &Leaf| v1::LeafState { count: leaf.count, sums: leaf.sums.clone() };
        v1::SharedSumsState {
            filling: Some(leaf(&self.filling)),
            frozen: self.frozen.as_ref().map(leaf),
            drawn: self.drawn.iter().map(|drawn| v1::SlotNoiseState { numbers: drawn.clone() }).collect(),
            next_slot: self.next_slot,
            newest_slot: self.newest_slot,
            opened: self.opened,
            begun: self.begun,
            clipped: self.intake.clipped,
            beyond_cap: self.intake.beyond_cap,
            signal_to_noise: self.intake.signal_to_noise,
        }
    }

    /// Goes on from a saved state, or changes nothing.
    pub(crate) fn restore(&mut self, state: v1::SharedSumsState) -> Result<(), DecodeError> {
        let entries = packed(self.dimension) + self.dimension;
        let leaf = |leaf: v1::LeafState| Leaf { sums: leaf.sums, count: leaf.count };
        let (filling, frozen) = (leaf(state.filling.unwrap_or_default()), state.frozen.map(leaf));
        let sound = filling.sums.len() == entries
            && frozen.as_ref().is_none_or(|leaf| leaf.sums.len() == entries)
            && state.drawn.len() as u64 <= self.shared.slots()
            && state.drawn.iter().all(|drawn| drawn.numbers.len() == entries)
            && state.newest_slot <= state.drawn.len() as u64
            && (1..=self.shared.slots() + 1).contains(&state.next_slot);
        if !sound {
            return Err(DecodeError::invalid("shared sums", "they do not fit the dimension or the slots"));
        }
        (self.filling, self.frozen) = (filling, frozen);
        self.drawn = state.drawn.into_iter().map(|drawn| drawn.numbers).collect();
        (self.next_slot, self.newest_slot) = (state.next_slot, state.newest_slot);
        (self.opened, self.begun) = (state.opened, state.begun);
        (self.intake.clipped, self.intake.beyond_cap) = (state.clipped, state.beyond_cap);
        self.intake.signal_to_noise = state.signal_to_noise;
        Ok(())
    }
}
