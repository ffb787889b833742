//! Which agent owns which part of a data set.

use posse_core::settings::Described;
use posse_core::{ConfigError, Seed};
use serde::{Deserialize, Serialize};

use super::data::require;
use super::gamma::ln_gamma_draw;

/// How rows or users are divided over agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Split {
    /// Not at all: every agent draws from everything, each in an order of its own.
    #[default]
    Shared,
    /// In turn: the first to agent 0, the second to agent 1 and so on.
    Id,
    /// In the order of the file, cut into blocks of equal size.
    Time,
    /// By the groups that preparation found, cut into blocks of equal size: an agent sees few groups.
    Cluster,
    /// Each label is divided over agents in proportions drawn from a Dirichlet distribution.
    LabelSkew,
}

/// What there is to divide: so many things in the order of the file, with labels and groups if known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'d> {
    /// How many things there are.
    pub(super) count: usize,
    /// The label of each, for [`Split::LabelSkew`].
    pub(super) labels: &'d [u32],
    /// The group of each, for [`Split::Cluster`].
    pub(super) groups: &'d [u32],
}

impl Split {
    /// What each agent owns, in the order of the file; `None` if every agent owns everything. Every agent
    /// owns something.
    pub(super) fn divide(
        self,
        parts: Parts<'_>,
        agents: u64,
        concentration: f64,
        seed: Seed,
    ) -> Result<Option<Vec<Vec<u32>>>, ConfigError> {
        let proper = concentration > 0.0 && concentration.is_finite();
        require(proper, "concentration", concentration, "above 0")?;
        let count = parts.count;
        if self == Self::Shared {
            return Ok(None);
        }
        let enough = agents <= count as u64;
        require(enough, "agents", agents, "at most as many as there is data to divide")?;
        let agents = usize::try_from(agents).expect("there are no more agents than rows in memory");
        let all = 0..u32::try_from(count).expect("tables have fewer than 2³² rows");
        let blocks = |order: &[u32]| {
            let block = |agent: usize| {
                let mut own = order[count * agent / agents..count * (agent + 1) / agents].to_vec();
                own.sort_unstable();
                own
            };
            (0..agents).map(block).collect()
        };
        let order: Vec<u32> = all.collect();
        Ok(Some(match self {
            Self::Shared => unreachable!("returned above"),
            Self::Id => {
                (0..agents).map(|agent| order.iter().copied().skip(agent).step_by(agents).collect()).collect()
            }
            Self::Time => blocks(&order),
            Self::Cluster => {
                let known = parts.groups.len() == count;
                let allowed = "cluster needs data that was prepared with groups";
                require(known, "split", "cluster", allowed)?;
                let mut order = order;
                order.sort_by_key(|&part| parts.groups[part as usize]);
                blocks(&order)
            }
            Self::LabelSkew => {
                let known = parts.labels.len() == count;
                require(known, "split", "label-skew", "label-skew needs data with labels")?;
                skew(parts.labels, agents, concentration, seed)
            }
        }))
    }
}

/// Divides each label over agents by proportions drawn from Dirichlet(α, …, α).
fn skew(labels: &[u32], agents: usize, concentration: f64, seed: Seed) -> Vec<Vec<u32>> {
    let (weights, draws) = (seed.domain("split-weight"), seed.domain("split"));
    let classes = labels.iter().max().map_or(0, |&highest| highest as usize + 1);
    let cumulative: Vec<Vec<f64>> = (0..classes)
        .map(|class| {
            let logarithm =
                |agent| ln_gamma_draw(concentration, &mut weights.stream(agent as u64, class as u64));
            let logarithms: Vec<f64> = (0..agents).map(logarithm).collect();
            let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mut sum = 0.0;
            let add = |logarithm: &f64| {
                sum += libm::exp(logarithm - largest);
                sum
            };
            logarithms.iter().map(add).collect()
        })
        .collect();
    let mut owned = vec![Vec::new(); agents];
    for (part, &label) in labels.iter().enumerate() {
        let sums = &cumulative[label as usize];
        let at = draws.stream(part as u64, 0).uniform() * sums[agents - 1];
        let agent = sums.partition_point(|&sum| sum <= at).min(agents - 1);
        owned[agent].push(part as u32);
    }
    // Nobody is left without anything: the richest gives.
    while let Some(poor) = owned.iter().position(Vec::is_empty) {
        let rich = (0..agents).max_by_key(|&agent| owned[agent].len()).expect("there are agents");
        let given = owned[rich].pop().expect("there are at least as many parts as agents");
        owned[poor].push(given);
    }
    owned
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: [u32; 12] = [0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2];
    const GROUPS: [u32; 12] = [2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1];

    fn divide(split: Split, agents: u64, concentration: f64) -> Vec<Vec<u32>> {
        let parts = Parts { count: 12, labels: &LABELS, groups: &GROUPS };
        split.divide(parts, agents, concentration, Seed(1)).unwrap().unwrap()
    }

    #[test]
    fn each_part_has_one_owner_and_each_agent_a_part() {
        for split in [Split::Id, Split::Time, Split::Cluster, Split::LabelSkew] {
            for agents in [1, 2, 5, 12] {
                let owned = divide(split, agents, 0.05);
                assert_eq!(owned.len() as u64, agents);
                assert!(owned.iter().all(|own| !own.is_empty()), "{split:?} {agents}");
                let mut all: Vec<u32> = owned.concat();
                all.sort_unstable();
                assert!(all.into_iter().eq(0..12), "{split:?} {agents}");
            }
        }
    }

    #[test]
    fn parts_go_where_the_split_says() {
        assert_eq!(divide(Split::Id, 4, 1.0)[1], [1, 5, 9]);
        assert_eq!(divide(Split::Time, 4, 1.0)[1], [3, 4, 5]);
        let by_group = divide(Split::Cluster, 3, 1.0);
        assert_eq!(by_group[0], [1, 4, 7, 10]);
        assert_eq!(by_group[2], [0, 3, 6, 9]);
    }

    #[test]
    fn a_small_concentration_gives_an_agent_few_labels_and_a_large_one_all() {
        let labels: Vec<u32> = (0..10_000).map(|row| row % 10).collect();
        let parts = Parts { count: 10_000, labels: &labels, groups: &[] };
        // The mean over agents of the share of their most frequent label.
        let purity = |concentration| {
            let owned = Split::LabelSkew.divide(parts, 10, concentration, Seed(2)).unwrap().unwrap();
            let share = |own: &Vec<u32>| {
                let of = |label| own.iter().filter(|&&row| labels[row as usize] == label).count();
                (0..10).map(of).max().unwrap() as f64 / own.len() as f64
            };
            owned.iter().map(share).sum::<f64>() / 10.0
        };
        assert!(purity(0.05) > 0.5, "{}", purity(0.05));
        assert!(purity(1000.0) < 0.15, "{}", purity(1000.0));
    }

    #[test]
    fn what_cannot_be_divided_is_refused_by_name() {
        let parts = Parts { count: 3, labels: &[], groups: &[] };
        let refused = |split: Split, agents, concentration| {
            split.divide(parts, agents, concentration, Seed(1)).err().map(|error| error.name)
        };
        assert_eq!(refused(Split::Shared, 9, 1.0), None);
        assert_eq!(refused(Split::Id, 4, 1.0), Some("agents"));
        assert_eq!(refused(Split::Cluster, 2, 1.0), Some("split"));
        assert_eq!(refused(Split::LabelSkew, 2, 1.0), Some("split"));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(Split::LabelSkew, 2, wrong), Some("concentration"));
        }
    }
}
