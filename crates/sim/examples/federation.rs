//! A whole federation by hand: twenty agents, a coordinator, and the messages between them.
//!
//! Run it with `cargo run --release -p posse-sim --example federation`.
#![allow(clippy::print_stdout, reason = "it shows something")]

use posse_core::{
    Agent, AgentId, Algorithm, AsyncLinUcb, Coordinator, Cost, Entrance, Federation, LinUcb, Outgoing, Seed,
    Tick, wire,
};
use posse_sim::world::{LinearConfig, Offer, WorldConfig};

const AGENTS: u64 = 20;
const INTERACTIONS: u64 = 4000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let alone = play(&Algorithm::LinUcb(LinUcb::default()))?;
    let together = play(&Algorithm::AsyncLinUcb(AsyncLinUcb::default()))?;
    for (name, (regret, cost)) in [("alone", alone), ("together", together)] {
        println!("{name:9} regret {regret:6.1}  messages {:5}  bytes {:7}", cost.messages, cost.bytes);
    }
    Ok(())
}

/// Plays all interactions and returns the regret and what was spent on messages.
/// No deadlines are set here, so that time may stand still.
const NOW: Tick = Tick(1_700_000_000_000_000);

fn play(algorithm: &Algorithm) -> Result<(f64, Cost), Box<dyn std::error::Error>> {
    // The world is the same for every algorithm: what it offers depends on the seed and the step only.
    let seed = Seed(2022);
    let config = LinearConfig { dimension: 10, arms: 20, ..LinearConfig::default() };
    let mut world = WorldConfig::Linear(config).build(AGENTS, seed)?;

    // One machine for each agent, one for the coordinator, and everybody is known from the start.
    let federation = Federation { agents: AGENTS, horizon: INTERACTIONS, seed };
    let shape = world.shape(AgentId(0));
    let mut coordinator = algorithm.coordinator(shape)?;
    let mut agents = Vec::new();
    for id in (0..AGENTS).map(AgentId) {
        agents.push(algorithm.agent(id, shape, &federation)?);
        coordinator.join(NOW, id, Entrance::NewLife);
    }

    let (mut regret, mut cost, mut offer) = (0.0, Cost::default(), Offer::new());
    for step in 0..INTERACTIONS {
        // Agents take turns: choose an arm, see its reward, learn.
        offer.agent = AgentId(step % AGENTS);
        world.offer(step, &mut offer);
        let agent = &mut agents[offer.agent.0 as usize];
        let arm = agent.choose(offer.user, &offer.arms)?.arm;
        regret += offer.regret(arm);
        let said = agent.learn(offer.user, offer.arms.row(arm), offer.reward(arm))?;
        if let Some(uplink) = said {
            // As bytes, the way it would travel.
            cost.add(uplink.cost());
            deliver(&wire::encode_uplink(&uplink), offer.agent, &mut *coordinator, &mut agents, &mut cost)?;
        }
    }
    Ok((regret, cost))
}

/// Brings an uplink to the coordinator and its answers to the agents, and so on until nobody has a word left.
fn deliver(
    bytes: &[u8],
    from: AgentId,
    coordinator: &mut dyn Coordinator,
    agents: &mut [Box<dyn Agent>],
    cost: &mut Cost,
) -> Result<(), Box<dyn std::error::Error>> {
    for Outgoing { to, message } in coordinator.receive(NOW, from, wire::decode_uplink(bytes)?)? {
        for id in (0..agents.len() as u64).map(AgentId).filter(|id| to.includes(*id)) {
            cost.add(message.cost());
            let said = agents[id.0 as usize].receive(message.clone())?;
            if let Some(uplink) = said {
                cost.add(uplink.cost());
                deliver(&wire::encode_uplink(&uplink), id, coordinator, agents, cost)?;
            }
        }
    }
    Ok(())
}
