//! The contract of an agent.

use crate::arms::Arms;
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::evidence::Evidence;
use crate::ids::{ClusterId, Incarnation, Tick, UserId, Version};
use crate::message::{Downlink, Uplink};
use crate::privacy::{NoiseSource, PrivacyReport};
use crate::ridge::Ridge;

/// A learner that chooses among arms for its own users.
///
/// # How to drive it
/// Call [`prepare`](Self::prepare) with an offer, and wait for the answer to what it returns as long as the
/// caller can wait, or not at all. Call [`choose`](Self::choose) with the offer, play the arm, and call [`learn`](Self::learn) with that
/// arm's features and its reward, at once or days later, in any order and with anything in between. Bring
/// every [`Uplink`] that a method returns to the coordinator and every [`Downlink`] for this agent to
/// [`receive`](Self::receive), once each and in order; [`session`](crate::session) does that over links
/// that do not.
///
/// An `Err` means that nothing has changed. No method waits, reads a clock or uses randomness it was not
/// given, and nothing is queued inside.
pub trait Agent: Send {
    /// Looks at an offer before the choice: perhaps there is something to ask the coordinator first. The host
    /// delivers the question, waits for the answer up to a limit of its own or not at all, and then calls
    /// [`choose`](Self::choose). `now` never goes back. Most algorithms have nothing to ask.
    fn prepare(&mut self, _now: Tick, _user: UserId, _arms: &Arms) -> Result<Option<Uplink>, InputError> {
        Ok(None)
    }

    /// Goes through the effects of a [`prepare`](Self::prepare) that returned `said`, without deciding anew
    /// whether to ask. Hosts that replay a journal call it, because a journal does not hold whole offers.
    fn prepare_again(&mut self, _said: &Uplink) {}

    /// Whether what [`prepare`](Self::prepare) asked has no answer yet.
    fn is_asking(&self) -> bool {
        false
    }

    /// Chooses one of `arms` for `user`.
    fn choose(&mut self, user: UserId, arms: &Arms) -> Result<Choice, InputError>;

    /// The arm that [`choose`](Self::choose) would choose now, if the agent can tell without changing and asks nothing in
    /// [`prepare`](Self::prepare). A host with several processors asks ahead of the agent's turn. `None` is always right.
    fn foresee(&self, _user: UserId, _arms: &Arms) -> Option<usize> {
        None
    }

    /// Takes in that the agent chooses what it [foresaw](Self::foresee), having heard and learned nothing since: all that
    /// [`choose`](Self::choose) does but looking for the arm.
    fn choose_foreseen(&mut self) {}

    /// Learns that the arm with features `arm` gave `reward`; perhaps there is something to say about it.
    fn learn(&mut self, user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError>;

    /// Is told that the reward of a choice for `user` will never come. Private agents count the interaction
    /// without learning from it: otherwise the counts they send would tell who gave no reward. Others do nothing.
    fn give_up(&mut self, _user: UserId) -> Option<Uplink> {
        None
    }

    /// Takes in a message from the coordinator; perhaps there is an answer.
    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError>;

    /// Shows what the agent holds, for invariants, reports and people who look. It may cost as much as an update.
    fn inspect(&self) -> AgentView<'_>;

    /// The clusters that the agent has sorted its users into. Empty for agents that do not sort users.
    fn clusters(&self) -> Vec<LocalCluster> {
        Vec::new()
    }

    /// What may be claimed about the agent's privacy, or `None` if nothing was promised.
    fn privacy(&self) -> Option<PrivacyReport> {
        None
    }

    /// How often training a network failed, so that the network stayed as it was. Zero for agents without one.
    fn failed_trainings(&self) -> u64 {
        0
    }

    /// Makes the agent draw its privacy noise from `noise` from now on. By default noise comes from the seed, which the
    /// coordinator knows: that protects no user and is for simulations only.
    fn use_noise(&mut self, _noise: Box<dyn NoiseSource>) {}

    /// Tells the agent that a new life of it begins. [`Endpoint`](crate::session::Endpoint) calls this; a host without
    /// sessions has only one life and need not.
    fn begin_life(&mut self, _life: Incarnation) {}

    /// Lets go of memory whose contents the agent can derive again, because it will not be asked for a while. A host of very
    /// many agents calls this for those that have not acted lately. It changes no bit of what the agent does later; the
    /// next call of the agent may take longer.
    fn rest(&mut self) {}

    /// Whether taking in `message`, or with `None` an interaction, will take so long that a host with several processors
    /// should leave it to another thread: a tenth of a millisecond or more. A hint, which changes no bit.
    fn is_laborious(&self, _message: Option<&Downlink>) -> bool {
        false
    }

    /// Encodes everything that a restored agent needs to go on with the same bits.
    ///
    /// The caller of a private agent keeps this state before it sends what the agent returned: an agent that restarts
    /// from an older state would draw noise again that was already released.
    fn save(&self) -> Vec<u8>;

    /// Goes on from a state that an agent of the same settings saved. On an error nothing has changed.
    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError>;
}

/// A cluster of users as its agent sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalCluster {
    /// The number that the agent gave the cluster; it changes whenever the users do.
    pub cluster: ClusterId,
    /// The users that the agent sorted into this cluster.
    pub users: Vec<UserId>,
    /// How many observations those users have made.
    pub count: u64,
    /// How many of these observations the agent has never sent.
    pub unsent: u64,
    /// How many were sent in an upload that the coordinator has not confirmed.
    pub in_flight: u64,
    /// The number of the cluster's last upload, or 0 before the first.
    pub uploads: u64,
}

/// How the features of an agent's arms divide: first those that mean the same to all agents, then its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Features whose parameters all agents share (d_g).
    pub shared: usize,
    /// Features whose parameters are this agent's own (d_i).
    pub local: usize,
}

impl Shape {
    /// A shape in which all features are shared and none is the agent's own.
    #[must_use]
    pub const fn shared(dimension: usize) -> Self {
        Self { shared: dimension, local: 0 }
    }

    /// Returns how many features an arm has, shared and own together.
    #[must_use]
    pub const fn dimension(self) -> usize {
        self.shared + self.local
    }
}

/// The arm that an agent chose from an offer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The index of the arm in the offer.
    pub arm: usize,
    /// The probability with which the algorithm would choose this arm here, where it is known: 1 for
    /// deterministic rules.
    pub propensity: Option<f64>,
}

/// What an agent holds: how many observations are where, and for linear models the sums themselves.
///
/// Every family fills in the counts truthfully. What is special to a family is optional, so that a reader knows
/// whether it is there.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AgentView<'a> {
    /// The newest state of the coordinator that the agent has taken over.
    pub version: Version,
    /// Observations, of all agents, in that state.
    pub shared: u64,
    /// What was sent and is not known to have arrived: the number of the upload or round, and how many
    /// observations it holds.
    pub in_flight: Option<(u64, u64)>,
    /// Observations that were learned and not sent.
    pub unsent: u64,
    /// Observations that the agent keeps apart for now, for example while its model starts cold. They are not
    /// among the others.
    pub withheld: u64,
    /// By how much the observations that are unsent raised the information of the agent's model: zero without
    /// any, and more with every observation that says something new.
    pub fresh_information: f64,
    /// The sums and the model over the shared features, of agents that have a linear one.
    pub linear: Option<LinearView<'a>>,
}

/// The sums of an agent with a linear model. They add up to what the model is made of.
#[derive(Clone, Copy, Debug)]
pub struct LinearView<'a> {
    /// What the agent and the coordinator agree on.
    pub base: &'a Evidence,
    /// What was sent and is not known to have arrived.
    pub in_flight: Option<&'a Evidence>,
    /// Observations that the agent has learned and not sent yet.
    pub buffer: &'a Evidence,
    /// The model over the shared features that the agent chooses with.
    pub model: &'a Ridge,
}

impl<'a> AgentView<'a> {
    /// The view of an agent that learns alone: `unsent` observations, nothing shared.
    #[must_use]
    pub const fn alone(unsent: u64, fresh_information: f64) -> Self {
        Self {
            version: Version(0),
            shared: 0,
            in_flight: None,
            unsent,
            withheld: 0,
            fresh_information,
            linear: None,
        }
    }

    /// The same view with the sums and the model of a linear agent.
    #[must_use]
    pub const fn with_linear(self, linear: LinearView<'a>) -> Self {
        Self { linear: Some(linear), ..self }
    }

    /// Observations that the agent has and the coordinator may not have.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.unsent + self.withheld + self.in_flight.map_or(0, |(_, count)| count)
    }
}
