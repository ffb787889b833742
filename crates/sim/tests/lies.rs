//! Agents that lie, and a coordinator that believes the majority: a plain reference judges the same, regret of honest
//! agents stays low, and where nobody lies nothing changes.

use std::collections::BTreeMap;

use posse_core::{
    AgentId, Algorithm, Downlink, ExchangeConfig, ExchangeLinUcb, Memory, Robust, SyncLinUcb, Threshold,
    Uplink,
};
use posse_sim::network::FaultConfig;
use posse_sim::world::ArrivalConfig;
use posse_sim::{AdversaryConfig, Event, Lie, Observer, RunConfig, Stage};

use crate::support::dense::{Matrix, add, add_vector, argmax, dot, gram, regularized, solve, zeros};
use crate::support::small;

const D: usize = 5;
pub(crate) const LIES: [Lie; 5] = [Lie::SignFlip, Lie::Scaled, Lie::Targeted, Lie::Colluding, Lie::Drifting];

fn exchange(robust: Robust) -> Algorithm {
    let exchange = ExchangeConfig { robust, ..Default::default() };
    Algorithm::ExchangeLinUcb(ExchangeLinUcb { exchange, ..Default::default() })
}

fn lying(seed: u64, robust: Robust, lie: Lie, share: f64) -> RunConfig {
    let adversaries = AdversaryConfig { share, lie, turning: 20, ..Default::default() };
    RunConfig { adversaries, ..small(seed, 40, 3000, exchange(robust)) }
}

/// The uploads that reached the coordinator, by agent.
#[derive(Default)]
struct Uploads(BTreeMap<AgentId, Vec<(Matrix, Vec<f64>, u64)>>);

pub(crate) fn evidence(message: &Uplink) -> Option<(Matrix, Vec<f64>, u64)> {
    let upload = match message {
        Uplink::Evidence(upload) => upload,
        Uplink::Pull(pull) => pull.upload.as_ref()?,
        _ => return None,
    };
    let evidence = upload.evidence.evidence();
    Some((gram([evidence]), evidence.moment().to_vec(), evidence.count()))
}

impl Observer for Uploads {
    fn observe(&mut self, event: &Event<'_>, _stage: &dyn Stage) {
        if let Event::Up { agent, message, .. } = event
            && let Some(upload) = evidence(message)
        {
            self.0.entry(*agent).or_default().push(upload);
        }
    }
}

/// vᵀG⁺v for a v in the range of G.
fn pseudo(g: &Matrix, v: &[f64]) -> f64 {
    let trace: f64 = (0..D).map(|i| g[i][i]).sum();
    dot(v, &solve(&regularized(g, 1e-9 * trace / D as f64), v))
}

#[test]
fn liars_report_what_is_possible_and_false() {
    for lie in LIES {
        let adversaries = AdversaryConfig { liars: "0 3 4 5 6 7 8 9".into(), lie, ..Default::default() };
        let honest = small(3, 40, 3000, exchange(Robust::Off));
        let config = RunConfig { adversaries, ..honest.clone() };
        let (mut told, mut true_ones) = (Uploads::default(), Uploads::default());
        let (tally, all) = (config.run(&mut told).unwrap(), honest.run(&mut true_ones).unwrap());
        assert!(tally.honest_regret.unwrap() < tally.regret && all.honest_regret.is_none());
        let mut different = 0;
        for (agent, uploads) in told.0.iter().filter(|(agent, _)| [0, 3, 4, 5, 6, 7, 8, 9].contains(&agent.0))
        {
            for (g, b, n) in uploads {
                assert!(pseudo(g, b) <= *n as f64 * (1.0 + 1e-6), "{lie:?}: rewards above the bound");
            }
            // Until somebody has listened to a liar, everybody does the same: compare first words.
            let ((g, b, n), (true_g, true_b, true_n)) = (&uploads[0], &true_ones.0[agent][0]);
            different += u32::from(g == true_g && n == true_n && b != true_b);
        }
        // Drifting liars begin with the truth.
        assert!(different > 0 || lie == Lie::Drifting, "{lie:?}");
    }
}

#[test]
fn as_many_agents_lie_as_the_table_says_and_those_that_it_names() {
    let regrets = |share, liars: &str| {
        let adversaries = AdversaryConfig { share, liars: liars.into(), ..Default::default() };
        let config = RunConfig { adversaries, ..small(1, 40, 400, exchange(Robust::Off)) };
        config.run(&mut ()).map(|tally| (tally.regret, tally.honest_regret))
    };
    assert_eq!(regrets(0.0, "").unwrap().1, None);
    assert_eq!(regrets(1.0, "").unwrap().1, Some(0.0));
    let all: Vec<String> = (0..40).map(|agent| agent.to_string()).collect();
    assert_eq!(regrets(0.0, &all.join(" ")).unwrap().1, Some(0.0));
    assert!(regrets(0.5, "").unwrap().1 > Some(0.0));
    assert_eq!(regrets(0.0, "40").unwrap_err().to_string().split(':').next(), Some("`liars` is 40"));
    assert!(regrets(0.0, "some").is_err() && regrets(1.5, "").is_err());
}

#[test]
fn algorithms_that_share_no_evidence_have_no_liars() {
    let adversaries = AdversaryConfig { share: 0.1, ..Default::default() };
    for algorithm in Algorithm::all() {
        let possible = ["async-lin-ucb", "async-lin-ts", "async-lin-phe", "fed-lin-ucb", "sync-lin-ucb"]
            .contains(&algorithm.name())
            || algorithm.name().starts_with("exchange-");
        let world = crate::support::world_for(&algorithm, crate::support::linear(D, 10));
        let config = RunConfig { world, adversaries: adversaries.clone(), ..small(1, 5, 20, algorithm) };
        assert_eq!(config.check().is_ok(), possible, "{}", config.algorithm.name());
    }
}

/// What one agent has said.
#[derive(Clone)]
pub(crate) struct Said {
    pub(crate) g: Matrix,
    pub(crate) b: Vec<f64>,
    pub(crate) n: u64,
    pub(crate) believed: bool,
}

/// The judgement as docs/algorithms/exchange-lin-ucb.md states it, with full matrices and every residual made anew.
#[derive(Default)]
pub(crate) struct Plain {
    pub(crate) agents: BTreeMap<AgentId, Said>,
    next: u64,
    pub(crate) scale: Option<f64>,
    /// V and θ of agents that contradict the others and agree with each other.
    rival: Option<(Matrix, Vec<f64>)>,
    rivals_seen: u32,
    pub(crate) judged: u32,
    ever_set_aside: u32,
    pub(crate) taken_back: u32,
}

const LAMBDA: f64 = 0.1;
const VARIANCE: f64 = 0.01;

impl Said {
    fn directions(&self) -> f64 {
        self.n.min(D as u64) as f64
    }

    /// The deviation in variances, divided by how much an uncertain model V raises it.
    fn deviation(&self, v: &Matrix, theta: &[f64]) -> (f64, f64) {
        let mut rest = self.b.clone();
        for (rest, row) in rest.iter_mut().zip(&self.g) {
            *rest -= dot(row, theta);
        }
        let trace: f64 = (0..D)
            .map(|j| {
                let column: Vec<f64> = (0..D).map(|i| self.g[i][j]).collect();
                solve(v, &column)[j]
            })
            .sum();
        (pseudo(&self.g, &rest) / VARIANCE, 1.0 + trace / self.directions())
    }
}

fn quantile(directions: f64) -> f64 {
    let t = libm::log(1e6);
    directions + 2.0 * (directions * t).sqrt() + 2.0 * t
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Plain {
    pub(crate) fn model<'s>(&self, of: impl Iterator<Item = &'s Said>, cap: f64) -> (Matrix, Vec<f64>) {
        let (mut v, mut b) = (zeros(D), vec![0.0; D]);
        for said in of {
            let weight = (cap / said.n as f64).min(1.0);
            add(&mut v, weight, &said.g);
            add_vector(&mut b, weight, &said.b);
        }
        let v = regularized(&v, LAMBDA);
        let theta = solve(&v, &b);
        (v, theta)
    }

    fn ratio(said: &Said, (v, theta): &(Matrix, Vec<f64>)) -> f64 {
        let (deviation, inflation) = said.deviation(v, theta);
        let median = said.directions() * libm::pow(1.0 - 2.0 / (9.0 * said.directions()), 3.0);
        deviation / inflation / median
    }

    pub(crate) fn too_far(&self, said: &Said, (v, theta): &(Matrix, Vec<f64>), scale: f64) -> bool {
        let (deviation, inflation) = said.deviation(v, theta);
        let alone = scale * inflation * quantile(said.directions());
        let limit = self.rival.as_ref().map_or(alone, |(v, theta)| {
            let (theirs, wider) = said.deviation(v, theta);
            let odds = said.directions() * libm::log(wider / inflation) + libm::log(1e6);
            alone.min(inflation * (theirs / wider + scale * odds.max(0.0)))
        });
        deviation > limit
    }

    fn scale(all: &[Said], camp: &[bool], model: &(Matrix, Vec<f64>)) -> f64 {
        let own = all.iter().zip(camp).filter(|(_, own)| **own);
        middle(own.map(|(said, _)| Self::ratio(said, model)).collect()).max(1.0)
    }

    /// Two camps, each of which fits its own model best, if they say something different.
    fn camps(&mut self, all: &[Said], mut camp: Vec<bool>, cap: f64) -> Option<Vec<bool>> {
        let mut models = None;
        for _ in 0..20 {
            let of = |own: bool| all.iter().zip(&camp).filter(move |(_, c)| **c == own).map(|(said, _)| said);
            let count = |own| of(own).map(|said| said.n.min(cap as u64)).sum::<u64>();
            let (ours, theirs) = (self.model(of(true), cap), self.model(of(false), cap));
            let counts = (count(true), count(false));
            let surprise = |said: &Said, (v, theta): &(Matrix, Vec<f64>)| {
                let (deviation, inflation) = said.deviation(v, theta);
                deviation / inflation + said.directions() * libm::log(inflation)
            };
            let next: Vec<bool> =
                all.iter().map(|said| surprise(said, &ours) <= surprise(said, &theirs)).collect();
            let same = next == camp;
            (camp, models) = (next, Some((ours, theirs, counts)));
            if same {
                break;
            }
        }
        let (mut ours, mut theirs, mut counts) = models?;
        let size = camp.iter().filter(|own| **own).count();
        if 2 * size < all.len() {
            camp = camp.into_iter().map(|own| !own).collect();
            (ours, theirs, counts) = (theirs, ours, (counts.1, counts.0));
        }
        if 2 * size == all.len() || counts.1 < 10 * D as u64 {
            return None;
        }
        let apart: Vec<f64> = ours.1.iter().zip(&theirs.1).map(|(a, b)| a - b).collect();
        let distance = |v: &Matrix| (0..D).map(|i| apart[i] * dot(&v[i], &apart)).sum::<f64>();
        let regularizers = 2.0 * LAMBDA * dot(&apart, &apart);
        let squared = (distance(&ours.0) + distance(&theirs.0) - regularizers) / VARIANCE;
        let scale = Self::scale(all, &camp, &ours);
        (squared >= 5.0 * scale * (counts.0 + counts.1) as f64).then(|| {
            self.rival = Some(theirs);
            self.rivals_seen += 1;
            camp
        })
    }

    fn hear(&mut self, agent: AgentId, (g, b, n): (Matrix, Vec<f64>, u64)) {
        let model = self.model(self.agents.values().filter(|said| said.believed), f64::INFINITY);
        let said =
            self.agents.entry(agent).or_insert(Said { g: zeros(D), b: vec![0.0; D], n: 0, believed: true });
        add(&mut said.g, 1.0, &g);
        add_vector(&mut said.b, 1.0, &b);
        said.n += n;
        let said = said.clone();
        if said.believed && self.scale.is_some_and(|scale| self.too_far(&said, &model, scale)) {
            self.agents.get_mut(&agent).expect("it has spoken").believed = false;
            self.ever_set_aside += 1;
        }
        let total: u64 = self.agents.values().map(|said| said.n).sum();
        if self.agents.len() >= 8 && total >= 2 * D as u64 && total >= self.next {
            self.next = total + ((0.2 * total as f64) as u64).max(1);
            self.judge();
        }
    }

    pub(crate) fn judge(&mut self) {
        self.judged += 1;
        let all: Vec<Said> = self.agents.values().cloned().collect();
        let cap = middle(all.iter().map(|said| said.n as f64).collect()).max(D as f64);
        let majority = all.len() / 2 + 1;
        let closest = |ratios: &[f64]| {
            let mut order: Vec<usize> = (0..ratios.len()).collect();
            order.sort_by(|a, b| ratios[*a].total_cmp(&ratios[*b]).then(a.cmp(b)));
            order.truncate(majority);
            order.sort_unstable();
            order
        };
        let mut found: Vec<(f64, Vec<usize>)> = Vec::new();
        let everybody: Vec<usize> = (0..all.len()).collect();
        let believed: Vec<usize> = everybody.iter().copied().filter(|place| all[*place].believed).collect();
        let model = self.model(all.iter(), cap);
        let errors: Vec<Vec<f64>> = all
            .iter()
            .map(|said| {
                let rest = (0..D).map(|i| said.b[i] - dot(&said.g[i], &model.1));
                rest.map(|rest| rest / (said.n as f64).sqrt()).collect()
            })
            .collect();
        let widest = argmax((0..D).map(|i| errors.iter().map(|error| error[i] * error[i]).sum()));
        let mut direction: Vec<f64> = (0..D).map(|i| f64::from(u8::from(i == widest))).collect();
        for _ in 0..30 {
            let mut next = vec![0.0; D];
            errors.iter().for_each(|error| add_vector(&mut next, dot(error, &direction), error));
            let length = dot(&next, &next).sqrt();
            direction = next.iter().map(|v| v / length).collect();
        }
        let side = |up: bool| {
            everybody.iter().copied().filter(|p| (dot(&errors[*p], &direction) > 0.0) == up).collect()
        };
        let (one_side, other_side): (Vec<usize>, Vec<usize>) = (side(true), side(false));
        for mut members in [everybody.clone(), believed, one_side, other_side] {
            let mut best = (f64::INFINITY, Vec::new());
            for _ in 0..20 {
                let model = self.model(members.iter().map(|place| &all[*place]), cap);
                let ratios: Vec<f64> = all.iter().map(|said| Self::ratio(said, &model)).collect();
                let next = closest(&ratios);
                let sum: f64 = next.iter().map(|place| ratios[*place]).sum();
                let goes_on = sum < best.0 && next != members;
                if sum < best.0 {
                    best = (sum, next.clone());
                }
                members = next;
                if !goes_on {
                    break;
                }
            }
            found.push(best);
        }
        let winner = argmax(found.iter().map(|(sum, _)| -sum));
        let mut members = found[winner].1.clone();
        let mut suspects = Vec::new();
        self.rival = None;
        let half = everybody.iter().map(|place| members.contains(place)).collect();
        let camps = self.camps(&all, half, cap);
        if let Some(camp) = &camps {
            members = everybody.iter().copied().filter(|place| camp[*place]).collect();
        }
        let camp = camps.unwrap_or_else(|| vec![true; all.len()]);
        for _ in 0..2 {
            let model = self.model(members.iter().map(|place| &all[*place]), cap);
            let scale = Self::scale(&all, &camp, &model);
            self.scale = Some(scale);
            suspects = all.iter().map(|said| self.too_far(said, &model, scale)).collect();
            members = (0..all.len()).filter(|place| !suspects[*place]).collect();
        }
        for (said, suspect) in self.agents.values_mut().zip(suspects) {
            self.ever_set_aside += u32::from(suspect && said.believed);
            self.taken_back += u32::from(!suspect && !said.believed);
            said.believed = !suspect;
        }
    }
}

struct Followed {
    plain: Plain,
    compared: u32,
}

impl Observer for Followed {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        let Event::Up { agent, message, .. } = event else { return };
        let Some(upload) = evidence(message) else { return };
        self.plain.hear(*agent, upload);
        let coordinator = stage.coordinator();
        for (agent, said) in &self.plain.agents {
            assert_eq!(
                coordinator.suspicion(*agent).is_none(),
                said.believed,
                "{agent} with {} observations",
                said.n
            );
        }
        let mut sum = zeros(D);
        let mut moment = vec![0.0; D];
        for said in self.plain.agents.values().filter(|said| said.believed) {
            add(&mut sum, 1.0, &said.g);
            add_vector(&mut moment, 1.0, &said.b);
        }
        let held = coordinator.inspect().evidence.expect("it keeps sums");
        let apart =
            |a: &[f64], b: &[f64]| a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-9 * (1.0 + a.abs()));
        assert!(!apart(held.moment(), &moment));
        assert!(gram([held]).iter().zip(&sum).all(|(a, b)| !apart(a, b)));
        self.compared += 1;
    }
}

#[test]
fn the_coordinator_believes_whom_the_plain_reference_believes() {
    let (mut set_aside, mut taken_back, mut rivals) = (0, 0, 0);
    for lie in LIES {
        for (seed, share) in [(1, 0.1), (2, 0.3), (3, 0.4)] {
            for arrival in [ArrivalConfig::Uniform, ArrivalConfig::OneHot { share: 0.5 }] {
                let config = RunConfig { arrival, ..lying(seed, Robust::Trimmed, lie, share) };
                let plain = Plain::default();
                let mut followed = Followed { plain, compared: 0 };
                config.run(&mut followed).unwrap();
                assert!(followed.compared > 100 && followed.plain.judged > 10);
                set_aside += followed.plain.ever_set_aside;
                taken_back += followed.plain.taken_back;
                rivals += followed.plain.rivals_seen;
            }
        }
    }
    assert!(set_aside > 100 && taken_back > 0 && rivals > 10, "{set_aside} {taken_back} {rivals}");
}

#[test]
fn honest_agents_lose_little_to_two_fifths_of_liars_when_the_majority_is_believed() {
    for lie in LIES {
        let regret = |robust| {
            let of = |seed| lying(seed, robust, lie, 0.4).run(&mut ()).unwrap().honest_regret.unwrap();
            (0..6).map(of).sum::<f64>()
        };
        let (believing, robust) = (regret(Robust::Off), regret(Robust::Trimmed));
        assert!(robust < 0.6 * believing, "{lie:?}: {robust} with a defence, {believing} without");
    }
}

#[test]
fn where_nobody_lies_a_defence_costs_next_to_nothing() {
    let of = |robust| {
        let tallies = (0..20).map(|seed| small(seed, 40, 2000, exchange(robust)).run(&mut ()).unwrap());
        tallies.fold((0.0, 0, 0), |(regret, messages, aside), tally| {
            (regret + tally.regret, messages + tally.messages(), aside + tally.set_aside)
        })
    };
    let (plain, robust) = (of(Robust::Off), of(Robust::Trimmed));
    assert!(robust.0 < 1.05 * plain.0, "regret {} with a defence, {} without", robust.0, plain.0);
    assert!((robust.1 as f64) < 1.05 * plain.1 as f64, "messages {} and {}", robust.1, plain.1);
    assert_eq!(robust.2, 0, "honest agents that are not believed in the end");
}

fn rounds(seed: u64, robust: Robust, lie: Lie, share: f64) -> RunConfig {
    let algorithm = SyncLinUcb { robust, round_threshold: Threshold(3.0), ..Default::default() };
    let adversaries = AdversaryConfig { share, lie, turning: 20, ..Default::default() };
    RunConfig { adversaries, ..small(seed, 40, 2000, Algorithm::SyncLinUcb(algorithm)) }
}

/// Adds up the parts of rounds by agent, and compares what each round ends with.
#[derive(Default)]
struct Parts {
    sums: BTreeMap<AgentId, (Matrix, Vec<f64>)>,
    rounds: u32,
    with_liars: u32,
}

impl Observer for Parts {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        match event {
            Event::Up { agent, message: Uplink::RoundEvidence { evidence, .. }, .. } => {
                let part = evidence.evidence();
                let (g, b) = self.sums.entry(*agent).or_insert((zeros(D), vec![0.0; D]));
                add(g, 1.0, &gram([part]));
                add_vector(b, 1.0, part.moment());
            }
            Event::Down { message: Downlink::Commit { evidence, .. }, .. } => {
                let (mut sum, mut moment) = (zeros(D), vec![0.0; D]);
                let mut aside = false;
                for (agent, (g, b)) in &self.sums {
                    if stage.coordinator().suspicion(*agent).is_some() {
                        aside = true;
                        continue;
                    }
                    add(&mut sum, 1.0, g);
                    add_vector(&mut moment, 1.0, b);
                }
                let apart = |a: &[f64], b: &[f64]| {
                    a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-9 * (1.0 + a.abs()))
                };
                assert!(!apart(evidence.moment(), &moment));
                assert!(gram([&**evidence]).iter().zip(&sum).all(|(a, b)| !apart(a, b)));
                self.rounds += 1;
                self.with_liars += u32::from(aside);
            }
            _ => {}
        }
    }
}

#[test]
fn a_round_ends_with_the_parts_of_all_agents_that_are_believed() {
    let mut parts = Parts::default();
    rounds(1, Robust::Trimmed, Lie::SignFlip, 0.3).run(&mut parts).unwrap();
    assert!(parts.rounds > 20 && parts.with_liars > 10, "{} {}", parts.rounds, parts.with_liars);
}

#[test]
fn rounds_among_liars_lose_less_and_nothing_where_nobody_lies() {
    for lie in [Lie::SignFlip, Lie::Scaled, Lie::Targeted, Lie::Colluding] {
        let regret = |robust| {
            let of = |seed| rounds(seed, robust, lie, 0.3).run(&mut ()).unwrap().honest_regret.unwrap();
            (0..4).map(of).sum::<f64>()
        };
        let (believing, robust) = (regret(Robust::Off), regret(Robust::Trimmed));
        assert!(robust < 0.6 * believing, "{lie:?}: {robust} with a defence, {believing} without");
    }
    let honest = |robust| {
        (0..6).map(|seed| rounds(seed, robust, Lie::SignFlip, 0.0).run(&mut ()).unwrap().regret).sum::<f64>()
    };
    let (plain, robust) = (honest(Robust::Off), honest(Robust::Trimmed));
    assert!(robust < 1.05 * plain, "regret {robust} with a defence, {plain} without");
}

/// Whether a restarted coordinator had the same bits.
#[derive(Default)]
struct Restarts {
    same: u32,
    others: u32,
    set_aside: bool,
}

impl Observer for Restarts {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        self.set_aside |= (0..40).any(|agent| stage.coordinator().suspicion(AgentId(agent)).is_some());
        match event {
            Event::Restarted { same_bits: true, .. } => self.same += 1,
            Event::Restarted { .. } => self.others += 1,
            _ => {}
        }
    }
}

#[test]
fn a_coordinator_that_restarts_from_its_log_believes_the_same_agents() {
    let faults = FaultConfig { agent_crash: 0.01, coordinator_restart: 0.005, ..FaultConfig::default() };
    let mut seen = Restarts::default();
    for seed in 0..4 {
        let config = RunConfig { faults: faults.clone(), ..lying(seed, Robust::Trimmed, Lie::SignFlip, 0.3) };
        config.run(&mut seen).unwrap();
        let config =
            RunConfig { faults: faults.clone(), ..rounds(seed, Robust::Trimmed, Lie::SignFlip, 0.3) };
        config.run(&mut seen).unwrap();
        let exchange =
            ExchangeConfig { robust: Robust::Trimmed, memory: Memory::Adaptive, ..Default::default() };
        let algorithm = Algorithm::ExchangeLinUcb(ExchangeLinUcb { exchange, ..Default::default() });
        RunConfig { algorithm, ..config }.run(&mut seen).unwrap();
    }
    assert!(seen.same > 20 && seen.others == 0 && seen.set_aside, "{} {}", seen.same, seen.others);
}
