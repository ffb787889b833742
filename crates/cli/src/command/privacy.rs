//! `posse privacy plan`: what a privacy budget will cost, before anything runs.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use posse_core::privacy::{Advice, Mechanism, Plan, PlanRequest, PrivacyConfig, SecureAggregation, Unit};
use posse_core::{AgentId, Algorithm, Seed};
use serde_json::{Value, json};

use super::{Ending, print, print_json};

mod simulate;
mod updates;

use crate::experiment::{Experiment, Group};
use crate::table::compact;

/// Say what a privacy budget costs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse privacy plan experiments/fclub-private.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Plan(PlanArgs),
}

/// Say how much noise a promise needs and when data outweigh it, before anything runs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  posse privacy plan experiments/fclub-private.toml
  posse privacy plan experiments/fclub-private.toml --simulate
  posse privacy plan --epsilon 1 --delta 1e-5 --dimension 10 --agents 50 --interactions 1e6

With a file, the plan is that of every private algorithm in it, and the noise is what the statement at the end of
its run says. Without one, flags say what is planned; what has no flag is at its default. With --simulate, every private
algorithm of the file is run with ε from 0.5 to 8, and its regret is shown beside those of the file's other algorithms.")]
struct PlanArgs {
    /// The experiment whose private algorithms are planned
    #[arg(value_name = "FILE.toml", conflicts_with_all = ["dimension", "agents", "interactions"])]
    file: Option<PathBuf>,
    /// ε of one unit over the whole run
    #[arg(long, default_value_t = 1.0, conflicts_with = "file")]
    epsilon: f64,
    /// δ: the probability with which ε may fail
    #[arg(long, default_value_t = 1e-5, conflicts_with = "file")]
    delta: f64,
    /// How many features an arm has
    #[arg(long, required_unless_present = "file")]
    dimension: Option<usize>,
    /// How many agents there are
    #[arg(long, required_unless_present = "file")]
    agents: Option<u64>,
    /// Interactions over all agents; 1e6 is fine
    #[arg(long, value_parser = whole, required_unless_present = "file")]
    interactions: Option<u64>,
    /// Run the experiment with several ε and show the regret of each
    #[arg(long, requires = "file")]
    simulate: bool,
    /// How many seeds --simulate runs each ε with
    #[arg(long, default_value_t = 3, requires = "simulate", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Releases of one stream of sums
    #[arg(long, default_value_t = PrivacyConfig::default().max_releases, conflicts_with = "file")]
    releases: u64,
    /// Correlate the noise of releases by a binary tree instead of a factorisation
    #[arg(long, conflicts_with = "file")]
    tree: bool,
    /// Clusters may split: a share of the budget tells users apart
    #[arg(long, conflicts_with = "file")]
    splits: bool,
    /// Protect one user with at most so many interactions, instead of one interaction
    #[arg(long, value_name = "INTERACTIONS", conflicts_with = "file")]
    user_cap: Option<u64>,
    /// Secure aggregation: so many agents at least are in every sum that is opened
    #[arg(long, value_name = "AGENTS", conflicts_with = "file")]
    survivors: Option<u64>,
    /// Secure aggregation: the promise holds if so many agents tell the coordinator everything
    #[arg(long, value_name = "AGENTS", default_value_t = SecureAggregation::default().colluders, conflicts_with = "file", requires = "survivors")]
    colluders: u64,
    /// The largest length of an arm's feature vector
    #[arg(long, default_value_t = 1.0, conflicts_with = "file")]
    feature_bound: f64,
    /// The largest distance of a reward from the centre: 0.5 for rewards in [0, 1] around 0.5
    #[arg(long, default_value_t = 1.0, conflicts_with = "file")]
    reward_bound: f64,
    /// The smallest eigenvalue of the mean of xxᵀ; by default 1/(2(d - 1)), as in the clustered world
    #[arg(long)]
    least_eigenvalue: Option<f64>,
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

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let Command::Plan(plan) = &args.command;
    match &plan.file {
        Some(file) => of_file(file, plan, args.json),
        None => of_flags(plan, args.json),
    }
}

fn of_flags(args: &PlanArgs, json: bool) -> anyhow::Result<Ending> {
    // The parser lets this pass: what --simulate requires conflicts with --dimension.
    if args.simulate {
        bail!(
            "--simulate runs the experiment of a file: name one, for example experiments/fclub-private.toml"
        );
    }
    let usual = PrivacyConfig::default();
    let privacy = PrivacyConfig {
        epsilon: args.epsilon,
        delta: args.delta,
        unit: if args.user_cap.is_some() { Unit::User } else { Unit::Interaction },
        user_cap: args.user_cap.unwrap_or(usual.user_cap),
        mechanism: if args.tree { Mechanism::Tree } else { Mechanism::Factorisation },
        max_releases: args.releases,
        feature_bound: args.feature_bound,
        reward_bound: args.reward_bound,
        ..usual
    };
    let required = "the parser requires it without a file";
    let dimension = args.dimension.expect(required);
    let request = PlanRequest {
        privacy,
        splits: args.splits,
        secure_aggregation: args
            .survivors
            .map(|survivors| SecureAggregation { survivors, colluders: args.colluders }),
        dimension,
        agents: args.agents.expect(required),
        interactions: args.interactions.expect(required),
        least_eigenvalue: least_eigenvalue(args, dimension),
    };
    let plan = planned(&request)?;
    if json {
        print_json(&document(&request, &plan))?;
    } else {
        print(&words(&request, &plan))?;
    }
    Ok(Ending::Done)
}

fn of_file(file: &Path, args: &PlanArgs, json: bool) -> anyhow::Result<Ending> {
    let mut experiment = Experiment::read(file)?;
    let simulated = if args.simulate { simulate::all(&mut experiment, args.seeds)? } else { Vec::new() };
    let mut plans = Vec::new();
    for group in &experiment.groups {
        let planned = match &group.config.algorithm {
            Algorithm::FnUcb(config) => updates::planned(group, config),
            _ => request_of(group, args)?
                .map(|request| {
                    let plan = planned(&request)?;
                    Ok((document(&request, &plan), words(&request, &plan)))
                })
                .transpose(),
        };
        if let Some((document, words)) = planned.with_context(|| group.id.clone())? {
            plans.push((&group.id, document, words));
        }
    }
    if plans.is_empty() {
        bail!("no algorithm in {} is private: set `privacy`, or use `cdp-fclub-dc`", file.display());
    }
    if json {
        let document = |(id, document, _): &(&String, Value, String)| {
            let mut document = document.clone();
            document["setting"] = json!(id);
            let own = simulated.iter().filter(|point| point.is_beside(id));
            document["simulated"] = own.map(simulate::Point::document).collect();
            document
        };
        print_json(&json!(plans.iter().map(document).collect::<Vec<_>>()))?;
    } else {
        let one = |(id, _, words): &(&String, Value, String)| format!("{id}\n{words}");
        print(&plans.iter().map(one).collect::<Vec<_>>().join("\n"))?;
        if args.simulate {
            print(&simulate::words(&simulated, args.seeds))?;
        }
    }
    Ok(Ending::Done)
}

/// What is planned for a setting of an experiment, if it is private.
fn request_of(group: &Group, args: &PlanArgs) -> anyhow::Result<Option<PlanRequest>> {
    let config = &group.config;
    let Some(privacy) = config.algorithm.privacy() else { return Ok(None) };
    let world = config.world.build(config.agents, Seed(0)).map_err(|error| anyhow!("{error}"))?;
    let dimension = world.shape(AgentId(0)).dimension();
    let budget = config.algorithm.privacy_budget(dimension);
    Ok(Some(PlanRequest {
        privacy,
        splits: budget.is_some_and(|budget| budget.user.is_some()),
        secure_aggregation: config.algorithm.secure_aggregation(),
        dimension,
        agents: config.agents,
        interactions: config.horizon,
        least_eigenvalue: least_eigenvalue(args, dimension),
    }))
}

fn least_eigenvalue(args: &PlanArgs, dimension: usize) -> f64 {
    args.least_eigenvalue.unwrap_or(0.5 / (dimension.max(2) - 1) as f64)
}

fn planned(request: &PlanRequest) -> anyhow::Result<Plan> {
    request.plan().map_err(|error| anyhow!("{error}")).context("no such plan")
}

fn document(request: &PlanRequest, plan: &Plan) -> Value {
    json!({ "request": request, "plan": plan, "advice": request.advice() })
}

fn words(request: &PlanRequest, plan: &Plan) -> String {
    let mut text = String::new();
    let out = &mut text;
    let mut line = |words: String| {
        let _ = writeln!(out, "{words}");
    };
    let made = &plan.calibration;
    let PrivacyConfig { epsilon, delta, unit, user_cap, max_releases, edge_releases, .. } = &request.privacy;
    let whom = match unit {
        Unit::Interaction => "one interaction".to_owned(),
        Unit::User => format!("one user with at most {user_cap} interactions"),
        Unit::Agent => "one agent".to_owned(),
    };
    line(format!("promise     ε = {epsilon}, δ = {delta:e} for {whom}: μ = {:.5}", made.mu));
    line(match request.secure_aggregation {
        None => "who adds    every agent adds all its noise; the coordinator sees what each of them releases"
            .to_owned(),
        Some(secure) => format!(
            "who adds    {} agents or more add the noise together and the coordinator sees their sum; noise below is one agent's part, for {} colluders",
            secure.survivors, secure.colluders
        ),
    });
    line(format!(
        "clusters    {max_releases} releases each, μ = {:.5}: noise of σ = {:.2} at most in Σxxᵀ, {:.0} in operator norm, {:.2} in Σxy",
        made.cluster_mu, made.cluster_noise, made.matrix_bound, made.cluster_vector_noise
    ));
    line(if request.splits {
        format!(
            "users       {edge_releases} releases each, μ = {:.5}: noise of σ = {:.2} at most",
            made.user_mu, made.user_noise
        )
    } else {
        "users       nothing is released of single users: clusters never split".to_owned()
    });
    line(format!(
        "needed      {} observations an agent until data reach above the noise, {} until they outweigh its bound",
        compact(plan.observations_to_match.ceil()),
        compact(plan.observations_to_outweigh.ceil())
    ));
    line(format!(
        "expected    {} observations an agent: signal to noise {:.3}",
        compact(plan.observations_of_an_agent.floor()),
        plan.signal_to_noise
    ));
    line(if plan.observations_of_an_agent < plan.observations_to_match {
        "verdict     data will not rise above the noise; sharing is not likely to pay".to_owned()
    } else if plan.signal_to_noise < 1.0 {
        "verdict     data will rise above the noise, not far; whether sharing pays depends on the users"
            .to_owned()
    } else {
        "verdict     data will outweigh the noise before the end".to_owned()
    });
    line(format!(
        "schedule    {} releases are due until the end; silent after {} observations of a stream",
        plan.releases_needed,
        compact(plan.released_until.floor())
    ));
    line(format!(
        "suggested   first_release = {}, max_releases = {}",
        plan.suggested_first_release, plan.suggested_max_releases
    ));
    let advice = request.advice();
    if !advice.is_empty() {
        line("\nwhat would help, one at a time:".to_owned());
    }
    for Advice { setting, value, signal_to_noise } in advice {
        line(format!("  {setting:<14} {:<10} signal to noise {signal_to_noise:.3}", compact(value)));
    }
    text
}
