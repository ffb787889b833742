//! Oracles of the generalized linear family: O12, O13, and what sharing is worth.

use posse_core::{
    AgentId, Algorithm, Downlink, FedGlbUcb, FedGlbUcb3, GlmConfig, LinkFunction, ModelConfig, OnsGlm,
    Precision, ScheduledGlbUcb, Solver, SolverConfig, SyncLinUcb, Threshold, UcbGlm, Uplink,
};
use posse_sim::RunConfig;
use posse_sim::world::{ArrivalConfig, GlmWorldConfig, Offer, WorldConfig};

use crate::support::dense::{add_outer, add_vector, regularized, solve, zeros};
use crate::support::{Entry, choices, run, small};

fn world(link: LinkFunction) -> WorldConfig {
    WorldConfig::Glm(GlmWorldConfig { link, dimension: 4, arms: 8, ..GlmWorldConfig::default() })
}

fn turns(seed: u64, agents: u64, horizon: u64, algorithm: Algorithm, link: LinkFunction) -> RunConfig {
    let arrival = ArrivalConfig::RoundRobin;
    RunConfig { world: world(link), arrival, ..small(seed, agents, horizon, algorithm) }
}

/// With the identity link and a ball out of reach, the minimiser is the ridge estimate of everything.
#[test]
fn o12_with_the_identity_link_a_round_finds_the_ridge_estimate() {
    for solver in [Solver::Auto, Solver::Restart, Solver::Newton, Solver::Preconditioned, Solver::Nesterov] {
        let model = GlmConfig { link: LinkFunction::Identity, norm_bound: 50.0, ..GlmConfig::default() };
        let lambda = model.regularization;
        let update = SolverConfig { solver, precision: Precision::InverseSquare, max_evaluations: 100_000 };
        let algorithm = Algorithm::FedGlbUcb(FedGlbUcb { model, update, ..FedGlbUcb::default() });
        let config = turns(3, 4, 600, algorithm, LinkFunction::Identity);
        let mut world = config.world.build(4, config.seed).unwrap();
        let (mut gram, mut moment, mut chosen) = (zeros(4), vec![0.0; 4], vec![0.0; 4]);
        let (mut rounds, mut count) = (0, 0.0_f64);
        for entry in &run(&config).0.0 {
            match entry {
                Entry::Chose { step, agent, arm } => {
                    let mut offer = Offer { agent: AgentId(*agent), ..Offer::new() };
                    world.offer(*step, &mut offer);
                    chosen = offer.arms.row(*arm).to_vec();
                }
                Entry::Learned { reward, .. } => {
                    add_outer(&mut gram, &chosen);
                    add_vector(&mut moment, *reward, &chosen);
                    count += 1.0;
                }
                Entry::Down { message: Downlink::Model(found), .. } => {
                    let ridge = solve(&regularized(&gram, lambda), &moment);
                    rounds += 1;
                    // F is λ/n-strongly convex at least, and 1/n² above its minimum at most.
                    let off = (2.0 / (lambda * count)).sqrt();
                    for (a, b) in found.estimate.iter().zip(&ridge) {
                        assert!((a - b).abs() <= off, "{solver:?}: {a} is not {b}");
                    }
                }
                _ => {}
            }
        }
        assert!(rounds > 20, "only {rounds} models");
    }
}

#[test]
fn o13_without_rounds_an_agent_steps_as_if_alone() {
    for link in LinkFunction::all() {
        let model = GlmConfig { link, fixed_width: Some(0.4), ..GlmConfig::default() };
        // The same matrices: λ/c_μ in one is λ in the other.
        let slope = link.smallest_slope(1.0);
        let regularization = model.regularization / slope;
        let alone = OnsGlm { model: GlmConfig { regularization, ..model.clone() } };
        let federated = FedGlbUcb { model, round_threshold: Threshold::NEVER, ..FedGlbUcb::default() };
        for (seed, agents) in [(1, 1), (2, 3)] {
            let one = turns(seed, agents, 800, Algorithm::FedGlbUcb(federated.clone()), link);
            let other = turns(seed, agents, 800, Algorithm::NOnsGlm(alone.clone()), link);
            assert_eq!(choices(&one), choices(&other), "{link:?}");
            assert_eq!(run(&one).1.messages(), 0);
        }
    }
}

#[test]
fn o13_a_round_after_every_observation_is_a_threshold_of_zero() {
    let scheduled = ScheduledGlbUcb { round_every: 1, ..ScheduledGlbUcb::default() };
    let urgent = FedGlbUcb { round_threshold: Threshold(0.0), ..FedGlbUcb::default() };
    let one = turns(5, 1, 300, Algorithm::FedGlbUcb2(scheduled), LinkFunction::Logistic);
    let other = turns(5, 1, 300, Algorithm::FedGlbUcb(urgent), LinkFunction::Logistic);
    let (one, other) = (run(&one), run(&other));
    // Requests say how many observations there are on a schedule, and nothing otherwise.
    let all = |log: &crate::support::Log| -> Vec<Entry> {
        let request =
            |entry: &&Entry| matches!(entry, Entry::Up { message: Uplink::RoundRequest { .. }, .. });
        log.0.iter().filter(|entry| !request(entry)).cloned().collect()
    };
    assert!(all(&one.0) == all(&other.0), "the two runs differ");
    assert_eq!(one.1.rounds, 300);
}

#[test]
fn scheduled_rounds_come_when_everybody_together_has_seen_enough() {
    for every in [1, 7, 40, 100] {
        let scheduled = ScheduledGlbUcb { round_every: every, ..ScheduledGlbUcb::default() };
        for algorithm in [Algorithm::FedGlbUcb1(scheduled.clone()), Algorithm::FedGlbUcb2(scheduled)] {
            let tally = run(&turns(1, 5, 400, algorithm, LinkFunction::Logistic)).1;
            assert_eq!(tally.rounds, 400 / every);
        }
    }
}

/// Regret over a few seeds.
fn regret(algorithm: &Algorithm, link: LinkFunction) -> f64 {
    (0..4).map(|seed| run(&turns(seed, 10, 4000, algorithm.clone(), link)).1.regret).sum::<f64>() / 4.0
}

#[test]
fn sharing_lies_between_one_learner_and_many() {
    for link in [LinkFunction::Logistic, LinkFunction::Probit, LinkFunction::Poisson] {
        let model = GlmConfig { link, width_scale: 0.05, ..GlmConfig::default() };
        let glm = UcbGlm { model: model.clone(), ..UcbGlm::default() };
        let central = regret(&Algorithm::OneUcbGlm(glm.clone()), link);
        let isolated = regret(&Algorithm::NUcbGlm(glm), link);
        let stepping = regret(&Algorithm::NOnsGlm(OnsGlm { model: model.clone() }), link);
        let scheduled = ScheduledGlbUcb { model: model.clone(), round_every: 100, ..Default::default() };
        let federated = [
            Algorithm::FedGlbUcb(FedGlbUcb { model, ..FedGlbUcb::default() }),
            Algorithm::FedGlbUcb1(scheduled.clone()),
            Algorithm::FedGlbUcb2(scheduled),
        ];
        // Measured: at most 1.63 times one learner's regret for clicks, 2.54 for counts, whose noise grows with their mean.
        let most = if link == LinkFunction::Poisson { 2.8 } else { 1.8 };
        for algorithm in federated {
            let shared = regret(&algorithm, link);
            assert!(shared < 0.7 * isolated.min(stepping), "{link:?} {}: {shared}", algorithm.name());
            assert!(shared < most * central, "{link:?} {}: {shared} for {central}", algorithm.name());
        }
    }
}

/// Where some agents are far busier than others, rounds still come by what all of them have seen together.
#[test]
fn scheduled_rounds_count_everybody_under_uneven_arrival() {
    for every in [40, 100, 400] {
        let scheduled = ScheduledGlbUcb { round_every: every, ..ScheduledGlbUcb::default() };
        let online = FedGlbUcb3 { round_every: every, ..FedGlbUcb3::default() };
        for algorithm in [
            Algorithm::FedGlbUcb1(scheduled.clone()),
            Algorithm::FedGlbUcb2(scheduled),
            Algorithm::FedGlbUcb3(online),
        ] {
            let arrival = ArrivalConfig::Zipf { exponent: 1.2 };
            let config = RunConfig { arrival, ..turns(1, 20, 4000, algorithm, LinkFunction::Logistic) };
            let (rounds, most) = (run(&config).1.rounds, 4000 / every);
            // Late by a tenth of a round at most, or by one observation of each agent.
            assert!(rounds <= most && rounds as f64 >= 0.85 * most as f64, "{rounds} of {most} rounds");
        }
    }
}

/// The papers' promise for FedGLB-UCB₃: one exchange a round, and less regret than alone.
#[test]
fn online_rounds_gain_from_sharing() {
    let model = GlmConfig { width_scale: 0.05, ..GlmConfig::default() };
    let alone = regret(&Algorithm::NOnsGlm(OnsGlm { model: model.clone() }), LinkFunction::Logistic);
    let shared = |round_every| {
        let algorithm = FedGlbUcb3 { model: model.clone(), round_every, ..FedGlbUcb3::default() };
        regret(&Algorithm::FedGlbUcb3(algorithm), LinkFunction::Logistic)
    };
    let (often, seldom) = (shared(10), shared(200));
    assert!(often < 0.7 * alone && often < 1.1 * seldom, "{often} {seldom} {alone}");
}

/// `auto` goes by what the two methods sent, so that it never sends much more than the better of them.
#[test]
fn the_chosen_solver_sends_as_little_as_the_better_one() {
    for (link, norm_bound) in
        [(LinkFunction::Logistic, 1.0), (LinkFunction::Probit, 1.0), (LinkFunction::Poisson, 2.0)]
    {
        let scalars = |solver| {
            let model = GlmConfig { link, norm_bound, ..GlmConfig::default() };
            let update = SolverConfig { solver, ..SolverConfig::default() };
            let scheduled = ScheduledGlbUcb { model, update, round_every: 100, ..Default::default() };
            let tally = run(&turns(3, 10, 3000, Algorithm::FedGlbUcb2(scheduled), link)).1;
            (tally.up.scalars + tally.down.scalars) as f64
        };
        let [auto, steps, jumps] = [Solver::Auto, Solver::Preconditioned, Solver::Newton].map(scalars);
        assert!(auto <= 1.05 * steps.min(jumps), "{link:?}: {auto}, {steps} by steps, {jumps} by jumps");
    }
}

#[test]
fn the_linear_baseline_runs_on_clicks() {
    let model = ModelConfig { fixed_width: Some(0.3), ..ModelConfig::default() };
    let baseline = Algorithm::SyncLinUcb(SyncLinUcb { model, ..SyncLinUcb::default() });
    let alone = Algorithm::NOnsGlm(OnsGlm::default());
    assert!(regret(&baseline, LinkFunction::Logistic) < regret(&alone, LinkFunction::Logistic));
}

/// A round costs what the papers' formula says: N[2p + 2dJ + d + 5] scalars for J gradients.
#[test]
fn a_round_costs_what_the_formula_says() {
    let (agents, d) = (6, 4);
    let scheduled = ScheduledGlbUcb { round_every: 60, ..ScheduledGlbUcb::default() };
    let (log, tally) = run(&turns(2, agents, 360, Algorithm::FedGlbUcb2(scheduled), LinkFunction::Logistic));
    let gradients = log
        .0
        .iter()
        .filter(|entry| matches!(entry, Entry::Down { message: Downlink::GradientRequest { .. }, .. }))
        .count() as u64;
    let packed = d * (d + 1) / 2;
    let rounds = tally.rounds;
    assert_eq!(rounds, 6);
    // Every part holds ten observations of four features: none travels as a factor.
    let expected = rounds * agents * (2 * packed + d + 5) + 2 * d * gradients;
    assert_eq!(tally.up.scalars + tally.down.scalars, expected);
}

/// Rewards that a link cannot take are refused with the configuration, not at the interaction that brings the first one.
#[test]
fn a_link_that_does_not_fit_the_world_is_refused_before_the_first_interaction() {
    let of = |link| {
        let model = GlmConfig { link, ..GlmConfig::default() };
        Algorithm::FedGlbUcb(FedGlbUcb { model, ..FedGlbUcb::default() })
    };
    for link in LinkFunction::all() {
        for paid in LinkFunction::all() {
            let fits = match paid {
                LinkFunction::Identity => link == LinkFunction::Identity,
                LinkFunction::Logistic | LinkFunction::Probit => true,
                LinkFunction::Poisson => matches!(link, LinkFunction::Poisson | LinkFunction::Identity),
            };
            let checked = turns(1, 3, 30, of(link), paid).check();
            assert_eq!(checked.is_ok(), fits, "{link:?} in a world of {paid:?}: {checked:?}");
            if let Err(refused) = checked {
                assert_eq!((refused.name, refused.value.as_str()), ("link", link.name()));
            }
        }
    }
    let refused = small(1, 3, 30, of(LinkFunction::Logistic)).check().unwrap_err();
    assert!(refused.to_string().contains("identity"), "{refused}");
}
