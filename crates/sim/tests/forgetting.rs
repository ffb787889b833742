//! Evidence by age: a plain reference keeps the same windows, what is old is forgotten everywhere, and the window that
//! the coordinator chooses is nearly as good as the best one in hindsight.

use posse_core::{Algorithm, Downlink, ExchangeConfig, ExchangeLinUcb, Memory, Uplink};
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

/// Buckets and comparisons as docs/algorithms/exchange-lin-ucb.md states them.
#[derive(Default)]
struct Plain {
    window: Option<u64>,
    /// Newest first.
    buckets: Vec<Sums>,
    leads: Vec<f64>,
    total: u64,
    compared: u32,
    windows_seen: std::collections::BTreeSet<u64>,
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

    fn hear(&mut self, upload: Sums) {
        let kept: u64 = self.buckets.iter().map(|bucket| bucket.2).sum();
        if self.window.is_none() {
            let mut place = 0;
            while 64 << place < kept {
                let worse = self.loss(128 << place, &upload) - self.loss(64 << place, &upload);
                if self.leads.len() == place {
                    self.leads.push(2.0 * 0.01 * libm::log(0.02));
                }
                let (low, high) = (0.02 * libm::log(0.02), 0.02 * libm::log(1e4));
                self.leads[place] = (self.leads[place] + worse).clamp(low, high);
                place += 1;
            }
        }
        self.total += upload.2;
        self.buckets.insert(0, upload);
        // Again and again from the newest, until no two neighbours are small enough.
        let mergeable = |buckets: &[Sums], place: usize| {
            let newer: u64 = buckets[..place].iter().map(|bucket| bucket.2).sum();
            buckets[place].2 + buckets[place + 1].2 <= (newer / 4).max(16)
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
        let best = self.leads.iter().position(|lead| *lead > 0.0).map(|place| 64_u64 << place);
        sum(self.newest(self.window.or(best).unwrap_or(u64::MAX)).iter())
    }
}

impl Observer for Plain {
    fn observe(&mut self, event: &Event<'_>, stage: &dyn Stage) {
        match event {
            Event::Up { message, .. } => {
                let upload = match message {
                    Uplink::Evidence(upload) => Some(upload),
                    Uplink::Pull(pull) => pull.upload.as_ref(),
                    _ => None,
                };
                let Some(upload) = upload else { return };
                let evidence = upload.evidence.evidence();
                self.hear((gram([evidence]), evidence.moment().to_vec(), evidence.count()));
                let (g, b, n) = self.held();
                let held = stage.coordinator().inspect().evidence.expect("it keeps sums");
                assert_eq!(held.count(), n, "after {} observations", self.total);
                let apart = |a: &[f64], b: &[f64]| {
                    a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-9 * (1.0 + a.abs()))
                };
                assert!(!apart(held.moment(), &b) && gram([held]).iter().zip(&g).all(|(a, b)| !apart(a, b)));
                self.compared += 1;
                self.windows_seen.insert(n.next_power_of_two());
            }
            Event::Down { agent, message: Downlink::Answer(answer) } => {
                assert_eq!(answer.news.count + answer.news.forgotten, self.total);
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
    let mut misled = 0;
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
        }
    }
    assert!(misled > 0, "nobody was told that what it holds is too old");
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

/// The promise is a factor of 1.6. What an agent pays for not hearing of a change in time is part of it: agents with a
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
            assert!(adaptive < 1.6 * best, "{motion:?} {period}: {adaptive}, best window {best}, all {all}");
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
    assert!(adaptive < 1.1 * all, "{adaptive} where everything kept has {all}");
}
