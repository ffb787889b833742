//! Oracles by equivalence: at the ends of its settings an algorithm is another one, choice for choice.

use posse_core::{
    AgentId, Algorithm, Arms, AsyncLinPhe, AsyncLinTs, AsyncLinUcb, AsyncLinUcbAm, Coordinator, Downlink,
    FedLinUcb, Federation, JoinPolicy, LinTs, LinUcb, ModelConfig, Perturbation, ProtocolConfig, Recipient,
    Seed, Shape, SyncLinUcb, Threshold, Tick, UserId,
};
use posse_sim::RunConfig;
use posse_sim::world::{ArrivalConfig, HeterogeneousConfig, Offer, WorldConfig};

use crate::support::dense::{
    Matrix, add_outer, add_vector, argmax, back_substitute, dot, ln_det, regularized, solve, upper_cholesky,
    zeros,
};
use crate::support::{Entry, async_lin_ucb, central, choices, lin_ucb, linear, protocol, run, small};

/// Nobody waits for anybody, so that time may stand still.
const NOW: Tick = Tick(1_700_000_000_000_000);

const NEVER: f64 = f64::INFINITY;

/// Runs that differ in everything but the algorithm: seeds, sizes, dimensions and arrivals.
fn runs(algorithm: &Algorithm) -> Vec<RunConfig> {
    let of = |seed, agents, horizon, dimension, arms, arrival| RunConfig {
        world: linear(dimension, arms),
        arrival,
        ..small(seed, agents, horizon, algorithm.clone())
    };
    vec![
        of(1, 12, 1500, 5, 10, ArrivalConfig::Uniform),
        of(2, 5, 2000, 8, 25, ArrivalConfig::RoundRobin),
        of(3, 10, 800, 3, 6, ArrivalConfig::Zipf { exponent: 1.2 }),
        of(4, 4, 500, 1, 4, ArrivalConfig::Bursts { mean_length: 30.0 }),
    ]
}

/// Both algorithms choose the same arms in all runs.
#[track_caller]
fn assert_same_choices(one: &Algorithm, other: &Algorithm) {
    for (one, other) in runs(one).iter().zip(&runs(other)) {
        assert_eq!(choices(one), choices(other), "{:?} in {:?}", one.algorithm, one.world);
    }
}

fn model(fixed_width: Option<f64>) -> ModelConfig {
    ModelConfig { fixed_width, ..ModelConfig::default() }
}

#[test]
fn o1_sharing_everything_at_once_is_central_learning() {
    let shared = async_lin_ucb(protocol(1.0, 1.0, JoinPolicy::Eager));
    assert_same_choices(&shared, &central());
    for config in runs(&shared) {
        let tally = run(&config).1;
        assert_eq!(tally.messages(), config.agents * config.horizon);
        assert_eq!(tally.up.messages, config.horizon);
    }
}

/// Who joins late plays a first time without what the others know.
#[test]
fn o1_does_not_hold_for_newcomers_that_join_late() {
    let lazy = async_lin_ucb(protocol(1.0, 1.0, JoinPolicy::Lazy));
    let config = &runs(&lazy)[0];
    assert_ne!(choices(config), choices(&RunConfig { algorithm: central(), ..config.clone() }));
}

/// The worlds offer no arm without features, so these agents and their coordinator are driven by hand.
#[test]
fn o1_an_observation_without_features_is_not_worth_a_message() {
    let (agents, d) = (4, 3);
    let algorithm = async_lin_ucb(protocol(1.0, 1.0, JoinPolicy::Eager));
    let federation = Federation { agents, horizon: 90, seed: Seed(5) };
    let mut machines: Vec<_> = (0..agents)
        .map(|agent| algorithm.agent(AgentId(agent), Shape::shared(d), &federation).unwrap())
        .collect();
    let mut coordinator = algorithm.coordinator(Shape::shared(d)).unwrap();
    for agent in 0..agents {
        coordinator.join(NOW, AgentId(agent), posse_core::Entrance::NewLife);
    }
    let mut reference = central().agent(AgentId(0), Shape::shared(d), &federation).unwrap();
    let (mut messages, mut with_features) = (0, 0);
    for step in 0..90 {
        let mut stream = Seed(5).stream("offers", 0, step);
        let mut arms = Arms::new(d);
        let empty = step % 3 == 1;
        for _ in 0..if empty { 1 } else { 5 } {
            let x: Vec<f64> = (0..d).map(|_| if empty { 0.0 } else { 0.5 * stream.normal() }).collect();
            arms.push(&x).unwrap();
        }
        let id = stream.below(agents);
        let agent = &mut machines[id as usize];
        let arm = agent.choose(UserId(id), &arms).unwrap().arm;
        assert_eq!(arm, reference.choose(UserId(id), &arms).unwrap().arm, "step {step}");
        let (x, y) = (arms.row(arm), 0.3 * arms.row(arm)[0] + 0.1 * stream.normal());
        reference.learn(UserId(id), x, y).unwrap();
        with_features += u64::from(!empty);
        if let Some(upload) = agent.learn(UserId(id), x, y).unwrap() {
            messages += upload.cost().messages;
            messages += deliver(&mut *coordinator, &mut machines, AgentId(id), upload);
        }
    }
    assert_eq!(messages, agents * with_features);
}

/// Brings an upload to the coordinator and its answers to the agents; how many of those had a payload.
fn deliver(
    coordinator: &mut dyn Coordinator,
    agents: &mut [Box<dyn posse_core::Agent>],
    from: AgentId,
    upload: posse_core::Uplink,
) -> u64 {
    let mut messages = 0;
    for outgoing in coordinator.receive(NOW, from, upload).unwrap() {
        let Recipient::Agent(to) = outgoing.to else { panic!("nothing is broadcast here") };
        messages += outgoing.message.cost().messages;
        assert_eq!(agents[to.0 as usize].receive(outgoing.message).unwrap(), None);
    }
    messages
}

#[test]
fn o2_sharing_nothing_is_learning_alone() {
    for join in [JoinPolicy::Lazy, JoinPolicy::Eager, JoinPolicy::PullOnJoin] {
        let silent = async_lin_ucb(protocol(NEVER, NEVER, join));
        assert_same_choices(&silent, &lin_ucb());
        for config in runs(&silent) {
            let tally = run(&config).1;
            assert_eq!((tally.messages(), tally.up.control, tally.down.control), (0, 0, 0));
        }
    }
}

/// If nobody is ever sent anything, the coordinator learns and the agents do not.
#[test]
fn o2_uploads_alone_change_no_choice() {
    assert_same_choices(&async_lin_ucb(protocol(1.5, NEVER, JoinPolicy::Eager)), &lin_ucb());
}

#[test]
fn o9_without_local_features_alternating_minimisation_is_the_plain_algorithm() {
    for protocol in [
        protocol(1.0, 1.0, JoinPolicy::Eager),
        protocol(1.5, 3.0, JoinPolicy::Lazy),
        protocol(2.0, 2.0, JoinPolicy::PullOnJoin),
    ] {
        let plain = async_lin_ucb(protocol.clone());
        let am = Algorithm::AsyncLinUcbAm(AsyncLinUcbAm {
            protocol,
            cold_start: false,
            extra_noise: 0.0,
            ..AsyncLinUcbAm::default()
        });
        let all_shared = HeterogeneousConfig { dimension: 6, shared: 6, ..HeterogeneousConfig::default() };
        let mut pairs: Vec<_> = runs(&am).into_iter().zip(runs(&plain)).collect();
        let (mut one, mut other) = pairs[0].clone();
        for config in [&mut one, &mut other] {
            config.world = WorldConfig::Heterogeneous(all_shared.clone());
        }
        pairs.push((one, other));
        for (am, plain) in pairs {
            let (am, plain) = (run(&am), run(&plain));
            // Choices, rewards and messages to the last bit.
            assert!(am.0 == plain.0, "the logs differ");
            assert_eq!(am.1, plain.1);
        }
    }
}

#[test]
fn o10_a_round_after_every_observation_is_central_learning() {
    let sync = |threshold, join| {
        Algorithm::SyncLinUcb(SyncLinUcb {
            round_threshold: Threshold(threshold),
            join,
            ..SyncLinUcb::default()
        })
    };
    let always = sync(0.0, JoinPolicy::Eager);
    assert_same_choices(&always, &central());
    for config in runs(&always) {
        let tally = run(&config).1;
        assert_eq!(tally.rounds, config.horizon);
        assert_eq!(tally.messages(), 2 * config.agents * config.horizon);
    }
    let never = sync(NEVER, JoinPolicy::Lazy);
    assert_same_choices(&never, &lin_ucb());
    assert!(runs(&never).iter().all(|config| run(config).1.messages() == 0));
}

fn thompson(model: ModelConfig, protocol: ProtocolConfig, sampling_scale: f64) -> Algorithm {
    Algorithm::AsyncLinTs(AsyncLinTs { model, protocol, sampling_scale, privacy: None })
}

#[test]
fn o11_thompson_sampling_without_spread_is_greedy() {
    let protocol = protocol(1.5, 2.5, JoinPolicy::Lazy);
    let greedy = AsyncLinUcb { model: model(Some(0.0)), protocol: protocol.clone(), privacy: None };
    assert_same_choices(&thompson(model(None), protocol, 0.0), &Algorithm::AsyncLinUcb(greedy));
}

/// One learner for everybody that draws what the acting agent would draw at its own step.
fn central_thompson(config: &RunConfig, model: &ModelConfig, scale: f64) -> Vec<(u64, usize)> {
    let mut world = config.world.build(config.agents, config.seed).unwrap();
    let mut arrivals = config.arrival.build(config.agents, config.horizon, config.seed).unwrap();
    let (d, lambda) = (world.shape(AgentId(0)).dimension(), model.regularization);
    let (mut v, mut b): (Matrix, _) = (zeros(d), vec![0.0; d]);
    let mut own_steps = vec![0; config.agents as usize];
    let mut offer = Offer::new();
    let mut choices = Vec::new();
    for step in 0..config.horizon {
        offer.agent = arrivals.agent(step);
        world.offer(step, &mut offer);
        let id = offer.agent.0;
        let mut draws = config.seed.stream("model-sample", id, own_steps[id as usize]);
        own_steps[id as usize] += 1;

        // θ̃ = θ̂ + v·U⁻¹η.
        let regular = regularized(&v, lambda);
        let information = ln_det(&regular) - d as f64 * libm::log(lambda);
        let failure = 2.0 * libm::log(1.0 / model.confidence);
        let spread =
            scale * (model.noise * (information + failure).sqrt() + lambda.sqrt() * model.norm_bound);
        let eta: Vec<f64> = (0..d).map(|_| draws.normal()).collect();
        let mut theta = solve(&regular, &b);
        add_vector(&mut theta, spread, &back_substitute(&upper_cholesky(&regular), &eta));

        let arm = argmax((0..offer.arms.len()).map(|arm| dot(offer.arms.row(arm), &theta)));
        choices.push((id, arm));
        add_outer(&mut v, offer.arms.row(arm));
        add_vector(&mut b, offer.reward(arm), offer.arms.row(arm));
    }
    choices
}

#[test]
fn o11_thompson_sampling_that_shares_everything_is_central_thompson_sampling() {
    for scale in [0.3, 1.0] {
        let shared = thompson(model(None), protocol(1.0, 1.0, JoinPolicy::Eager), scale);
        for config in runs(&shared) {
            assert_eq!(choices(&config), central_thompson(&config, &model(None), scale));
        }
    }
}

#[test]
fn thompson_sampling_that_shares_nothing_is_thompson_sampling_alone() {
    for scale in [0.3, 1.0] {
        let silent = thompson(model(None), protocol(NEVER, NEVER, JoinPolicy::Lazy), scale);
        let alone = Algorithm::LinTs(LinTs { model: model(None), sampling_scale: scale });
        assert_same_choices(&silent, &alone);
    }
}

#[test]
fn o11_approximately_perturbed_history_is_thompson_sampling() {
    for a in [0.5, 2.0, 5.0_f64] {
        let protocol = protocol(1.5, 2.5, JoinPolicy::Lazy);
        let perturbed = Algorithm::AsyncLinPhe(AsyncLinPhe {
            protocol: protocol.clone(),
            perturbations: a,
            perturbation: Perturbation::Approximate,
            ..AsyncLinPhe::default()
        });
        let sampled = thompson(model(Some((a / 4.0).sqrt())), protocol, 1.0);
        assert_same_choices(&perturbed, &sampled);
    }
}

/// Without noise there is nothing to tell the three rules apart.
#[test]
fn o11_history_without_perturbation_is_greedy() {
    let protocol = protocol(1.5, 2.5, JoinPolicy::Lazy);
    let greedy = AsyncLinUcb { model: model(Some(0.0)), protocol: protocol.clone(), privacy: None };
    let unperturbed = AsyncLinPhe { protocol, perturbations: 0.0, ..AsyncLinPhe::default() };
    assert_same_choices(&Algorithm::AsyncLinPhe(unperturbed), &Algorithm::AsyncLinUcb(greedy));
}

#[test]
fn one_agent_that_exchanges_at_once_learns_alone() {
    let model = model(Some(0.3));
    let alone = Algorithm::LinUcb(LinUcb { model: model.clone() });
    let exchanging =
        FedLinUcb { model: model.clone(), upload_threshold: Some(Threshold(1.0)), privacy: None };
    for (fed, alone) in runs(&Algorithm::FedLinUcb(exchanging)).into_iter().zip(runs(&alone)) {
        let fed = RunConfig { agents: 1, ..fed };
        assert_eq!(choices(&fed), choices(&RunConfig { agents: 1, ..alone }));
        let tally = run(&fed).1;
        assert_eq!((tally.up.messages, tally.down.messages), (fed.horizon, fed.horizon));
    }
}

#[test]
fn one_agent_of_the_asynchronous_protocol_learns_alone() {
    for join in [JoinPolicy::Lazy, JoinPolicy::Eager, JoinPolicy::PullOnJoin] {
        for threshold in [1.0, 1.5, 4.0] {
            let shared = async_lin_ucb(protocol(threshold, threshold, join));
            for (one, alone) in runs(&shared).into_iter().zip(runs(&lin_ucb())) {
                let (log, tally) = run(&RunConfig { agents: 1, ..one });
                assert_eq!(log.choices(), choices(&RunConfig { agents: 1, ..alone }));
                // It uploads and is confirmed; there is nothing it could be sent.
                assert!(tally.up.messages > 0);
                let receipt = |message: &Downlink| matches!(message, Downlink::Receipt { .. });
                let heard = log.0.iter().filter_map(|entry| match entry {
                    Entry::Down { message, .. } => Some(message),
                    _ => None,
                });
                assert!(heard.into_iter().all(receipt));
            }
        }
    }
}
