//! The attack on updates of networks: whatever an agent saw can be told from its updates no better than was promised.

use posse_core::privacy::{PrivacyPolicy, SeededNoise, Unit};
use posse_core::wire::{decode_uplink, encode_uplink};
use posse_core::*;

use super::canaries::proven_epsilon;
use super::{D, privacy};

const UPDATES: u64 = 2;

fn networks(epsilon: f64) -> Algorithm {
    let privacy = PrivacyConfig { epsilon, unit: Unit::Agent, max_releases: UPDATES, ..privacy() };
    let neural = NeuralConfig { hidden_width: 2, training_steps: 1, ..Default::default() };
    Algorithm::FnUcb(FnUcb {
        neural,
        privacy: Some(privacy),
        update_bound: 0.05,
        update_steps: 10,
        ..Default::default()
    })
}

/// What the coordinator gets from an agent in one of two worlds, in which every reward is the opposite: all updates, one after
/// the other, through their encoding. All agents start from the same network; noise follows from `noise`.
fn updates(algorithm: &Algorithm, noise: u64, world: usize) -> Vec<f64> {
    let federation = Federation { agents: 1, horizon: 100, seed: Seed(7) };
    let mut agent = algorithm.agent(AgentId(0), Shape::shared(D), &federation).unwrap();
    agent.use_noise(Box::new(SeededNoise::new(Seed(noise), AgentId(0))));
    let mut seen = Vec::new();
    for round in 1..=UPDATES {
        let asked = agent.learn(UserId(0), &[0.6, 0.8], [4.0, -4.0][world]).unwrap();
        assert_eq!(asked, Some(Uplink::NetworkRequest { observations: round }), "by counts alone");
        let collect = Downlink::NetworkCollect { round: RoundId(round), observations: 1 };
        let said = agent.receive(collect).unwrap().expect("an answer");
        let Uplink::NetworkPart(part) = decode_uplink(&encode_uplink(&said)).unwrap() else {
            panic!("a private agent said {said:?}");
        };
        assert_eq!(part.evidence.scalars(), 0, "no statistics beside the update");
        assert_eq!((part.alpha, part.trained), (0.0, true), "nothing exact beside the noise");
        seen.extend(part.weights);
        assert_eq!(agent.receive(Downlink::Abort { round: RoundId(round) }), Ok(None));
    }
    seen
}

/// What an attack proves, that knows both worlds but for the noise and weighs every number by how much they differ in it: for
/// Gaussian noise of the same size nothing tells them apart better. Returns also how far apart they are.
fn audited(epsilon: f64) -> (f64, f64) {
    let [one, other] = [0, 1].map(|world| updates(&networks(1e12), 1, world));
    let differ: Vec<f64> = one.iter().zip(&other).map(|(a, b)| a - b).collect();
    let apart = differ.iter().map(|v| v * v).sum::<f64>().sqrt();
    let algorithm = networks(epsilon);
    let runs = 6000;
    let guess = |noise: u64, world| -> f64 {
        let seen = updates(&algorithm, noise, world);
        seen.iter().zip(&differ).map(|(a, b)| a * b).sum()
    };
    let one: Vec<f64> = (0..runs).map(|noise| guess(noise, 0)).collect();
    let other: Vec<f64> = (runs..2 * runs).map(|noise| guess(noise, 1)).collect();
    (proven_epsilon(&one, &other, privacy().delta), apart)
}

#[test]
fn two_agents_with_nothing_in_common_cannot_be_told_apart_better_than_promised() {
    let promised = 3.0;
    let (epsilon, apart) = audited(promised);
    let most = 2.0 * 0.05 * (UPDATES as f64).sqrt();
    assert!(apart <= most * (1.0 + 1e-6), "cut updates are at most twice the bound apart: {apart}");
    assert!(apart > 0.8 * most, "the attack is idle: its worlds are only {apart} of {most} apart");
    assert!(epsilon <= promised, "an attack shows ε ≥ {epsilon}");
    assert!(epsilon > 0.4, "the attack is idle: it shows only ε ≥ {epsilon}");
    let (weak, _) = audited(18.0);
    assert!(weak > promised, "a third of the noise, and the attack shows only ε ≥ {weak}");
}

#[test]
fn with_a_huge_budget_an_update_is_what_training_gives_cut_to_its_bound() {
    let update = &updates(&networks(1e12), 1, 0)[..9];
    let length = update.iter().map(|v| v * v).sum::<f64>().sqrt();
    assert!((length - 0.05).abs() < 1e-6, "{length}");
}

#[test]
fn choices_without_a_reward_are_counted_and_leave_the_same_messages() {
    let federation = Federation { agents: 1, horizon: 100, seed: Seed(7) };
    let mut agent = networks(3.0).agent(AgentId(0), Shape::shared(D), &federation).unwrap();
    assert_eq!(agent.give_up(UserId(0)), Some(Uplink::NetworkRequest { observations: 1 }));
    let collect = Downlink::NetworkCollect { round: RoundId(1), observations: 1 };
    let Some(Uplink::NetworkPart(part)) = agent.receive(collect).unwrap() else { panic!("an answer") };
    assert!(part.trained && part.weights.len() == 9, "noise alone, which looks like an update");
    assert_eq!(agent.privacy().unwrap().releases, 1);
}

#[test]
fn other_units_and_settings_that_would_have_to_leave_an_agent_are_refused_by_name() {
    let Algorithm::FnUcb(good) = networks(3.0) else { unreachable!("it is") };
    let refused = |config: FnUcb| Algorithm::FnUcb(config).check(Shape::shared(D)).unwrap_err().name;
    let with = |privacy| FnUcb { privacy: Some(privacy), ..good.clone() };
    let own = || good.privacy.clone().unwrap();
    assert_eq!(Algorithm::FnUcb(good.clone()).check(Shape::shared(D)), Ok(()));
    for unit in [Unit::Interaction, Unit::User] {
        assert_eq!(refused(with(PrivacyConfig { unit, ..own() })), "unit");
    }
    assert_eq!(refused(with(PrivacyConfig { epsilon: -1.0, ..own() })), "epsilon");
    assert_eq!(refused(with(PrivacyConfig { raw_buffer: true, ..own() })), "raw_buffer");
    assert_eq!(refused(FnUcb { training: TrainingMode::Pooled, ..good.clone() }), "training");
    assert_eq!(refused(FnUcb { alpha: AlphaRule::Ratio, ..good.clone() }), "alpha");
    assert_eq!(refused(FnUcb { features_at: FeaturePoint::Current, ..good.clone() }), "features_at");
    assert_eq!(refused(FnUcb { update_bound: 0.0, ..good.clone() }), "update_bound");
    let sums = super::private_async(PrivacyConfig { unit: Unit::Agent, ..super::privacy() });
    assert_eq!(sums.check(Shape::shared(D)).unwrap_err().name, "unit");
    let policy = PrivacyPolicy { max_epsilon: 3.0, max_delta: 1e-3, unit: Unit::Agent, ..Default::default() };
    assert_eq!(policy.admits(&networks(3.0)), Ok(()));
    policy.admits(&networks(3.1)).unwrap_err();
    policy.admits(&super::private_async(super::privacy())).unwrap_err();
}
