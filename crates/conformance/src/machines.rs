//! Promises of machines whose messages all arrive.

use posse_core::{Agent, Algorithm, Arms, Placement, Shape, UserId};

use crate::Violation;
use crate::host::{AGENTS, Host, STEPS, agent, arms, reward};

type Outcome = Result<(), Violation>;

fn broken(promise: &'static str) -> impl Fn(String) -> Violation {
    move |what| Violation { promise, what }
}

pub(crate) fn repeats(algorithm: &Algorithm, shape: Shape) -> Outcome {
    let wrong = broken("the same calls give the same choices, messages and states");
    let one = Host::played(algorithm, shape, false).map_err(&wrong)?;
    let two = Host::played(algorithm, shape, false).map_err(&wrong)?;
    same(&one, &two).map_err(wrong)
}

pub(crate) fn restores(algorithm: &Algorithm, shape: Shape) -> Outcome {
    let wrong =
        broken("machines that are saved and restored before every call go on as if they had not been");
    let plain = Host::played(algorithm, shape, false).map_err(&wrong)?;
    let reborn = Host::played(algorithm, shape, true).map_err(&wrong)?;
    same(&plain, &reborn).map_err(wrong)
}

fn same(one: &Host<'_>, two: &Host<'_>) -> Result<(), String> {
    if let Some(at) = (0..one.events.len()).find(|&at| one.events.get(at) != two.events.get(at)) {
        return Err(format!("event {at} is {:?} and {:?}", one.events[at], two.events.get(at)));
    }
    if one.events.len() != two.events.len() || one.states() != two.states() {
        return Err("the events are the same, the states after them are not".to_owned());
    }
    Ok(())
}

pub(crate) fn counts_once(algorithm: &Algorithm, shape: Shape) -> Outcome {
    let wrong = broken("every observation is with the coordinator or with its agent, and counted once");
    let host = Host::played(algorithm, shape, false).map_err(&wrong)?;
    let held: u64 = host.agents.iter().map(|agent| agent.inspect().held()).sum();
    let shared = host.coordinator.inspect().observations;
    if held + shared == STEPS {
        Ok(())
    } else {
        Err(wrong(format!("of {STEPS} observations {shared} are shared and {held} wait")))
    }
}

pub(crate) fn shows_what_it_learns(algorithm: &Algorithm, shape: Shape) -> Outcome {
    let wrong = broken("a view counts what was learned, and its information never falls while it is learned");
    let mut lone = agent(algorithm, shape, 0).map_err(&wrong)?;
    let mut rose = false;
    for step in 0..AGENTS * 4 {
        let before = lone.inspect().fresh_information;
        let unsent = lone.inspect().unsent;
        let offer = arms(shape, step);
        let said = lone.learn(UserId(0), offer.row(0), reward(algorithm, offer.row(0), step));
        let said = said.map_err(|error| wrong(error.to_string()))?;
        let view = lone.inspect();
        if view.held() != step + 1 {
            return Err(wrong(format!("after {} observations it holds {}", step + 1, view.held())));
        }
        if said.is_none() && view.unsent == unsent + 1 && view.fresh_information < before {
            return Err(wrong(format!("information fell from {before} to {}", view.fresh_information)));
        }
        rose |= view.fresh_information > before || said.is_some() || view.withheld > 0;
    }
    if rose { Ok(()) } else { Err(wrong("a dozen observations left no trace".to_owned())) }
}

/// The features that a copy of `host`'s agent picks.
fn pick(algorithm: &Algorithm, shape: Shape, original: &dyn Agent, arms: &Arms) -> Result<Vec<f64>, String> {
    let mut twin = agent(algorithm, shape, 0)?;
    twin.restore(&original.save()).map_err(|error| error.to_string())?;
    let choice = twin.choose(UserId(0), arms).map_err(|error| error.to_string())?;
    Ok(arms.row(choice.arm).to_vec())
}

pub(crate) fn foresees_what_it_chooses(algorithm: &Algorithm, shape: Shape) -> Outcome {
    let wrong = broken("an agent that foresees a choice makes it, and foreseeing changes nothing");
    let host = Host::played(algorithm, shape, false).map_err(&wrong)?;
    let state = host.agents[0].save();
    let twin = || -> Result<Box<dyn Agent>, String> {
        let mut twin = agent(algorithm, shape, 0)?;
        twin.restore(&state).map_err(|error| error.to_string())?;
        Ok(twin)
    };
    for step in 0..10 {
        let arms = arms(shape, 2000 + step);
        let (mut one, mut two) = (twin().map_err(&wrong)?, twin().map_err(&wrong)?);
        let Some(foreseen) = one.foresee(UserId(0), &arms) else { continue };
        if one.save() != state {
            return Err(wrong(format!("offer {step}: its state changed")));
        }
        let chosen = two.choose(UserId(0), &arms).map_err(|error| wrong(error.to_string()))?.arm;
        one.choose_foreseen();
        if foreseen != chosen || one.save() != two.save() {
            return Err(wrong(format!("offer {step}: it foresaw arm {foreseen} and chose arm {chosen}")));
        }
    }
    Ok(())
}

pub(crate) fn ignores_the_order_of_arms(algorithm: &Algorithm, shape: Shape) -> Outcome {
    let wrong = broken("the order of the arms does not matter, but for ties");
    let host = Host::played(algorithm, shape, false).map_err(&wrong)?;
    let rows = |rows: &[&[f64]]| Arms::from_rows(shape.dimension(), rows).expect("rows of an offer");
    let mut decided = 0;
    for step in 0..20 {
        let arms = arms(shape, 1000 + step);
        let permuted: Vec<&[f64]> = (0..arms.len()).map(|k| arms.row((3 * k + 2) % arms.len())).collect();
        let pick = |arms: &Arms| pick(algorithm, shape, &*host.agents[0], arms).map_err(&wrong);
        let (one, two) = (pick(&arms)?, pick(&rows(&permuted))?);
        // Of two arms with the same score the first is taken.
        if one != two && !(pick(&rows(&[&one, &two]))? == one && pick(&rows(&[&two, &one]))? == two) {
            return Err(wrong(format!("offer {step}: {one:?} in one order, {two:?} in another")));
        }
        decided += u32::from(one == two);
    }
    if decided > 0 {
        Ok(())
    } else {
        Err(wrong("it took the first arm of every offer, whatever it was".to_owned()))
    }
}

pub(crate) fn takes_the_only_arm(algorithm: &Algorithm, shape: Shape) -> Outcome {
    let wrong = broken("an only arm is chosen, and of an arm offered twice the first");
    let mut host = Host::played(algorithm, shape, false).map_err(&wrong)?;
    let offer = arms(shape, 2000);
    for copies in [1, 2] {
        let rows = vec![offer.row(3); copies];
        let only = Arms::from_rows(shape.dimension(), &rows).expect("rows of an offer");
        let choice = host.agents[0].choose(UserId(0), &only).map_err(|error| wrong(error.to_string()))?;
        if choice.arm != 0 {
            return Err(wrong(format!("of {copies} it took number {}", choice.arm)));
        }
    }
    Ok(())
}

pub(crate) fn refuses_bad_input_unchanged(algorithm: &Algorithm, shape: Shape) -> Outcome {
    let wrong = broken("bad input is refused and changes nothing");
    let mut host = Host::played(algorithm, shape, false).map_err(&wrong)?;
    let d = shape.dimension();
    let before = host.states();
    let agent = &mut host.agents[0];
    let longer = Arms::from_rows(d + 1, &[vec![0.1; d + 1]]).expect("a row");
    let mut taken = Vec::new();
    if agent.choose(UserId(0), &longer).is_ok() {
        taken.push("arms of another dimension");
    }
    if agent.choose(UserId(0), &Arms::new(d)).is_ok() {
        taken.push("an offer without arms");
    }
    if agent.learn(UserId(0), &vec![0.1; d + 1], 0.5).is_ok() {
        taken.push("an observation of another dimension");
    }
    if agent.learn(UserId(0), &vec![f64::NAN; d], 0.5).is_ok() {
        taken.push("features that are not numbers");
    }
    if agent.learn(UserId(0), &vec![0.1; d], f64::INFINITY).is_ok() {
        taken.push("an infinite reward");
    }
    if !taken.is_empty() {
        return Err(wrong(format!("it took {}", taken.join(", "))));
    }
    if host.states() != before {
        return Err(wrong("a refusal changed the state".to_owned()));
    }
    Ok(())
}

pub(crate) fn refuses_foreign_states(algorithm: &Algorithm, shape: Shape) -> Outcome {
    let wrong =
        broken("states that are cut short or of another dimension are not restored, and change nothing");
    let mut host = Host::played(algorithm, shape, false).map_err(&wrong)?;
    let wider = Shape { shared: shape.shared + 1, ..shape };
    let other = Host::played(algorithm, wider, false).map_err(&wrong)?.states();
    let before = host.states();
    for (agent, (state, other)) in host.agents.iter_mut().zip(before.iter().zip(&other)) {
        for garbage in [&[0xff, 0xff][..], &state[..state.len() - 1], other] {
            if agent.restore(garbage).is_ok() {
                return Err(wrong("an agent took one".to_owned()));
            }
        }
    }
    let (state, other) =
        (before.last().expect("the coordinator's"), other.last().expect("the coordinator's"));
    let silent = state.is_empty() || algorithm.placement() == Placement::Central;
    for garbage in [&[0xff, 0xff][..], &state[..state.len().saturating_sub(1)], other] {
        if !silent && host.coordinator.restore(garbage).is_ok() {
            return Err(wrong("a coordinator took one".to_owned()));
        }
    }
    if host.states() != before {
        return Err(wrong("a refusal changed the state".to_owned()));
    }
    Ok(())
}
