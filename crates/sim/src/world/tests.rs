use std::sync::Arc;

use posse_core::Seed;
use serde::Deserialize;
use serde::de::value::{Error, MapDeserializer};

use super::*;

/// What the world offers `agent` at `step`, in fresh memory.
pub(super) fn ask(world: &mut dyn World, agent: u64, step: u64) -> Offer {
    let mut offer = Offer { agent: AgentId(agent), ..Offer::new() };
    world.offer(step, &mut offer);
    offer
}

/// Ten rows of three classes; the first feature is the number of the row.
pub(super) fn table() -> Arc<LabelledTable> {
    let features = (0..10u32).flat_map(|row| [f64::from(row), 1.0]).collect();
    let labels = (0..10).map(|row| row % 3).collect();
    Arc::new(LabelledTable::new(2, features, labels, 3, Vec::new()).unwrap())
}

/// Three clusters in two dimensions.
pub(super) fn clusters() -> Arc<ArmClusters> {
    let centroids = vec![3.0, 4.0, 1.0, 2.0, -1.0, 0.5];
    Arc::new(ArmClusters::new(2, centroids, vec![0.25, 1.0, 0.0]).unwrap())
}

/// Five users who like three of ten items each.
pub(super) fn interactions() -> Arc<Interactions> {
    let features = (0..10u32).flat_map(|item| [f64::from(item), 1.0]).collect();
    let events: Vec<(u32, u32)> = (0..15).map(|event| (event % 5, (3 * event + event / 5) % 10)).collect();
    Arc::new(Interactions::new(2, features, 5, &events, vec![0, 1, 0, 1, 1]).unwrap())
}

/// Six users in two clusters, in three dimensions.
pub(super) fn users() -> Arc<UserClusters> {
    let centres = [0.3, -0.4, std::f64::consts::FRAC_1_SQRT_2, 0.0, 0.6, std::f64::consts::FRAC_1_SQRT_2];
    Arc::new(UserClusters::new(3, &centres, vec![0, 1, 1, 0, 0, 1]).unwrap())
}

/// Every kind of world, also with the options that change how offers are made.
fn all_worlds() -> Vec<WorldConfig> {
    let noise_shape = NoiseShape { law: NoiseLaw::StudentT, ..NoiseShape::default() };
    let drift = Some(Drift { period: 50, ..Drift::default() });
    let linear = |form| LinearConfig { form, dimension: 6, pool: 40, ..LinearConfig::default() };
    let mixed =
        |form| HeterogeneousConfig { form, shared: 10, local_spread: 3, ..HeterogeneousConfig::default() };
    vec![
        WorldConfig::Linear(linear(Form::Paper)),
        WorldConfig::Linear(linear(Form::Authors)),
        WorldConfig::Linear(LinearConfig { noise_shape, drift, ..linear(Form::Authors) }),
        WorldConfig::Heterogeneous(mixed(Form::Paper)),
        WorldConfig::Heterogeneous(mixed(Form::Authors)),
        WorldConfig::Heterogeneous(HeterogeneousConfig { noise_shape, drift, ..mixed(Form::Paper) }),
        WorldConfig::Glm(GlmWorldConfig::default()),
        WorldConfig::Glm(GlmWorldConfig {
            form: Form::Authors,
            link: LinkFunction::Poisson,
            ..Default::default()
        }),
        WorldConfig::Classification(ClassificationConfig {
            table: table().into(),
            ..ClassificationConfig::default()
        }),
        WorldConfig::ClusteredArms(ClusteredArmsConfig {
            clusters: clusters().into(),
            ..ClusteredArmsConfig::default()
        }),
        WorldConfig::Recommender(RecommenderConfig {
            arms: 3,
            interactions: interactions().into(),
            ..RecommenderConfig::default()
        }),
        WorldConfig::Clustered(ClusteredConfig { arms: 25, ..ClusteredConfig::default() }),
        WorldConfig::Clustered(ClusteredConfig {
            arms: 25,
            assignment: Assignment::Contiguous,
            ..ClusteredConfig::default()
        }),
        WorldConfig::Cosine(NonlinearConfig { arms: 25, ..NonlinearConfig::default() }),
        WorldConfig::Square(NonlinearConfig {
            arms: 25,
            form: Form::Authors,
            noise_shape,
            ..NonlinearConfig::default()
        }),
        WorldConfig::ClusteredUsers(ClusteredUsersConfig {
            arms: 3,
            clusters: users().into(),
            ..ClusteredUsersConfig::default()
        }),
    ]
}

#[test]
fn offers_repeat_in_any_order_of_asking() {
    for config in all_worlds() {
        let build = || config.build(5, Seed(11)).unwrap();
        let mut world = build();
        let steps = world.length().unwrap_or(60);
        let forward: Vec<Offer> = (0..steps).map(|step| ask(&mut *world, step % 5, step)).collect();
        let mut world = build();
        // One offer for all steps, and those steps backwards and twice.
        let mut reused = Offer::new();
        for step in (0..steps).rev().chain(0..steps) {
            reused.agent = AgentId(step % 5);
            world.offer(step, &mut reused);
            assert_eq!(reused, forward[step as usize], "{config:?}, step {step}");
        }
        let mut other = config.build(5, Seed(12)).unwrap();
        let same = (0..steps).all(|step| ask(&mut *other, step % 5, step) == forward[step as usize]);
        assert!(!same, "{config:?}");
    }
}

#[test]
fn offers_have_the_promised_shape() {
    for config in all_worlds() {
        let mut world = config.build(5, Seed(3)).unwrap();
        for agent in 0..5 {
            let offer = ask(&mut *world, agent, 7);
            assert_eq!(offer.arms.dimension(), world.shape(AgentId(agent)).dimension());
            let arms = if config.data().is_some() { 3 } else { 25 };
            assert_eq!((offer.arms.len(), offer.means.len()), (arms, arms));
        }
    }
}

#[test]
fn reward_is_mean_plus_noise_and_regret_is_free_of_noise() {
    let mut offer = Offer { luck: Luck::Noise(0.25), ..Offer::new() };
    offer.clear(1);
    offer.push(&[1.0], 0.5);
    offer.push(&[2.0], 1.5);
    assert_eq!((offer.reward(0), offer.reward(1)), (0.75, 1.75));
    assert_eq!((offer.regret(0), offer.regret(1)), (1.0, 0.0));
    assert_eq!(offer.best_mean(), 1.5);
}

#[test]
fn coins_and_counts_have_the_means_they_are_given() {
    let draws = 40_000;
    let mut stream = Seed(5).stream("test", 0, 0);
    for mean in [0.05, 0.4, 0.93, 2.5] {
        let (mut heads, mut counts) = (0.0, 0.0);
        for _ in 0..draws {
            let draw = stream.uniform();
            heads += Luck::Coin(draw).reward(mean);
            counts += Luck::Count { quantile: draw, most: 1e9 }.reward(mean);
        }
        let (heads, counts) = (heads / f64::from(draws), counts / f64::from(draws));
        assert!((heads - mean.min(1.0)).abs() < 0.02, "{heads} instead of {mean}");
        assert!((counts - mean).abs() < 0.05, "{counts} instead of {mean}");
    }
    assert_eq!(Luck::Count { quantile: 1.0, most: 20.0 }.reward(3.0), 20.0);
}

#[test]
fn a_kind_alone_gives_its_defaults() {
    for (name, _, defaults) in WorldConfig::kinds() {
        let table = MapDeserializer::<_, Error>::new([("kind", name)].into_iter());
        assert_eq!(WorldConfig::deserialize(table), Ok(defaults));
    }
}

#[test]
fn a_world_without_agents_is_refused() {
    for (_, _, config) in WorldConfig::kinds() {
        assert_eq!(config.build(0, Seed(1)).err().unwrap().name, "agents");
    }
}
