//! Regret of a planned federation against ε, by simulation.

use std::fmt::Write;

use anyhow::{Context, anyhow};
use posse_core::Algorithm;
use posse_sim::RunConfig;
use serde_json::{Value, json};

use crate::experiment::Experiment;
use crate::table::compact;

/// The ε that are tried.
const EPSILONS: [f64; 5] = [0.5, 1.0, 2.0, 4.0, 8.0];

/// The regret of one setting of an experiment, with one ε if it is private.
pub(super) struct Point {
    setting: String,
    epsilon: Option<f64>,
    regret: f64,
    error: f64,
}

impl Point {
    /// Whether it belongs into the plan of this setting: a point of its own, or one without privacy to compare with.
    pub(super) fn is_beside(&self, setting: &str) -> bool {
        self.epsilon.is_none() || self.setting == setting
    }

    pub(super) fn document(&self) -> Value {
        json!({
            "setting": self.setting,
            "epsilon": self.epsilon,
            "regret": self.regret,
            "standard_error": self.error,
        })
    }
}

/// Runs every setting with the first `seeds` seeds of the experiment: private ones with every ε in place of their own, the others as
/// they are.
pub(super) fn all(experiment: &mut Experiment, seeds: u64) -> anyhow::Result<Vec<Point>> {
    experiment.set_seeds(None, seeds).map_err(|error| anyhow!("{error}"))?;
    let cells = experiment.cells();
    let mut points = Vec::new();
    for (place, group) in experiment.groups.iter().enumerate() {
        let configs: Vec<&RunConfig> =
            cells.iter().filter(|cell| cell.group == place).map(|cell| &cell.config).collect();
        let mut add = |epsilon, algorithm: &Algorithm| {
            let (regret, error) = mean(&configs, algorithm).with_context(|| group.id.clone())?;
            points.push(Point { setting: group.id.clone(), epsilon, regret, error });
            anyhow::Ok(())
        };
        let own = &group.config.algorithm;
        if own.privacy().is_none() {
            add(None, own)?;
            continue;
        }
        for epsilon in EPSILONS {
            let changed = own.with_epsilon(epsilon);
            add(Some(epsilon), &changed.context("an algorithm from outside of posse has no ε to change")?)?;
        }
    }
    Ok(points)
}

/// Mean and standard error of the regret of an algorithm over some runs.
fn mean(configs: &[&RunConfig], algorithm: &Algorithm) -> anyhow::Result<(f64, f64)> {
    let run = |config: &&RunConfig| {
        let config = RunConfig { algorithm: algorithm.clone(), ..(*config).clone() };
        anyhow::Ok(config.run(&mut ())?.regret)
    };
    let regrets: Vec<f64> = configs.iter().map(run).collect::<anyhow::Result<_>>()?;
    let n = regrets.len() as f64;
    let mean = regrets.iter().sum::<f64>() / n;
    let squares: f64 = regrets.iter().map(|regret| (regret - mean) * (regret - mean)).sum();
    Ok((mean, if n > 1.0 { (squares / (n - 1.0) / n).sqrt() } else { 0.0 }))
}

/// A bar for each point, as long as its regret.
pub(super) fn words(points: &[Point], seeds: u64) -> String {
    let mut text = format!("\nregret by simulation, {seeds} seeds\n");
    let longest = points.iter().map(|point| point.regret).fold(1e-9, f64::max);
    for Point { setting, epsilon, regret, error } in points {
        let name = epsilon.map_or_else(|| setting.clone(), |epsilon| format!("{setting}  ε = {epsilon}"));
        let bar = "▇".repeat((40.0 * regret / longest).ceil() as usize);
        let _ = writeln!(text, "  {name:<40} {:>8} ± {:<6} {bar}", compact(*regret), compact(*error));
    }
    text
}
