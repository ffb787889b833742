//! Pooled training: one learner that sees the raw data of all agents, trains one network on it and takes gradients
//! there. No federation can do this; it is what federations are compared with.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use super::fn_ucb::FnUcb;
use super::learner::{Learner, check_example};
use super::network::{Network, Scratch};
use super::rows::Row;
use super::scoring::{GradientMemory, Scoring};
use super::sparse::Sparse;
use super::statistic::Statistic;
use super::widths::{is_worth_lowering, lowered, widths};
use crate::agent::{Agent, AgentView, Choice};
use crate::arms::Arms;
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::federation::Federation;
use crate::ids::UserId;
use crate::message::{Downlink, Uplink};
use crate::scoring::check_arms;
use crate::wire::{self, v1};
use crate::workers::ThisThread;

/// One learner for all agents. An iteration has as many observations as there are agents; what was observed
/// in it counts, and the network is trained, when it ends.
#[derive(Clone, Debug)]
pub(crate) struct PooledAgent {
    config: FnUcb,
    start: Network,
    agents: usize,
    network: Network,
    statistic: Statistic,
    widths: Vec<Arc<Vec<f64>>>,
    /// Whether that is the mean over exactly these users.
    averaged: bool,
    alpha: f64,
    users: BTreeMap<UserId, Pooled>,
    /// Observations of the current iteration, which are learned from when it ends.
    rows: Vec<(UserId, Row)>,
    made: u64,
    choices: u64,
}

/// What belongs to one agent of the federation that this stands for.
#[derive(Clone, Debug)]
struct Pooled {
    /// Its data; the network in it is the shared one.
    learner: Learner,
    own: Statistic,
    made: u64,
}

impl PooledAgent {
    pub(crate) fn new(config: &FnUcb, dimension: usize, federation: &Federation) -> Self {
        let start = config.neural.start(dimension, federation.seed);
        let statistic = config.neural.none(start.layout.parameters());
        Self {
            config: config.clone(),
            agents: usize::try_from(federation.agents.max(1)).unwrap_or(usize::MAX),
            network: start.clone(),
            start,
            widths: widths([&mut statistic.clone()].into_iter(), true),
            averaged: false,
            statistic,
            alpha: config.scheduled_alpha(0),
            users: BTreeMap::new(),
            rows: Vec::new(),
            made: 0,
            choices: 0,
        }
    }

    fn scoring(&self) -> Scoring<'_> {
        Scoring {
            config: &self.config,
            start: &self.start,
            predicts: &self.network,
            shared: &self.network,
            statistic: &self.statistic,
            widths: &self.widths,
            alpha: self.alpha,
        }
    }

    fn end_iteration(&mut self) {
        let mut news = Vec::new();
        let (users, rows): (Vec<UserId>, Vec<Row>) = std::mem::take(&mut self.rows).into_iter().unzip();
        self.statistic.learn_all(&rows, |_| (), &ThisThread);
        for (user, row) in users.iter().zip(rows) {
            if let Some(pooled) = self.users.get_mut(user) {
                pooled.own.learn_and_tell(&row.phi, row.reward, |column| news.push(column.clone()));
            }
        }
        // One after the other on the same network, as the published program does it.
        for pooled in self.users.values_mut() {
            pooled.learner.network = self.network.clone();
            pooled.learner.train(&self.start, self.config.neural.training_steps, pooled.made);
            self.network = pooled.learner.network.clone();
        }
        let (mean, agents) = (self.config.less_communication, self.users.len());
        self.widths = match self.widths.as_slice() {
            [before] if self.averaged && is_worth_lowering(news.len(), agents) => {
                vec![lowered(before, &news, agents, &ThisThread)]
            }
            _ => widths(self.users.values_mut().map(|pooled| &mut pooled.own), mean),
        };
        self.averaged = mean;
        let alphas = self.users.values().map(|pooled| self.config.scheduled_alpha(pooled.made));
        self.alpha = alphas.fold(1.0, f64::min);
    }
}

impl Agent for PooledAgent {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        check_arms(self.start.layout.dimension, arms)?;
        let choice = self.scoring().choose(arms, &mut GradientMemory::default())?;
        self.choices += 1;
        Ok(choice)
    }

    fn learn(&mut self, user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_example(self.start.layout.dimension, arm, reward)?;
        let mut phi = Sparse::default();
        self.scoring().gradient(arm, &mut Scratch::default(), &mut phi);
        if !phi.is_sound() {
            return Err(InputError::Overflow);
        }
        let (config, start) = (&self.config, &self.start);
        self.averaged &= self.users.contains_key(&user);
        let pooled = self.users.entry(user).or_insert_with(|| Pooled {
            learner: config.neural.learner(start),
            own: config.neural.none(start.layout.parameters()),
            made: 0,
        });
        pooled.made += 1;
        pooled.learner.observe(arm, reward, pooled.made);
        self.rows.push((user, Row { phi, reward }));
        self.made += 1;
        if self.rows.len() >= self.agents {
            self.end_iteration();
        }
        Ok(None)
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        Err(ProtocolError::Unexpected { algorithm: "fn-ucb", message: message.kind() })
    }

    fn inspect(&self) -> AgentView<'_> {
        // What was observed in this iteration counts when the iteration ends.
        let mut statistic = self.statistic.clone();
        for (_, row) in &self.rows {
            statistic.learn(&row.phi, row.reward);
        }
        AgentView::alone(self.made, statistic.information)
    }

    fn failed_trainings(&self) -> u64 {
        self.users.values().map(|pooled| pooled.learner.failures()).sum()
    }

    fn save(&self) -> Vec<u8> {
        let user = |(user, pooled): (&UserId, &Pooled)| v1::PooledUserState {
            user: user.0,
            made: pooled.made,
            learner: Some(pooled.learner.save()),
            statistic: Some(pooled.own.save()),
        };
        v1::NeuralAgentState {
            choices: self.choices,
            observations: self.made,
            weights: self.network.parameters(),
            statistic: Some(self.statistic.save()),
            widths: self.widths.iter().map(|width| v1::Diagonal { entries: width.to_vec() }).collect(),
            averaged: self.averaged,
            alpha: self.alpha,
            users: self.users.iter().map(user).collect(),
            rows: self.rows.iter().map(|(_, row)| row.save()).collect(),
            row_users: self.rows.iter().map(|(user, _)| user.0).collect(),
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::NeuralAgentState = wire::decode(state)?;
        let invalid = |reason| DecodeError::invalid("network", reason);
        let (layout, parameters) = (self.start.layout, self.start.layout.parameters());
        let network =
            Network::from_parameters(layout, &state.weights).ok_or(invalid("its parameters do not fit"))?;
        let none = self.config.neural.none(parameters);
        let statistic = none.restored(state.statistic.unwrap_or_default())?;
        let widths: Vec<_> = state.widths.into_iter().map(|width| Arc::new(width.entries)).collect();
        let scalars = Statistic::scalars(statistic.kind(), parameters);
        let fits = |width: &Arc<Vec<f64>>| width.len() == scalars && width.iter().all(|v| v.is_finite());
        if !widths.iter().all(fits) || state.rows.len() != state.row_users.len() {
            return Err(invalid("its numbers do not fit together"));
        }
        let mut users = BTreeMap::new();
        for user in state.users {
            let learner =
                self.config.neural.learner(&self.start).restored(&user.learner.unwrap_or_default())?;
            let own = none.restored(user.statistic.unwrap_or_default())?;
            users.insert(UserId(user.user), Pooled { learner, own, made: user.made });
        }
        let rows = state.rows.into_iter().zip(state.row_users);
        let rows = rows.map(|(row, user)| Ok((UserId(user), Row::restored(row, parameters)?)));
        self.rows = rows.collect::<Result<_, DecodeError>>()?;
        (self.network, self.statistic, self.widths, self.users) = (network, statistic, widths, users);
        self.averaged = state.averaged;
        (self.alpha, self.made, self.choices) = (state.alpha, state.observations, state.choices);
        Ok(())
    }
}
