//! Agents that lie in a world that changes: they are held against each other over the window that is remembered, as a
//! plain reference does it, and both defences together do what each does alone.

use std::collections::BTreeMap;

use posse_core::{AgentId, Algorithm, ExchangeConfig, ExchangeLinUcb, Memory, Robust};
use posse_sim::world::{Drift, LinearConfig, Motion, WorldConfig};
use posse_sim::{AdversaryConfig, Event, Lie, Observer, RunConfig, Stage};

use crate::forgetting::{Choice, Clock, place_of};
use crate::lies::{LIES, Plain, Said, evidence};
use crate::support::dense::{Matrix, add, add_vector, dot, gram, regularized, solve, zeros};
use crate::support::small;

const D: usize = 5;

fn exchange(robust: Robust, memory: Memory, window: u64) -> ExchangeConfig {
    ExchangeConfig { robust, memory, window, ..Default::default() }
}

fn lying(
    seed: u64,
    exchange: &ExchangeConfig,
    motion: Option<Motion>,
    (lie, share): (Lie, f64),
) -> RunConfig {
    let drift = motion.map(|motion| Drift { period: 2000, motion });
    let world =
        WorldConfig::Linear(LinearConfig { dimension: D, arms: 10, drift, ..LinearConfig::default() });
    let adversaries = AdversaryConfig { share, lie, turning: 20, ..Default::default() };
    let exchange = exchange.clone();
    let algorithm = Algorithm::ExchangeLinUcb(ExchangeLinUcb { exchange, ..Default::default() });
    RunConfig { world, adversaries, ..small(seed, 40, 3000, algorithm) }
}

type Upload = (AgentId, Matrix, Vec<f64>, u64);

/// All uploads that are remembered, and who is believed: docs/algorithms/exchange-lin-ucb.md, with every sum made anew.
struct Remembered {
    window: Option<u64>,
    /// Newest first.
    buckets: Vec<Vec<Upload>>,
    choice: Choice,
    clock: Clock,
    next: u64,
    /// The judgement of all agents, by what each has in the window.
    judge: Plain,
    aside: BTreeMap<AgentId, bool>,
    compared: u32,
    shrunk: u32,
    outvoted: u32,
}

fn count(bucket: &[Upload]) -> u64 {
    bucket.iter().map(|upload| upload.3).sum()
}

impl Remembered {
    fn new(window: Option<u64>) -> Self {
        Self {
            window,
            buckets: Vec::new(),
            choice: Choice::default(),
            clock: Clock::default(),
            next: 0,
            judge: Plain::default(),
            aside: BTreeMap::new(),
            compared: 0,
            shrunk: 0,
            outvoted: 0,
        }
    }

    fn is_believed(&self, agent: AgentId) -> bool {
        !self.aside.get(&agent).copied().unwrap_or(false)
    }

    fn reach(&self) -> u64 {
        self.window.or(self.choice.best()).unwrap_or(u64::MAX)
    }

    fn newest(&self, most: u64) -> &[Vec<Upload>] {
        let fits =
            |kept: &usize| *kept == 1 || self.buckets[..*kept].iter().map(|b| count(b)).sum::<u64>() <= most;
        let kept = (1..=self.buckets.len()).take_while(fits).last().unwrap_or(0);
        &self.buckets[..kept]
    }

    fn sum(&self, most: u64, of: impl Fn(AgentId) -> bool) -> Said {
        let mut sum = Said { g: zeros(D), b: vec![0.0; D], n: 0, believed: true };
        for (_, g, b, n) in self.newest(most).iter().flatten().filter(|upload| of(upload.0)) {
            add(&mut sum.g, 1.0, g);
            add_vector(&mut sum.b, 1.0, b);
            sum.n += n;
        }
        sum
    }

    fn loss(&self, most: u64, (_, g, b, _): &Upload) -> f64 {
        let sum = self.sum(most, |agent| self.is_believed(agent));
        let theta = solve(&regularized(&sum.g, 0.1), &sum.b);
        let fitted: Vec<f64> = g.iter().map(|row| dot(row, &theta)).collect();
        dot(&theta, &fitted) - 2.0 * dot(&theta, b)
    }

    fn compare(&mut self, upload: &Upload) {
        let kept: u64 = self.buckets.iter().map(|bucket| count(bucket)).sum();
        let mut choice = std::mem::take(&mut self.choice);
        choice.hear(kept, upload.3, self.clock.total, |most| self.loss(most, upload));
        self.choice = choice;
    }

    fn merge(&mut self) {
        let small = |buckets: &[Vec<Upload>], place: usize| {
            let newer: u64 = buckets[..place].iter().map(|bucket| count(bucket)).sum();
            count(&buckets[place]) + count(&buckets[place + 1]) <= (newer / 4).max(8)
        };
        while let Some(place) = (1..self.buckets.len()).map(|p| p - 1).find(|p| small(&self.buckets, *p)) {
            let older = self.buckets.remove(place + 1);
            self.buckets[place].extend(older);
        }
    }

    fn hear(&mut self, upload: Upload) {
        let (agent, reach) = (upload.0, self.reach());
        let before = self.sum(reach, |agent| self.is_believed(agent));
        let model = self.judge.model([before].iter().filter(|said| said.n > 0), f64::INFINITY);
        if self.window.is_none() && self.is_believed(agent) {
            self.compare(&upload);
        }
        let age = self.clock.hear(agent, upload.3);
        let place = place_of(age, &self.buckets.iter().map(|bucket| count(bucket)).collect::<Vec<_>>());
        self.buckets.insert(place, vec![upload]);
        self.merge();
        if let Some(window) = self.window {
            self.buckets = self.newest(window).to_vec();
        }
        let said = self.sum(self.reach(), |other| other == agent);
        if self.is_believed(agent)
            && self.judge.scale.is_some_and(|scale| self.judge.too_far(&said, &model, scale))
        {
            self.aside.insert(agent, true);
            self.outvoted += 1;
        }
        if self.reach() < reach {
            self.next = 0;
            self.shrunk += 1;
        }
        self.judge_if_due();
    }

    fn judge_if_due(&mut self) {
        let remembered: Vec<AgentId> = self.buckets.iter().flatten().map(|upload| upload.0).collect();
        let said = |agent: &AgentId| {
            let said = self.sum(self.reach(), |other| other == *agent);
            (*agent, Said { believed: self.is_believed(*agent), ..said })
        };
        let heard: BTreeMap<AgentId, Said> =
            remembered.iter().map(said).filter(|(_, said)| said.n > 0).collect();
        let kept: u64 = heard.values().map(|said| said.n).sum();
        if self.clock.total < self.next || heard.len() < 8 || kept < 2 * D as u64 {
            return;
        }
        self.next = self.clock.total + ((0.2 * kept as f64) as u64).max(1);
        self.aside.retain(|agent, _| remembered.contains(agent));
        self.judge.agents = heard;
        self.judge.judge();
        for (agent, said) in &self.judge.agents {
            self.aside.insert(*agent, !said.believed);
        }
    }
}

impl Observer for Remembered {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        if let Event::Joined { agent, .. } = event {
            self.clock.join(*agent);
        }
        let Event::Up { agent, message, .. } = event else { return };
        let Some((g, b, n)) = evidence(message) else { return };
        self.hear((*agent, g, b, n));
        let coordinator = stage.coordinator();
        for agent in stage.agents() {
            let believed = coordinator.suspicion(agent).is_none();
            assert_eq!(believed, self.is_believed(agent), "{agent} after {} observations", self.clock.total);
        }
        let sum = self.sum(self.reach(), |agent| self.is_believed(agent));
        let held = coordinator.inspect().evidence.expect("it keeps sums");
        assert_eq!(held.count(), sum.n, "after {} observations", self.clock.total);
        let apart =
            |a: &[f64], b: &[f64]| a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-9 * (1.0 + a.abs()));
        assert!(!apart(held.moment(), &sum.b) && gram([held]).iter().zip(&sum.g).all(|(a, b)| !apart(a, b)));
        self.compared += 1;
    }
}

#[test]
fn the_coordinator_believes_and_forgets_as_the_plain_reference_does() {
    let (mut shrunk, mut outvoted, mut taken_back) = (0, 0, 0);
    for (seed, motion) in
        [(1, None), (2, Some(Motion::Turn)), (3, Some(Motion::Jumps)), (4, Some(Motion::Seasons))]
    {
        for (memory, window) in [(Memory::Adaptive, 1), (Memory::Window, 300)] {
            for lie in LIES {
                let exchange = exchange(Robust::Trimmed, memory, window);
                let mut plain = Remembered::new((memory == Memory::Window).then_some(window));
                let config = RunConfig { horizon: 800, ..lying(seed, &exchange, motion, (lie, 0.3)) };
                config.run(&mut plain).unwrap();
                assert!(plain.compared > 100 && plain.judge.judged > 5);
                shrunk += plain.shrunk;
                outvoted += plain.outvoted;
                taken_back += plain.judge.taken_back;
            }
        }
    }
    assert!(shrunk > 10 && outvoted > 100 && taken_back > 10, "{shrunk} {outvoted} {taken_back}");
}

fn honest_regret(exchange: &ExchangeConfig, motion: Option<Motion>, lies: (Lie, f64)) -> f64 {
    let of = |seed| {
        let tally = lying(seed, exchange, motion, lies).run(&mut ()).unwrap();
        tally.honest_regret.unwrap_or(tally.regret)
    };
    (0..6).map(of).sum()
}

#[test]
fn in_a_changing_world_with_liars_both_defences_together_do_better_than_either() {
    for motion in [Motion::Turn, Motion::Jumps, Motion::Seasons] {
        for lie in [Lie::SignFlip, Lie::Scaled, Lie::Drifting] {
            let regret =
                |robust, memory| honest_regret(&exchange(robust, memory, 1), Some(motion), (lie, 0.4));
            let both = regret(Robust::Trimmed, Memory::Adaptive);
            let forgets = regret(Robust::Off, Memory::Adaptive);
            let doubts = regret(Robust::Trimmed, Memory::All);
            assert!(both < 0.6 * forgets.min(doubts), "{motion:?} {lie:?}: {both}, {forgets}, {doubts}");
        }
    }
}

#[test]
fn where_nobody_lies_doubt_costs_a_changing_world_next_to_nothing() {
    for motion in [None, Some(Motion::Turn), Some(Motion::Jumps), Some(Motion::Seasons)] {
        let regret =
            |robust| honest_regret(&exchange(robust, Memory::Adaptive, 1), motion, (Lie::SignFlip, 0.0));
        let (plain, robust) = (regret(Robust::Off), regret(Robust::Trimmed));
        assert!(robust < 1.05 * plain, "{motion:?}: regret {robust} with a defence, {plain} without");
    }
}
