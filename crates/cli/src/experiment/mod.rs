//! Experiments: a file of settings, the sweeps in it, and the cells they expand to.
//!
//! Reading has six steps: [`source`] (is it TOML?), [`structure`] (known keys, right types?), [`sweep`] (which
//! combinations?), [`resolve`] (is every value in range, every combination possible?), [`check`] and
//! [`figures`] (do they speak of what is there?). A file that is not TOML ends there. All other mistakes, of
//! whichever step, are reported together, as far as one does not hide another. Nothing runs before all are gone.

mod complete;
mod contender;
mod curves;
pub(crate) mod diagnostic;
pub(crate) mod figures;
mod library;
mod quick;
pub(crate) mod resolve;
pub(crate) mod source;
pub(crate) mod structure;
mod sweep;
pub(crate) mod values;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use posse_core::{Algorithm, Seed};
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, LinearConfig, WorldConfig};
use posse_sim::{AdversaryConfig, RunConfig};
use serde_json::Value as Json;

use crate::check::{self, Check};
use contender::{contenders, distinct_settings, worlds};
pub(crate) use curves::Curves;
use diagnostic::Diagnostic;
pub(crate) use diagnostic::Report;
pub(crate) use figures::FigurePlan;
pub(crate) use library::DataSource;
use library::Library;
use source::{Entry, Node, Table};

/// The most cells that an experiment may have. More would take years, so they are surely a slip.
const MAX_CELLS: u64 = 1_000_000;

/// An experiment that was read from its file and checked.
#[derive(Debug)]
pub(crate) struct Experiment {
    /// The name of its file.
    pub(crate) id: String,
    /// Whether it is scaled down for a first look.
    pub(crate) quick: bool,
    /// Cells that differ only in their seed.
    pub(crate) groups: Vec<Group>,
    /// How many seeds each group runs with.
    pub(crate) repetitions: u64,
    /// What was written, with all defaults, ready to be run again.
    pub(crate) resolved: toml::Table,
    /// What it says must hold, or is expected to.
    pub(crate) checks: Vec<Check>,
    /// The curves that are kept besides those of all agents together.
    pub(crate) curves: Curves,
    /// The figures that a report draws.
    pub(crate) figures: Vec<FigurePlan>,
    /// The prepared data that its cells read, each with the hash of its content.
    pub(crate) sources: Vec<DataSource>,
    seed: u64,
}

/// What the cells of one combination of settings have in common.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The algorithm and the swept settings: `async-lin-ucb/threshold=5`.
    pub(crate) id: String,
    /// The same as paths and values, `algorithm` first.
    pub(crate) choices: Vec<(String, String)>,
    /// The configuration of its runs; every cell has a seed of its own.
    pub(crate) config: RunConfig,
}

/// One run of an experiment.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Its place in the plan.
    pub(crate) index: usize,
    /// The group's id and the seed: `async-lin-ucb/threshold=5/seed=3`.
    pub(crate) id: String,
    /// Which group it belongs to.
    pub(crate) group: usize,
    /// The configuration of the run, with its seed.
    pub(crate) config: RunConfig,
}

impl Cell {
    /// About how much there is to do, in interactions of a linear learner: enough to begin with the longest cells
    /// and to say how long the others will take.
    pub(crate) fn work(&self) -> f64 {
        let RunConfig { horizon, agents, algorithm, .. } = &self.config;
        let each = horizon / (*agents).max(1);
        *horizon as f64 * algorithm.with_recipe(|recipe| recipe.effort(*agents, each))
    }
}

impl Experiment {
    /// Reads and checks the experiment at `path`.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::from_text(path, text, false)
    }

    /// Reads and checks the experiment at `path` and scales it down: a first look in seconds.
    pub(crate) fn read_quick(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::from_text(path, text, true)
    }

    /// Checks the text of an experiment whose results are there. Its data is not loaded: `sources` says what was read.
    pub(crate) fn recorded_text(path: &Path, text: String, sources: Vec<DataSource>) -> anyhow::Result<Self> {
        Self::parse_with(&text, false, |_| Library::recorded(sources))
            .map_err(|found| Report::new(path.display().to_string(), text, found).into())
    }

    /// Checks the text of the experiment at `path`, scaled down if it is to be quick.
    pub(crate) fn from_text(path: &Path, text: String, quick: bool) -> anyhow::Result<Self> {
        match Self::parse(&text, quick) {
            Ok(experiment) => {
                let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                Ok(Self { id, ..experiment })
            }
            Err(found) => Err(Report::new(path.display().to_string(), text, found).into()),
        }
    }

    /// Checks the text of an experiment, and loads the data that it names.
    fn parse(text: &str, quick: bool) -> Result<Self, Vec<Diagnostic>> {
        Self::parse_with(text, quick, Library::new)
    }

    /// Checks the text of an experiment; its data comes from the library that is made for its `prepare`.
    fn parse_with(
        text: &str,
        quick: bool,
        library: impl FnOnce(Option<&str>) -> Library,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut root = Table::parse(text)?;
        let mut found = structure::check(&root);
        if !found.is_empty() {
            // Without what is written wrongly, the rest of the file can be read for further mistakes. If leaving
            // it out makes other things wrong, such as a key that is missing now, the first list is all we know.
            let mut rest = root;
            found.iter().for_each(|mistake| resolve::without(&mut rest, &mistake.span));
            resolve::without_nameless(&mut rest);
            structure::supply_sizes(&mut rest);
            if structure::check(&rest).is_empty()
                && let Err(more) = Self::build(&rest, quick, library)
            {
                found.extend(more.into_iter().filter(|mistake| !mistake.message.contains(", its default: ")));
            }
            return Err(found);
        }
        if quick {
            quick::scale_down(&mut root);
        }
        Self::build(&root, quick, library)
    }

    /// Expands and checks a file of the right form. All mistakes of all parts come together.
    fn build(
        root: &Table,
        quick: bool,
        library: impl FnOnce(Option<&str>) -> Library,
    ) -> Result<Self, Vec<Diagnostic>> {
        let whole = |key: &str, default: u64| {
            let written =
                root.get(key).and_then(|entry| entry.node.scalar()).and_then(toml::Value::as_integer);
            written.map_or(default, i64::cast_unsigned)
        };
        let (seed, repetitions) = (whole("seed", 0), whole("repetitions", 1));
        let written: Vec<&Node> =
            root.get("algorithm").map_or(&[][..], |entry| entry.node.elements()).iter().collect();
        let mut resolved =
            complete::complete(root, &written.iter().filter_map(|node| node.table()).collect::<Vec<_>>());
        let prepare = root.get("prepare").and_then(|entry| entry.node.scalar()).and_then(toml::Value::as_str);
        let library = library(prepare);
        let (groups, mut found) = groups(root, &written, repetitions, &library);
        let sources = library.sources();
        complete::pin_hash(&mut resolved, &sources);
        // Without groups there is nothing that checks and figures could be about.
        let (mut checks, mut figures) = (Vec::new(), Vec::new());
        if !groups.is_empty() {
            match check::read(root.get("check"), &groups) {
                Ok(read) => checks = read,
                Err(more) => found.extend(more),
            }
            match figures::read(root.get("figure"), &groups) {
                Ok(read) => figures = read,
                Err(more) => found.extend(more),
            }
        }
        if !found.is_empty() {
            return Err(found);
        }
        let curves = Curves::read(root);
        let id = String::new();
        Ok(Self { id, quick, groups, repetitions, resolved, checks, curves, figures, sources, seed })
    }

    /// All cells, in the order of the plan: groups as written, then seeds.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let seeds = || (0..self.repetitions).map(|repetition| self.seed.wrapping_add(repetition));
        let mut cells = Vec::new();
        for (group, Group { id, config, .. }) in self.groups.iter().enumerate() {
            for seed in seeds() {
                let (index, id) = (cells.len(), format!("{id}/seed={seed}"));
                cells.push(Cell {
                    index,
                    id,
                    group,
                    config: RunConfig { seed: Seed(seed), ..config.clone() },
                });
            }
        }
        cells
    }

    /// Replaces the seeds: `count` of them from `first` on, or from the first of the file. The experiment is then the
    /// same as one whose file says so.
    pub(crate) fn set_seeds(&mut self, first: Option<u64>, count: u64) -> Result<(), String> {
        let first = first.unwrap_or(self.seed);
        let (Ok(seed), Ok(repetitions)) = (i64::try_from(first), i64::try_from(count)) else {
            return Err(format!("seeds from {first} on, {count} of them, are too large"));
        };
        if count == 0 {
            return Err("`repetitions` is 0: it must be at least 1".into());
        }
        if (self.groups.len() as u64).checked_mul(count).is_none_or(|cells| cells > MAX_CELLS) {
            return Err(format!("{count} seeds make too many cells: at most {MAX_CELLS} can be run"));
        }
        (self.seed, self.repetitions) = (first, count);
        self.resolved.insert("seed".into(), seed.into());
        self.resolved.insert("repetitions".into(), repetitions.into());
        Ok(())
    }

    /// The resolved experiment as JSON.
    pub(crate) fn to_json(&self) -> Json {
        complete::to_json(&self.resolved.clone().into())
    }
}

/// Expands the sweeps and checks every combination. Returns all groups, also those whose settings are impossible,
/// so that whatever refers to them can be read, and what is wrong.
fn groups(
    root: &Table,
    written: &[&Node],
    repetitions: u64,
    library: &Library,
) -> (Vec<Group>, Vec<Diagnostic>) {
    let is_shared = |entry: &&Entry| {
        let apart = [
            "title",
            "description",
            "prepare",
            "processor_minutes",
            "seed",
            "repetitions",
            "algorithm",
            "curves",
            "figure",
            "check",
        ];
        !apart.contains(&entry.key.as_str())
    };
    let shared = Table(root.0.iter().filter(is_shared).cloned().collect());
    let contenders = contenders(written);
    let worlds = worlds(&contenders, &shared);
    let cells = contenders.iter().zip(&worlds).try_fold(0u64, |sum, (contender, world)| {
        let own = sweep::count(&contender.table)?.checked_mul(sweep::count(world)?)?;
        sum.checked_add(own.checked_mul(repetitions)?)
    });
    if cells.is_none_or(|cells| cells > MAX_CELLS) {
        let size = cells.map_or_else(|| "far too many".into(), |cells| cells.to_string());
        let message = format!("the sweeps and repetitions make {size} cells: at most {MAX_CELLS} can be run");
        return (Vec::new(), vec![Diagnostic::new(&(0..0), message).help("shorten some lists")]);
    }
    let (mut groups, mut found) = (Vec::new(), Vec::new());
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    for (index, contender) in contenders.iter().enumerate() {
        let distinct = distinct_settings(&contenders, index);
        for world in sweep::expand(&worlds[index]) {
            for own in sweep::expand(&contender.table) {
                let (id, choices) = id(&contender.name, &world.choices, &distinct, &own.choices);
                match resolve::resolve(&world.table, &own.table, &contender.header, library) {
                    Err(problems) => {
                        found.extend(problems);
                        groups.push(Group { id, choices, config: stand_in(&contender.name) });
                    }
                    Ok(config) => {
                        let content = format!("{config:?}");
                        if let Some(earlier) = ids.get(&content).or_else(|| ids.get(&id)) {
                            let message = format!("this repeats the cell {earlier}");
                            let help = "every cell runs once: remove one of the two";
                            found.push(Diagnostic::new(&contender.header, message).help(help));
                        }
                        ids.insert(content, id.clone());
                        ids.insert(id.clone(), id.clone());
                        groups.push(Group { id, choices, config });
                    }
                }
            }
        }
    }
    (groups, found)
}

/// A run in the place of one whose settings are impossible: of the same algorithm, and never started.
fn stand_in(algorithm: &str) -> RunConfig {
    let all = Algorithm::all();
    let named = all.iter().find(|known| known.name() == algorithm).or(all.first());
    RunConfig {
        seed: Seed(0),
        agents: 1,
        horizon: 1,
        world: WorldConfig::Linear(LinearConfig::default()),
        arrival: ArrivalConfig::default(),
        network: NetworkConfig::default(),
        topology: posse_sim::TopologyConfig::default(),
        faults: FaultConfig::default(),
        adversaries: AdversaryConfig::default(),
        algorithm: named.expect("there are algorithms").clone(),
    }
}

type Choices = [(Vec<String>, String)];

/// `name/key=value/…`; a key that occurs in several places is written with its table. And the same as
/// paths with values.
fn id(name: &str, world: &Choices, distinct: &Choices, own: &Choices) -> (String, Vec<(String, String)>) {
    let of_algorithm = distinct.iter().chain(own).map(|(path, value)| {
        let path: Vec<String> = std::iter::once("algorithm".into()).chain(path.iter().cloned()).collect();
        (path, value.clone())
    });
    let all: Vec<(Vec<String>, String)> = world.iter().cloned().chain(of_algorithm).collect();
    let last = |path: &[String]| path.last().cloned().unwrap_or_default();
    let mut id = name.to_owned();
    let mut choices = vec![("algorithm".to_owned(), id.clone())];
    for (path, value) in &all {
        let shared = all.iter().filter(|(other, _)| last(other) == last(path)).count() > 1;
        let key = if shared { path.join(".") } else { last(path) };
        id.push_str(&format!("/{key}={value}"));
        choices.push((path.join("."), value.clone()));
    }
    (id, choices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Kind, Section};

    /// An experiment with one setting in one table.
    fn with_setting(
        section: Section,
        variant: &str,
        key: &str,
        value: f64,
    ) -> Result<Experiment, Vec<Diagnostic>> {
        let tag = section.tag().map_or_else(String::new, |tag| format!("{tag} = \"{variant}\"\n"));
        let table = format!("{}\n{tag}{key} = {value}\n", section.header());
        // Links are refused in worlds that pay what they do not take; this one pays 0 or 1, which all of them take.
        let other = if section == Section::Algorithm {
            "[environment]\nkind = \"glm\"\n"
        } else {
            // Agents that share: relays and liars are refused without.
            "[[algorithm]]\nname = \"async-lin-ucb\"\n"
        };
        Experiment::parse(&format!("horizon = 10\nagents = 3\n{table}{other}"), false)
    }

    /// Values that a listed range allows, and values that it does not. `None` if it depends on other keys.
    fn probes(range: &str) -> Option<(Vec<f64>, Vec<f64>)> {
        let number = |text: &str| if text == "∞" { Some(f64::INFINITY) } else { text.parse::<f64>().ok() };
        if let Some(low) = range.strip_prefix("> ").and_then(number) {
            return Some((vec![low + 0.5], vec![low]));
        }
        if let Some(low) = range.strip_prefix("≥ ").and_then(number) {
            return Some((vec![low], vec![low - 1.0]));
        }
        let (low, high) = range.strip_prefix("in ")?.trim_matches(['(', ')', '[', ']']).split_once(", ")?;
        let (low, high) = (number(low)?, number(high)?);
        let middle = match high - low {
            width if width.is_infinite() => low + 1.0,
            // Some of these settings are whole numbers.
            width if width > 2.0 => ((low + high) / 2.0).floor(),
            _ => (low + high) / 2.0,
        };
        let (mut good, mut bad) = (vec![middle], Vec::new());
        if range.contains('[') {
            good.push(low);
        } else {
            bad.push(low);
        }
        if range.contains(']') {
            good.push(high);
        } else {
            bad.push(high);
        }
        if range.contains('[') {
            bad.push(low - 0.5);
        }
        if range.contains(']') && high.is_finite() {
            bad.push(1.5 * high);
        }
        // Infinity is written as a word, which only thresholds take.
        let written = |values: Vec<f64>| values.into_iter().filter(|v| v.is_finite()).collect();
        Some((written(good), written(bad)))
    }

    #[test]
    fn listed_ranges_are_those_that_are_checked() {
        let mut probed = 0;
        for variant in Section::ALL.into_iter().flat_map(Section::variants) {
            for key in variant.keys() {
                let setting = variant.setting(key).unwrap();
                // How few features are enough depends on how many are shared, how many layers fit on their width.
                let depends =
                    (variant.name.as_str(), key) == ("heterogeneous", "dimension") || key == "hidden_layers";
                let tabular = matches!(setting.kind, Kind::Table(_) | Kind::Tables(_));
                // Without data nothing can be built; the ranges of such worlds are tested in the simulator.
                let needs_data = variant.defaults.contains_key("data");
                if depends || tabular || needs_data {
                    continue;
                }
                let Some((good, bad)) = probes(setting.range()) else { continue };
                let accepted =
                    |value: &f64| with_setting(variant.section, &variant.name, key, *value).is_ok();
                assert!(good.iter().all(accepted), "{} {key}: {good:?}", variant.name);
                assert!(!bad.iter().any(accepted), "{} {key}: {bad:?}", variant.name);
                probed += 1;
            }
        }
        assert!(probed > 60, "{probed}");
    }

    #[test]
    fn the_plan_has_groups_as_written_and_seeds_last() {
        let text =
            "seed = 5\nrepetitions = 2\nhorizon = [10, 20]\nagents = 3\n[[algorithm]]\nname = \"lin-ucb\"\n";
        let experiment = Experiment::parse(text, false).unwrap();
        let ids: Vec<String> = experiment.cells().into_iter().map(|cell| cell.id).collect();
        assert_eq!(
            ids,
            [
                "lin-ucb/horizon=10/seed=5",
                "lin-ucb/horizon=10/seed=6",
                "lin-ucb/horizon=20/seed=5",
                "lin-ucb/horizon=20/seed=6"
            ]
        );
    }

    #[test]
    fn a_horizon_of_each_agent_grows_with_their_number() {
        let text = "horizon_each = [10, 20]\nagents = [1, 3]\n[[algorithm]]\nname = \"lin-ucb\"\n";
        let experiment = Experiment::parse(text, false).unwrap();
        let of = |cell: Cell| (cell.id, cell.config.agents, cell.config.horizon);
        let cells: Vec<_> = experiment.cells().into_iter().map(of).collect();
        let expected = [
            ("lin-ucb/horizon_each=10/agents=1/seed=0", 1, 10),
            ("lin-ucb/horizon_each=10/agents=3/seed=0", 3, 30),
            ("lin-ucb/horizon_each=20/agents=1/seed=0", 1, 20),
            ("lin-ucb/horizon_each=20/agents=3/seed=0", 3, 60),
        ];
        assert_eq!(cells, expected.map(|(id, agents, horizon)| (id.to_owned(), agents, horizon)));
    }

    #[test]
    fn an_algorithm_may_have_a_number_of_agents_of_its_own() {
        let ids = |text: &str| -> Vec<String> {
            let groups = Experiment::parse(text, false).unwrap().groups;
            groups
                .into_iter()
                .map(|group| format!("{} {} {}", group.id, group.config.agents, group.config.horizon))
                .collect()
        };
        let sweep = "horizon_each = 10\nagents = [2, 5]\n[[algorithm]]\nname = \"async-lin-ucb\"\n\
                     [[algorithm]]\nname = \"lin-ucb\"\nagents = 1\n";
        let expected =
            ["async-lin-ucb/agents=2 2 20", "async-lin-ucb/agents=5 5 50", "lin-ucb/agents=1 1 10"];
        assert_eq!(ids(sweep), expected);
        let namesakes = "horizon = 10\nagents = 3\n[[algorithm]]\nname = \"lin-ucb\"\n\
                         [[algorithm]]\nname = \"lin-ucb\"\nagents = [1, 2]\n";
        let expected = ["lin-ucb/agents=3 3 10", "lin-ucb/agents=1 1 10", "lin-ucb/agents=2 2 10"];
        assert_eq!(ids(namesakes), expected);
    }

    /// Results are read with what is kept of the experiment, not with its file.
    #[test]
    fn an_experiment_that_is_written_anew_has_the_same_cells_in_the_same_order() {
        let own = "agents = [2, 3]\nhorizon_each = [10, 20]\n[network]\nlatency = [\"0s\", \"1ms\"]\n\
                   [environment]\nnoise_shape = { degrees = [3, 4] }\nnoise = [0.1, 0.2]\ndimension = [3, 4]\n\
                   [[algorithm]]\nname = [\"lin-ucb\", \"async-lin-ucb\"]\nregularization = [0.1, 1]\nconfidence = 0.05\n\
                   [[algorithm]]\nname = \"lin-ucb\"\nregularization = 2\nwidth_scale = 1\n";
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
        let texts = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
        let texts = texts.map(|path| std::fs::read_to_string(path).unwrap());
        for text in std::iter::once(own.to_owned()).chain(texts.filter(|text| !text.contains("\ndata ="))) {
            let written = Experiment::parse(&text, false).unwrap_or_else(|found| panic!("{found:?}"));
            let kept = toml::to_string(&written.resolved).unwrap();
            let kept = Experiment::parse(&kept, false).unwrap_or_else(|found| panic!("{found:?}\n{kept}"));
            let ids = |experiment: &Experiment| -> Vec<String> {
                experiment.groups.iter().map(|group| group.id.clone()).collect()
            };
            assert_eq!(ids(&written), ids(&kept));
        }
    }

    #[test]
    fn completing_a_complete_experiment_changes_nothing() {
        let text = "horizon = 10\nagents = 3\n[environment]\nnoise = 1\ndrift = {}\n[arrival]\nkind = [\"zipf\", \"power\"]\n\
                    [[algorithm]]\nname = [\"async-lin-ucb\", \"async-lin-ts\"]\nthreshold = [2, \"inf\"]\n\
                    [[algorithm.override]]\nagent = 1\n";
        let once = Experiment::parse(text, false).unwrap().resolved;
        assert_eq!(once["environment"]["drift"]["period"].as_integer(), Some(10_000));
        // Zipf and power differ in the default of their exponent.
        assert!(once["arrival"].get("exponent").is_none());
        let twice = Experiment::parse(&toml::to_string(&once).unwrap(), false).unwrap().resolved;
        assert_eq!(once, twice);
        let own = "horizon_each = 10\nagents = 3\n[[algorithm]]\nname = \"lin-ucb\"\nagents = [1, 2]\n";
        let once = Experiment::parse(own, false).unwrap();
        let twice = Experiment::parse(&toml::to_string(&once.resolved).unwrap(), false).unwrap();
        assert_eq!(once.resolved, twice.resolved);
        let ids =
            |experiment: &Experiment| experiment.cells().into_iter().map(|cell| cell.id).collect::<Vec<_>>();
        assert_eq!(ids(&once), ids(&twice));
    }
}
