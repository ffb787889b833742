//! Curves of groups of agents: what the busy ones pay and gain, and what the quiet ones do.

use std::cmp::Reverse;
use std::ops::ControlFlow;

use posse_core::ConfigError;
use serde::{Deserialize, Serialize};

use crate::curve::Curve;
use crate::observer::{Event, Observer, Sent, Stage};
use crate::simulation::RunConfig;
use crate::tally::Tally;

/// By what agents are put in order before they are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupBy {
    /// By how many interactions they have in the run, the busiest first; ties by id.
    #[default]
    Activity,
    /// By their ids, the lowest first.
    Id,
}

/// Records a curve for each of several groups of agents, at the moments of [`Curve`].
///
/// Groups hold equally many agents, as far as that can be. A point is a [`Tally`] of the group alone; rounds
/// and lost observations belong to no single agent and stay 0.
#[derive(Clone, Debug)]
pub struct AgentGroups {
    /// The group of each agent.
    group_of: Vec<usize>,
    seen: Vec<bool>,
    so_far: Vec<Tally>,
    /// When a point is due, which is when the curve of all agents gets one.
    clock: Curve,
    points: Vec<Vec<Tally>>,
}

impl AgentGroups {
    /// Divides the agents of a run into `groups`.
    pub fn new(config: &RunConfig, groups: usize, by: GroupBy) -> Result<Self, ConfigError> {
        let agents = usize::try_from(config.agents).expect("agents fit in memory");
        if groups == 0 || groups > agents {
            return Err(ConfigError::new("groups", groups, "it must be from 1 to the number of agents"));
        }
        let mut order: Vec<usize> = (0..agents).collect();
        if by == GroupBy::Activity {
            let activity = config.activity()?;
            order.sort_by_key(|agent| Reverse(activity[*agent]));
        }
        let mut group_of = vec![0; agents];
        let mut so_far = vec![Tally::default(); groups];
        for (place, agent) in order.into_iter().enumerate() {
            let group = place * groups / agents;
            group_of[agent] = group;
            so_far[group].agents += 1;
        }
        Ok(Self {
            group_of,
            seen: vec![false; agents],
            so_far,
            clock: Curve::new(config.horizon),
            points: Vec::new(),
        })
    }

    /// How many agents each group has.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        self.so_far.iter().map(|tally| tally.agents as usize).collect()
    }

    /// For each point of [`Curve`], the tally of each group.
    #[must_use]
    pub fn into_points(self) -> Vec<Vec<Tally>> {
        self.points
    }
}

impl Observer for AgentGroups {
    fn observe(&mut self, event: &Event<'_>, _stage: &dyn Stage) {
        match event {
            Event::Chose { agent, regret, average_mean, .. } => {
                let place = agent.0 as usize;
                let tally = &mut self.so_far[self.group_of[place]];
                tally.chose(*regret, *average_mean);
                tally.agents_seen += u64::from(!std::mem::replace(&mut self.seen[place], true));
            }
            Event::Learned { agent, reward } => {
                self.so_far[self.group_of[agent.0 as usize]].reward += reward;
            }
            _ => {}
        }
    }

    fn looks_at_machines(&self) -> bool {
        false
    }

    fn sent(&mut self, sent: &Sent) {
        self.so_far[self.group_of[sent.agent.0 as usize]].sent(sent);
    }

    fn interacted(&mut self, tally: &Tally) -> ControlFlow<()> {
        let flow = self.clock.interacted(tally);
        let is_due = self.clock.points().last().is_some_and(|last| last.interactions == tally.interactions);
        if is_due {
            // The last one comes again when everything has arrived.
            self.points.truncate(self.clock.points().len() - 1);
            self.points.push(self.so_far.clone());
        }
        flow
    }
}
