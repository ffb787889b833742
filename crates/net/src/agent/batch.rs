//! Many choices and rewards that are written to the disk at once.

use posse_core::{Arms, UserId};

use super::{Agent, ChoiceId, ChooseError, Chosen, RewardError};

/// Choices and rewards of one caller that are kept together, which [`Agent::batch`] begins.
///
/// An agent with a state writes every choice and every reward to its journal before the call returns, which takes longer than
/// the choice itself. Those of a batch are written when it ends, in one go. A crash of the process before that
/// may lose them: use the names of choices, and tell others that rewards were taken, after the batch has ended.
/// Everything else is as outside of a batch; whatever an agent tells its coordinator is on the disk before, also what belongs to a
/// batch that has not ended. Other threads may use the agent meanwhile.
#[must_use = "a batch ends when it is dropped"]
#[derive(Debug)]
pub struct Batch<'a> {
    agent: &'a Agent,
}

impl Agent {
    /// Begins a batch of choices and rewards. Makes a difference only to an agent with a state.
    pub const fn batch(&self) -> Batch<'_> {
        Batch { agent: self }
    }
}

impl Batch<'_> {
    /// Like [`Agent::choose`].
    pub fn choose(&self, user: UserId, arms: &Arms) -> Result<Chosen, ChooseError> {
        self.agent.choose_in(true, user, arms)
    }

    /// Like [`Agent::reward`].
    pub fn reward(&self, id: ChoiceId, reward: f64) -> Result<(), RewardError> {
        self.agent.reward_in(true, id, reward)
    }

    /// Writes what the batch holds. From here on it outlives a crash of the process.
    pub fn end(self) {}
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.agent.life().commit();
    }
}
