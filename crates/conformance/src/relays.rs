//! Promises of relays whose messages all arrive.

use posse_core::{Algorithm, LevelConfig, Relaying, Shape};

use crate::Violation;
use crate::host::{AGENTS, Event, FEDERATION, Host, STEPS};
use crate::tree::Tree;

/// Relays below the root, and below those.
const TWO_DEEP: [u64; 2] = [2, 3];

fn broken(promise: &'static str) -> impl Fn(String) -> Violation {
    move |what| Violation { promise, what }
}

fn played<'a>(
    algorithm: &'a Algorithm,
    shape: Shape,
    agents: u64,
    relays: &[u64],
    reborn: bool,
) -> Result<Tree<'a>, String> {
    let configs = vec![LevelConfig::default(); relays.len() + 1];
    let mut tree = Tree::new(algorithm, shape, agents, relays, &configs, reborn)?;
    (0..STEPS).try_for_each(|step| tree.interact(step))?;
    Ok(tree)
}

pub(crate) fn relays_count_once(algorithm: &Algorithm, shape: Shape) -> Result<(), Violation> {
    let wrong = broken("every observation is with the root, in a relay or with its agent, and counted once");
    for (agents, relays) in [(AGENTS, &[1][..]), (6, &[2]), (6, &TWO_DEEP)] {
        let tree = played(algorithm, shape, agents, relays, false).map_err(&wrong)?;
        let held: u64 = tree.agents.iter().map(|agent| agent.inspect().held()).sum();
        let (shared, between) = (tree.root.inspect().observations, tree.in_relays());
        if held + between + shared != STEPS {
            let what =
                format!("of {STEPS} observations {shared} are shared, {between} in relays, {held} wait");
            return Err(wrong(what));
        }
        misnamed(&tree).map_or(Ok(()), |what| Err(wrong(what)))?;
        if algorithm.with_recipe(|recipe| recipe.privacy().is_some()) {
            // Their sums are those of the observations and noise.
            continue;
        }
        let Some(sum) = tree.everything().filter(|sum| sum.dimension() == tree.learned.dimension()) else {
            continue;
        };
        let off = |a: &[f64], b: &[f64]| a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-9 * STEPS as f64);
        if sum.count() == STEPS && off(sum.gram(), tree.learned.gram()) {
            return Err(wrong(
                "the counts are right, and the sums are not those of the observations".to_owned(),
            ));
        }
    }
    Ok(())
}

/// What is wrong with the names in which the root keeps observations, if it keeps them by agent.
fn misnamed(tree: &Tree<'_>) -> Option<String> {
    let accounts = tree.root.accounts();
    if accounts.is_empty() {
        return None;
    }
    let of = |agent: u64| accounts.iter().filter(move |account| account.agent.agent.0 == agent);
    tree.agents.iter().zip(&tree.learned_by).enumerate().find_map(|(agent, (machine, learned))| {
        let shared: u64 = of(agent as u64).map(|account| account.observations).sum();
        let held = machine.inspect().held();
        let wrong = shared + held != *learned;
        wrong.then(|| {
            format!("agent {agent} made {learned} observations: {shared} are in its name, {held} wait")
        })
    })
}

pub(crate) fn relays_restore(algorithm: &Algorithm, shape: Shape) -> Result<(), Violation> {
    let wrong = broken("relays that are saved and restored before every call go on as if they had not been");
    let plain = played(algorithm, shape, 6, &TWO_DEEP, false).map_err(&wrong)?;
    let reborn = played(algorithm, shape, 6, &TWO_DEEP, true).map_err(&wrong)?;
    if plain.events != reborn.events || plain.states() != reborn.states() {
        return Err(wrong("what agents said and heard, or the states in the end, are others".to_owned()));
    }
    Ok(())
}

/// One relay has all that a coordinator without relays would have, whatever it tells the root and when.
pub(crate) fn one_relay_is_a_coordinator(algorithm: &Algorithm, shape: Shape) -> Result<(), Violation> {
    let wrong = broken("agents below one relay choose as they would without it");
    let relaying = algorithm.with_recipe(|recipe| recipe.relaying(&FEDERATION));
    let mut configs = vec![LevelConfig::default(); 2];
    if let Relaying::ByThresholds(whole) = relaying {
        configs[1].upload_threshold = Some(whole.upload);
        configs[1].download_threshold = Some(whole.download);
    }
    let flat = Host::played(algorithm, shape, false).map_err(&wrong)?;
    let mut tree = Tree::new(algorithm, shape, AGENTS, &[1], &configs, false).map_err(&wrong)?;
    (0..STEPS).try_for_each(|step| tree.interact(step)).map_err(&wrong)?;
    // Where the root sends snapshots only to whom is behind, it sends none to its only child: not a bit differs.
    if matches!(relaying, Relaying::ByThresholds(whole) if whole.download.0.is_finite()) {
        let same = flat.events == tree.events;
        return if same { Ok(()) } else { Err(wrong("they are told something else".to_owned())) };
    }
    let chosen = |event: &&Event| matches!(event, Event::Chose(..));
    let mut pairs = flat.events.iter().filter(chosen).zip(tree.events.iter().filter(chosen));
    match pairs.position(|(one, two)| one != two) {
        None => Ok(()),
        Some(step) => Err(wrong(format!("the choice of step {step} is another one"))),
    }
}

pub(crate) fn relays_refuse_unchanged(algorithm: &Algorithm, shape: Shape) -> Result<(), Violation> {
    let wrong = broken("a relay refuses states and messages that are not its own, and is unchanged");
    let mut tree = played(algorithm, shape, 6, &TWO_DEEP, false).map_err(&wrong)?;
    let wider = Shape { shared: shape.shared + 1, ..shape };
    let other = played(algorithm, wider, 6, &TWO_DEEP, false).map_err(&wrong)?;
    let relay = &mut tree.relays[1][0];
    let before = relay.save();
    for garbage in [&[0xff, 0xff][..], &before[..before.len() - 1], &other.relays[1][0].save()] {
        if relay.restore(garbage).is_ok() {
            return Err(wrong("it restored a foreign state".to_owned()));
        }
    }
    let round = posse_core::RoundId(u64::MAX);
    let foreign = posse_core::Downlink::Abort { round };
    let regroup = posse_core::Downlink::Regroup { phase: posse_core::PhaseId(1), anew: false };
    let stranger = posse_core::AgentId(1_000_000);
    let request = posse_core::Uplink::RoundRequest { observations: 0 };
    let refused = relay.receive(crate::host::NOW, stranger, request).is_err();
    let heard =
        [foreign, regroup].into_iter().filter_map(|message| relay.hear(crate::host::NOW, message).ok());
    let said = heard.fold(0, |sum, passed| sum + passed.up.len() + passed.down.len());
    if !refused || said > 0 || relay.save() != before {
        return Err(wrong("it took a message that makes no sense".to_owned()));
    }
    Ok(())
}
