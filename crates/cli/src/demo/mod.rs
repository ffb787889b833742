//! The demonstration: a coordinator and agents on loopback, killed and brought back while they learn.

pub(crate) mod report;

use std::fmt::Write;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use posse_core::{AgentId, Algorithm, AsyncLinUcb, Cost, LinUcb, Seed, Threshold, UserId};
use posse_net::coordinator::{Options, Running, ServeConfig, serve};
use posse_net::federation::FederationConfig;
use posse_net::{Agent, AgentConfig};
use posse_sim::network::{FaultConfig, NetworkConfig};
use posse_sim::world::{ArrivalConfig, LinearConfig, Offer, WorldConfig};
use posse_sim::{AdversaryConfig, Event, Observer, RunConfig, Stage, Tally};
use tokio::time::Instant;

const DIMENSION: usize = 20;
const ARMS: usize = 20;
const NAME: &str = "demo";
/// How long an agent may take to say its last word.
const PATIENCE: Duration = Duration::from_secs(30);
/// Lines of the live table.
const LINES: u64 = 20;

/// The settings of a demo.
pub(crate) struct Demo {
    pub(crate) seconds: f64,
    pub(crate) agents: u64,
    pub(crate) interactions: u64,
    pub(crate) seed: u64,
    pub(crate) out: PathBuf,
}

/// What happened in a demo, for the live table and the report.
pub(crate) struct Story {
    /// Cumulative regret after each interaction.
    pub(crate) isolated: Vec<f64>,
    pub(crate) federated: Vec<f64>,
    pub(crate) central: Vec<f64>,
    /// Notable events: the interaction after which each happened, and its description.
    pub(crate) events: Vec<(u64, String)>,
    pub(crate) up: Cost,
    pub(crate) down: Cost,
    /// Observations that the coordinator has at the end, and those that agents still keep to themselves.
    pub(crate) shared: u64,
    pub(crate) unsent: u64,
}

impl Demo {
    fn world(&self) -> WorldConfig {
        WorldConfig::Linear(LinearConfig { dimension: DIMENSION, arms: ARMS, ..LinearConfig::default() })
    }

    fn algorithm() -> Algorithm {
        let mut algorithm = AsyncLinUcb::default();
        algorithm.protocol.upload_threshold = Threshold(2.0);
        algorithm.protocol.download_threshold = Threshold(2.0);
        Algorithm::AsyncLinUcb(algorithm)
    }

    /// The regret of another algorithm in the same world, without a network.
    fn simulate(&self, algorithm: Algorithm) -> anyhow::Result<Vec<f64>> {
        let config = RunConfig {
            seed: Seed(self.seed),
            agents: self.agents,
            horizon: self.interactions,
            world: self.world(),
            arrival: ArrivalConfig::default(),
            network: NetworkConfig::default(),
            topology: posse_sim::TopologyConfig::default(),
            faults: FaultConfig::default(),
            adversaries: AdversaryConfig::default(),
            algorithm,
        };
        let mut regret = Regret(Vec::with_capacity(self.interactions as usize));
        config.run(&mut regret)?;
        regret.0.truncate(self.interactions as usize);
        Ok(regret.0)
    }

    fn data(&self) -> PathBuf {
        self.out.join("data")
    }

    fn agent_config(&self, address: SocketAddr, agent: u64) -> AgentConfig {
        AgentConfig {
            coordinator: format!("http://{address}"),
            agent: Some(agent),
            state: Some(self.data().join("agents").join(agent.to_string())),
            longest_pause: Duration::from_millis(500),
            ..AgentConfig::default()
        }
    }

    async fn coordinator(&self, listen: SocketAddr) -> anyhow::Result<Running> {
        let mut federation = FederationConfig::new(NAME, Self::algorithm(), DIMENSION as u64);
        (federation.agents, federation.horizon) = (self.agents, self.interactions);
        let config = ServeConfig { listen, ..ServeConfig::on_loopback(&self.data(), vec![federation]) };
        Ok(serve(config, Options::default()).await?)
    }
}

struct Regret(Vec<f64>);

impl Observer for Regret {
    fn observe(&mut self, _event: &Event<'_>, _stage: &dyn Stage) {}

    fn interacted(&mut self, tally: &Tally) -> ControlFlow<()> {
        self.0.push(tally.regret);
        ControlFlow::Continue(())
    }
}

/// Machines and what they have sent, also those that are no more.
struct Scene<'d> {
    demo: &'d Demo,
    address: SocketAddr,
    /// `None` while it is dead.
    running: Option<Running>,
    agents: Vec<Option<Agent>>,
    up: Cost,
    down: Cost,
    events: Vec<(u64, String)>,
}

/// Plays the demonstration, a line of the table at a time.
pub(crate) async fn play(demo: &Demo, say: impl Fn(&str) -> anyhow::Result<()>) -> anyhow::Result<Story> {
    let data = demo.data();
    if data.exists() {
        // Only what an earlier demonstration left is removed.
        if !data.join("federations").join(NAME).join("federation.json").exists() {
            bail!("{} is there and not of a demonstration: choose another --out", data.display());
        }
        std::fs::remove_dir_all(&data).with_context(|| format!("cannot empty {}", data.display()))?;
    }
    std::fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
    let isolated = demo.simulate(Algorithm::LinUcb(LinUcb::default()))?;
    let central = demo.simulate(Algorithm::CentralLinUcb(LinUcb::default()))?;
    let running = demo.coordinator(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    say(&format!(
        "{} agents and a coordinator on {}, over gRPC: {} arms of {DIMENSION} features, {} interactions.\n\
         Regret so far, in the same world: each agent alone, this federation, one learner that sees everything.\n\
         Regret is what the best arm would have brought more than the chosen one, added up: lower is better.\n",
        demo.agents, running.address, ARMS, demo.interactions
    ))?;
    say("interactions     alone  federated   central   messages      kB   what happened")?;
    let mut scene = Scene {
        demo,
        address: running.address,
        running: Some(running),
        agents: (0..demo.agents).map(|_| None).collect(),
        up: Cost::default(),
        down: Cost::default(),
        events: Vec::new(),
    };
    let federated = scene.act(&isolated, &central, &say).await?;
    scene.finish(isolated, federated, central).await
}

impl Scene<'_> {
    async fn act(
        &mut self,
        isolated: &[f64],
        central: &[f64],
        say: &impl Fn(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<f64>> {
        let demo = self.demo;
        let horizon = demo.interactions;
        let mut world = demo.world().build(demo.agents, Seed(demo.seed))?;
        let mut arrivals = ArrivalConfig::default().build(demo.agents, horizon, Seed(demo.seed))?;
        let mut offer = Offer::new();
        let (mut regret, mut curve, mut told) = (0.0, Vec::new(), 0);
        let began = Instant::now();
        let line = (horizon / LINES).max(1);
        for step in 0..horizon {
            self.go_wrong(step).await?;
            let agent = arrivals.agent(step);
            (offer.agent, offer.user) = (agent, UserId(agent.0));
            world.offer(step, &mut offer);
            let machine = self.agent(agent).await?;
            let chosen = machine.choose(offer.user, &offer.arms)?;
            machine.reward(chosen.id, offer.reward(chosen.arm))?;
            regret += offer.regret(chosen.arm);
            curve.push(regret);
            if (step + 1) % line == 0 {
                let (up, down) = self.cost();
                let happened: Vec<&str> = self.events[told..].iter().map(|(_, what)| what.as_str()).collect();
                told = self.events.len();
                say(&format!(
                    "{:>12} {:>9.0} {regret:>10.0} {:>9.0} {:>10} {:>7}   {}",
                    step + 1,
                    isolated[step as usize],
                    central[step as usize],
                    up.messages + down.messages,
                    (up.bytes + down.bytes) / 1000,
                    happened.join("; ")
                ))?;
            }
            let due = began + Duration::from_secs_f64(demo.seconds * (step + 1) as f64 / horizon as f64);
            if due > Instant::now() + Duration::from_millis(5) {
                tokio::time::sleep_until(due).await;
            }
        }
        Ok(curve)
    }

    /// The agent, brought back from its state if it was killed.
    async fn agent(&mut self, id: AgentId) -> anyhow::Result<Agent> {
        let place = id.0 as usize;
        if self.agents[place].is_none() {
            let config = self.demo.agent_config(self.address, id.0);
            self.agents[place] = Some(Agent::start(config).await?);
        }
        Ok(self.agents[place].clone().expect("it was just started"))
    }

    /// Kills what is to be killed before this interaction.
    async fn go_wrong(&mut self, step: u64) -> anyhow::Result<()> {
        let eighth = self.demo.interactions / 8;
        if step == 0 || !step.is_multiple_of(eighth) {
            return Ok(());
        }
        if (step / eighth).is_multiple_of(4) {
            self.restart_coordinator(step).await?;
        } else {
            let killed = (self.demo.agents / 6).max(1);
            let first = (step / eighth) * killed;
            for agent in (first..first + killed).map(|agent| (agent % self.demo.agents) as usize) {
                if let Some(agent) = self.agents[agent].take() {
                    agent.abort().await;
                }
            }
            self.events.push((step, format!("{killed} agents killed, back from their state")));
        }
        Ok(())
    }

    /// Kills the coordinator and starts it again on the same port, from its log.
    async fn restart_coordinator(&mut self, step: u64) -> anyhow::Result<()> {
        (self.up, self.down) = self.cost();
        if let Some(dead) = self.running.take() {
            dead.abort().await;
        }
        let mut tries = 0;
        let running = loop {
            match self.demo.coordinator(self.address).await {
                Ok(running) => break running,
                Err(error) if tries > 100 => return Err(error),
                // The old socket is let go of a moment after its task.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
            tries += 1;
        };
        let held = running.federations[0].look().await.map_or(0, |view| view.observations);
        self.running = Some(running);
        self.events.push((step, format!("coordinator killed, back from its log with {held} observations")));
        Ok(())
    }

    /// Everything that was sent, by this coordinator and those before it.
    fn cost(&self) -> (Cost, Cost) {
        let (mut up, mut down) = (self.up, self.down);
        if let Some(running) = &self.running {
            let standing = running.federations[0].standing();
            up.add(standing.up);
            down.add(standing.down);
        }
        (up, down)
    }

    async fn finish(
        mut self,
        isolated: Vec<f64>,
        federated: Vec<f64>,
        central: Vec<f64>,
    ) -> anyhow::Result<Story> {
        let agents: Vec<Agent> = std::mem::take(&mut self.agents).into_iter().flatten().collect();
        for agent in &agents {
            if tokio::time::timeout(PATIENCE, agent.settled()).await.is_err() {
                bail!("{} gets no answer: {:?}", agent.id(), agent.status());
            }
        }
        for agent in &agents {
            agent.clone().close().await?;
        }
        let (up, down) = self.cost();
        let running = self.running.take().context("the coordinator is gone")?;
        let federation = &running.federations[0];
        let mut unsent = 0;
        for agent in &agents {
            let uploads = federation.agent(agent.id()).await.map_or(0, |standing| standing.uploads);
            unsent += agent.inspect(|machine| {
                let view = machine.inspect();
                let on_its_way = view.in_flight.filter(|(number, _)| *number > uploads);
                view.unsent + view.withheld + on_its_way.map_or(0, |(_, count)| count)
            });
        }
        let shared = federation.look().await.context("the coordinator's log failed")?.observations;
        let events = std::mem::take(&mut self.events);
        running.drain().await;
        Ok(Story { isolated, federated, central, events, up, down, shared, unsent })
    }
}

impl Story {
    /// Every observation is somewhere, once.
    pub(crate) fn conserved(&self) -> bool {
        self.shared + self.unsent == self.federated.len() as u64
    }

    /// The closing lines of the demo, with the path of its report.
    pub(crate) fn ending(&self, page: &Path) -> String {
        let last = |curve: &[f64]| curve.last().copied().unwrap_or(0.0);
        let (alone, together) = (last(&self.isolated), last(&self.federated));
        let made = self.federated.len() as u64;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "\nSharing brought regret from {alone:.0} (alone) to {together:.0}; one learner that sees everything has {:.0}.",
            last(&self.central)
        );
        let _ = writeln!(
            text,
            "It took {} messages and {} kB for {made} interactions.",
            self.up.messages + self.down.messages,
            (self.up.bytes + self.down.bytes) / 1000
        );
        let verdict =
            if self.conserved() { "nothing was lost or counted twice" } else { "SOMETHING IS WRONG" };
        let _ = writeln!(
            text,
            "Of {made} observations the coordinator has {} and agents keep {} until they are worth a message: {verdict}.",
            self.shared, self.unsent
        );
        let _ = writeln!(text, "The report is {}.", page.display());
        text
    }
}
