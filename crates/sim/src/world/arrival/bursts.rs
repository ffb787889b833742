//! Agents that stay for a while.

use posse_core::{AgentId, ConfigError, Domain};

use super::Arrivals;

/// At every step a new burst begins with a fixed probability, whatever came before: that makes lengths
/// geometric and leaves the whole process a function of the step.
pub(super) struct Bursts {
    begin: f64,
    agents: u64,
    draws: Domain,
    /// The step that was asked for last and the agent that acts in it.
    known: Option<(u64, AgentId)>,
}

impl Bursts {
    pub(super) fn new(mean_length: f64, agents: u64, draws: Domain) -> Result<Self, ConfigError> {
        let proper = mean_length.is_finite() && mean_length >= 1.0;
        ConfigError::require(proper, "mean_length", mean_length, "finite and at least 1")?;
        Ok(Self { begin: 1.0 / mean_length, agents, draws, known: None })
    }

    /// The agent whose burst begins at `step`, if one does.
    fn newcomer(&self, step: u64) -> Option<AgentId> {
        let mut stream = self.draws.stream(0, step);
        let begins = stream.uniform() < self.begin || step == 0;
        begins.then(|| AgentId(stream.below(self.agents)))
    }

    /// The agent of the burst that `step` is part of: looks back to where it began or was seen last.
    fn current(&self, step: u64) -> AgentId {
        let seen = |step| self.known.filter(|&(known, _)| known == step).map(|(_, agent)| agent);
        (0..=step)
            .rev()
            .find_map(|step| seen(step).or_else(|| self.newcomer(step)))
            .expect("a burst begins at step 0")
    }
}

impl Arrivals for Bursts {
    fn agent(&mut self, step: u64) -> AgentId {
        let agent = self.current(step);
        self.known = Some((step, agent));
        agent
    }
}

#[cfg(test)]
mod tests {
    use posse_core::Seed;

    use super::*;

    #[test]
    fn bursts_have_the_promised_mean_length_and_agents() {
        let mut bursts = Bursts::new(20.0, 1_000, Seed(1).domain("arrival")).unwrap();
        let turns: Vec<u64> = (0..100_000).map(|step| bursts.agent(step).0).collect();
        // With 1 000 agents hardly any burst is followed by one of the same agent.
        let lengths: Vec<usize> = turns.chunk_by(|a, b| a == b).map(<[u64]>::len).collect();
        // 5 000 bursts with standard deviation 69.
        assert!(lengths.len().abs_diff(5_000) < 350, "{}", lengths.len());
        // A twentieth of them lasts one step; 250 with standard deviation 15.
        let short = lengths.iter().filter(|&&length| length == 1).count();
        assert!(short.abs_diff(250) < 80, "{short}");
        let low = turns.iter().filter(|&&agent| agent < 500).count();
        assert!(low.abs_diff(50_000) < 5_000, "{low}");
    }
}
