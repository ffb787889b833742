//! Who is believed: the evidence of every agent is kept apart and held against the model of the others.
//!
//! An agent that reports honestly has Σxy = Gθ + noise, where G is its matrix and θ what all share. So
//! (Σxy − Gθ̂)ᵀG⁺(Σxy − Gθ̂)/σ² is about as large as G has directions, whatever arms the agent played. An agent
//! that lies about its rewards has more, and the more it wants to achieve the more of it.
//!
//! θ̂ must not depend on the liars. It is the least trimmed squares estimate over agents: the model of that
//! majority of agents which fits its own model best. It holds while fewer than half of the agents lie, also
//! if these agree with each other. No agent counts for more than a typical one in it, however much it claims
//! to have seen; what it has seen counts in full once it is believed.
//!
//! Memory: d(d + 3)/2 + 4 numbers for each agent that ever uploaded, 2.8 kB for d = 25.

use std::collections::BTreeMap;

use crate::coordinator::{AgentAccount, Suspicion};
use crate::error::{DecodeError, ProtocolError};
use crate::evidence::{Evidence, add_assign, multiply, packed};
use crate::ids::{AgentId, AgentPath};
use crate::ridge::Ridge;
use crate::wire::{self, v1};

/// Fewest agents among which a majority means something.
const MIN_AGENTS: usize = 8;
/// Multiplications by the matrix of errors that find the direction in which they are largest.
const POWERS: usize = 30;
/// Everybody is judged again when there is this share more evidence.
const GROWTH: f64 = 0.2;
/// Fewest observations for each feature in the smaller of two camps, before it counts as one.
const MIN_CAMP: u64 = 10;
/// Least squared distance between what two camps say, in variances of the noise and averaged over observations. Two
/// halves of honest agents, parted to differ as much as possible, are about 2.5 apart.
const SEPARATION: f64 = 5.0;
/// Most refinements of a majority. Each lowers its deviation, so that few are needed.
const MAX_STEPS: usize = 20;

/// Evidence by agent, and which of it is believed.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    regularization: f64,
    /// σ², the variance of noise that honest agents are sure to have.
    variance: f64,
    /// ln(1/p) for the probability p that an honest agent is set aside.
    caution: f64,
    accounts: BTreeMap<AgentPath, Account>,
    /// Observations, believed or not, at which everybody is judged next.
    next: u64,
    /// By what the deviations of most agents exceed those of noise with the variance above: 1 or more, and 0
    /// before the first judgement.
    scale: f64,
    /// The model of agents that contradict the majority and agree with each other, if there are such.
    rival: Option<Rival>,
}

/// What agents say that contradict the majority and agree with each other.
#[derive(Clone, Debug)]
struct Rival {
    sums: Evidence,
    reference: Reference,
}

/// What one agent has uploaded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Account {
    sums: Evidence,
    /// (Σxy)ᵀG⁺Σxy: the squared rewards that the best model for this agent alone explains.
    explained: f64,
    /// Why the agent is not believed, if it is not.
    suspicion: Option<Suspicion>,
}

/// What becomes of an upload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It joins what is believed.
    Believed,
    /// It is kept apart, as all of this agent already was.
    StaysAside,
    /// It is kept apart, and so must be what this agent uploaded before.
    SetAside,
}

impl Account {
    /// Whether there is anything by which to judge the agent.
    fn is_heard(&self) -> bool {
        self.sums.count() > 0
    }

    fn directions(&self) -> f64 {
        self.sums.count().min(self.sums.dimension() as u64) as f64
    }
}

/// A model and what it is uncertain about.
#[derive(Clone, Debug)]
struct Reference {
    theta: Vec<f64>,
    /// V⁻¹, packed.
    inverse: Vec<f64>,
}

impl Reference {
    fn of(model: &Ridge) -> Self {
        let dimension = model.dimension();
        let mut inverse = vec![0.0; packed(dimension)];
        let mut column = vec![0.0; dimension];
        for j in 0..dimension {
            column.fill(0.0);
            column[j] = 1.0;
            model.solve(&mut column);
            for i in j..dimension {
                inverse[packed(i) + j] = column[i];
            }
        }
        Self { theta: model.estimate(), inverse }
    }

    /// (Σxy − Gθ̂)ᵀG⁺(Σxy − Gθ̂), and by what factor the uncertainty of θ̂ raises it on average.
    fn deviation(&self, account: &Account) -> (f64, f64) {
        let (theta, sums) = (&self.theta, &account.sums);
        let fitted = multiply(sums.gram(), 0.0, theta);
        let cross: f64 =
            theta.iter().zip(sums.moment()).zip(&fitted).map(|((t, b), g)| t * (g - 2.0 * b)).sum();
        let mut trace = 0.0;
        for i in 0..theta.len() {
            let row = packed(i)..packed(i) + i;
            let off: f64 =
                sums.gram()[row.clone()].iter().zip(&self.inverse[row.clone()]).map(|(a, b)| a * b).sum();
            trace += 2.0 * off + sums.gram()[row.end] * self.inverse[row.end];
        }
        ((account.explained + cross).max(0.0), 1.0 + trace / account.directions().max(1.0))
    }
}

impl Trust {
    pub(crate) fn new(regularization: f64, noise: f64, false_alarm: f64) -> Self {
        Self {
            regularization,
            // Without noise every rounding error would be a lie.
            variance: (noise * noise).max(1e-12),
            caution: -libm::log(false_alarm),
            accounts: BTreeMap::new(),
            next: 0,
            scale: 0.0,
            rival: None,
        }
    }

    /// The largest deviation that noise explains in `directions` directions: exceeded with probability p at most
    /// (Laurent and Massart, 2000).
    fn limit(&self, directions: f64, inflation: f64, scale: f64) -> f64 {
        let t = self.caution;
        self.variance * scale * inflation * (directions + 2.0 * (directions * t).sqrt() + 2.0 * t)
    }

    fn suspicion(
        &self,
        account: &Account,
        reference: &Reference,
        scale: f64,
        rival: Option<&Rival>,
    ) -> Option<Suspicion> {
        let (deviation, inflation) = reference.deviation(account);
        let alone = self.limit(account.directions(), inflation, scale);
        let limit = rival.map_or(alone, |rival| {
            // The agent is so much more likely one of theirs: a likelihood ratio of 1/√p.
            let (theirs, wider) = rival.reference.deviation(account);
            let odds = account.directions() * libm::log(wider / inflation) + self.caution;
            alone.min(inflation * (theirs / wider + self.variance * scale * odds.max(0.0)))
        });
        (deviation > limit).then(|| Suspicion {
            deviation: deviation / self.variance,
            limit: limit / self.variance,
            observations: account.sums.count(),
        })
    }

    /// Everything that an agent has said, with an upload.
    pub(crate) fn sums_with(&self, agent: &AgentPath, upload: &Evidence) -> Result<Evidence, ProtocolError> {
        let nothing = Evidence::none(upload.dimension());
        self.accounts.get(agent).map_or(&nothing, |known| &known.sums).checked_sum(upload)
    }

    /// The account of an agent that has said `sums` in all, and what becomes of its last upload. `model` is that of
    /// everything believed. Nothing changes.
    pub(crate) fn examine(
        &self,
        agent: &AgentPath,
        sums: Evidence,
        model: &Ridge,
    ) -> Result<(Account, Verdict), ProtocolError> {
        let known = self.accounts.get(agent);
        let explained = explained(&sums)?;
        let suspicion = known.and_then(|account| account.suspicion);
        let mut account = Account { sums, explained, suspicion };
        if suspicion.is_some() {
            return Ok((account, Verdict::StaysAside));
        }
        if self.scale > 0.0 {
            let (reference, rival) = (Reference::of(model), self.rival.as_ref());
            account.suspicion = self.suspicion(&account, &reference, self.scale, rival);
        }
        let verdict = match (&account.suspicion, known) {
            (None, _) => Verdict::Believed,
            (Some(_), None) => Verdict::StaysAside,
            (Some(_), Some(_)) => Verdict::SetAside,
        };
        Ok((account, verdict))
    }

    pub(crate) fn keep(&mut self, agent: AgentPath, account: Account) {
        self.accounts.insert(agent, account);
    }

    /// Why an agent is not believed, if it is not.
    pub(crate) fn suspicion_of(&self, agent: &AgentPath) -> Option<Suspicion> {
        self.accounts.get(agent)?.suspicion
    }

    /// The sum of everything believed, without `except`.
    pub(crate) fn believed(&self, dimension: usize, except: Option<&AgentPath>) -> Evidence {
        let mut sum = Evidence::none(dimension);
        for (agent, account) in &self.accounts {
            if account.suspicion.is_none() && Some(agent) != except {
                sum.add(&account.sums);
            }
        }
        sum
    }

    pub(crate) fn believes(&self, agent: &AgentPath) -> bool {
        self.suspicion_of(agent).is_none()
    }

    pub(crate) fn knows(&self, agent: &AgentPath) -> bool {
        self.accounts.contains_key(agent)
    }

    pub(crate) fn count_of(&self, agent: &AgentPath) -> u64 {
        self.accounts.get(agent).map_or(0, |account| account.sums.count())
    }

    /// All accounts, by path.
    pub(crate) fn accounts(&self) -> Vec<AgentAccount> {
        let account = |(agent, account): (&AgentPath, &Account)| AgentAccount {
            agent: agent.clone(),
            observations: account.sums.count(),
            suspicion: account.suspicion,
        };
        self.accounts.iter().map(account).collect()
    }

    /// How many agents are not believed.
    pub(crate) fn set_aside(&self) -> u64 {
        self.accounts.values().filter(|account| account.suspicion.is_some()).count() as u64
    }

    /// Whose accounts there are.
    pub(crate) fn agents(&self) -> impl Iterator<Item = &AgentPath> {
        self.accounts.keys()
    }

    /// Observations in all accounts.
    pub(crate) fn total(&self) -> u64 {
        self.accounts.values().map(|account| account.sums.count()).sum()
    }

    /// Whether everybody is to be judged, now that the coordinator has taken in so many observations.
    pub(crate) fn is_due(&self, taken_in: u64) -> bool {
        taken_in >= self.next
            && self.accounts.values().filter(|account| account.is_heard()).count() >= MIN_AGENTS
    }

    /// Judges everybody with the next upload.
    pub(crate) fn hasten(&mut self) {
        self.next = 0;
    }

    /// Makes these sums the accounts of their agents. Whoever has nothing in them stays as it is, believed or not;
    /// whoever is not among them has no account, and begins anew.
    pub(crate) fn retell(&mut self, sums: BTreeMap<AgentId, Evidence>) -> Result<(), ProtocolError> {
        let mut accounts = BTreeMap::new();
        for (agent, sums) in sums {
            let agent = AgentPath::from(agent);
            let explained = if sums.count() > 0 { explained(&sums)? } else { 0.0 };
            let suspicion = self.suspicion_of(&agent);
            accounts.insert(agent, Account { sums, explained, suspicion });
        }
        self.accounts = accounts;
        Ok(())
    }

    /// Judges everybody anew if it is time, and returns the observations of agents that are believed no longer
    /// and of agents that are believed again.
    pub(crate) fn judge_if_due(&mut self, taken_in: u64) -> (u64, u64) {
        let total = self.total();
        let Some(dimension) = self.accounts.values().next().map(|account| account.sums.dimension()) else {
            return (0, 0);
        };
        if !self.is_due(taken_in) || total < 2 * dimension as u64 {
            return (0, 0);
        }
        self.next = taken_in + ((total as f64 * GROWTH) as u64).max(1);
        let Some((scale, rival, suspicions)) = self.judge(dimension) else { return (0, 0) };
        (self.scale, self.rival) = (scale, rival);
        let (mut out, mut back) = (0, 0);
        let heard = self.accounts.values_mut().filter(|account| account.is_heard());
        for (account, suspicion) in heard.zip(suspicions) {
            match (account.suspicion, suspicion) {
                (None, Some(_)) => out += account.sums.count(),
                (Some(_), None) => back += account.sums.count(),
                _ => {}
            }
            account.suspicion = suspicion;
        }
        (out, back)
    }

    fn judge(&self, dimension: usize) -> Option<(f64, Option<Rival>, Vec<Option<Suspicion>>)> {
        let accounts: Vec<&Account> = self.accounts.values().filter(|account| account.is_heard()).collect();
        let mut counts: Vec<u64> = accounts.iter().map(|account| account.sums.count()).collect();
        counts.sort_unstable();
        let cap = counts[counts.len() / 2].max(dimension as u64) as f64;
        let sums = |members: &[bool]| {
            let mut gram = vec![0.0; packed(dimension)];
            let mut moment = vec![0.0; dimension];
            let mut count = 0;
            for (account, _) in accounts.iter().zip(members).filter(|(_, member)| **member) {
                let weight = (cap / account.sums.count() as f64).min(1.0);
                add_scaled(&mut gram, weight, account.sums.gram());
                add_scaled(&mut moment, weight, account.sums.moment());
                // Weights times counts.
                count += account.sums.count().min(cap as u64);
            }
            Evidence::from_parts_unchecked(gram, moment, count)
        };
        let fit = |members: &[bool]| self.reference(&sums(members));
        // Deviations in units of their expected median.
        let ratios = |reference: &Reference| -> Vec<f64> {
            let ratio = |account: &&Account| {
                let (deviation, inflation) = reference.deviation(account);
                deviation / (self.variance * inflation * median_of_chi_squared(account.directions()))
            };
            accounts.iter().map(ratio).collect()
        };
        let majority = accounts.len() / 2 + 1;
        let best_half = |ratios: &[f64]| {
            let mut order: Vec<usize> = (0..ratios.len()).collect();
            order.sort_by(|a, b| ratios[*a].total_cmp(&ratios[*b]).then(a.cmp(b)));
            let mut members = vec![false; ratios.len()];
            order[..majority].iter().for_each(|place| members[*place] = true);
            let sum: f64 = order[..majority].iter().map(|place| ratios[*place]).sum();
            (members, sum)
        };
        let everybody = vec![true; accounts.len()];
        let believed: Vec<bool> = accounts.iter().map(|account| account.suspicion.is_none()).collect();
        // Liars who agree with each other pull the model of everybody towards them, and may hold it there.
        let one_side = sides(&accounts, &fit(&everybody)?.theta);
        let other_side = one_side.iter().map(|side| !side).collect();
        let mut best: Option<(f64, Vec<f64>)> = None;
        for start in [everybody, believed, one_side, other_side] {
            let mut members = start;
            let mut reached = (f64::INFINITY, Vec::new());
            for _ in 0..MAX_STEPS {
                let now = ratios(&fit(&members)?);
                let (half, sum) = best_half(&now);
                let done = sum >= reached.0 || half == members;
                if sum < reached.0 {
                    reached = (sum, now);
                }
                if done {
                    break;
                }
                members = half;
            }
            if best.as_ref().is_none_or(|best| reached.0 < best.0) {
                best = Some(reached);
            }
        }
        let (_, ratios) = best?;
        let (members, _) = best_half(&ratios);
        let mut reference = fit(&members)?;
        let mut scale = 1.0;
        let mut suspicions = Vec::new();
        let rival = self.camps(&accounts, members, &sums);
        let camp = rival.as_ref().map(|(_, camp)| camp.clone()).unwrap_or_else(|| vec![true; accounts.len()]);
        if rival.is_some() {
            reference = fit(&camp)?;
        }
        let rival = rival.map(|(rival, _)| rival);
        // The majority may be half of the honest: what fits it joins it, and all are held against that.
        for _ in 0..2 {
            scale = self.scale_under(&reference, &accounts, &camp);
            let suspicion = |account: &&Account| self.suspicion(account, &reference, scale, rival.as_ref());
            suspicions = accounts.iter().map(suspicion).collect();
            let members: Vec<bool> = suspicions.iter().map(Option::is_none).collect();
            reference = fit(&members)?;
        }
        Some((scale, rival, suspicions))
    }

    fn reference(&self, sums: &Evidence) -> Option<Reference> {
        let mut model = Ridge::new(sums.dimension(), self.regularization);
        model.refresh([sums].into_iter()).ok()?;
        Some(Reference::of(&model))
    }

    /// Parts agents into two camps, each of which fits its own model best, and returns the model of the smaller and who
    /// is in the larger. `None` if they do not differ by more than two halves of the honest would.
    fn camps(
        &self,
        accounts: &[&Account],
        majority: Vec<bool>,
        sums: &impl Fn(&[bool]) -> Evidence,
    ) -> Option<(Rival, Vec<bool>)> {
        let mut camp = majority;
        let mut found = None;
        for _ in 0..MAX_STEPS {
            let others: Vec<bool> = camp.iter().map(|own| !own).collect();
            let (own, other) = (sums(&camp), sums(&others));
            let (ours, theirs) = (self.reference(&own)?, self.reference(&other)?);
            // Twice the logarithm of how unlikely an agent is, given a model that is uncertain itself.
            let surprise = |reference: &Reference, account: &Account| {
                let (deviation, inflation) = reference.deviation(account);
                deviation / (self.variance * inflation) + account.directions() * libm::log(inflation)
            };
            let next: Vec<bool> = accounts
                .iter()
                .map(|account| surprise(&ours, account) <= surprise(&theirs, account))
                .collect();
            let done = next == camp;
            found = Some((own, other, ours, theirs));
            camp = next;
            if done {
                break;
            }
        }
        let (mut own, mut other, mut ours, mut reference) = found?;
        let size = camp.iter().filter(|own| **own).count();
        // Liars that have agreed report no noise, so they fit their model better than honest agents fit the truth, and the
        // majority from which the search begins may be theirs. The larger camp is believed, whichever the search began with.
        if 2 * size < accounts.len() {
            (own, other, ours, reference) = (other, own, reference, ours);
            camp.iter_mut().for_each(|own| *own = !*own);
        }
        if 2 * size == accounts.len() || other.count() < MIN_CAMP * other.dimension() as u64 {
            return None;
        }
        let apart: Vec<f64> = ours.theta.iter().zip(&reference.theta).map(|(a, b)| a - b).collect();
        let distance = |sums: &Evidence| {
            let product = multiply(sums.gram(), 0.0, &apart);
            product.iter().zip(&apart).map(|(a, b)| a * b).sum::<f64>()
        };
        let scale = self.scale_under(&ours, accounts, &camp);
        let least = SEPARATION * self.variance * scale * (own.count() + other.count()) as f64;
        (distance(&own) + distance(&other) >= least).then_some((Rival { sums: other, reference }, camp))
    }

    pub(crate) fn save(&self) -> v1::TrustState {
        let account = |(path, account): (&AgentPath, &Account)| v1::AccountState {
            agent: path.agent.0,
            relays: wire::path_to_wire(path),
            sums: Some(wire::evidence_to_wire(&account.sums)),
            explained: account.explained,
            deviation: account.suspicion.map(|suspicion| suspicion.deviation),
            limit: account.suspicion.map_or(0.0, |suspicion| suspicion.limit),
            observations: account.suspicion.map_or(0, |suspicion| suspicion.observations),
        };
        v1::TrustState {
            accounts: self.accounts.iter().map(account).collect(),
            next: self.next,
            scale: self.scale,
            rival: self.rival.as_ref().map(|rival| wire::evidence_to_wire(&rival.sums)),
        }
    }

    /// What was saved; `self` gives the settings.
    pub(crate) fn restored(&self, state: v1::TrustState, dimension: usize) -> Result<Self, DecodeError> {
        let not_negative = |v: f64| v.is_finite() && v >= 0.0;
        if !not_negative(state.scale) {
            return Err(DecodeError::invalid("trust", "its scale is not a finite number"));
        }
        let account = |state: v1::AccountState| {
            let sums = wire::evidence_from_wire(state.sums.unwrap_or_default())?;
            let numbers = [state.explained, state.limit, state.deviation.unwrap_or(0.0)];
            if sums.dimension() != dimension || !numbers.into_iter().all(not_negative) {
                return Err(DecodeError::invalid("trust", "an account has impossible numbers"));
            }
            let (limit, observations) = (state.limit, state.observations);
            let suspicion = state.deviation.map(|deviation| Suspicion { deviation, limit, observations });
            let path = wire::path_from_wire(state.agent, state.relays);
            Ok((path, Account { sums, explained: state.explained, suspicion }))
        };
        let accounts = state.accounts.into_iter().map(account).collect::<Result<_, _>>()?;
        let rival = state.rival.map(wire::evidence_from_wire).transpose()?;
        let rival = rival.and_then(|sums| {
            let reference = self.reference(&sums).filter(|_| sums.dimension() == dimension)?;
            Some(Rival { sums, reference })
        });
        Ok(Self { accounts, next: state.next, scale: state.scale, rival, ..self.clone() })
    }

    /// By what the deviations of most agents of a camp exceed those of noise: 1 or more.
    fn scale_under(&self, reference: &Reference, accounts: &[&Account], camp: &[bool]) -> f64 {
        let mut ratios: Vec<f64> = accounts
            .iter()
            .zip(camp)
            .filter(|(_, own)| **own)
            .map(|(account, _)| {
                let (deviation, inflation) = reference.deviation(account);
                deviation / (self.variance * inflation * median_of_chi_squared(account.directions()))
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2].max(1.0)
    }
}

/// For each agent, on which side of the model it errs, along the direction in which agents err most.
///
/// If some agents believe θ and the others θ', the model of all lies between, and Σxy − Gθ̂ points from it to θ for
/// the former and to θ' for the latter.
fn sides(accounts: &[&Account], theta: &[f64]) -> Vec<bool> {
    let dimension = theta.len();
    let mut errors = Vec::with_capacity(accounts.len());
    let mut spread = vec![0.0; packed(dimension)];
    for account in accounts {
        let fitted = multiply(account.sums.gram(), 0.0, theta);
        let scale = 1.0 / (account.sums.count() as f64).sqrt();
        let error: Vec<f64> = account
            .sums
            .moment()
            .iter()
            .zip(&fitted)
            .map(|(moment, fitted)| scale * (moment - fitted))
            .collect();
        for i in 0..dimension {
            for j in 0..=i {
                spread[packed(i) + j] += error[i] * error[j];
            }
        }
        errors.push(error);
    }
    let size = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
    let widest = (0..dimension).max_by(|a, b| spread[packed(*a) + a].total_cmp(&spread[packed(*b) + b]));
    let mut direction = vec![0.0; dimension];
    direction[widest.unwrap_or(0)] = 1.0;
    for _ in 0..POWERS {
        let next = multiply(&spread, 0.0, &direction);
        let length = size(&next);
        if length == 0.0 {
            break;
        }
        direction = next.into_iter().map(|v| v / length).collect();
    }
    let along = |error: &Vec<f64>| error.iter().zip(&direction).map(|(a, b)| a * b).sum::<f64>();
    errors.iter().map(|error| along(error) > 0.0).collect()
}

/// bᵀG⁺b for evidence: b lies in the range of G, so that a tiny ridge changes nothing but rounding.
fn explained(sums: &Evidence) -> Result<f64, ProtocolError> {
    let dimension = sums.dimension();
    let trace: f64 = (0..dimension).map(|i| sums.gram()[packed(i) + i]).sum();
    let ridge = (1e-9 * trace / dimension as f64).max(f64::MIN_POSITIVE);
    let mut model = Ridge::new(dimension, ridge);
    model.refresh([sums].into_iter())?;
    Ok(model.explained())
}

/// The median of the χ² distribution (Wilson and Hilferty).
fn median_of_chi_squared(directions: f64) -> f64 {
    let root = 1.0 - 2.0 / (9.0 * directions.max(1.0));
    directions.max(1.0) * root * root * root
}

fn add_scaled(sum: &mut [f64], weight: f64, values: &[f64]) {
    if weight == 1.0 {
        add_assign(sum, values);
    } else {
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
    }
}
