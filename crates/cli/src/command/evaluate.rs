//! `posse evaluate`: what a federated policy would have earned, from a log of another one.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use posse_core::{Algorithm, Seed};
use posse_data::log::load_log;
use posse_data::ope::{Assignment, Estimate, EvaluationSettings, Interval, evaluate, replay, warning};
use serde::Deserialize;
use serde_json::json;

use super::algorithms::check_name;
use super::{Ending, print, print_json};

/// Estimate from a log of decisions what another, federated policy would have earned
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse evaluate data/shop --algorithm async-lin-ucb --set threshold=5 --agents 8 --by user
  posse evaluate data/shop --algorithm lin-ucb --replay

Agents learn from the first rows of the log, every one of which they see, and are judged on the others. With
--replay they learn while the log passes by, from the rows in which they would have done what was done. Rows are
divided over agents by --by: user, agent (a column of the log, such as a region) or row. `posse data prepare log`
makes the log; docs/guides/bring-your-own-data.md shows how.")]
pub(crate) struct Args {
    /// The prepared log
    #[arg(value_name = "DIR")]
    log: PathBuf,
    /// Who decides; `posse algorithms` lists them
    #[arg(long, value_name = "NAME")]
    algorithm: String,
    /// Settings of the algorithm
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// How many agents share the log
    #[arg(long, default_value_t = 1)]
    agents: u64,
    /// What decides which agent has a row: user, agent or row
    #[arg(long, default_value = "user")]
    by: String,
    /// Learn while the log passes by
    #[arg(long)]
    replay: bool,
    /// The share of rows to learn from
    #[arg(long, default_value_t = 0.5)]
    learn: f64,
    /// The share of decisions the policy would take at random
    #[arg(long, default_value_t = 0.1)]
    explore: f64,
    /// The probability with which intervals cover
    #[arg(long, default_value_t = 0.95)]
    level: f64,
    /// Make intervals from N resampled logs instead of the normal distribution
    #[arg(long, value_name = "N")]
    bootstrap: Option<u32>,
    /// The seed of the agents and of resampling
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let algorithm = algorithm(args)?;
    let assignment = match args.by.as_str() {
        "user" => Assignment::User,
        "agent" => Assignment::Agent,
        "row" => Assignment::Row,
        other => bail!("--by {other}: one of user, agent, row"),
    };
    if !(args.level > 0.0 && args.level < 1.0) {
        bail!("--level {}: between 0 and 1", args.level);
    }
    let log = load_log(&args.log)?;
    let seed = Seed(args.seed);
    let (rows, effective, text, document) = if args.replay {
        let found = replay(&log, &algorithm, args.agents, assignment, seed, args.level)
            .map_err(|error| anyhow!(error))?;
        let lines = [("replay", found.estimate)];
        let head = format!(
            "{} of {} rows matched and were learned from, {} messages with statistics, {} bytes\n",
            found.matched, found.rows, found.messages, found.bytes
        );
        (found.rows, found.matched as f64, head + &table(found.logged, &lines), json!(found))
    } else {
        let interval =
            args.bootstrap.map_or(Interval::Normal, |samples| Interval::Bootstrap { samples, seed });
        let settings = EvaluationSettings {
            algorithm,
            agents: args.agents,
            assignment,
            learn_share: args.learn,
            explore: args.explore,
            seed,
            interval,
            level: args.level,
        };
        let found = evaluate(&log, &settings).map_err(|error| anyhow!(error))?;
        let head = format!(
            "learned from {} rows, judged on {}, effective sample size {:.0}, {} messages with statistics, {} bytes\n",
            found.learned, found.judged, found.effective, found.messages, found.bytes
        );
        let estimates: serde_json::Map<_, _> =
            found.estimates.iter().map(|(name, estimate)| ((*name).to_owned(), json!(estimate))).collect();
        let mut document = json!(found);
        document["estimates"] = estimates.into();
        (found.judged, found.effective, head + &table(found.logged, &found.estimates), document)
    };
    if let Some(warning) = warning(effective, rows) {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    if args.json {
        print_json(&document)?;
    } else {
        print(&text)?;
    }
    Ok(Ending::Done)
}

/// The algorithm with its settings, written as in experiments.
fn algorithm(args: &Args) -> anyhow::Result<Algorithm> {
    let all = Algorithm::all();
    check_name(&args.algorithm, "algorithm", all.iter().map(Algorithm::name))?;
    let mut table = toml::Table::new();
    for setting in &args.settings {
        let (key, value) =
            setting.split_once('=').with_context(|| format!("--set {setting}: write KEY=VALUE"))?;
        let parsed =
            format!("v = {value}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("v"));
        let value = parsed.unwrap_or_else(|| value.into());
        let both = crate::settings::BOTH_THRESHOLDS;
        let keys: &[&str] = if key == crate::settings::THRESHOLD.key { &both } else { &[key] };
        for key in keys {
            table.insert((*key).into(), value.clone());
        }
    }
    let known = crate::settings::Section::Algorithm.variants().into_iter().find(|v| v.name == args.algorithm);
    let known = known.expect("the name is known");
    if let Some(key) = table.keys().find(|key| known.setting(key).is_none()) {
        bail!(
            "--set {key}: {} has no such setting; `posse algorithms {}` lists them",
            known.name,
            known.name
        );
    }
    table.insert("name".into(), args.algorithm.clone().into());
    Algorithm::deserialize(toml::Value::Table(table)).map_err(|error| anyhow!("--set: {}", error.message()))
}

/// Estimates in columns, beside what was logged.
fn table(logged: f64, estimates: &[(&'static str, Option<Estimate>)]) -> String {
    let mut text = format!("\n{:<8} {:>9} {:>21}  {:>9}\n", "", "value", "interval", "effective");
    text.push_str(&format!("{:<8} {logged:>9.5}\n", "logged"));
    for (name, estimate) in estimates {
        text.push_str(&match estimate {
            Some(Estimate { value, low, high, effective }) => {
                let interval = format!("{low:.5} to {high:.5}");
                format!("{name:<8} {value:>9.5} {interval:>21}  {effective:>9.0}\n")
            }
            None => format!("{name:<8} {:>9}\n", "-"),
        });
    }
    text
}
