//! `async-lin-ucb-am`: Algorithms 3 and 5 of Li and Wang (2022), with λI in the place of the generalised inverse.

use posse_core::{Algorithm, AsyncLinUcbAm, JoinPolicy, ModelConfig};
use posse_sim::RunConfig;
use posse_sim::world::{HeterogeneousConfig, Offer, WorldConfig};

use super::{
    Line, Matrix, Pair, Reading, add_outer, add_vector, dot, follow, linear_bounds, regularized, rows, solve,
    zeros,
};
use crate::literal::{Literal, literal};
use crate::support::{protocol, small};

const SHARED: usize = 3;
const LOCAL: usize = 4;

/// What an agent keeps to itself.
struct Own {
    /// State(i) = 0, with the data of I_i.
    cold: Option<Vec<(Vec<f64>, f64)>>,
    /// V_i^(l), b_i^(l).
    local: Pair,
}

struct Alternating {
    exchange: Literal,
    model: ModelConfig,
    extra_noise: f64,
    agents: Vec<Own>,
    warmed_by_downloads: u32,
}

/// The projection onto the ball of this radius.
fn project(mut theta: Vec<f64>, radius: f64) -> Vec<f64> {
    let length = dot(&theta, &theta).sqrt();
    if length > radius {
        theta.iter_mut().for_each(|value| *value *= radius / length);
    }
    theta
}

/// The rank of a Gram matrix, by elimination with full pivoting on the diagonal.
fn rank(m: &Matrix) -> usize {
    let (mut left, d) = (m.clone(), m.len());
    let mut largest = 0.0;
    for found in 0..d {
        let pivot = (0..d).max_by(|&a, &b| left[a][a].total_cmp(&left[b][b])).expect("d > 0");
        let size = left[pivot][pivot];
        if found == 0 {
            largest = size;
        }
        if size <= 1e-8 * largest || size <= 0.0 {
            return found;
        }
        let row = left[pivot].clone();
        for other in &mut left {
            let factor = other[pivot] / size;
            add_vector(other, -factor, &row);
        }
        (0..d).for_each(|i| (left[i][pivot], left[pivot][i]) = (0.0, 0.0));
    }
    d
}

impl Alternating {
    /// Line 12: over the whole local data, θ^(l) and θ^(g) in turn.
    fn warm_up(&mut self, id: u64, history: &[(Vec<f64>, f64)]) {
        let (lambda, radius) = (self.model.regularization, self.model.norm_bound);
        let known = self.exchange.view(id).clone();
        let mut all = Pair::none(SHARED + LOCAL);
        let (mut gram_shared, mut gram_local) = (known.v.clone(), zeros(LOCAL));
        for (x, y) in history {
            add_outer(&mut all.v, x);
            add_vector(&mut all.b, *y, x);
            add_outer(&mut gram_shared, &x[..SHARED]);
            add_outer(&mut gram_local, &x[SHARED..]);
        }
        let mut shared = if rank(&known.v) == SHARED {
            solve(&regularized(&known.v, lambda), &known.b)
        } else {
            solve(&regularized(&all.v, lambda), &all.b)[..SHARED].to_vec()
        };
        let mut local = vec![0.0; LOCAL];
        for _ in 0..100 {
            let (before_shared, before_local) = (shared.clone(), local.clone());
            let mut moment = vec![0.0; LOCAL];
            for (x, y) in history {
                add_vector(&mut moment, y - dot(&x[..SHARED], &shared), &x[SHARED..]);
            }
            local = project(solve(&regularized(&gram_local, lambda), &moment), radius);
            let mut moment = known.b.clone();
            for (x, y) in history {
                add_vector(&mut moment, y - dot(&x[SHARED..], &local), &x[..SHARED]);
            }
            shared = project(solve(&regularized(&gram_shared, lambda), &moment), radius);
            let moved =
                |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
            if moved(&shared, &before_shared) + moved(&local, &before_local) < 1e-8 {
                break;
            }
        }
        for (x, y) in history {
            self.keep(id, x, y - dot(&x[SHARED..], &local), y - dot(&x[..SHARED], &shared));
        }
    }

    /// Eq. 7: the same over the new observation alone. Returns ŷ^(g) and ŷ^(l).
    fn split(&self, id: u64, x: &[f64], y: f64) -> (f64, f64) {
        let (lambda, radius) = (self.model.regularization, self.model.norm_bound);
        let blocks =
            [(self.exchange.view(id), &x[..SHARED]), (&self.agents[id as usize].local, &x[SHARED..])];
        let estimate = |block: usize, part: f64| {
            let (sums, x) = blocks[block];
            let (mut v, mut b) = (sums.v.clone(), sums.b.clone());
            add_outer(&mut v, x);
            add_vector(&mut b, part, x);
            project(solve(&regularized(&v, lambda), &b), radius)
        };
        let (known, x_shared) = blocks[0];
        let mut from_shared =
            dot(x_shared, &project(solve(&regularized(&known.v, lambda), &known.b), radius));
        let mut from_local = 0.0;
        for _ in 0..100 {
            from_local = dot(blocks[1].1, &estimate(1, y - from_shared));
            let next = dot(x_shared, &estimate(0, y - from_local));
            let moved = (next - from_shared).abs();
            from_shared = next;
            if moved < 1e-10 {
                break;
            }
        }
        (y - from_local, y - from_shared)
    }

    fn keep(&mut self, id: u64, x: &[f64], to_shared: f64, to_local: f64) {
        self.exchange.add(id, &x[..SHARED], to_shared);
        let local = &mut self.agents[id as usize].local;
        add_outer(&mut local.v, &x[SHARED..]);
        add_vector(&mut local.b, to_local, &x[SHARED..]);
    }
}

impl Reading for Alternating {
    fn scores(&mut self, offer: &Offer) -> Vec<f64> {
        let id = offer.agent.0;
        self.exchange.join(id);
        let own = &self.agents[id as usize];
        if let Some(history) = &own.cold {
            let mut all = Pair::none(SHARED + LOCAL);
            for (x, y) in history {
                add_outer(&mut all.v, x);
                add_vector(&mut all.b, *y, x);
            }
            return linear_bounds(&all, &self.model, 0.0, rows(offer));
        }
        let (shared, local) = (rows(offer).map(|x| &x[..SHARED]), rows(offer).map(|x| &x[SHARED..]));
        let shared = linear_bounds(self.exchange.view(id), &self.model, self.extra_noise, shared);
        let local = linear_bounds(&own.local, &self.model, self.extra_noise, local);
        shared.iter().zip(local).map(|(a, b)| a + b).collect()
    }

    fn learn(&mut self, offer: &Offer, x: &[f64], reward: f64) {
        let id = offer.agent.0;
        if let Some(mut history) = self.agents[id as usize].cold.take() {
            history.push((x.to_vec(), reward));
            let mut own = zeros(SHARED + LOCAL);
            history.iter().for_each(|(x, _)| add_outer(&mut own, x));
            let by_downloads = rank(&self.exchange.view(id).v) == SHARED;
            if !by_downloads && rank(&own) < SHARED + LOCAL {
                self.agents[id as usize].cold = Some(history);
                return;
            }
            self.warmed_by_downloads += u32::from(by_downloads);
            self.warm_up(id, &history);
        } else {
            let (to_shared, to_local) = self.split(id, x, reward);
            self.keep(id, x, to_shared, to_local);
        }
        self.exchange.upload_if_due(id);
    }

    fn said(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.exchange.log)
    }
}

#[test]
fn async_lin_ucb_am_is_algorithms_3_and_5() {
    for (cold_start, extra_noise, norm_bound) in [(true, 0.0, 1.0), (true, 2.0, 0.6), (false, 0.0, 1.0)] {
        let model = ModelConfig { norm_bound, ..ModelConfig::default() };
        let protocol = protocol(1.5, 3.0, JoinPolicy::Lazy);
        let algorithm = AsyncLinUcbAm {
            model: model.clone(),
            protocol: protocol.clone(),
            cold_start,
            extra_noise,
            ..AsyncLinUcbAm::default()
        };
        let world = HeterogeneousConfig {
            dimension: SHARED + LOCAL,
            shared: SHARED,
            arms: 8,
            ..HeterogeneousConfig::default()
        };
        let config = small(14, 5, 400, Algorithm::AsyncLinUcbAm(algorithm));
        let config = RunConfig { world: WorldConfig::Heterogeneous(world), ..config };
        let own = || Own { cold: cold_start.then(Vec::new), local: Pair::none(LOCAL) };
        let mut reading = Alternating {
            exchange: literal(5, SHARED, &model, &protocol),
            model,
            extra_noise,
            agents: (0..5).map(|_| own()).collect(),
            warmed_by_downloads: 0,
        };
        // Alternations stop when they move by 1e-10, which scores may show.
        assert!(follow(&config, &mut reading, 1e-7) > 20);
        assert!(reading.agents.iter().all(|own| own.cold.is_none()), "all agents became warm");
        assert_eq!(reading.warmed_by_downloads > 0, cold_start, "some became warm by what others learned");
    }
}
