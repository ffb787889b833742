//! Agents that come and go.

use posse_core::{AgentId, ConfigError, Domain, Seed};

use super::Arrivals;

/// Agent i of N joins at step i·horizon/N and leaves forever at a drawn step after the next one has joined,
/// so that at least one agent is always there.
pub(super) struct Churn {
    /// When each agent joins, in order of agents and of time.
    joins: Vec<u64>,
    /// When each agent but the last leaves, soonest first.
    leaves: Vec<(u64, usize)>,
    draws: Domain,
    present: Present,
}

/// Who is there, brought forward from event to event.
#[derive(Default)]
struct Present {
    /// All events up to this step have happened.
    step: u64,
    /// How many have joined, and how many of them have left.
    joined: usize,
    left: usize,
    agents: Vec<usize>,
    /// Where in `agents` each agent that has joined stands, or stood last.
    places: Vec<usize>,
}

impl Churn {
    pub(super) fn new(
        lifetime: f64,
        agents: u64,
        horizon: u64,
        draws: Domain,
        seed: Seed,
    ) -> Result<Self, ConfigError> {
        let proper = lifetime.is_finite() && lifetime > 0.0;
        ConfigError::require(proper, "lifetime", lifetime, "finite and above 0")?;
        let join = |agent| (u128::from(agent) * u128::from(horizon) / u128::from(agents)) as u64;
        let joins: Vec<u64> = (0..agents).map(join).collect();
        let domain = seed.domain("arrival-lifetime");
        let leave = |(agent, join): (usize, &[u64])| {
            let exponential = -libm::log(1.0 - domain.stream(agent as u64, 0).uniform());
            let steps = (exponential * lifetime * horizon as f64) as u64;
            // At least one step, and not before the next agent has come.
            (join[0].saturating_add(steps.max(1)).max(join[1]), agent)
        };
        let mut leaves: Vec<_> = joins.windows(2).enumerate().map(leave).collect();
        leaves.sort_unstable();
        Ok(Self { joins, leaves, draws, present: Present::default() })
    }
}

impl Present {
    /// Lets everything happen up to `step`, in order of time and joining before leaving, so that the order
    /// of agents does not depend on which steps were asked for.
    fn advance(&mut self, step: u64, joins: &[u64], leaves: &[(u64, usize)]) {
        if step < self.step {
            *self = Self::default();
        }
        self.step = step;
        loop {
            let join = joins.get(self.joined).filter(|&&join| join <= step);
            let leave = leaves.get(self.left).filter(|&&(leave, _)| leave <= step);
            match (join, leave) {
                (None, None) => return,
                (Some(join), Some((leave, _))) if join > leave => self.remove(leaves[self.left].1),
                (Some(_), _) => self.add(),
                (None, Some(&(_, agent))) => self.remove(agent),
            }
        }
    }

    fn add(&mut self) {
        self.places.push(self.agents.len());
        self.agents.push(self.joined);
        self.joined += 1;
    }

    fn remove(&mut self, agent: usize) {
        let place = self.places[agent];
        self.agents.swap_remove(place);
        if let Some(&moved) = self.agents.get(place) {
            self.places[moved] = place;
        }
        self.left += 1;
    }
}

impl Arrivals for Churn {
    fn agent(&mut self, step: u64) -> AgentId {
        self.present.advance(step, &self.joins, &self.leaves);
        let agents = &self.present.agents;
        AgentId(agents[self.draws.stream(0, step).below(agents.len() as u64) as usize] as u64)
    }

    fn departures(&mut self, step: u64) -> Vec<AgentId> {
        let first = self.leaves.partition_point(|&(leave, _)| leave < step);
        let now = self.leaves[first..].iter().take_while(|&&(leave, _)| leave == step);
        now.map(|&(_, agent)| AgentId(agent as u64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn churn(lifetime: f64, agents: u64, horizon: u64) -> Churn {
        Churn::new(lifetime, agents, horizon, Seed(1).domain("arrival"), Seed(1)).unwrap()
    }

    #[test]
    fn agents_play_only_between_joining_and_leaving() {
        for lifetime in [1e-9, 0.1, 0.5, 100.0] {
            for (agents, horizon) in [(50, 5_000), (50, 20), (3, 1_000), (2, 0)] {
                let mut churn = churn(lifetime, agents, horizon);
                let mut gone = vec![false; agents as usize];
                for step in 0..horizon + 100 {
                    for agent in churn.departures(step) {
                        assert!(!gone[agent.0 as usize], "{agent} leaves once");
                        gone[agent.0 as usize] = true;
                    }
                    let agent = churn.agent(step);
                    assert!(!gone[agent.0 as usize], "{agent} has left before step {step}");
                    assert!(churn.joins[agent.0 as usize] <= step);
                }
                assert!(!gone[agents as usize - 1]);
            }
        }
    }

    #[test]
    fn agents_join_over_time_and_most_have_left_in_the_end() {
        let mut churn = churn(0.1, 100, 10_000);
        let early: Vec<u64> = (0..500).map(|step| churn.agent(step).0).collect();
        assert!(early.iter().all(|&agent| agent < 5));
        churn.agent(9_999);
        // A hundred arrivals, each staying for a tenth of the horizon: ten are there, give or take three.
        let present = churn.present.agents.len();
        assert!((2..=24).contains(&present), "{present}");
        assert_eq!(churn.present.joined, 100);
    }

    #[test]
    fn everybody_present_is_equally_likely() {
        // With endless lives all four are there in the last quarter.
        let mut churn = churn(1e6, 4, 40_000);
        let mut turns = [0u32; 4];
        for step in 30_000..40_000 {
            turns[churn.agent(step).0 as usize] += 1;
        }
        // 2 500 with standard deviation 43.
        assert!(turns.iter().all(|count| count.abs_diff(2_500) < 250), "{turns:?}");
    }
}
