//! Reading `[[check]]` tables. Whatever is wrong with them is found before anything runs.

use super::judge::o5_terms;
use super::{Axis, Check, Claim, Front, Level, Selector, choice, disagreement, is_called};
use crate::experiment::Group;
use crate::experiment::diagnostic::Diagnostic;
use crate::experiment::source::{Entry, Node, Span, Table, Value, label};
use crate::experiment::values::{did_you_mean, wrong_type};
use crate::metric::{Column, METRICS, Metric};
use crate::suggest::closest;

/// The kinds of checks, each with the keys it takes besides those of all.
const KINDS: [(&str, &[&str]); 7] = [
    ("monotone", &["where", "y", "x", "along", "direction", "slack"]),
    ("order", &["metric", "below", "above", "factor", "margin", "at_equal"]),
    ("spearman", &["where", "x", "y", "along", "at_least", "at_most"]),
    ("slope", &["where", "x", "y", "along", "across", "at_least", "at_most"]),
    ("range", &["where", "metric", "low", "high"]),
    ("bound-o5", &["where"]),
    ("front", &["metric", "cost", "below", "above", "factor"]),
];
const COMMON: [&str; 4] = ["kind", "level", "says", "why"];

/// The checks of an experiment with these groups.
pub(crate) fn read(entry: Option<&Entry>, groups: &[Group]) -> Result<Vec<Check>, Vec<Diagnostic>> {
    let Some(entry) = entry else { return Ok(Vec::new()) };
    let (mut checks, mut found) = (Vec::new(), Vec::new());
    let Value::List(nodes) = &entry.node.value else {
        let message = format!("`check` is {}: expected an array of tables", entry.node.describe());
        return Err(vec![Diagnostic::new(&entry.span, message).help("write [[check]], with two brackets")]);
    };
    for node in nodes {
        match node.table() {
            Some(table) => {
                let mut reader = Reader { table, header: &node.span, groups, found: &mut found };
                checks.extend(reader.check());
            }
            None => found.push(wrong_type("check", node, "a table").help("write [[check]]")),
        }
    }
    if found.is_empty() { Ok(checks) } else { Err(found) }
}

/// One table on its way to a check. A value that is wrong is noted and gives `None`.
struct Reader<'a> {
    table: &'a Table,
    header: &'a Span,
    groups: &'a [Group],
    found: &'a mut Vec<Diagnostic>,
}

impl Reader<'_> {
    fn check(&mut self) -> Option<Check> {
        let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
        let kind = self.word("kind", &names, None)?;
        let (_, keys) = KINDS.into_iter().find(|(name, _)| *name == kind)?;
        self.refuse_unknown_keys(&kind, keys);
        let level = self.word("level", &["must", "expect"], Some("must"));
        let level = if level.as_deref() == Some("expect") { Level::Expect } else { Level::Must };
        let (says, why) = (self.text("says"), self.text("why"));
        let selector = self.selector("where");
        let claim = self.claim(&kind, selector.as_ref()?)?;
        Some(Check { says, why, level, selector: selector?, claim })
    }

    /// A text that may be left out.
    fn text(&mut self, key: &str) -> Option<String> {
        let node = &self.table.get(key)?.node;
        match node.scalar() {
            Some(toml::Value::String(text)) => Some(text.clone()),
            _ => self.note(wrong_type(key, node, "a text")),
        }
    }

    fn claim(&mut self, kind: &str, selector: &Selector) -> Option<Claim> {
        match kind {
            "monotone" => {
                let along = self.swept("along", selector);
                let y = self.axis("y", selector);
                let x = if self.table.get("x").is_some() {
                    self.axis("x", selector)
                } else {
                    along.clone().map(Axis::Setting)
                };
                let direction = self.word("direction", &["increasing", "decreasing"], None);
                let slack = self.number("slack", Some(0.0));
                let rising = direction? == "increasing";
                Some(Claim::Monotone { y: y?, x: x?, along: along?, rising, slack: slack? })
            }
            "order" => {
                let metric = self.metric("metric");
                let (below, above) = (self.required_selector("below"), self.required_selector("above"));
                let (factor, margin) = (self.number("factor", Some(1.0)), self.number("margin", Some(0.0)));
                let at_equal =
                    if self.table.get("at_equal").is_some() { self.metric("at_equal") } else { None };
                let (factor, margin) = (factor?, margin?);
                if let (Some(below), Some(above), None) = (&below, &above, at_equal) {
                    self.require_pair(below, above)?;
                }
                Some(Claim::Order { metric: metric?, below: below?, above: above?, factor, margin, at_equal })
            }
            "spearman" => {
                let along = self.swept("along", selector);
                let (x, y) = (self.axis("x", selector), self.axis("y", selector));
                let at_least = self.number("at_least", Some(f64::NEG_INFINITY));
                let at_most = self.number("at_most", Some(f64::INFINITY));
                self.require_one_of("at_least", "at_most");
                let (at_least, at_most) = (at_least?, at_most?);
                Some(Claim::Spearman { x: x?, y: y?, along: along?, at_least, at_most })
            }
            "slope" => {
                let along = self.swept("along", selector);
                let y = self.axis("y", selector);
                let x = if self.table.get("x").is_some() {
                    self.axis("x", selector)
                } else {
                    along.clone().map(Axis::Setting)
                };
                let across = self.words("across");
                let at_least = self.number("at_least", Some(f64::NEG_INFINITY));
                let at_most = self.number("at_most", Some(f64::INFINITY));
                self.require_one_of("at_least", "at_most");
                let (at_least, at_most) = (at_least?, at_most?);
                Some(Claim::Slope { y: y?, x: x?, along: along?, across: across?, at_least, at_most })
            }
            "range" => {
                let metric = self.metric("metric");
                let low = self.number("low", Some(f64::NEG_INFINITY));
                let high = self.number("high", Some(f64::INFINITY));
                self.require_one_of("low", "high");
                Some(Claim::Range { metric: metric?, low: low?, high: high? })
            }
            "front" => {
                let (metric, cost) = (self.metric("metric"), self.column("cost"));
                let (below, above) = (self.required_selector("below"), self.required_selector("above"));
                let factor = self.number("factor", Some(1.0))?;
                Some(Claim::Front(Front {
                    metric: metric?,
                    cost: cost?,
                    below: below?,
                    above: above?,
                    factor,
                }))
            }
            _ => self.bound_o5(selector),
        }
    }

    /// At least two groups must agree in whatever their selectors leave open, or nothing would be compared.
    fn require_pair(&mut self, below: &Selector, above: &Selector) -> Option<()> {
        let low = self.groups.iter().filter(|group| below.matches(group));
        let high = || self.groups.iter().filter(|group| above.matches(group));
        let pairs = low.flat_map(|low| high().map(move |high| disagreement(low, high, [below, above])));
        let closest = pairs.min_by_key(Vec::len)?;
        if closest.is_empty() {
            return Some(());
        }
        let keys: Vec<&str> = closest.iter().map(|path| short(path)).collect();
        let message = format!("no groups of `below` and `above` agree in {}", keys.join(", "));
        let help = "only groups that agree in what neither names are compared: name it in one of them";
        self.note(Diagnostic::new(self.header, message).help(help))
    }

    /// O5 is known for thresholds that are the same for all, over ideal links.
    fn bound_o5(&mut self, selector: &Selector) -> Option<Claim> {
        let mut own = self.groups.iter().filter(|group| selector.matches(group));
        if let Some(group) = own.find(|group| o5_terms(&group.config).is_none()) {
            let message = format!("the bound O5 says nothing about {}", group.id);
            let help = "it needs upload and download thresholds without overrides, and no [network] or [faults]: \
                        choose others by `where`";
            return self.note(Diagnostic::new(self.header, message).help(help));
        }
        Some(Claim::BoundO5)
    }

    fn refuse_unknown_keys(&mut self, kind: &str, keys: &[&str]) {
        for entry in &self.table.0 {
            let known = || COMMON.iter().chain(keys).copied();
            if !known().any(|key| key == entry.key) {
                let near = closest(&entry.key, known()).map(did_you_mean);
                let help = near
                    .unwrap_or_else(|| format!("its keys are {}", known().collect::<Vec<_>>().join(", ")));
                let message = format!("unknown key `{}` for a check of kind \"{kind}\"", entry.key);
                self.found.push(Diagnostic::new(&entry.span, message).help(help));
            }
        }
    }

    /// One of several words; `None` as default means that it has to be there.
    fn word(&mut self, key: &str, words: &[&str], default: Option<&str>) -> Option<String> {
        let expected = || format!("one of {}", words.join(", "));
        let Some(entry) = self.table.get(key) else {
            return default.map(String::from).or_else(|| self.missing(key, &expected()));
        };
        match entry.node.scalar().and_then(toml::Value::as_str) {
            Some(word) if words.contains(&word) => Some(word.into()),
            Some(word) => {
                let near = closest(word, words.iter().copied()).map(did_you_mean);
                self.note(wrong_type(key, &entry.node, &expected()).maybe_help(near))
            }
            None => self.note(wrong_type(key, &entry.node, &expected())),
        }
    }

    /// A list of names; none if it is not there.
    fn words(&mut self, key: &str) -> Option<Vec<String>> {
        let Some(entry) = self.table.get(key) else { return Some(Vec::new()) };
        let word = |node: &Node| node.scalar().and_then(toml::Value::as_str).map(String::from);
        let words: Option<Vec<String>> = entry.node.elements().iter().map(word).collect();
        words.or_else(|| self.note(wrong_type(key, &entry.node, "a list of settings")))
    }

    fn number(&mut self, key: &str, default: Option<f64>) -> Option<f64> {
        let Some(entry) = self.table.get(key) else {
            return default.or_else(|| self.missing(key, "a number"));
        };
        match entry.node.scalar() {
            Some(toml::Value::Float(number)) if !number.is_nan() => Some(*number),
            Some(toml::Value::Integer(number)) => Some(*number as f64),
            _ => self.note(wrong_type(key, &entry.node, "a number")),
        }
    }

    fn metric(&mut self, key: &str) -> Option<&'static Metric> {
        let Some(entry) = self.table.get(key) else { return self.missing(key, "the name of a metric") };
        let found = entry.node.scalar().and_then(toml::Value::as_str).and_then(Metric::find);
        found.or_else(|| {
            let diagnostic = unknown_column(key, &entry.node, &[]);
            self.note(diagnostic)
        })
    }

    /// A metric, or a sum of metrics that has a name.
    fn column(&mut self, key: &str) -> Option<Column> {
        let Some(entry) = self.table.get(key) else { return self.missing(key, "the name of a metric") };
        let word = entry.node.scalar().and_then(toml::Value::as_str).unwrap_or_default();
        Column::find(word).or_else(|| {
            let near = closest(word, Column::names()).map(did_you_mean);
            self.note(wrong_type(key, &entry.node, "a metric, scalars or bytes").maybe_help(near))
        })
    }

    /// A metric, or a setting that the selected groups sweep.
    fn axis(&mut self, key: &str, selector: &Selector) -> Option<Axis> {
        let Some(entry) = self.table.get(key) else {
            return self.missing(key, "the name of a metric or of a swept setting");
        };
        let swept = self.sweeps(selector);
        let word = entry.node.scalar().and_then(toml::Value::as_str).unwrap_or_default();
        if let Some(metric) = Metric::find(word) {
            return Some(Axis::Metric(metric));
        }
        if swept.iter().any(|path| is_called(path, word)) {
            return Some(Axis::Setting(word.into()));
        }
        self.note(unknown_column(key, &entry.node, &swept))
    }

    /// The name of a setting that the selected groups sweep.
    fn swept(&mut self, key: &str, selector: &Selector) -> Option<String> {
        let swept = self.sweeps(selector);
        let listed = || format!("a swept setting: {}", swept.join(", "));
        let Some(entry) = self.table.get(key) else { return self.missing(key, &listed()) };
        match entry.node.scalar().and_then(toml::Value::as_str) {
            Some(word) if swept.iter().any(|path| is_called(path, word)) => Some(word.into()),
            word => {
                let near = word.and_then(|word| closest(word, swept.iter().map(|path| short(path))));
                let expected = if swept.is_empty() {
                    "a swept setting, and these groups have none".into()
                } else {
                    listed()
                };
                self.note(wrong_type(key, &entry.node, &expected).maybe_help(near.map(did_you_mean)))
            }
        }
    }

    /// Paths of everything the selected groups sweep, the algorithm aside.
    fn sweeps(&self, selector: &Selector) -> Vec<String> {
        let mut all = Vec::new();
        for group in self.groups.iter().filter(|group| selector.matches(group)) {
            for (path, _) in &group.choices {
                if path != "algorithm" && !all.contains(path) {
                    all.push(path.clone());
                }
            }
        }
        all
    }

    fn required_selector(&mut self, key: &str) -> Option<Selector> {
        if self.table.get(key).is_none() {
            return self.missing(key, "which groups, as in { algorithm = \"lin-ucb\" }");
        }
        self.selector(key)
    }

    /// Which groups are meant: all if the key is not there. At least one group must be.
    fn selector(&mut self, key: &str) -> Option<Selector> {
        let Some(entry) = self.table.get(key) else { return Some(Selector::default()) };
        let Some(table) = entry.node.table() else {
            return self.note(wrong_type(
                key,
                &entry.node,
                "which groups, as in { algorithm = \"lin-ucb\" }",
            ));
        };
        let mut pairs = Vec::new();
        for Entry { key, span, node } in &table.0 {
            if !self.groups.iter().any(|group| choice(group, key).is_some()) {
                let all = self.sweeps(&Selector::default());
                let known: Vec<&str> = all.iter().map(|path| short(path)).chain(["algorithm"]).collect();
                let near = closest(key, known.iter().copied()).map(did_you_mean);
                let help = near.unwrap_or_else(|| format!("groups differ in {}", known.join(", ")));
                let message = format!("no group is told apart by `{key}`");
                return self.note(Diagnostic::new(span, message).help(help));
            }
            let values: Option<Vec<String>> =
                node.elements().iter().map(|node| node.scalar().map(label)).collect();
            let Some(values) = values.filter(|values| !values.is_empty()) else {
                return self.note(wrong_type(key, node, "one value, or a list of values"));
            };
            pairs.push((key.clone(), values));
        }
        let selector = Selector(pairs);
        if !self.groups.iter().any(|group| selector.matches(group)) {
            let message = format!("no group has {selector}");
            let first = &self.groups[0].id;
            let help = format!("groups are called {first}, for example");
            return self.note(Diagnostic::new(&entry.node.span, message).help(help));
        }
        Some(selector)
    }

    fn require_one_of(&mut self, one: &str, other: &str) {
        if self.table.get(one).is_none() && self.table.get(other).is_none() {
            let message = format!("this check has neither `{one}` nor `{other}`: it could not fail");
            self.found.push(Diagnostic::new(self.header, message));
        }
    }

    fn missing<T>(&mut self, key: &str, expected: &str) -> Option<T> {
        let message = format!("this check has no `{key}`");
        self.note(Diagnostic::new(self.header, message).help(format!("add `{key}`: {expected}")))
    }

    fn note<T>(&mut self, diagnostic: Diagnostic) -> Option<T> {
        self.found.push(diagnostic);
        None
    }
}

/// The last part of a setting's path.
fn short(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// A name that is no column.
fn unknown_column(key: &str, node: &Node, swept: &[String]) -> Diagnostic {
    let word = node.scalar().and_then(toml::Value::as_str).unwrap_or_default();
    let names = || METRICS.iter().map(|metric| metric.name).chain(swept.iter().map(|path| short(path)));
    let near = closest(word, names()).map(did_you_mean);
    let help = near.unwrap_or_else(|| format!("there are {}", names().collect::<Vec<_>>().join(", ")));
    let expected = if swept.is_empty() { "a metric" } else { "a metric or a swept setting" };
    wrong_type(key, node, expected).help(help)
}
