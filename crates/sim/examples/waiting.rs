//! What it is worth to wait for an answer: agents of the exchange ask before they choose and wait, ask and choose without
//! waiting, or ask when a timer says so.
//!
//! Run it with `cargo run --release -p posse-sim --example waiting`.
#![allow(clippy::print_stdout, reason = "it shows something")]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use posse_core::{
    Agent, AgentId, Algorithm, Coordinator, Cost, Entrance, ExchangeLinUcb, Federation, Outgoing, Seed, Tick,
    Uplink,
};
use posse_sim::world::{ArrivalConfig, Form, LinearConfig, Offer, WorldConfig};

type Failure = Box<dyn std::error::Error>;

const AGENTS: u64 = 1000;
const INTERACTIONS: u64 = 30_000;
const SEEDS: u64 = 6;

/// When an agent asks the coordinator what there is to hear.
#[derive(Clone, Copy)]
enum Asking {
    /// Before a choice, which waits for the answer.
    AndWaiting,
    /// Before a choice, which does not wait.
    WithoutWaiting,
    /// Once in so many interactions of all agents, with the arms of its last choice in mind. No choice waits.
    ByTimer(u64),
}

fn main() -> Result<(), Failure> {
    let timers = [100, 300, 1000, 3000].map(|every| (format!("asks every {every}"), Asking::ByTimer(every)));
    let manners = [
        ("asks and waits".to_owned(), Asking::AndWaiting),
        ("asks without waiting".to_owned(), Asking::WithoutWaiting),
    ];
    for (arrivals, arrival) in
        [("uniform", ArrivalConfig::Uniform), ("zipf", ArrivalConfig::Zipf { exponent: 1.2 })]
    {
        for (name, asking) in manners.iter().chain(&timers) {
            let (mut regret, mut messages) = (0.0, 0);
            for seed in 0..SEEDS {
                let (of_one, cost) = play(&arrival, *asking, Seed(seed))?;
                regret += of_one;
                messages += cost.messages;
            }
            println!(
                "{arrivals:8} {name:21} regret {:6.1}  messages {:6}",
                regret / SEEDS as f64,
                messages / SEEDS
            );
        }
    }
    Ok(())
}

/// The machines of one run, and what messages between them cost.
struct Play {
    coordinator: Box<dyn Coordinator>,
    agents: BTreeMap<AgentId, Box<dyn Agent>>,
    cost: Cost,
}

/// Plays all interactions, 10 ms apart, and returns the regret and what was spent on messages.
fn play(arrival: &ArrivalConfig, asking: Asking, seed: Seed) -> Result<(f64, Cost), Failure> {
    let algorithm = Algorithm::ExchangeLinUcb(ExchangeLinUcb::default());
    let config = LinearConfig { form: Form::Authors, ..LinearConfig::default() };
    let mut world = WorldConfig::Linear(config).build(AGENTS, seed)?;
    let mut arrivals = arrival.build(AGENTS, INTERACTIONS, seed)?;
    let federation = Federation { agents: AGENTS, horizon: INTERACTIONS, seed };
    let shape = world.shape(AgentId(0));
    let coordinator = algorithm.coordinator(shape)?;
    let mut play = Play { coordinator, agents: BTreeMap::new(), cost: Cost::default() };
    let (mut regret, mut offers) = (0.0, BTreeMap::<AgentId, Offer>::new());
    for step in 0..INTERACTIONS {
        let now = Tick(1_700_000_000_000_000 + 10_000 * step);
        if let Asking::ByTimer(every) = asking {
            let due = offers.iter().filter(|(id, _)| (step + id.0) % every == 0);
            for (id, offer) in due {
                let question = play.agent(*id).prepare(now, offer.user, &offer.arms)?;
                play.deliver(now, *id, question)?;
            }
        }
        let id = arrivals.agent(step);
        if let Entry::Vacant(place) = play.agents.entry(id) {
            // A newcomer hears what is known before its first choice, however it asks later.
            place.insert(algorithm.agent(id, shape, &federation)?);
            let greeting = play.coordinator.join(now, id, Entrance::NewLife);
            play.answer(now, greeting)?;
        }
        let offer = offers.entry(id).or_insert_with(Offer::new);
        offer.agent = id;
        world.offer(step, offer);
        let question = match asking {
            Asking::ByTimer(_) => None,
            _ => play.agent(id).prepare(now, offer.user, &offer.arms)?,
        };
        let late = match asking {
            Asking::AndWaiting => {
                play.deliver(now, id, question)?;
                None
            }
            _ => question,
        };
        let arm = play.agent(id).choose(offer.user, &offer.arms)?.arm;
        regret += offer.regret(arm);
        let said = play.agent(id).learn(offer.user, offer.arms.row(arm), offer.reward(arm))?;
        play.deliver(now, id, late)?;
        play.deliver(now, id, said)?;
    }
    Ok((regret, play.cost))
}

impl Play {
    fn agent(&mut self, id: AgentId) -> &mut dyn Agent {
        &mut **self.agents.get_mut(&id).expect("it has joined")
    }

    /// Brings what an agent says, if anything, to the coordinator, and its answers to agents.
    fn deliver(&mut self, now: Tick, from: AgentId, said: Option<Uplink>) -> Result<(), Failure> {
        let Some(said) = said else { return Ok(()) };
        self.cost.add(said.cost());
        let outgoing = self.coordinator.receive(now, from, said)?;
        self.answer(now, outgoing)
    }

    fn answer(&mut self, now: Tick, outgoing: Vec<Outgoing>) -> Result<(), Failure> {
        for Outgoing { to, message } in outgoing {
            let ids: Vec<AgentId> = self.agents.keys().copied().filter(|id| to.includes(*id)).collect();
            for id in ids {
                self.cost.add(message.cost());
                let said = self.agent(id).receive(message.clone())?;
                self.deliver(now, id, said)?;
            }
        }
        Ok(())
    }
}
