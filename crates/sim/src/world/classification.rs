//! Classification as a bandit: an arm for each class, and a reward for the right one.

use std::sync::Arc;

use posse_core::settings::Described;
use posse_core::{AgentId, ConfigError, Domain, Seed, Shape};
use serde::{Deserialize, Serialize};

use super::data::Loaded;
use super::shuffle::Shuffle;
use super::split::{Parts, Split};
use super::table::LabelledTable;
use super::{Luck, Offer, Rewards, World};

/// Rows of a labelled table: each interaction offers an arm for every class, and the right one pays 1.
///
/// With C classes and rows x of d₀ features, arm c is the vector of C·d₀ features whose block c is x. Each
/// agent meets its rows in a random order of its own, without repetition until as many interactions have
/// passed as it has rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct ClassificationConfig {
    /// The directory of the prepared table, made by `posse data prepare`. It must be set.
    pub data: String,
    /// The content hash of the prepared data, or twelve digits of it; `any` takes whatever is there. It must be set.
    pub hash: String,
    /// How rows are divided over agents. Default `shared`.
    pub split: Split,
    /// α > 0: how even label-skew is. Below 0.1 an agent sees hardly more than one label, above 100 all alike.
    /// Default 0.5.
    pub concentration: f64,
    /// The table that `data` names, once the caller has attached it.
    #[serde(skip)]
    pub table: Loaded<LabelledTable>,
}

impl Default for ClassificationConfig {
    fn default() -> Self {
        Self {
            data: String::new(),
            hash: String::new(),
            split: Split::default(),
            concentration: 0.5,
            table: Loaded::default(),
        }
    }
}

impl ClassificationConfig {
    pub(super) fn build(&self, agents: u64, seed: Seed) -> Result<Box<dyn World>, ConfigError> {
        let table = Arc::clone(self.table.require(&self.data)?);
        let parts = Parts { count: table.rows(), labels: table.labels(), groups: table.groups() };
        let owned = self.split.divide(parts, agents, self.concentration, seed)?;
        let dimension = table.width() * table.classes() as usize;
        Ok(Box::new(Classification { table, owned, order: seed.domain("rows"), arm: vec![0.0; dimension] }))
    }
}

struct Classification {
    table: Arc<LabelledTable>,
    /// The rows of each agent; `None` if all have all.
    owned: Option<Vec<Vec<u32>>>,
    order: Domain,
    /// The arm that is being made; zero in between.
    arm: Vec<f64>,
}

impl Classification {
    /// The row that an agent meets at a step.
    fn row(&self, agent: AgentId, step: u64) -> usize {
        let own = self.owned.as_ref().map(|owned| &owned[agent.0 as usize]);
        let size = own.map_or(self.table.rows(), Vec::len) as u64;
        let shuffle = Shuffle::new(size, &mut self.order.stream(agent.0, step / size));
        let place = shuffle.at(step % size) as usize;
        own.map_or(place, |own| own[place] as usize)
    }
}

impl World for Classification {
    fn shape(&self, _: AgentId) -> Shape {
        Shape::shared(self.arm.len())
    }

    fn offer(&mut self, step: u64, offer: &mut Offer) {
        let row = self.row(offer.agent, step);
        let (x, label) = (self.table.row(row), self.table.labels()[row]);
        offer.clear(self.arm.len());
        for class in 0..self.table.classes() {
            let first = class as usize * x.len();
            self.arm[first..first + x.len()].copy_from_slice(x);
            offer.push(&self.arm, f64::from(class == label));
            self.arm[first..first + x.len()].fill(0.0);
        }
        offer.luck = Luck::Noise(0.0);
    }

    fn rewards(&self) -> Option<Rewards> {
        Some(Rewards::Clicks)
    }

    fn parameters(&self, _: AgentId) -> Option<Vec<f64>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tests::{ask, table};

    fn config() -> ClassificationConfig {
        ClassificationConfig { table: table().into(), ..ClassificationConfig::default() }
    }

    #[test]
    fn arms_are_blocks_and_the_right_one_pays() {
        let table = table();
        let mut world = config().build(2, Seed(1)).unwrap();
        for step in 0..20 {
            let offer = ask(&mut *world, 0, step);
            let x: Vec<f64> = offer.arms.row(0)[..2].to_vec();
            let row = (0..table.rows()).find(|&row| table.row(row) == x).unwrap();
            for class in 0..3 {
                let mut expected = [0.0; 6];
                expected[2 * class..][..2].copy_from_slice(&x);
                assert_eq!(offer.arms.row(class), expected);
                let right = table.labels()[row] as usize == class;
                assert_eq!(offer.reward(class), f64::from(right));
            }
        }
    }

    #[test]
    fn an_agent_meets_every_row_once_before_any_twice_in_an_order_of_its_own() {
        let mut world = config().build(2, Seed(1)).unwrap();
        let mut order = |agent| -> Vec<u64> {
            (0..20).map(|step| ask(&mut *world, agent, step).arms.row(0)[0] as u64).collect()
        };
        let (first, second) = (order(0), order(1));
        for half in [&first[..10], &first[10..], &second[..10]] {
            let mut sorted = half.to_vec();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..10));
        }
        assert_ne!(first[..10], second[..10]);
        assert_ne!(first[..10], first[10..]);
    }

    #[test]
    fn agents_of_divided_rows_never_meet_a_row_of_others() {
        let config = ClassificationConfig { split: Split::Id, ..config() };
        let mut world = config.build(3, Seed(1)).unwrap();
        for agent in 0..3 {
            for step in 0..50 {
                assert_eq!(ask(&mut *world, agent, step).arms.row(0)[0] as u64 % 3, agent);
            }
        }
    }

    #[test]
    fn a_world_without_its_table_is_refused() {
        let absent = ClassificationConfig { data: "nowhere".into(), ..ClassificationConfig::default() };
        let error = absent.build(1, Seed(1)).err().unwrap();
        assert_eq!((error.name, error.value.as_str()), ("data", "nowhere"));
    }
}
