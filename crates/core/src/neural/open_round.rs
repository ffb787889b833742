//! A round of networks that has begun and not ended, as a coordinator or a relay keeps it: who is waited for, what came in,
//! and the mean of the networks.

use std::collections::{BTreeMap, BTreeSet};

use super::fn_ucb::FnUcb;
use super::message::{NetworkEvidence, NetworkPart, NetworkSum};
use super::network::{Layout, Network};
use super::rows::unwrap;
use super::statistic::{Precondition, Statistic};
use crate::error::{DecodeError, ProtocolError};
use crate::evidence::packed;
use crate::ids::{AgentId, RoundId, Tick};
use crate::message::{Downlink, Outgoing};
use crate::wire::{self, v1};

/// A round that has begun and not ended.
#[derive(Clone, Debug)]
pub(crate) struct OpenNetworkRound {
    /// When the exchange it waits for began.
    pub(crate) opened: Tick,
    pub(crate) waiting: BTreeSet<AgentId>,
    pub(crate) parts: BTreeMap<AgentId, NetworkPart>,
    /// Averages sent, and the networks that came back after the last one.
    pub(crate) step: u64,
    pub(crate) networks: BTreeMap<AgentId, Vec<f64>>,
}

/// The mean of some networks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NetworkMean {
    /// θ, empty if there are no networks.
    pub(crate) weights: Vec<f64>,
    pub(crate) networks: u64,
    /// How many observations the networks were trained on or could have been.
    pub(crate) seen: u64,
}

impl OpenNetworkRound {
    pub(crate) const fn new(opened: Tick, waiting: BTreeSet<AgentId>) -> Self {
        Self { opened, waiting, parts: BTreeMap::new(), step: 0, networks: BTreeMap::new() }
    }

    /// Takes in a part that was checked.
    pub(crate) fn insert(&mut self, from: AgentId, part: NetworkPart) {
        self.waiting.remove(&from);
        if !part.weights.is_empty() {
            self.networks.insert(from, part.weights.clone());
        }
        self.parts.insert(from, part);
    }

    /// Leaves an agent out, with everything that it said.
    pub(crate) fn forget(&mut self, agent: AgentId) {
        self.waiting.remove(&agent);
        self.parts.remove(&agent);
        self.networks.remove(&agent);
    }

    /// Asks all that are waited for to answer with what they have.
    pub(crate) fn hurry(&self, round: RoundId) -> Vec<Outgoing> {
        let collect = Downlink::NetworkCollect { round, observations: 0 };
        self.waiting.iter().map(|agent| Outgoing::to(*agent, collect.clone())).collect()
    }

    /// The mean of the networks, weighted by how many observations each agent has trained on or could have: the network
    /// of a quiet agent knows less. Where no agent has any, all count the same. `contained` is how many observations of an
    /// agent were shared before.
    pub(crate) fn mean(&self, contained: impl Fn(&AgentId) -> u64) -> NetworkMean {
        let seen = |agent: &AgentId| match self.parts.get(agent) {
            Some(NetworkPart { sum: Some(sum), .. }) => sum.seen,
            part => contained(agent).saturating_add(part.map_or(0, |part| part.evidence.count())),
        };
        self.weighted(seen)
    }

    /// The same where every network counts the same.
    pub(crate) fn plain_mean(&self) -> NetworkMean {
        self.weighted(|_| 0)
    }

    fn weighted(&self, seen: impl Fn(&AgentId) -> u64) -> NetworkMean {
        let count = |agent: &AgentId| self.parts.get(agent).map_or(1, NetworkPart::networks);
        let total = self.networks.keys().map(&seen).fold(0, u64::saturating_add);
        let networks = self.networks.keys().map(count).fold(0, u64::saturating_add);
        let mut weights: Vec<f64> = Vec::new();
        for (agent, network) in &self.networks {
            // Equal counts give 1/N to the last bit, as both are the same fraction, rounded once.
            let share = match total {
                0 => count(agent) as f64 / networks as f64,
                total => seen(agent) as f64 / total as f64,
            };
            weights.resize(network.len(), 0.0);
            weights.iter_mut().zip(network).for_each(|(sum, value)| *sum += share * value);
        }
        NetworkMean { weights, networks, seen: total }
    }

    /// What a saved state says of the open round: agents that are waited for, parts and networks.
    pub(crate) fn save(&self) -> (Vec<u64>, Vec<v1::NetworkPartState>, Vec<v1::NetworkAverageState>) {
        let part = |(agent, part): (&AgentId, &NetworkPart)| v1::NetworkPartState {
            agent: agent.0,
            part: Some(wire::part_to_wire(part)),
        };
        let network = |(agent, weights): (&AgentId, &Vec<f64>)| v1::NetworkAverageState {
            agent: agent.0,
            weights: weights.clone(),
        };
        (
            self.waiting.iter().map(|agent| agent.0).collect(),
            self.parts.iter().map(part).collect(),
            self.networks.iter().map(network).collect(),
        )
    }

    /// The round that was saved, if its parts pass `check` and its networks are of this layout.
    pub(crate) fn restored(
        (opened, step): (u64, u64),
        (waiting, parts, networks): (Vec<u64>, Vec<v1::NetworkPartState>, Vec<v1::NetworkAverageState>),
        layout: Layout,
        check: impl Fn(&NetworkPart) -> Result<(), ProtocolError>,
    ) -> Result<Self, DecodeError> {
        let waiting = waiting.into_iter().map(AgentId).collect();
        let mut open = Self { step, ..Self::new(Tick(opened), waiting) };
        for part in parts {
            let own = wire::part_from_wire(part.part.unwrap_or_default())?;
            check(&own).map_err(|_| DecodeError::invalid("round", "a part does not fit"))?;
            open.parts.insert(AgentId(part.agent), own);
        }
        for network in networks {
            check_network(layout, &network.weights)
                .map_err(|_| DecodeError::invalid("round", "a network does not fit"))?;
            open.networks.insert(AgentId(network.agent), network.weights);
        }
        Ok(open)
    }
}

/// `Ok` if these are the parameters of a network of this layout.
pub(crate) fn check_network(layout: Layout, weights: &[f64]) -> Result<(), ProtocolError> {
    let network = Network::from_parameters(layout, weights);
    let sound = network.is_some_and(|network| network.is_sound());
    if sound { Ok(()) } else { Err(ProtocolError::Model("its parameters are not those of a network")) }
}

/// `Ok` if a part can be one of a round of `config`, whose networks start from parameters with the fingerprint `start`.
pub(crate) fn check_part(
    config: &FnUcb,
    layout: Layout,
    start: Option<u64>,
    part: &NetworkPart,
) -> Result<(), ProtocolError> {
    let (expected, got) = (layout.parameters(), part.evidence.parameters());
    if expected != got {
        return Err(ProtocolError::Dimension { expected, got });
    }
    if let Some(sum) = &part.sum {
        check_sum(config, expected, part, sum)?;
    }
    if part.sum.is_none() || part.networks() > 0 {
        if start.is_some_and(|start| start != part.start) {
            return Err(ProtocolError::Model("its network started from other parameters"));
        }
        check_network(layout, &part.weights)?;
    }
    if !(0.0..=1.0).contains(&part.alpha) {
        return Err(ProtocolError::Model("its alpha does not lie between 0 and 1"));
    }
    part.evidence.check()?;
    match (&part.evidence, config.neural.statistic) {
        (NetworkEvidence::Full(factor), Precondition::Full) => unwrap(factor).map(drop),
        (NetworkEvidence::Diagonal { .. }, Precondition::Diagonal) => Ok(()),
        _ => Err(ProtocolError::Evidence("its matrix is of another kind")),
    }
}

/// `Ok` if what a relay says of its part can be.
fn check_sum(
    config: &FnUcb,
    parameters: usize,
    part: &NetworkPart,
    sum: &NetworkSum,
) -> Result<(), ProtocolError> {
    let NetworkSum { networks, seen, widths, .. } = sum;
    let count = part.evidence.count();
    if (*networks == 0) != part.weights.is_empty() || (*networks == 0 && count.max(*seen) > 0) {
        return Err(ProtocolError::Model("its mean is over other networks than it says"));
    }
    if *networks > widths.agents || count > *seen || (*seen).max(widths.agents) > 1 << 53 {
        return Err(ProtocolError::Model("it cannot be over so many agents and observations"));
    }
    let kind = config.neural.statistic;
    let expected = if widths.agents == 0 { 0 } else { Statistic::scalars(kind, parameters) };
    if !config.less_communication || widths.entries.len() != expected {
        return Err(ProtocolError::Model("its widths do not fit"));
    }
    // The inverse of λI and of something positive has no entry above 1/λ, and none below 0 on the diagonal.
    let most = widths.agents as f64 / config.neural.regularization * (1.0 + 1e-6);
    let place = |i: usize| if kind == Precondition::Full { packed(i) + i } else { i };
    let diagonal = (0..parameters.min(expected)).map(|i| widths.entries[place(i)]);
    if widths.entries.iter().all(|v| v.abs() <= most) && diagonal.fold(0.0_f64, f64::min) >= -1e-6 * most {
        Ok(())
    } else {
        Err(ProtocolError::Model("its widths are not those of any matrices"))
    }
}
