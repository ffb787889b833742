//! What every algorithm does, whatever it is.

use crate::support::host::{AGENTS, Case, Event, Host, STEPS, cases};
use posse_core::{Agent, AgentId, Algorithm, Arms, InputError, Kernel, Placement, UserId};

/// A second agent in the same state.
fn twin(case: &Case, id: u64, agent: &dyn Agent) -> Box<dyn Agent> {
    let mut twin = case.agent(id);
    twin.restore(&agent.save()).expect("a saved state of the same configuration");
    twin
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn every_case_keeps_the_promises_of_the_published_suite() {
    for case in cases() {
        if let Err(violation) = posse_conformance::check(&case.algorithm, case.shape) {
            panic!("{case:?}: {violation}");
        }
    }
}

#[test]
fn the_same_inputs_give_the_same_choices_messages_and_bytes() {
    for case in cases() {
        let (one, two) = (Host::after(&case, STEPS), Host::after(&case, STEPS));
        assert_eq!(one.events, two.events, "{case:?}");
        assert_eq!(one.save(), two.save(), "{case:?}");
    }
}

#[test]
fn a_restored_machine_goes_on_with_the_same_choices_messages_and_bytes() {
    for case in cases() {
        let plain = Host::after(&case, STEPS);
        let mut reborn = Host::new(&case);
        reborn.reborn = true;
        (0..STEPS).for_each(|step| reborn.interact(step));
        assert_eq!(plain.events, reborn.events, "{case:?}");
        assert_eq!(plain.save(), reborn.save(), "{case:?}");
    }
}

#[test]
fn federated_algorithms_speak_and_the_others_do_not() {
    for case in cases() {
        let spoken = Host::after(&case, STEPS).events.iter().any(|event| matches!(event, Event::Up(..)));
        let alone = [
            "lin-ucb",
            "central-lin-ucb",
            "club",
            "sclub",
            "user-lin-ucb",
            "one-ucb-glm",
            "n-ucb-glm",
            "n-ons-glm",
            "lin-ts",
            "kernel-ucb",
            "kernel-ts",
            "neural-ucb",
            "neural-ts",
        ];
        let central = case.algorithm.placement() == Placement::Central;
        assert_eq!(spoken, !(central || alone.contains(&case.algorithm.name())), "{case:?}");
    }
}

#[test]
fn every_observation_is_counted_once() {
    for case in cases() {
        let host = Host::after(&case, STEPS);
        let held = host.agents.iter().map(|agent| agent.inspect().held());
        assert_eq!(held.sum::<u64>() + host.coordinator.inspect().observations, STEPS, "{case:?}");
    }
}

/// A view tells the truth in every family: each observation that says something new raises the information, and
/// what the view counts is what was learned.
#[test]
fn what_an_agent_learns_shows_in_its_view() {
    for case in cases() {
        let mut host = Host::new(&case);
        let (mut learned, mut rose) = ([0; AGENTS as usize], false);
        for step in 0..STEPS {
            let id = (step % AGENTS) as usize;
            host.join(AgentId(id as u64));
            let before = host.agents[id].inspect();
            let (unsent, information) = (before.unsent, before.fresh_information);
            let arms = host.arms(step);
            let said = host.agents[id].learn(UserId(0), arms.row(0), case.possible(0.3)).unwrap();
            learned[id] += 1;
            let after = host.agents[id].inspect();
            assert_eq!(after.held(), learned[id], "{case:?} after {step}");
            // What is sent at once, or kept apart, is not among the fresh.
            let is_full = match &case.algorithm {
                // A full history is frozen: what comes then is counted and not learned from.
                Algorithm::KernelUcb(config) | Algorithm::KernelTs(config) => {
                    learned[id] > config.max_history as u64
                }
                _ => false,
            };
            rose |= said.is_some();
            if said.is_none() && after.unsent > unsent && !is_full {
                // A network whose units are all dead on an arm has no gradient there.
                let may_be_dead = matches!(case.algorithm.name(), "neural-ucb" | "neural-ts" | "fn-ucb");
                let rises = after.fresh_information > information;
                rose |= rises;
                assert!(
                    rises || (may_be_dead && after.fresh_information == information),
                    "{case:?} after {step}"
                );
            }
            if let Some(linear) = after.linear {
                let in_flight = linear.in_flight.map_or(0, posse_core::Evidence::count);
                let (base, counted) = (linear.base.count(), after.in_flight.map_or(0, |(_, count)| count));
                assert_eq!((base, in_flight), (after.shared, counted), "{case:?} after {step}");
            }
        }
        let sends_at_once =
            matches!(case.algorithm.name(), "fclub" | "homo" | "fed-lin-ucb" | "async-lin-ucb-am");
        assert!(rose || sends_at_once, "{case:?}");
    }
}

#[test]
fn permuting_the_arms_permutes_the_pick() {
    for case in cases() {
        let mut host = Host::new(&case);
        for step in 0..STEPS {
            host.interact(step);
            let id = step % AGENTS;
            // Without data all arms are equal to a rule that perturbs data.
            let view = host.agents[id as usize].inspect();
            let information = view.linear.map_or(view.fresh_information, |linear| linear.model.information());
            if information == 0.0 {
                continue;
            }
            let arms = host.arms(1000 + step);
            let rows: Vec<&[f64]> = (0..arms.len()).map(|k| arms.row((3 * k + 2) % arms.len())).collect();
            let permuted = Arms::from_rows(arms.dimension(), &rows).unwrap();
            let pick = |arms: &Arms| {
                let mut agent = twin(&case, id, &*host.agents[id as usize]);
                let choice = agent.choose(UserId(0), arms).unwrap();
                arms.row(choice.arm).to_vec()
            };
            let (one, two) = (pick(&arms), pick(&permuted));
            if one != two {
                // Arms on which all units of a network are dead score the same: the first of them is taken.
                let pair = |a: &[f64], b: &[f64]| Arms::from_rows(arms.dimension(), &[a, b]).unwrap();
                let tie = pick(&pair(&one, &two)) == one && pick(&pair(&two, &one)) == two;
                assert!(tie, "{case:?} after {step}: {one:?} or {two:?}");
            }
        }
    }
}

#[test]
fn offering_an_arm_twice_changes_nothing() {
    for case in cases() {
        let host = Host::after(&case, STEPS);
        for (id, agent) in host.agents.iter().enumerate() {
            for step in 0..20 {
                let arms = host.arms(2000 + step);
                let picked = twin(&case, id as u64, &**agent).choose(UserId(0), &arms).unwrap().arm;
                let once = (0..arms.len()).map(|k| arms.row(k));
                let doubled: Vec<&[f64]> = once.flat_map(|row| [row, row]).collect();
                let doubled = Arms::from_rows(arms.dimension(), &doubled).unwrap();
                let again = twin(&case, id as u64, &**agent).choose(UserId(0), &doubled).unwrap().arm;
                assert_eq!(again, 2 * picked, "{case:?}: the lower of two equals");
            }
        }
    }
}

#[test]
fn an_only_arm_is_chosen() {
    for case in cases() {
        let mut host = Host::after(&case, 10);
        let arms = Arms::from_rows(case.shape.dimension(), &[host.arms(0).row(3)]).unwrap();
        assert_eq!(host.agents[0].choose(UserId(0), &arms).unwrap().arm, 0);
    }
}

#[test]
fn observations_without_features_change_nothing_but_counts() {
    // To those who tell users apart after every observation, counts are how well a user is known.
    let by_counts = |case: &Case| matches!(case.algorithm.name(), "club" | "sclub");
    // By distance, an arm without features is an arm like any other.
    let by_distance = |case: &Case| match &case.algorithm {
        Algorithm::KernelUcb(config) | Algorithm::KernelTs(config) => config.kernel != Kernel::Linear,
        _ => false,
    };
    // To a network with biases no features are features too.
    let with_biases = |case: &Case| matches!(case.algorithm.name(), "neural-ucb" | "neural-ts" | "fn-ucb");
    let usual = |case: &Case| !by_counts(case) && !by_distance(case) && !with_biases(case);
    for case in cases().into_iter().filter(usual) {
        let host = Host::after(&case, STEPS);
        for (id, agent) in host.agents.iter().enumerate() {
            let mut with = twin(&case, id as u64, &**agent);
            let mut without = twin(&case, id as u64, &**agent);
            for _ in 0..3 {
                // Rounds may be asked for: their urgency counts observations.
                let _ = with.learn(UserId(0), &vec![0.0; case.shape.dimension()], 1.0).unwrap();
            }
            let (a, b) = (with.inspect(), without.inspect());
            assert_eq!(a.held(), b.held() + 3, "{case:?}");
            // A private agent may have released its buffer: when, depends on public counts.
            if a.unsent == b.unsent + 3 {
                assert_eq!(a.fresh_information.to_bits(), b.fresh_information.to_bits(), "{case:?}");
            }
            if let (Some(a), Some(b)) = (a.linear, b.linear) {
                assert_eq!(a.model.information().to_bits(), b.model.information().to_bits(), "{case:?}");
                assert_eq!(bits(&a.model.estimate()), bits(&b.model.estimate()), "{case:?}");
            }
            for step in 0..20 {
                let arms = host.arms(3000 + step);
                let (one, two) = (with.choose(UserId(0), &arms), without.choose(UserId(0), &arms));
                assert_eq!(one, two, "{case:?} choice {step}");
                for agent in [&mut with, &mut without] {
                    let _ = agent.learn(UserId(0), arms.row(0), 0.5).unwrap();
                }
            }
        }
    }
}

#[test]
fn features_of_any_size_give_valid_choices_or_a_clear_error() {
    for case in cases() {
        for scale in [1e-150, 1e-100, 1e-20, 1e-6, 1e3, 1e7, 1e9, 1e30, 1e60, 1e100] {
            let mut host = Host::new(&case);
            host.lenient = true;
            for step in 0..STEPS {
                let id = step % AGENTS;
                host.join(AgentId(id));
                let arms = host.arms(step);
                // Every other arm is of ordinary size.
                let rows: Vec<Vec<f64>> = (0..arms.len())
                    .map(|k| arms.row(k).iter().map(|x| if k % 2 == 0 { x * scale } else { *x }).collect())
                    .collect();
                let arms = Arms::from_rows(arms.dimension(), &rows).unwrap();
                let choice = match host.agents[id as usize].choose(UserId(0), &arms) {
                    Ok(choice) => choice.arm,
                    Err(InputError::NoFiniteScore) => 0,
                    Err(error) => panic!("{case:?} at {scale}: {error}"),
                };
                let x = arms.row(choice);
                // Networks compute with numbers of single precision.
                let fits = !case.algorithm.name().starts_with("neural") && case.algorithm.name() != "fn-ucb";
                match host.learn(id, UserId(0), x, case.possible(x[0].signum())) {
                    Ok(()) => {}
                    Err(InputError::Overflow) if !fits && scale > 1e14 => {}
                    Err(error) => panic!("{case:?} at {scale}: {error}"),
                }
            }
            for agent in &host.agents {
                let view = agent.inspect();
                assert!(view.fresh_information.is_finite(), "{case:?} at {scale}");
                if let Some(linear) = view.linear {
                    assert!(linear.model.information().is_finite(), "{case:?} at {scale}");
                    assert!(linear.model.estimate().iter().all(|v| v.is_finite()), "{case:?} at {scale}");
                }
            }
        }
    }
}
