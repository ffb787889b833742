//! Evidence by age: a plain reference keeps the same windows, what is old is forgotten everywhere, and the window that
//! the coordinator chooses is nearly as good as the best one in hindsight.

use std::collections::{BTreeMap, BTreeSet};

use posse_core::{AgentId, Algorithm, Downlink, ExchangeConfig, ExchangeLinUcb, Memory, Uplink};
use posse_sim::world::{Drift, LinearConfig, Motion, WorldConfig};
use posse_sim::{Event, Observer, RunConfig, Stage};

use crate::support::dense::{Matrix, add, add_vector, dot, gram, regularized, solve, zeros};
use crate::support::small;

const D: usize = 5;

fn exchange(memory: Memory, window: u64) -> Algorithm {
    let exchange = ExchangeConfig { memory, window, ..Default::default() };
    Algorithm::ExchangeLinUcb(ExchangeLinUcb { exchange, ..Default::default() })
}

fn drifting(seed: u64, period: u64, motion: Motion, memory: Memory, window: u64) -> RunConfig {
    let drift = Some(Drift { period, motion });
    let world =
        WorldConfig::Linear(LinearConfig { dimension: D, arms: 10, drift, ..LinearConfig::default() });
    RunConfig { world, ..small(seed, 20, 4000, exchange(memory, window)) }
}

type Sums = (Matrix, Vec<f64>, u64);

fn sum<'s>(parts: impl Iterator<Item = &'s Sums>) -> Sums {
    let mut whole = (zeros(D), vec![0.0; D], 0);
    for (g, b, n) in parts {
        add(&mut whole.0, 1.0, g);
        add_vector(&mut whole.1, 1.0, b);
        whole.2 += n;
    }
    whole
}

/// Which window is best, as docs/algorithms/exchange-lin-ucb.md states it for five features.
#[derive(Default)]
pub(crate) struct Choice {
    /// By how much each window predicted worse than everything.
    losses: BTreeMap<u64, f64>,
    /// By how much its double predicts worse.
    leads: BTreeMap<u64, f64>,
}

impl Choice {
    /// Takes in how an upload of `count` observations was predicted by windows of any length, when `total` had come in,
    /// of which `kept` are in buckets.
    pub(crate) fn hear(&mut self, kept: u64, count: u64, total: u64, loss: impl Fn(u64) -> f64) {
        let experience = f64::min(5000.0, 100.0 + total as f64 / 2.0);
        let (low, high) = (0.02 * libm::log(0.001), 0.02 * libm::log(1e4));
        let most = count as f64; // 100 σ²
        for window in (5..).map(|power| 1 << power).take_while(|window| *window < kept) {
            let before = self.losses.get(&window).copied().unwrap_or(0.0);
            let worse = (loss(window) - loss(u64::MAX)).clamp(-most, most);
            self.losses.insert(window, before * libm::exp(-(count as f64) / experience) + worse);
            let before = self.leads.get(&window).copied().unwrap_or(low);
            let lead = before + loss(2 * window) - loss(window);
            self.leads.insert(window, lead.clamp(low, high));
        }
    }

    pub(crate) fn best(&self) -> Option<u64> {
        let mut best = (u64::MAX, 0.0);
        for (window, loss) in self.losses.iter().rev().filter(|(_, loss)| **loss < 0.0) {
            best = if *loss < best.1 { (*window, *loss) } else { best };
        }
        let alarm = self.leads.iter().find(|(_, lead)| **lead > 0.0);
        Some(best.0.min(alarm.map_or(u64::MAX, |(window, _)| *window))).filter(|window| *window < u64::MAX)
    }
}

/// How old what agents upload is, in observations of all that came in since.
#[derive(Default)]
pub(crate) struct Clock {
    pub(crate) total: u64,
    spoke_at: BTreeMap<AgentId, u64>,
}

impl Clock {
    pub(crate) fn join(&mut self, agent: AgentId) {
        self.spoke_at.insert(agent, self.total);
    }

    /// Counts an upload and returns the mean age of its observations.
    pub(crate) fn hear(&mut self, agent: AgentId, count: u64) -> u64 {
        let since = self.total - self.spoke_at[&agent];
        self.total += count;
        self.spoke_at.insert(agent, self.total);
        since / 2 - since / (2 * count)
    }
}

/// The place of an upload among buckets with these counts, newest first.
pub(crate) fn place_of(age: u64, counts: &[u64]) -> usize {
    (0..counts.len())
        .find(|place| counts[..*place].iter().sum::<u64>() + counts[*place] / 2 >= age)
        .unwrap_or(counts.len())
}

/// Buckets and comparisons as docs/algorithms/exchange-lin-ucb.md states them.
#[derive(Default)]
struct Plain {
    window: Option<u64>,
    /// Newest first.
    buckets: Vec<Sums>,
    choice: Choice,
    clock: Clock,
    compared: u32,
    aged: u32,
    windows_seen: BTreeSet<u64>,
    misled: u32,
}

impl Plain {
    /// The newest buckets, as many as fit into `most` observations, but one at least.
    fn newest(&self, most: u64) -> &[Sums] {
        let mut fits = 1;
        while fits < self.buckets.len()
            && self.buckets[..=fits].iter().map(|bucket| bucket.2).sum::<u64>() <= most
        {
            fits += 1;
        }
        &self.buckets[..fits.min(self.buckets.len())]
    }

    fn loss(&self, most: u64, (g, b, _): &Sums) -> f64 {
        let (v, moment, _) = sum(self.newest(most).iter());
        let theta = solve(&regularized(&v, 0.1), &moment);
        let fitted: Vec<f64> = g.iter().map(|row| dot(row, &theta)).collect();
        dot(&theta, &fitted) - 2.0 * dot(&theta, b)
    }

    fn hear(&mut self, agent: AgentId, upload: Sums) {
        let kept: u64 = self.buckets.iter().map(|bucket| bucket.2).sum();
        if self.window.is_none() {
            let mut choice = std::mem::take(&mut self.choice);
            choice.hear(kept, upload.2, self.clock.total, |most| self.loss(most, &upload));
            self.choice = choice;
        }
        let age = self.clock.hear(agent, upload.2);
        let place = place_of(age, &self.buckets.iter().map(|bucket| bucket.2).collect::<Vec<_>>());
        self.aged += u32::from(place > 0);
        self.buckets.insert(place, upload);
        // Again and again from the newest, until no two neighbours are small enough.
        let mergeable = |buckets: &[Sums], place: usize| {
            let newer: u64 = buckets[..place].iter().map(|bucket| bucket.2).sum();
            buckets[place].2 + buckets[place + 1].2 <= (newer / 4).max(8)
        };
        while let Some(place) = (1..self.buckets.len()).map(|p| p - 1).find(|p| mergeable(&self.buckets, *p))
        {
            let merged = sum(self.buckets[place..place + 2].iter());
            self.buckets.splice(place..place + 2, [merged]);
        }
        if let Some(window) = self.window {
            self.buckets = self.newest(window).to_vec();
        }
    }

    fn held(&self) -> Sums {
        sum(self.newest(self.window.or(self.choice.best()).unwrap_or(u64::MAX)).iter())
    }
}

impl Observer for Plain {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        match event {
            Event::Joined { agent, .. } => self.clock.join(*agent),
            Event::Up { agent, message, .. } => {
                let upload = match message {
                    Uplink::Evidence(upload) => Some(upload),
                    Uplink::Pull(pull) => pull.upload.as_ref(),
                    _ => None,
                };
                let Some(upload) = upload else { return };
                let evidence = upload.evidence.evidence();
                self.hear(*agent, (gram([evidence]), evidence.moment().to_vec(), evidence.count()));
                let (g, b, n) = self.held();
                let held = stage.coordinator().inspect().evidence.expect("it keeps sums");
                assert_eq!(held.count(), n, "after {} observations", self.clock.total);
                let apart = |a: &[f64], b: &[f64]| {
                    a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-9 * (1.0 + a.abs()))
                };
                assert!(!apart(held.moment(), &b) && gram([held]).iter().zip(&g).all(|(a, b)| !apart(a, b)));
                self.compared += 1;
                self.windows_seen.insert(n.next_power_of_two());
            }
            Event::Down { agent, message: Downlink::Answer(answer) } => {
                assert_eq!(answer.news.count + answer.news.forgotten, self.clock.total);
                if let Some(snapshot) = &answer.snapshot {
                    // What the agent holds from others is what the coordinator still holds.
                    let view = stage.agent(*agent).expect("it was told").inspect();
                    assert_eq!(view.shared, snapshot.evidence.count());
                    self.misled += u32::from(!answer.pulled && answer.news.forgotten > 0);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn the_coordinator_keeps_the_windows_of_the_plain_reference() {
    let (mut misled, mut aged) = (0, 0);
    for motion in [Motion::Turn, Motion::Jumps, Motion::Seasons] {
        for (memory, window) in
            [(Memory::Window, 1), (Memory::Window, 100), (Memory::Window, 900), (Memory::Adaptive, 1)]
        {
            let mut plain =
                Plain { window: (memory == Memory::Window).then_some(window), ..Default::default() };
            drifting(5, 2000, motion, memory, window).run(&mut plain).unwrap();
            assert!(plain.compared > 300);
            assert!(memory == Memory::Window || plain.windows_seen.len() > 2, "{:?}", plain.windows_seen);
            misled += plain.misled;
            aged += plain.aged;
        }
    }
    assert!(misled > 0, "nobody was told that what it holds is too old");
    assert!(aged > 100, "only {aged} uploads were older than others");
}

/// Which agents are told something without having spoken: at which interaction, by how many observations the coordinator
/// had taken in then.
#[derive(Default)]
struct Warned {
    interactions: u64,
    speaker: Option<AgentId>,
    warned: BTreeMap<u64, (u64, BTreeSet<AgentId>)>,
}

impl Observer for Warned {
    fn observe(&mut self, event: &Event<'_>, _stage: &dyn Stage) {
        match event {
            Event::Joined { agent, .. } | Event::Up { agent, .. } => self.speaker = Some(*agent),
            Event::Learned { .. } => self.interactions += 1,
            Event::Down { agent, message: Downlink::Answer(answer) } if self.speaker != Some(*agent) => {
                let taken_in = answer.news.count + answer.news.forgotten;
                let (at, agents) = self.warned.entry(taken_in).or_default();
                *at = self.interactions;
                assert!(agents.insert(*agent), "{agent} was warned twice");
            }
            _ => {}
        }
    }
}

#[test]
fn all_agents_are_told_at_once_when_the_world_has_jumped() {
    let warned = |motion, memory| {
        let mut warned = Warned::default();
        let config = drifting(3, 8000, motion, memory, 1000);
        // A quarter of the period goes by between two jumps.
        RunConfig { horizon: 3900, ..config }.run(&mut warned).unwrap();
        warned.warned
    };
    let warnings = warned(Motion::Jumps, Memory::Adaptive);
    let (at, agents) = warnings.values().next().expect("there was a jump");
    assert!((2000..2040).contains(at) && agents.len() > 15, "{warnings:?}");
    // At least twice as many observations as there are agents lie between two warnings.
    assert!(warnings.keys().zip(warnings.keys().skip(1)).all(|(a, b)| b - a >= 40), "{warnings:?}");
    for (motion, memory) in [(Motion::Jumps, Memory::Window), (Motion::Jumps, Memory::All)] {
        assert_eq!(warned(motion, memory), BTreeMap::new());
    }
}

/// How many observations are with the coordinator and with agents in the end.
#[derive(Default)]
struct Held(u64);

impl Observer for Held {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        if let Event::Quiet = event {
            let agents = stage.agents();
            let unsent = agents.iter().filter_map(|agent| Some(stage.agent(*agent)?.inspect().held()));
            self.0 = stage.coordinator().inspect().observations + unsent.sum::<u64>();
        }
    }
}

#[test]
fn a_window_that_nothing_falls_out_of_keeps_every_observation() {
    for (window, all) in [(1 << 40, true), (500, false)] {
        let mut held = Held::default();
        small(1, 20, 1500, exchange(Memory::Window, window)).run(&mut held).unwrap();
        assert_eq!(held.0 == 1500, all, "{} of 1500 with a window of {window}", held.0);
    }
}

fn regret(period: u64, motion: Motion, memory: Memory, window: u64) -> f64 {
    (0..6).map(|seed| drifting(seed, period, motion, memory, window).run(&mut ()).unwrap().regret).sum()
}

/// The promise is a factor of 1.3. What an agent pays for not hearing of a change in time is part of it: agents with a
/// short window ask before every choice, those with a long one do not.
#[test]
fn the_chosen_window_is_nearly_as_good_as_the_best_one_in_hindsight() {
    for motion in [Motion::Turn, Motion::Jumps, Motion::Seasons] {
        for period in [2000, 8000] {
            let windows = [60, 120, 250, 500, 1000, 2000];
            let best = windows.map(|window| regret(period, motion, Memory::Window, window));
            let best = best.into_iter().fold(f64::INFINITY, f64::min);
            let all = regret(period, motion, Memory::All, 1);
            let adaptive = regret(period, motion, Memory::Adaptive, 1);
            assert!(adaptive < 1.3 * best, "{motion:?} {period}: {adaptive}, best window {best}, all {all}");
            assert!(adaptive < 0.3 * all, "{motion:?} {period}: {adaptive}, all {all}");
        }
    }
}

#[test]
fn forgetting_costs_little_where_nothing_changes() {
    let of = |memory| {
        let run = |seed| small(seed, 20, 4000, exchange(memory, 1)).run(&mut ()).unwrap().regret;
        (0..10).map(run).sum::<f64>()
    };
    let (all, adaptive) = (of(Memory::All), of(Memory::Adaptive));
    assert!(adaptive < 1.25 * all, "{adaptive} where everything kept has {all}");
}
