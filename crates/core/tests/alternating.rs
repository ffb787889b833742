//! Rewards have no natural unit: an algorithm that is told in which unit they come must choose the same arms in each.

use posse_core::{AgentId, Algorithm, Arms, AsyncLinUcbAm, Federation, ModelConfig, Seed, Shape, UserId};

const SHARED: usize = 3;
const LOCAL: usize = 2;
const DIMENSION: usize = SHARED + LOCAL;

/// The arms an agent chooses when parameters, noise and their bounds are all `unit` times as large.
fn choices(unit: f64, cold_start: bool) -> Vec<usize> {
    let model = ModelConfig { norm_bound: unit, noise: 0.1 * unit, ..ModelConfig::default() };
    let algorithm = Algorithm::AsyncLinUcbAm(AsyncLinUcbAm { model, cold_start, ..AsyncLinUcbAm::default() });
    let federation = Federation { agents: 1, horizon: 400, seed: Seed(1) };
    let shape = Shape { shared: SHARED, local: LOCAL };
    let mut agent = algorithm.agent(AgentId(0), shape, &federation).unwrap();
    let mut stream = Seed(7).stream("arms", 0, 0);
    // Both blocks of the truth have length one, the bound of the unit.
    let truth = [0.8, -0.6, 0.0, 0.6, 0.8];
    (0..400)
        .map(|_| {
            let rows: Vec<[f64; DIMENSION]> =
                (0..6).map(|_| std::array::from_fn(|_| 0.5 * stream.normal())).collect();
            let arms = Arms::from_rows(DIMENSION, &rows).unwrap();
            let noise = 0.1 * stream.normal();
            let arm = agent.choose(UserId(0), &arms).unwrap().arm;
            let x = arms.row(arm).to_vec();
            let mean: f64 = x.iter().zip(&truth).map(|(x, theta)| x * theta).sum();
            agent.learn(UserId(0), &x, unit * (mean + noise)).unwrap();
            arm
        })
        .collect()
}

#[test]
fn alternating_minimisation_chooses_the_same_arms_in_every_unit_of_reward() {
    for cold_start in [true, false] {
        let one = choices(1.0, cold_start);
        for unit in [0.25, 4.0, 64.0] {
            assert_eq!(choices(unit, cold_start), one, "cold start {cold_start}, unit {unit}");
        }
    }
}
