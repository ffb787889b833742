//! `posse worlds`: where algorithms can be run — environments, arrivals, networks and faults.

use posse_core::TimeSpan;
use posse_sim::network::{LinkModel, NetworkConfig, Preset};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use serde_json::{Value, json};

use super::algorithms::check_name;
use super::{Ending, listing, print, print_json};
use crate::settings::{Section, Variant, presets};

/// List environments, arrivals and networks, or the settings of one
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  posse worlds heterogeneous\n  posse worlds network")]
pub(crate) struct Args {
    /// Show the settings of this environment or arrival, of `network`, `faults`, `adversaries` or `topology`, or the numbers of a preset
    kind: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

const SECTIONS: [(Section, &str); 6] = [
    (Section::Environment, "Environments: [environment] kind = …"),
    (Section::Arrival, "Arrivals: [arrival] kind = …"),
    (Section::Network, ""),
    (Section::Faults, ""),
    (Section::Adversaries, ""),
    (Section::Topology, ""),
];

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let variants: Vec<Variant> = SECTIONS.iter().flat_map(|(section, _)| section.variants()).collect();
    let Some(kind) = &args.kind else {
        if args.json {
            print_json(&all_as_json())?;
        } else {
            print(&all())?;
        }
        return Ok(Ending::Done);
    };
    let names = variants.iter().map(|variant| variant.name.as_str()).chain(presets().iter().copied());
    check_name(kind, "world", names)?;
    match variants.iter().find(|variant| variant.name == *kind) {
        Some(variant) if args.json => print_json(&listing::to_json(variant))?,
        Some(variant) => print(&listing::settings(variant))?,
        None if args.json => print_json(&preset_as_json(kind))?,
        None => print(&format!("{kind}: {}\n", preset_summary(kind)))?,
    }
    Ok(Ending::Done)
}

/// The names of all worlds, arrivals and network presets, each with a summary.
fn all() -> String {
    let mut text = String::new();
    for (section, title) in SECTIONS.into_iter().filter(|(section, _)| section.tag().is_some()) {
        let variants = section.variants();
        let names = variants.iter().map(|variant| (variant.name.as_str(), variant.summary.as_str()));
        text.push_str(&format!("{title}\n{}\n", listing::names(names)));
    }
    let summaries: Vec<String> = presets().iter().map(|preset| preset_summary(preset)).collect();
    let names = presets().iter().copied().zip(summaries.iter().map(String::as_str));
    text.push_str(&format!("Networks: [network] preset = …\n{}\n", listing::names(names)));
    text + "`posse worlds KIND` shows the settings of one; with KIND `network`, `faults`, `adversaries` or `topology`\n\
            those of the tables [network], [faults], [adversaries] and [topology].\n"
}

/// All variants with all their settings, as one JSON document.
fn all_as_json() -> Value {
    let of = |section: Section| section.variants().iter().map(listing::to_json).collect::<Vec<_>>();
    let one = |section: Section| of(section).pop();
    json!({
        "environments": of(Section::Environment),
        "arrivals": of(Section::Arrival),
        "network": one(Section::Network),
        "presets": presets().iter().map(|preset| preset_as_json(preset)).collect::<Vec<_>>(),
        "faults": one(Section::Faults),
        "adversaries": one(Section::Adversaries),
        "topology": one(Section::Topology),
    })
}

/// The numbers of a preset.
fn link(preset: &str) -> LinkModel {
    let word: StrDeserializer<'_, Error> = preset.into_deserializer();
    let preset = Preset::deserialize(word).expect("the list of presets is checked by a test");
    NetworkConfig::preset(preset).link()
}

/// The numbers of a preset in words; only those that are not zero.
fn preset_summary(preset: &str) -> String {
    let link = link(preset);
    if link == LinkModel::PERFECT {
        return "every message arrives, and is answered, before the next interaction".into();
    }
    let mut parts = vec![
        format!("{} one way", link.latency),
        format!("up to {} more", link.jitter),
        format!("{} % lost", 100.0 * link.loss),
    ];
    if link.repeat > 0.0 {
        parts.push(format!("{} % doubled", 100.0 * link.repeat));
    }
    if link.straggle > 0.0 {
        parts.push(format!("{} % late by a second", 100.0 * link.straggle));
    }
    if link.partition_every > TimeSpan::ZERO {
        parts.push(format!("cut off for {} in every {}", link.partition_length, link.partition_every));
    }
    parts.join(", ")
}

/// The numbers of a preset, as `[network]` takes them.
fn preset_as_json(preset: &str) -> Value {
    let link = link(preset);
    json!({
        "name": preset,
        "summary": preset_summary(preset),
        "latency": link.latency,
        "jitter": link.jitter,
        "loss": link.loss,
        "repeat": link.repeat,
        "straggle": link.straggle,
        "partition_every": link.partition_every,
        "partition_length": link.partition_length,
    })
}
