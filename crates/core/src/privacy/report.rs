//! What a private run may claim, in numbers and in words.

use serde::{Deserialize, Serialize};

use crate::privacy::budget::Calibration;
use crate::privacy::config::Unit;
use crate::privacy::factorisation::Mechanism;
use crate::privacy::masking::SecureAggregation;

/// What a private run may claim: the accountant's statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrivacyReport {
    /// The largest ε that the federation promised.
    pub epsilon_budget: f64,
    /// The δ that every ε in this report holds with.
    pub delta: f64,
    /// The unit that ε and μ protect.
    pub unit: Unit,
    /// μ that the unit that was released most has lost, in Gaussian differential privacy.
    pub mu: f64,
    /// ε at `delta` that follows from `mu`: what was spent so far.
    pub epsilon: f64,
    /// Interactions of the user who had most.
    pub most_of_a_user: u64,
    /// ε for all interactions of that user at once: μ times their number, unless the unit is the user anyway.
    pub user_epsilon: f64,
    /// How the noise of successive releases is correlated.
    pub mechanism: Mechanism,
    /// The noise: the same numbers that `posse privacy plan` prints.
    pub calibration: Calibration,
    /// Who adds the noise: every agent alone, or under secure aggregation all agents in a sum together.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub secure_aggregation: Option<SecureAggregation>,
    /// How many streams were opened, over all agents.
    pub streams: u64,
    /// How many releases were made, over all agents.
    pub releases: u64,
    /// Clusters that are silent because their releases are spent.
    pub silent: u64,
    /// Observations that were scaled or cut to their bounds. It counts raw observations, so it is left out of what others may see.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clipped: Option<u64>,
    /// Interactions that were not learned from because their user had reached the cap.
    pub beyond_cap: u64,
    /// Choices and triggers look at released sums and public counts only, so the promise also holds where
    /// later interactions depend on earlier ones. Otherwise it holds for fixed sequences.
    pub interactive: bool,
    /// Clusters may split, by sums of users with noise, which are part of ε. Otherwise they never do.
    pub private_partition: bool,
    /// Noise follows from a seed, as in simulations.
    pub seeded: bool,
    /// Choices whose reward never comes are not counted, because the agent waits for ever.
    #[serde(default)]
    pub uncounted: bool,
    /// Why nothing at all is promised, if that is so.
    #[serde(default)]
    pub void: Option<String>,
    /// Sums that had to be made positive definite after noise.
    pub repairs: u64,
    /// The smallest eigenvalue of a released sum over the bound on its noise: of every agent's last upload, the
    /// smallest. It is computed from what was released.
    pub signal_to_noise: Option<f64>,
    /// The life of the agent, or of the one that has had most: above 1, an agent lost its state and opened new
    /// streams over new interactions.
    #[serde(default)]
    pub life: u64,
}

/// A report with what it means in words, as one document.
#[derive(Clone, Debug, Serialize)]
pub struct Statement {
    #[serde(flatten)]
    report: PrivacyReport,
    guarantee: String,
    uncovered: Vec<&'static str>,
}

impl PrivacyReport {
    /// Returns the report together with what it means in words.
    #[must_use]
    pub fn statement(&self) -> Statement {
        Statement { report: self.clone(), guarantee: self.guarantee(), uncovered: self.uncovered() }
    }

    /// Without what was computed from raw observations: what may be published.
    #[must_use]
    pub fn public(&self) -> Self {
        Self { clipped: None, ..self.clone() }
    }

    /// The same noise without any promise, for this reason.
    #[must_use]
    pub fn void(self, reason: &str) -> Self {
        let none = f64::INFINITY;
        Self { void: Some(reason.to_owned()), epsilon: none, user_epsilon: none, mu: none, ..self }
    }

    /// Of two agents, or two runs: the larger loss, and everything that adds.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.mu = self.mu.max(other.mu);
        self.epsilon = self.epsilon.max(other.epsilon);
        self.user_epsilon = self.user_epsilon.max(other.user_epsilon);
        self.most_of_a_user = self.most_of_a_user.max(other.most_of_a_user);
        self.streams += other.streams;
        self.releases += other.releases;
        self.silent += other.silent;
        self.clipped = self.clipped.zip(other.clipped).map(|(a, b)| a + b);
        self.beyond_cap += other.beyond_cap;
        self.interactive &= other.interactive;
        self.private_partition |= other.private_partition;
        self.seeded |= other.seeded;
        self.uncounted |= other.uncounted;
        self.void = self.void.or_else(|| other.void.clone());
        self.repairs += other.repairs;
        self.life = self.life.max(other.life);
        self.signal_to_noise = match (self.signal_to_noise, other.signal_to_noise) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self
    }

    /// Returns what the promise does not cover, in words.
    #[must_use]
    pub fn uncovered(&self) -> Vec<&'static str> {
        let mut list = vec![
            "when an interaction happened, with which agent, for which user, and how many there were",
            "what an agent's own users see of each other through its choices",
        ];
        if self.unit == Unit::User {
            list.push("a user who comes to several agents: each of them protects what it saw");
        }
        if !self.interactive {
            list.push("how later interactions depend on earlier raw ones: choices use the raw buffer");
        }
        if self.seeded {
            list.push(
                "anything, from a reader who knows the seed: noise follows from it, as in every simulation",
            );
        }
        if self.uncounted {
            list.push("whether a choice got a reward at all: without a time to expire it is never counted");
        }
        if self.secure_aggregation.is_some() {
            list.push(
                "anything beyond an agent's own part of the noise, from a coordinator that invents agents or exchanges their \
                 keys, or that has more than the stated number of agents on its side",
            );
        }
        if self.life > 1 {
            list.push(
                "what earlier lives of an agent released: their streams closed with them, and what they told of \
                 a user is not in that user's ε",
            );
        }
        list
    }

    /// Returns the kind of guarantee, in words.
    #[must_use]
    pub fn guarantee(&self) -> String {
        if let Some(reason) = &self.void {
            return format!("none: {reason}");
        }
        if self.unit == Unit::Agent {
            return "everything that an agent saw and did, in whatever order; statistics stay with agents; every agent cuts its \
                    updates to their bound and adds all its noise before anything leaves it"
                .to_owned();
        }
        let order = if self.interactive {
            "later interactions may depend on earlier ones"
        } else {
            "for fixed sequences of interactions"
        };
        let partition = if self.private_partition {
            "clusters split by sums with noise, which are part of ε"
        } else {
            "clusters never split"
        };
        let noise = match self.secure_aggregation {
            None => "every agent adds all its noise before anything leaves it".to_owned(),
            Some(secure) => format!(
                "the coordinator sees only sums of {} agents or more, which add the noise together: it holds against a coordinator \
                 that follows the protocol and {} of the agents",
                secure.survivors, secure.colluders
            ),
        };
        format!("{order}; {partition}; {noise}")
    }
}
