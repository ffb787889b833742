//! When the coordinator of an exchange that forgets tells all agents, unasked, that the world has changed abruptly.
//!
//! Without a warning every agent that kept long evidence finds out by a bad choice of its own: a cost that grows with the
//! number of agents. A warning costs a message for each of them. Where agents ask before most of their choices they hear
//! in time, and a warning would be wasted.

/// Observations over which questions are counted.
const ASKED_OVER: f64 = 100.0;

/// Questions for each observation below which agents make most of their choices without asking.
const RARELY: f64 = 0.5;

/// Observations between two warnings, for each agent. Warnings then cost at most half a message for each observation, and
/// most agents have acted on one before the next comes.
const APART: u64 = 2;

/// What the coordinator remembers about warnings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Warnings {
    /// Observations that the coordinator had taken in when it last warned all agents.
    last: u64,
    /// How many questions agents asked for each observation of late.
    asking: f64,
}

impl Warnings {
    /// Takes note of a message with so many observations, and whether it was a question.
    pub(super) fn hear(&mut self, observations: u64, is_question: bool) {
        let asked = if is_question { 1.0 / ASKED_OVER } else { 0.0 };
        self.asking = self.asking * libm::exp(-(observations as f64) / ASKED_OVER) + asked;
    }

    /// Whether a warning would be worth its messages, if the world has changed.
    pub(super) fn are_worth_it(&self, total: u64, agents: usize) -> bool {
        total - self.last >= APART * agents as u64 && self.asking < RARELY
    }

    /// Takes note that all agents are warned now.
    pub(super) const fn give(&mut self, total: u64) {
        self.last = total;
    }

    /// The last warning and the rate of questions, for the saved state.
    pub(super) const fn save(&self) -> (u64, f64) {
        (self.last, self.asking)
    }

    /// What was saved when so many observations had been taken in, or `None` if it cannot have been.
    pub(super) fn restored(last: u64, asking: f64, total: u64) -> Option<Self> {
        (last <= total && asking.is_finite() && asking >= 0.0).then_some(Self { last, asking })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_for_agents_that_rarely_ask() {
        let after = |questions: u32| {
            let mut warnings = Warnings::default();
            for observation in 0..1000 {
                (0..questions).filter(|n| observation % 4 >= *n).for_each(|_| warnings.hear(0, true));
                warnings.hear(1, false);
            }
            warnings
        };
        // Questions before none, one, and nearly two of an observation.
        assert!(after(0).are_worth_it(1000, 10));
        assert!(!after(1).are_worth_it(1000, 10));
        assert!(!after(2).are_worth_it(1000, 10));
    }

    #[test]
    fn questions_of_long_ago_do_not_count() {
        let mut warnings = Warnings::default();
        (0..1000).for_each(|_| warnings.hear(1, true));
        assert!(!warnings.are_worth_it(1000, 10));
        warnings.hear(100, false);
        assert!(warnings.are_worth_it(1100, 10));
    }

    #[test]
    fn two_warnings_are_two_observations_of_every_agent_apart() {
        let mut warnings = Warnings::default();
        warnings.give(500);
        assert!(!warnings.are_worth_it(699, 100));
        assert!(warnings.are_worth_it(700, 100));
    }

    #[test]
    fn what_cannot_have_been_saved_is_refused() {
        assert_eq!(Warnings::restored(3, 0.25, 3), Some(Warnings { last: 3, asking: 0.25 }));
        for (last, asking) in [(4, 0.25), (3, f64::NAN), (3, -1.0)] {
            assert_eq!(Warnings::restored(last, asking, 3), None);
        }
    }
}
