//! `posse evaluate`: what a federated policy would have earned, from a log of another one.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use posse_core::{Algorithm, Seed};
use posse_data::decision_log::load_log;
use posse_data::ope::{
    Assignment, Estimate, EvaluationSettings, Findings, Interval, Judging, ModelKind, Named, evaluate,
    evaluate_own, read_policy, replay,
};
use serde::Deserialize;
use serde_json::json;

use super::algorithms::check_name;
use super::{Ending, print, print_json};
use crate::table::compact;

/// Estimate from a log of decisions what another, federated policy would have earned
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse evaluate data/shop --algorithm async-lin-ucb --set threshold=5 --agents 8 --by user
  posse evaluate data/shop --algorithm lin-ucb --replay
  posse evaluate data/shop --policy mine.csv --interval bernstein

Agents learn from the first rows of the log, every one of which they see, and are judged on the others. With
--replay they learn while the log passes by, from the rows in which they would have done what was done. Rows are
divided over agents by --by: user, agent (a column of the log, such as a region) or row.

With --policy a policy of your own is judged on all rows: a CSV file with a row for each row of the log, and either
one column, the probability of what was done, or a column for each action, called as in the log.

`posse data prepare log` makes the log; docs/guides/bring-your-own-data.md shows how.")]
pub(crate) struct Args {
    /// The directory with the prepared log
    #[arg(value_name = "DIR")]
    log: PathBuf,
    /// The algorithm that decides; `posse algorithms` lists them
    #[arg(long, value_name = "NAME", required_unless_present = "policy")]
    algorithm: Option<String>,
    /// A policy of your own instead: its probabilities in every row of the log
    #[arg(long, value_name = "FILE", conflicts_with_all = ["algorithm", "replay", "settings"])]
    policy: Option<PathBuf>,
    /// A setting of the algorithm; repeat it for several
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
    /// How intervals are made: normal, bootstrap, or bernstein, which holds for any number of rows
    #[arg(long, value_name = "HOW", default_value = "normal")]
    interval: String,
    /// Make intervals from N resampled logs [default for --interval bootstrap: 1000]
    #[arg(long, value_name = "N")]
    bootstrap: Option<u32>,
    /// The most that a row may weigh, or none [default: the root of the number of rows, at least the number of
    /// actions]
    #[arg(long, value_name = "WEIGHT")]
    clip: Option<String>,
    /// What predicts rewards: means, ridge or stumps [default: whichever predicts best]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// The seed of the agents and of resampling
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let assignment = match args.by.as_str() {
        "user" => Assignment::User,
        "agent" => Assignment::Agent,
        "row" => Assignment::Row,
        other => bail!("--by {other}: one of user, agent, row"),
    };
    let judging = judging(args)?;
    let algorithm = args.algorithm.as_deref().map(|name| algorithm(name, &args.settings)).transpose()?;
    let log = load_log(&args.log)?;
    let seed = Seed(args.seed);
    let (warnings, text, document) = match (algorithm, &args.policy) {
        (None, None) => bail!("what is to be judged? Say it with --algorithm or --policy"),
        (_, Some(path)) => {
            let policy = read_policy(path, &log)?;
            let found = evaluate_own(&log, &policy, &judging).map_err(|error| anyhow!(error))?;
            let head = format!("judged on {} rows, {}\n", found.judged, about(&found));
            (found.warnings.clone(), head + &table(&found), document(&found, json!({})))
        }
        (Some(algorithm), None) if args.replay => {
            let found = replay(&log, &algorithm, args.agents, assignment, seed, args.level)
                .map_err(|error| anyhow!(error))?;
            let head = format!(
                "{} of {} rows matched and were learned from, {} messages with statistics, {} bytes\n",
                found.matched, found.rows, found.messages, found.bytes
            );
            let line = line("replay", None, found.estimate.as_ref());
            (found.warnings.clone(), head + &header(found.logged) + &line, json!(found))
        }
        (Some(algorithm), None) => {
            let settings = EvaluationSettings {
                algorithm,
                agents: args.agents,
                assignment,
                learn_share: args.learn,
                explore: args.explore,
                seed,
                judging,
            };
            let found = evaluate(&log, &settings).map_err(|error| anyhow!(error))?;
            let head = format!(
                "learned from {} rows, judged on {}, {}; {} messages with statistics, {} bytes\n",
                found.learned,
                found.findings.judged,
                about(&found.findings),
                found.messages,
                found.bytes
            );
            let more = json!({ "learned": found.learned, "messages": found.messages, "bytes": found.bytes });
            let document = document(&found.findings, more);
            (found.findings.warnings.clone(), head + &table(&found.findings), document)
        }
    };
    for warning in &warnings {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    if args.json {
        print_json(&document)?;
    } else {
        print(&text)?;
    }
    Ok(Ending::Done)
}

/// How estimates are to be made.
fn judging(args: &Args) -> anyhow::Result<Judging> {
    if !(args.level > 0.0 && args.level < 1.0) {
        bail!("--level {}: between 0 and 1", args.level);
    }
    let bootstrap = |samples| Interval::Bootstrap { samples, seed: Seed(args.seed) };
    let interval = match (args.interval.as_str(), args.bootstrap) {
        ("normal", None) => Interval::Normal,
        ("normal" | "bootstrap", Some(samples)) => bootstrap(samples),
        ("bootstrap", None) => bootstrap(1000),
        ("bernstein", None) => Interval::Bernstein,
        ("bernstein", Some(_)) => bail!("--bootstrap and --interval bernstein contradict each other"),
        (other, _) => bail!("--interval {other}: one of normal, bootstrap, bernstein"),
    };
    let clip = match args.clip.as_deref() {
        None => None,
        Some("none") => Some(f64::INFINITY),
        Some(text) => match text.parse::<f64>() {
            Ok(limit) if limit >= 1.0 => Some(limit),
            _ => bail!("--clip {text}: a number, 1 or more, or none"),
        },
    };
    let model = match args.model.as_deref() {
        None => None,
        Some(word) => match ModelKind::ALL.into_iter().find(|kind| kind.word() == word) {
            Some(kind) => Some(kind),
            None => bail!("--model {word}: one of means, ridge, stumps"),
        },
    };
    Ok(Judging { interval, level: args.level, clip, model })
}

/// What estimates rest on, in a few words.
fn about(found: &Findings) -> String {
    let model = found.model.map_or_else(
        || "no reward model".into(),
        |kind| {
            format!("rewards by {} (explains {:.0} % of them)", kind.word(), 100.0 * found.explained.max(0.0))
        },
    );
    let clip = if found.clip.is_finite() {
        format!("weights up to {} ({} rows clipped)", compact(found.clip), found.clipped)
    } else {
        "weights not clipped".into()
    };
    format!("effective sample size {:.0}, {clip}, {model}", found.effective)
}

/// Everything as one document; estimates by name.
fn document(found: &Findings, more: serde_json::Value) -> serde_json::Value {
    let mut document = json!(found);
    let estimates: serde_json::Map<_, _> = found
        .estimates
        .iter()
        .map(|Named { name, parameter, estimate }| {
            let mut value = json!(estimate);
            if let (Some(parameter), Some(map)) = (parameter, value.as_object_mut()) {
                map.insert("parameter".into(), json!(parameter));
            }
            ((*name).to_owned(), value)
        })
        .collect();
    document["estimates"] = estimates.into();
    if let (Some(document), serde_json::Value::Object(more)) = (document.as_object_mut(), more) {
        document.extend(more);
    }
    document
}

/// The algorithm with its settings, written as in experiments.
fn algorithm(name: &str, settings: &[String]) -> anyhow::Result<Algorithm> {
    let all = crate::settings::Section::Algorithm.variants();
    check_name(name, "algorithm", all.iter().map(|variant| variant.name.as_str()))?;
    let mut table = toml::Table::new();
    for setting in settings {
        let (key, value) =
            setting.split_once('=').with_context(|| format!("--set {setting}: write KEY=VALUE"))?;
        let parsed =
            format!("v = {value}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("v"));
        let value = parsed.unwrap_or_else(|| value.into());
        let both = crate::settings::BOTH_THRESHOLDS;
        let own = crate::settings::outside::takes_threshold(name);
        let keys: &[&str] = if key == crate::settings::THRESHOLD.key && !own { &both } else { &[key] };
        for key in keys {
            table.insert((*key).into(), value.clone());
        }
    }
    let known = all.iter().find(|variant| variant.name == name);
    let known = known.expect("the name is known");
    if let Some(key) = table.keys().find(|key| known.setting(key).is_none()) {
        bail!(
            "--set {key}: {} has no such setting; `posse algorithms {}` lists them",
            known.name,
            known.name
        );
    }
    table.insert("name".into(), name.into());
    if let Some(made) = crate::settings::outside::algorithm(&table) {
        return made.map_err(|error| anyhow!("--set: {error}"));
    }
    Algorithm::deserialize(toml::Value::Table(table)).map_err(|error| anyhow!("--set: {}", error.message()))
}

/// Estimates in columns, beside what was logged.
fn table(found: &Findings) -> String {
    let lines = found.estimates.iter().map(|own| line(own.name, own.parameter, own.estimate.as_ref()));
    header(found.logged) + &lines.collect::<String>()
}

fn header(logged: f64) -> String {
    let head = format!("\n{:<8} {:>9} {:>21}  {:>9}\n", "", "value", "interval", "effective");
    head + &format!("{:<8} {logged:>9.5}\n", "logged")
}

fn line(name: &str, parameter: Option<f64>, estimate: Option<&Estimate>) -> String {
    let Some(Estimate { value, low, high, effective }) = estimate else {
        return format!("{name:<8} {:>9}\n", "-");
    };
    let interval = format!("{low:.5} to {high:.5}");
    let symbol = if name == "switch" { "τ" } else { "λ" };
    let parameter = parameter.map_or_else(String::new, |own| format!("  {symbol} = {own}"));
    format!("{name:<8} {value:>9.5} {interval:>21}  {effective:>9.0}{parameter}\n")
}
