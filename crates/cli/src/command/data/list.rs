//! `posse data list`: which data sets are known.

use posse_data::catalogue::{self, KnownSet};
use serde_json::{Value, json};

use super::{Ending, print, print_json};
use crate::command::algorithms::check_name;

/// List the data sets that are known by name, or all about one
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show the files of this one
    name: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Ending> {
    let sets = catalogue::all();
    match &args.name {
        None if args.json => print_json(&sets.iter().map(|set| to_json(set)).collect::<Vec<_>>())?,
        None => print(&all(&sets))?,
        Some(name) => {
            check_name(name, "data set", sets.iter().map(|set| set.name))?;
            let set = catalogue::find(name).expect("the name is known");
            if args.json {
                print_json(&to_json(set))?;
            } else {
                print(&one(set))?;
            }
        }
    }
    Ok(Ending::Done)
}

fn all(sets: &[&KnownSet]) -> String {
    let width = sets.iter().map(|set| set.name.len()).max().unwrap_or(0);
    let lines = sets.iter().map(|set| format!("  {:<width$}  {}\n", set.name, set.title));
    let list: String = lines.collect();
    format!(
        "{list}\nYour own files: `posse data prepare table` for any labelled table, `… log` for any log of decisions.\n\
         `posse data list NAME` shows licence, address and files of one. posse brings none of them; `posse data fetch NAME`\n\
         gets one from its publisher.\n"
    )
}

fn one(set: &KnownSet) -> String {
    let mut text =
        format!("{}: {}\n\n  licence  {}\n  from     {}\n", set.name, set.title, set.licence, set.address);
    for file in set.files {
        let hash = file.sha256.map_or_else(|| "no checksum is known".into(), |hash| format!("sha256 {hash}"));
        text.push_str(&format!("  file     {}  {hash}\n", file.name));
    }
    let counts: Vec<String> = set.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    text + &format!(
        "  counts   {}\n\nposse data fetch {} --out data/{}\n",
        counts.join(", "),
        set.name,
        set.name
    )
}

fn to_json(set: &KnownSet) -> Value {
    let files = set.files.iter().map(|file| json!({ "file": file.name, "sha256": file.sha256 }));
    let counts: serde_json::Map<String, Value> =
        set.counts.iter().map(|(what, count)| ((*what).to_owned(), (*count).into())).collect();
    json!({
        "name": set.name,
        "title": set.title,
        "licence": set.licence,
        "address": set.address,
        "download": set.download,
        "files": files.collect::<Vec<_>>(),
        "counts": counts,
    })
}
