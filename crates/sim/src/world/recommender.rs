//! Recommendations: the next item that a user liked, among items that it never did (Cesa-Bianchi et al., 2013).

use std::sync::Arc;

use posse_core::settings::Described;
use posse_core::{AgentId, ConfigError, Domain, Seed, Shape, UserId};
use serde::{Deserialize, Serialize};

use super::data::{Loaded, require};
use super::split::{Parts, Split};
use super::{Luck, Offer, Rewards, World};

/// Who liked what: items with features, and the items that each user liked in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Interactions {
    width: usize,
    features: Vec<f64>,
    /// Where the events of each user begin, and where all end.
    first: Vec<usize>,
    /// The liked items, user by user.
    events: Vec<u32>,
    /// The liked items of each user, sorted, each once.
    liked: Vec<Vec<u32>>,
    groups: Vec<u32>,
    /// The items that were on offer at each event, in the order of `events`; empty if the file does not say.
    pools: Vec<Vec<u32>>,
    /// What is known of each user, one after the other; empty if nothing is.
    users: Vec<f64>,
}

impl Interactions {
    /// Items with `width` features, one after the other; events as pairs of a user below `users` and an item;
    /// and the group of each user, or none.
    pub fn new(
        width: usize,
        features: Vec<f64>,
        users: usize,
        events: &[(u32, u32)],
        groups: Vec<u32>,
    ) -> Result<Self, ConfigError> {
        let items = features.len() / width.max(1);
        require(width > 0 && items > 0 && features.len() == items * width, "items", items, "at least 1")?;
        require(features.iter().all(|x| x.is_finite()), "items", "not finite", "finite features")?;
        require(users > 0 && !events.is_empty(), "events", events.len(), "at least 1")?;
        require(groups.is_empty() || groups.len() == users, "groups", groups.len(), "one a user, or none")?;
        let mut first = vec![0; users + 1];
        for &(user, item) in events {
            require((user as usize) < users, "user", user, "below the number of users")?;
            require((item as usize) < items, "item", item, "below the number of items")?;
            first[user as usize + 1] += 1;
        }
        (0..users).for_each(|user| first[user + 1] += first[user]);
        let (mut next, mut ordered) = (first.clone(), vec![0; events.len()]);
        for &(user, item) in events {
            ordered[next[user as usize]] = item;
            next[user as usize] += 1;
        }
        let liked = (0..users).map(|user| {
            let mut own = ordered[first[user]..first[user + 1]].to_vec();
            own.sort_unstable();
            own.dedup();
            own
        });
        let (liked, pools) = (liked.collect(), Vec::new());
        Ok(Self { width, features, liked, first, events: ordered, groups, pools, users: Vec::new() })
    }

    /// The same with features of users, as many for each. An arm then has the products of every feature of the user
    /// with every feature of the item: with a constant 1 among the user's, the item's own features stay.
    pub fn with_users(mut self, features: Vec<f64>) -> Result<Self, ConfigError> {
        let whole = !features.is_empty() && features.len().is_multiple_of(self.users());
        require(whole, "users", features.len(), "as many features for each user, one or more")?;
        require(features.iter().all(|x| x.is_finite()), "users", "not finite", "finite features")?;
        self.users = features;
        Ok(self)
    }

    /// The same with the items that were on offer at each event, in the order in which `events` were given to
    /// [`Interactions::new`]. Each pool has at least two items, the liked one among them.
    pub fn with_pools(mut self, events: &[(u32, u32)], pools: Vec<Vec<u32>>) -> Result<Self, ConfigError> {
        require(pools.len() == events.len(), "pools", pools.len(), "one for each event")?;
        let mut next = self.first.clone();
        let mut ordered = vec![Vec::new(); pools.len()];
        for (&(user, item), pool) in events.iter().zip(pools) {
            let known = pool.iter().all(|other| (*other as usize) < self.items());
            let proper = known && pool.len() > 1 && pool.contains(&item);
            require(proper, "pool", item, "two or more known items, the chosen one among them")?;
            ordered[next[user as usize]] = pool;
            next[user as usize] += 1;
        }
        self.pools = ordered;
        Ok(self)
    }

    /// How many items there are.
    #[must_use]
    pub fn items(&self) -> usize {
        self.features.len() / self.width
    }

    /// How many users there are.
    #[must_use]
    pub fn users(&self) -> usize {
        self.first.len() - 1
    }

    /// How many events there are; in each, a user liked an item.
    #[must_use]
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// For each user that liked anything: how often it did, and the mean of the features of what it liked.
    #[must_use]
    pub fn tastes(&self) -> Vec<(usize, Vec<f64>)> {
        let taste = |user: usize| {
            let own = &self.events[self.first[user]..self.first[user + 1]];
            let mut mean = vec![0.0; self.width];
            for item in own {
                mean.iter_mut().zip(self.item(*item)).for_each(|(sum, x)| *sum += x / own.len() as f64);
            }
            (own.len(), mean)
        };
        (0..self.users()).map(taste).filter(|(events, _)| *events > 0).collect()
    }

    /// How many features an arm has: those of an item, for each feature of a user.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.width * (self.users.len() / self.users()).max(1)
    }

    /// Appends the features that an item has for a user.
    fn describe(&self, user: u32, item: u32, features: &mut Vec<f64>) {
        if self.users.is_empty() {
            features.extend_from_slice(self.item(item));
            return;
        }
        let width = self.users.len() / self.users();
        for own in &self.users[user as usize * width..][..width] {
            features.extend(self.item(item).iter().map(|x| own * x));
        }
    }

    fn item(&self, item: u32) -> &[f64] {
        &self.features[item as usize * self.width..][..self.width]
    }
}

/// At each interaction a user is drawn among those with events left. It is offered the next item that it liked
/// and others that it never liked, shuffled; the liked one pays 1.
///
/// Arrivals are the world's own: `[arrival]` must be uniform. There are as many interactions as events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct RecommenderConfig {
    /// The directory of the prepared interactions, made by `posse data prepare`. It must be set.
    pub data: String,
    /// The content hash of the prepared data, or twelve digits of it; `any` takes whatever is there. It must be set.
    pub hash: String,
    /// K ≥ 1: how many items an offer has, of which one was liked. Data with a pool for each event offers that instead. Default 25.
    #[setting(max = 1_000_000)]
    pub arms: usize,
    /// Whether items have a further feature that is always 1, for models that do not expect a reward of zero
    /// (logistic ones expect ½) from items they know nothing of. Default false.
    pub constant: bool,
    /// How users are divided over agents. `id`, `time` (in the order of users), `cluster` or `label-skew` (by
    /// groups of users); with `shared` every agent serves every user. Default `id`: with as many agents as
    /// users, each has one.
    pub split: Split,
    /// α > 0: how even label-skew is. Default 0.5.
    pub concentration: f64,
    /// The interactions that `data` names, once the caller has attached them.
    #[serde(skip)]
    pub interactions: Loaded<Interactions>,
}

impl Default for RecommenderConfig {
    fn default() -> Self {
        Self {
            data: String::new(),
            hash: String::new(),
            arms: 25,
            constant: false,
            split: Split::Id,
            concentration: 0.5,
            interactions: Loaded::default(),
        }
    }
}

impl RecommenderConfig {
    pub(super) fn build(&self, agents: u64, seed: Seed) -> Result<Box<dyn World>, ConfigError> {
        let data = Arc::clone(self.interactions.require(&self.data)?);
        require(self.arms > 1, "arms", self.arms, "2 or more")?;
        let most = data.liked.iter().map(Vec::len).max().unwrap_or(0);
        // Where pools are known, they are the offers, whatever `arms` says.
        let enough = !data.pools.is_empty() || data.items() - most >= self.arms - 1;
        require(enough, "arms", self.arms, "there are not as many items that a user never liked")?;
        let parts = Parts { count: data.users(), labels: &data.groups, groups: &data.groups };
        let owners = self.split.divide(parts, agents, self.concentration, seed)?.map(|owned| {
            let mut owners = vec![AgentId(0); data.users()];
            for (agent, users) in owned.iter().enumerate() {
                users.iter().for_each(|&user| owners[user as usize] = AgentId(agent as u64));
            }
            owners
        });
        let schedule = schedule(&data, seed);
        Ok(Box::new(Recommender {
            data,
            arms: self.arms,
            constant: self.constant,
            owners,
            agents,
            schedule,
            choice: seed.domain("negatives"),
            server: seed.domain("server"),
            offered: Vec::new(),
            features: Vec::new(),
        }))
    }
}

/// Whose turn it is at each step: a user drawn among those with events left, and which of its events.
fn schedule(data: &Interactions, seed: Seed) -> Vec<(u32, u32)> {
    let mut stream = seed.stream("turns", 0, 0);
    let mut next = data.first.clone();
    let mut left: Vec<u32> = (0..data.users() as u32)
        .filter(|&user| next[user as usize] < data.first[user as usize + 1])
        .collect();
    let mut turns = Vec::with_capacity(data.events());
    while !left.is_empty() {
        let place = stream.below(left.len() as u64) as usize;
        let user = left[place] as usize;
        turns.push((user as u32, next[user] as u32));
        next[user] += 1;
        if next[user] == data.first[user + 1] {
            left.swap_remove(place);
        }
    }
    turns
}

struct Recommender {
    data: Arc<Interactions>,
    arms: usize,
    constant: bool,
    /// The agent of each user; `None` if any agent serves any user.
    owners: Option<Vec<AgentId>>,
    agents: u64,
    schedule: Vec<(u32, u32)>,
    choice: Domain,
    /// Draws the agent that serves a user, where any agent may.
    server: Domain,
    offered: Vec<u32>,
    /// Those of an item, and the constant.
    features: Vec<f64>,
}

impl World for Recommender {
    fn shape(&self, _: AgentId) -> Shape {
        Shape::shared(self.data.dimension() + usize::from(self.constant))
    }

    fn turn(&self, step: u64) -> Option<AgentId> {
        let (user, _) = self.schedule[step as usize];
        Some(match &self.owners {
            Some(owners) => owners[user as usize],
            None => AgentId(self.server.stream(0, step).below(self.agents)),
        })
    }

    fn length(&self) -> Option<u64> {
        Some(self.schedule.len() as u64)
    }

    fn offer(&mut self, step: u64, offer: &mut Offer) {
        let (user, event) = self.schedule[step as usize];
        let (liked, all_liked) = (self.data.events[event as usize], &self.data.liked[user as usize]);
        offer.user = UserId(user.into());
        let mut stream = self.choice.stream(0, step);
        self.offered.clear();
        if let Some(pool) = self.data.pools.get(event as usize) {
            self.offered.extend_from_slice(pool);
            // Files often have the chosen item first, and a learner without knowledge takes the first of equals.
            for place in (1..self.offered.len()).rev() {
                self.offered.swap(place, stream.below(place as u64 + 1) as usize);
            }
            self.fill(user, liked, offer);
            return;
        }
        self.offered.push(liked);
        while self.offered.len() < self.arms {
            let item = stream.below(self.data.items() as u64) as u32;
            if all_liked.binary_search(&item).is_err() && !self.offered.contains(&item) {
                self.offered.push(item);
            }
        }
        // The others are in random order already: the liked one only needs a random place among them.
        let place = stream.below(self.arms as u64) as usize;
        self.offered.swap(0, place);
        self.fill(user, liked, offer);
    }

    fn rewards(&self) -> Option<Rewards> {
        Some(Rewards::Clicks)
    }

    fn parameters(&self, _: AgentId) -> Option<Vec<f64>> {
        None
    }
}

impl Recommender {
    /// Offers the items that were drawn; the liked one pays 1.
    fn fill(&mut self, user: u32, liked: u32, offer: &mut Offer) {
        offer.clear(self.data.dimension() + usize::from(self.constant));
        for &item in &self.offered {
            self.features.clear();
            self.data.describe(user, item, &mut self.features);
            self.features.extend(self.constant.then_some(1.0));
            offer.push(&self.features, f64::from(item == liked));
        }
        offer.luck = Luck::Noise(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tests::{ask, interactions};

    #[test]
    fn a_pool_is_offered_as_it_was() {
        let events = [(0, 2), (1, 0), (0, 1)];
        let features: Vec<f64> = (0..4).map(f64::from).collect();
        let pools = vec![vec![2, 3], vec![0, 1, 2], vec![1, 0]];
        let data = Interactions::new(1, features, 2, &events, Vec::new()).unwrap();
        let data = data.clone().with_pools(&events, pools).unwrap();
        let config =
            RecommenderConfig { interactions: Arc::new(data.clone()).into(), ..RecommenderConfig::default() };
        let mut world = config.build(2, Seed(3)).unwrap();
        let mut seen = Vec::new();
        for step in 0..3 {
            let offer = ask(&mut *world, 0, step);
            let mut offered = items(&offer);
            let right = offer.means.iter().position(|mean| *mean == 1.0).map(|arm| offered[arm]);
            offered.sort_unstable();
            seen.push((offer.user.0, right.unwrap(), offered));
        }
        seen.sort_unstable();
        assert_eq!(seen, [(0, 1, vec![0, 1]), (0, 2, vec![2, 3]), (1, 0, vec![0, 1, 2])]);
        assert!(data.clone().with_pools(&events, vec![vec![2], vec![0, 1], vec![1, 0]]).is_err());
        assert!(data.with_pools(&events, vec![vec![2, 9], vec![0, 1], vec![1, 0]]).is_err());
    }

    #[test]
    fn features_of_users_multiply_those_of_items() {
        let events = [(0, 2), (1, 0), (0, 1)];
        let features: Vec<f64> = (0..4).map(f64::from).collect();
        let data = Interactions::new(1, features, 2, &events, Vec::new()).unwrap();
        assert!(data.clone().with_users(vec![1.0, 2.0, 3.0]).is_err());
        assert!(data.clone().with_users(vec![]).is_err());
        let data = data.with_users(vec![5.0, 1.0, -2.0, 1.0]).unwrap();
        let config = RecommenderConfig {
            arms: 2,
            constant: true,
            interactions: Arc::new(data).into(),
            ..RecommenderConfig::default()
        };
        let mut world = config.build(2, Seed(3)).unwrap();
        assert_eq!(world.shape(AgentId(0)), Shape::shared(3));
        for step in 0..3 {
            let offer = ask(&mut *world, 0, step);
            let own = [5.0, -2.0][offer.user.0 as usize];
            for arm in 0..2 {
                let row = offer.arms.row(arm);
                assert_eq!(row, [own * row[1], row[1], 1.0]);
            }
        }
    }

    fn config() -> RecommenderConfig {
        RecommenderConfig { arms: 3, interactions: interactions().into(), ..RecommenderConfig::default() }
    }

    /// The first feature of an item is its number.
    fn items(offer: &Offer) -> Vec<u32> {
        (0..offer.arms.len()).map(|arm| offer.arms.row(arm)[0] as u32).collect()
    }

    #[test]
    fn a_constant_is_a_further_feature_of_every_item() {
        let mut plain = config().build(5, Seed(1)).unwrap();
        let mut more = RecommenderConfig { constant: true, ..config() }.build(5, Seed(1)).unwrap();
        let (without, with) = (ask(&mut *plain, 0, 0), ask(&mut *more, 0, 0));
        for arm in 0..3 {
            let (features, last) = with.arms.row(arm).split_at(without.arms.row(arm).len());
            assert_eq!((features, last), (without.arms.row(arm), &[1.0][..]));
        }
    }

    #[test]
    fn every_event_comes_once_in_the_order_of_its_user() {
        let data = interactions();
        let mut world = config().build(5, Seed(1)).unwrap();
        let length = world.length().unwrap();
        assert_eq!(length as usize, data.events());
        let mut seen = vec![Vec::new(); data.users()];
        for step in 0..length {
            let agent = world.turn(step).unwrap();
            let offer = ask(&mut *world, agent.0, step);
            assert_eq!(offer.user.0, agent.0, "with as many agents as users each has one");
            let right: Vec<usize> = (0..3).filter(|&arm| offer.means[arm] == 1.0).collect();
            assert_eq!(right.len(), 1);
            seen[offer.user.0 as usize].push(items(&offer)[right[0]]);
        }
        for (user, seen) in seen.iter().enumerate() {
            assert_eq!(seen[..], data.events[data.first[user]..data.first[user + 1]]);
        }
    }

    #[test]
    fn the_others_are_different_items_that_the_user_never_liked() {
        let data = interactions();
        let mut world = config().build(5, Seed(2)).unwrap();
        for step in 0..world.length().unwrap() {
            let offer = ask(&mut *world, 0, step);
            let mut offered = items(&offer);
            for (arm, item) in offered.iter().enumerate() {
                let liked = data.liked[offer.user.0 as usize].contains(item);
                assert_eq!(liked, offer.means[arm] == 1.0);
            }
            offered.sort_unstable();
            offered.dedup();
            assert_eq!(offered.len(), 3);
        }
    }

    #[test]
    fn the_liked_item_is_at_every_place_equally_often() {
        let mut places = [0u32; 3];
        for seed in 0..600 {
            let mut world = config().build(5, Seed(seed)).unwrap();
            for step in 0..world.length().unwrap() {
                let offer = ask(&mut *world, 0, step);
                places[offer.means.iter().position(|mean| *mean == 1.0).unwrap()] += 1;
            }
        }
        // 600 · 15 / 3 = 3 000 with standard deviation 45.
        assert!(places.iter().all(|count| count.abs_diff(3_000) < 250), "{places:?}");
    }

    #[test]
    fn users_go_where_the_split_says() {
        let mut world = config().build(2, Seed(1)).unwrap();
        for step in 0..world.length().unwrap() {
            let agent = world.turn(step).unwrap();
            assert_eq!(agent.0, ask(&mut *world, agent.0, step).user.0 % 2);
        }
        let everybody = RecommenderConfig { split: Split::Shared, ..config() };
        let world = everybody.build(2, Seed(1)).unwrap();
        let turns: Vec<u64> = (0..15).map(|step| world.turn(step).unwrap().0).collect();
        assert!(turns.contains(&0) && turns.contains(&1));
    }

    #[test]
    fn impossible_settings_are_refused_by_name() {
        let refused =
            |config: &RecommenderConfig, agents| config.build(agents, Seed(1)).err().map(|e| e.name);
        assert_eq!(refused(&config(), 5), None);
        assert_eq!(refused(&config(), 6), Some("agents"));
        assert_eq!(refused(&RecommenderConfig { arms: 1, ..config() }, 5), Some("arms"));
        assert_eq!(refused(&RecommenderConfig { arms: 9, ..config() }, 5), Some("arms"));
        assert_eq!(refused(&RecommenderConfig::default(), 5), Some("data"));
        let events = |events: &[(u32, u32)]| {
            Interactions::new(1, vec![1.0, 2.0], 2, events, Vec::new()).err().map(|error| error.name)
        };
        assert_eq!(events(&[(0, 0), (1, 1)]), None);
        assert_eq!(events(&[]), Some("events"));
        assert_eq!(events(&[(2, 0)]), Some("user"));
        assert_eq!(events(&[(0, 2)]), Some("item"));
    }
}
