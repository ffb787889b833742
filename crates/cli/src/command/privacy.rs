//! `posse privacy plan`: what a privacy budget will cost, before anything runs.

use std::fmt::Write;

use anyhow::{Context, anyhow};
use posse_core::privacy::{Advice, Plan, PlanRequest, PrivacyConfig};
use serde_json::json;

use super::{Ending, print, print_json};
use crate::table::compact;

/// Say what a privacy budget costs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Plan(PlanArgs),
}

/// Say how much noise a promise needs and when data outweigh it, before anything runs
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  posse privacy plan --epsilon 1 --delta 1e-5 --dimension 10 --agents 50 --interactions 1e6"
)]
struct PlanArgs {
    /// ε of one interaction over the whole run
    #[arg(long, default_value_t = 1.0)]
    epsilon: f64,
    /// δ: the probability with which ε may fail
    #[arg(long, default_value_t = 1e-5)]
    delta: f64,
    /// Features of an arm
    #[arg(long)]
    dimension: usize,
    /// How many agents there are
    #[arg(long)]
    agents: u64,
    /// Interactions over all agents; 1e6 is fine
    #[arg(long, value_parser = whole)]
    interactions: u64,
    /// Releases of one stream of sums
    #[arg(long, default_value_t = 16)]
    releases: u64,
    /// Trees that one interaction may pass through: 1 if clusters never split
    #[arg(long, default_value_t = 1)]
    trees: u32,
    /// The longest features
    #[arg(long, default_value_t = 1.0)]
    feature_bound: f64,
    /// The largest reward, either way
    #[arg(long, default_value_t = 1.0)]
    reward_bound: f64,
    /// The smallest eigenvalue of the mean of xxᵀ; by default 1/(2(d - 1)), as in the clustered world
    #[arg(long)]
    least_eigenvalue: Option<f64>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A whole number that may be written like 1e6.
fn whole(text: &str) -> Result<u64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.fract() == 0.0 && (0.0..=9e15).contains(&number) {
        Ok(number as u64)
    } else {
        Err("not a whole number from 0 to 9e15".to_owned())
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let Command::Plan(args) = &args.command;
    let privacy = PrivacyConfig {
        epsilon: args.epsilon,
        delta: args.delta,
        max_releases: args.releases,
        max_trees: args.trees,
        feature_bound: args.feature_bound,
        reward_bound: args.reward_bound,
        streams: args.agents.max(1),
        ..Default::default()
    };
    let usual = 0.5 / (args.dimension.max(2) - 1) as f64;
    let request = PlanRequest {
        privacy,
        dimension: args.dimension,
        agents: args.agents,
        interactions: args.interactions,
        least_eigenvalue: args.least_eigenvalue.unwrap_or(usual),
    };
    let plan = request.plan().map_err(|error| anyhow!("{error}")).context("no such plan")?;
    let advice = request.advice();
    if args.json {
        print_json(&json!({ "request": request, "plan": plan, "advice": advice }))?;
    } else {
        print(&words(&request, &plan, &advice))?;
    }
    Ok(Ending::Done)
}

fn words(request: &PlanRequest, plan: &Plan, advice: &[Advice]) -> String {
    let mut text = String::new();
    let out = &mut text;
    let mut line = |words: String| {
        let _ = writeln!(out, "{words}");
    };
    let made = &plan.calibration;
    let PrivacyConfig { epsilon, delta, max_releases, max_trees, .. } = &request.privacy;
    line(format!(
        "promise     ε = {epsilon}, δ = {delta:e} for one interaction: ρ = {:.5} zCDP",
        made.rho_total
    ));
    line(format!(
        "trees       {max_releases} releases each ({} levels), {max_trees} an interaction: ρ = {:.5} each",
        made.depth, made.rho_tree
    ));
    line(format!(
        "noise       σ = {:.2} a node; at most {:.0} in operator norm",
        made.sigma, made.bounds.matrix
    ));
    line(format!("shift       {:.0} on the diagonal of every agent's sums", plan.shift));
    line(format!(
        "needed      {} observations an agent until data match the noise, {} until they outweigh the shift",
        compact(plan.observations_to_match.ceil()),
        compact(plan.observations_to_outweigh.ceil())
    ));
    line(format!(
        "expected    {} observations an agent: signal to shift {:.3}",
        compact(plan.observations_of_an_agent.floor()),
        plan.signal_to_shift
    ));
    line(if plan.signal_to_shift < 1.0 {
        "verdict     noise will decide more than data; sharing is not likely to pay".to_owned()
    } else {
        "verdict     data will outweigh the shift before the end".to_owned()
    });
    line(format!("silent      after {} observations of a stream", compact(plan.released_until.floor())));
    if !advice.is_empty() {
        line("\nwhat would help, one at a time:".to_owned());
    }
    for Advice { setting, value, signal_to_shift } in advice {
        line(format!("  {setting:<14} {:<10} signal to shift {signal_to_shift:.3}", compact(*value)));
    }
    text
}
