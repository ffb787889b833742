//! Federated policies over a log that is divided over agents.

use posse_core::{AgentId, Algorithm, Arms, Cost, Seed, UserId};
use serde::Serialize;

use super::estimate::{Estimate, Estimator, Interval, JudgedRow, estimate, warning};
use super::federation::{Cooperation, Trouble};
use super::judge::{Findings, Judging, about_propensities, findings, is_uniform};
use super::reward_model::fit_reward_model;
use crate::decision_log::DecisionLog;

/// Which agent has which rows of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Assignment {
    /// By user: a hash of the user's number, so that the rows of a user stay together.
    User,
    /// By the log's own column of agents, such as regions: the k-th different value is agent k, and agents that
    /// are too few take turns.
    Agent,
    /// By a hash of the row: any agent, any row.
    Row,
}

impl Assignment {
    fn agent(self, log: &DecisionLog, row: usize, agents: u64) -> AgentId {
        let key = match self {
            Self::Agent => return AgentId(u64::from(log.agent(row)) % agents),
            Self::User => u64::from(log.user(row)),
            Self::Row => row as u64,
        };
        AgentId(Seed(0).stream("assignment", key, 0).below(agents))
    }
}

/// How a policy is evaluated.
#[derive(Clone, Debug)]
pub struct EvaluationSettings {
    /// The algorithm that agents and coordinator run.
    pub algorithm: Algorithm,
    /// How many agents there are.
    pub agents: u64,
    /// Which agent has which rows.
    pub assignment: Assignment,
    /// The share of rows, the first ones, that agents learn from before they are judged on the others.
    pub learn_share: f64,
    /// The share of decisions the policy would take at random (ε). More of it makes logs say more about it.
    pub explore: f64,
    /// The seed of the agents.
    pub seed: Seed,
    /// Settings of the estimators.
    pub judging: Judging,
}

/// What a policy that learned from a log would earn.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// How many rows agents learned from.
    pub learned: usize,
    /// How many messages with statistics agents and coordinator sent while learning.
    pub messages: u64,
    /// How many bytes those messages have.
    pub bytes: u64,
    /// The estimates, and how far to trust them.
    #[serde(flatten)]
    pub findings: Findings,
}

/// A federated policy that learned while a log passed by.
#[derive(Clone, Debug, Serialize)]
pub struct Replay {
    /// How many rows the log has.
    pub rows: usize,
    /// How many rows the policy learned from: those in which it chose the logged action.
    pub matched: usize,
    /// Reasons to distrust the numbers, one sentence each.
    pub warnings: Vec<String>,
    /// The mean reward in the matched rows, with its interval; `None` if no row matched.
    pub estimate: Option<Estimate>,
    /// The mean reward of the logging policy over all rows.
    pub logged: f64,
    /// How many messages with statistics agents and coordinator sent while learning.
    pub messages: u64,
    /// How many bytes those messages have.
    pub bytes: u64,
}

/// Lets agents learn from the first rows of a log, all of whose rewards they see, then asks what they would choose
/// in the others and estimates what that would have earned.
pub fn evaluate(log: &DecisionLog, settings: &EvaluationSettings) -> Result<Evaluation, String> {
    let EvaluationSettings { algorithm, agents, assignment, seed, explore, judging, .. } = settings;
    if !(0.0..1.0).contains(&settings.learn_share) || !(0.0..=1.0).contains(explore) {
        return Err("the share to learn from must be from 0 to below 1, exploration from 0 to 1".into());
    }
    let learned = (log.rows() as f64 * settings.learn_share) as usize;
    let mut cooperation = begin(log, algorithm, *agents, *seed)?;
    let mut arms = Arms::new(log.dimension());
    for row in 0..learned {
        log.fill_arms(row, &mut arms);
        let agent = assignment.agent(log, row, *agents);
        let features = arms.row(log.action(row)).to_vec();
        cooperation.learn(agent, user(log, row), &features, log.reward(row)).map_err(say(row))?;
    }
    let model = fit_reward_model(log, learned..log.rows(), judging.model);
    let mut evidence = Vec::with_capacity(log.rows() - learned);
    for row in learned..log.rows() {
        log.fill_arms(row, &mut arms);
        let agent = assignment.agent(log, row, *agents);
        let choice = cooperation.choose(agent, user(log, row), &arms).map_err(say(row))?;
        let at_random = explore / log.actions() as f64;
        let expected = model.expected(log, row);
        let mean = expected.iter().sum::<f64>() / log.actions() as f64;
        evidence.push(JudgedRow {
            reward: log.reward(row),
            propensity: log.propensity(row),
            policy: at_random + if choice == log.action(row) { 1.0 - explore } else { 0.0 },
            expected: expected[log.action(row)],
            expected_of_policy: (1.0 - explore) * expected[choice] + explore * mean,
        });
    }
    let Cost { messages, bytes, .. } = cooperation.cost;
    let findings = findings(log, evidence, Some(&model), judging)?;
    Ok(Evaluation { learned, messages, bytes, findings })
}

/// Lets agents choose in every row of a log and learn where they chose what was logged (Li et al., 2011). A match
/// counts with probability p_min/p, so that what counts is as if the log had been made at random: with uniform
/// propensities every match does.
pub fn replay(
    log: &DecisionLog,
    algorithm: &Algorithm,
    agents: u64,
    assignment: Assignment,
    seed: Seed,
    level: f64,
) -> Result<Replay, String> {
    let mut cooperation = begin(log, algorithm, agents, seed)?;
    let least = (0..log.rows()).map(|row| log.propensity(row)).fold(f64::INFINITY, f64::min);
    let mut arms = Arms::new(log.dimension());
    let mut counted = Vec::new();
    let mut logged = 0.0;
    for row in 0..log.rows() {
        logged += log.reward(row);
        log.fill_arms(row, &mut arms);
        let agent = assignment.agent(log, row, agents);
        let choice = cooperation.choose(agent, user(log, row), &arms).map_err(say(row))?;
        let lucky = seed.stream("replay", 0, row as u64).uniform() < least / log.propensity(row);
        if choice != log.action(row) || !lucky {
            continue;
        }
        let features = arms.row(choice).to_vec();
        cooperation.learn(agent, user(log, row), &features, log.reward(row)).map_err(say(row))?;
        let reward = log.reward(row);
        counted.push(JudgedRow {
            reward,
            propensity: 1.0,
            policy: 1.0,
            expected: 0.0,
            expected_of_policy: 0.0,
        });
    }
    let Cost { messages, bytes, .. } = cooperation.cost;
    let mut warnings = about_propensities(log);
    if !is_uniform(log) {
        warnings.push(format!(
            "the log was not made at random: a match counts with probability {least:.2e}/p, so that {} of {} rows \
             are left",
            counted.len(),
            log.rows()
        ));
    }
    warnings.extend(warning(counted.len() as f64, log.rows()).filter(|_| counted.len() < 100));
    Ok(Replay {
        warnings,
        rows: log.rows(),
        matched: counted.len(),
        estimate: estimate(&counted, Estimator::Replay, Interval::Normal, level),
        logged: logged / log.rows() as f64,
        messages,
        bytes,
    })
}

fn begin(log: &DecisionLog, algorithm: &Algorithm, agents: u64, seed: Seed) -> Result<Cooperation, String> {
    if agents == 0 {
        return Err("there must be at least one agent".into());
    }
    Cooperation::new(algorithm, log.dimension(), agents, log.rows() as u64, seed)
        .map_err(|error| error.to_string())
}

fn user(log: &DecisionLog, row: usize) -> UserId {
    UserId(log.user(row).into())
}

/// Puts the row before what went wrong in it.
fn say(row: usize) -> impl Fn(Trouble) -> String {
    move |error| format!("row {row}: {error}")
}
