//! What a private run may claim, in numbers and in words.

use serde::{Deserialize, Serialize};

/// What a private run may claim: the accountant's statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrivacyReport {
    /// ε that was promised at most.
    pub epsilon_budget: f64,
    /// δ of every ε here.
    pub delta: f64,
    /// ρ that was spent on the interaction that was released most, in zCDP.
    pub rho: f64,
    /// The same as ε.
    pub epsilon: f64,
    /// Interactions of the user who had most.
    pub most_of_a_user: u64,
    /// ε for all interactions of that user at once: ρ times their number squared.
    pub user_epsilon: f64,
    /// Trees opened, over all agents.
    pub trees: u64,
    /// Trees that one interaction is in, at most.
    pub trees_of_one: u32,
    /// Releases, over all agents.
    pub releases: u64,
    /// Streams that are silent because their releases are spent.
    pub exhausted: u64,
    /// σ of a node.
    pub sigma: f64,
    /// What every release carries on its diagonal.
    pub shift: f64,
    /// Observations that were scaled or cut to their bounds.
    pub clipped: u64,
    /// Choices and triggers look at released sums and public counts only, so the promise also holds where
    /// later interactions depend on earlier ones. Otherwise it holds for fixed sequences.
    pub interactive: bool,
    /// Clusters may split, by tests on raw sums of users.
    pub splits: bool,
    /// Sums that had to be made positive definite after noise.
    pub repairs: u64,
    /// The smallest eigenvalue of a true sum over the shift in its release: of every agent's last release, the
    /// smallest. It is computed from raw sums, for whoever runs the agents.
    pub signal_to_shift: Option<f64>,
    /// The life of the agent, or of the one that has had most: above 1, an agent lost its state and opened new
    /// trees over new interactions.
    #[serde(default)]
    pub life: u64,
}

/// A report with what it means in words, as one document.
#[derive(Clone, Debug, Serialize)]
pub struct Statement<'r> {
    #[serde(flatten)]
    report: &'r PrivacyReport,
    guarantee: &'static str,
    uncovered: Vec<&'static str>,
}

impl PrivacyReport {
    /// With what it means in words.
    #[must_use]
    pub fn statement(&self) -> Statement<'_> {
        Statement { report: self, guarantee: self.guarantee(), uncovered: self.uncovered() }
    }

    /// Of two agents, or two runs: the larger loss, and everything that adds.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        if other.rho > self.rho {
            (self.rho, self.epsilon) = (other.rho, other.epsilon);
        }
        self.user_epsilon = self.user_epsilon.max(other.user_epsilon);
        self.most_of_a_user = self.most_of_a_user.max(other.most_of_a_user);
        self.trees += other.trees;
        self.trees_of_one = self.trees_of_one.max(other.trees_of_one);
        self.releases += other.releases;
        self.exhausted += other.exhausted;
        self.clipped += other.clipped;
        self.interactive &= other.interactive;
        self.splits |= other.splits;
        self.repairs += other.repairs;
        self.life = self.life.max(other.life);
        self.signal_to_shift = match (self.signal_to_shift, other.signal_to_shift) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self
    }

    /// What is not protected, in words.
    #[must_use]
    pub fn uncovered(&self) -> Vec<&'static str> {
        let mut list = vec![
            "when an interaction happened, with which agent, and how many there were",
            "what an agent's own users see of each other through its choices",
        ];
        if self.splits {
            list.push("which users are in a cluster together, and when one splits: decided by raw sums");
        }
        if !self.interactive {
            list.push("how later interactions depend on earlier raw ones: choices use the raw buffer");
        }
        if self.life > 1 {
            list.push(
                "what earlier lives of an agent released: their trees closed with them, and what they told of \
                 a user is not in that user's ε",
            );
        }
        list
    }

    /// The kind of guarantee, in words.
    #[must_use]
    pub const fn guarantee(&self) -> &'static str {
        match (self.interactive, self.splits) {
            (true, false) => "interactive",
            (true, true) => "interactive, except for what splits of clusters reveal",
            (false, _) => "for fixed sequences of interactions",
        }
    }
}
