//! Oracle O23 for this family: widths with the corrected constants hold as often as they promise.

use super::*;
use crate::coordinator::{Coordinator, Entrance};
use crate::evidence::multiply;
use crate::glm::link::LinkFunction;
use crate::glm::projection::dot;
use crate::ids::{AgentId, Tick};
use crate::message::{Outgoing, Recipient};
use crate::random::Seed;

/// When the tests begin: far from zero, as every real clock is.
const NOW: Tick = Tick(1_700_000_000_000_000);

const RUNS: u64 = 120;
const AGENTS: u64 = 3;
const DIMENSION: usize = 4;

/// The largest share of its width that an error reached in a run: of the models that choose, and of the
/// minimisers that rounds found.
fn worst(seed: u64, link: LinkFunction) -> (f64, f64) {
    let model = GlmConfig { link, width_scale: 1.0, confidence: 0.1, ..GlmConfig::default() };
    let config = FedGlbUcb { model, round_threshold: Threshold(2.0), ..FedGlbUcb::default() };
    let federation = Federation { agents: AGENTS, horizon: 300, seed: Seed(seed) };
    let mut agents: Vec<FedGlbAgent> = (0..AGENTS).map(|_| config.agent(DIMENSION, &federation)).collect();
    let mut coordinator = config.coordinator(DIMENSION);
    (0..AGENTS).for_each(|id| drop(coordinator.join(NOW, AgentId(id), Entrance::NewLife)));
    let mut stream = Seed(seed).stream("coverage", 0, 0);
    let mut direction = || {
        let v: Vec<f64> = (0..DIMENSION).map(|_| stream.normal()).collect();
        let length = norm(&v);
        (v.into_iter().map(|v| v / length).collect::<Vec<f64>>(), stream.uniform())
    };
    let theta = direction().0;
    let (mut choosing, mut minimised) = (0.0_f64, 0.0_f64);
    for step in 0..300 {
        let id = step % AGENTS;
        let rows: Vec<Vec<f64>> = (0..5).map(|_| direction().0).collect();
        let arms = Arms::from_rows(DIMENSION, &rows).unwrap();
        let agent = &mut agents[id as usize];
        let x = arms.row(agent.choose(UserId(0), &arms).unwrap().arm).to_vec();
        let mean = link.mean(dot(&x, &theta));
        let reward = match link {
            LinkFunction::Logistic | LinkFunction::Probit => f64::from(u8::from(direction().1 < mean)),
            LinkFunction::Identity | LinkFunction::Poisson => (mean + direction().1 - 0.5).max(0.0),
        };
        let said = agent.learn(UserId(0), &x, reward).unwrap();
        let mut queue: Vec<(AgentId, Uplink)> = said.map(|up| (AgentId(id), up)).into_iter().collect();
        while let Some((from, uplink)) = queue.pop() {
            for Outgoing { to, message } in coordinator.receive(NOW, from, uplink).unwrap() {
                if let Downlink::Model(model) = &message {
                    let Fit::Minimised { gap, information, .. } = model.fit else { panic!("it minimises") };
                    let off: Vec<f64> = model.estimate.iter().zip(&theta).map(|(a, b)| a - b).collect();
                    let constants = config.model.constants();
                    let a = multiply(model.evidence.gram(), constants.ridge(), &off);
                    let radius = constants.batch_radius(model.evidence.count(), gap, information);
                    minimised = minimised.max(dot(&off, &a).sqrt() / radius);
                }
                let everyone = (0..AGENTS).map(AgentId).filter(|agent| Recipient::includes(to, *agent));
                for agent in everyone {
                    let answer = agents[agent.0 as usize].receive(message.clone()).unwrap();
                    queue.extend(answer.map(|up| (agent, up)));
                }
            }
        }
        for agent in &agents {
            let BetweenRounds::Online(ons) = &agent.local else { panic!("it learns alone") };
            let estimate = agent.view.model().estimate();
            let off: Vec<f64> = estimate.iter().zip(&theta).map(|(a, b)| a - b).collect();
            let mut squared = agent.constants.ridge() * dot(&off, &off);
            for part in agent.view.parts() {
                squared += dot(&off, &multiply(part.gram(), 0.0, &off));
            }
            let width = ons.width(&agent.constants, &agent.view, agent.delta);
            choosing = choosing.max(squared.sqrt() / width);
        }
    }
    (choosing, minimised)
}

#[test]
fn o23_both_widths_of_fed_glb_ucb_cover() {
    for link in [LinkFunction::Logistic, LinkFunction::Probit] {
        let runs: Vec<(f64, f64)> = (0..RUNS).map(|seed| worst(seed, link)).collect();
        let share = |beyond: &dyn Fn(&(f64, f64)) -> bool| {
            runs.iter().filter(|run| beyond(run)).count() as f64 / RUNS as f64
        };
        let allowed = 0.1 + 3.0 * (0.09 / RUNS as f64).sqrt();
        let (choosing, minimised) = (share(&|run| run.0 > 1.0), share(&|run| run.1 > 1.0));
        assert!(choosing <= allowed, "{link:?}: {choosing} of the runs left the ellipsoid of an agent");
        assert!(minimised <= allowed, "{link:?}: {minimised} of the runs left that of a minimiser");
        // The ellipsoid of the minimiser is not idle; that of the agents is known to be very wide.
        let mean = runs.iter().map(|run| run.1).sum::<f64>() / RUNS as f64;
        assert!((0.25..1.0).contains(&mean), "{link:?}: errors reach {mean} of the width");
        let mean = runs.iter().map(|run| run.0).sum::<f64>() / RUNS as f64;
        assert!((0.10..0.20).contains(&mean), "{link:?}: errors reach {mean} of the agents' width");
    }
}
