//! A prepared log of decisions in memory.

use std::path::Path;

use posse_core::Arms;

use super::prepare::{ASSUMED, DECISIONS, LOG_ITEMS};
use crate::error::{DataError, Problem};
use crate::store::{Column, Manifest, check_hash, scan};

/// What the numbers of a row's context do to its arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextUse {
    /// Arm c is the vector whose block c is the context and a constant 1; items have no features.
    Blocks,
    /// There is a number for each item; it is added to the features of that item.
    PerItem,
    /// There is none: an arm has the features of its item.
    None,
}

impl ContextUse {
    /// Every use of the context.
    pub const ALL: [Self; 3] = [Self::Blocks, Self::PerItem, Self::None];

    /// The word for this use in manifests.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::PerItem => "per-item",
            Self::None => "none",
        }
    }
}

/// A log of decisions in memory. Every item is an arm in every row.
#[derive(Clone, Debug)]
pub struct DecisionLog {
    pub(super) users: Vec<u32>,
    pub(super) agents: Vec<u32>,
    pub(crate) actions: Vec<u32>,
    pub(super) rewards: Vec<f64>,
    pub(super) propensities: Vec<f64>,
    pub(super) context: Vec<f64>,
    pub(super) context_width: usize,
    pub(super) items: Vec<f64>,
    pub(super) item_width: usize,
    pub(super) item_count: usize,
    pub(super) context_use: ContextUse,
    /// What actions are called, in their order; empty for logs that were not loaded.
    pub(crate) names: Vec<String>,
    /// Whether the log has no propensities, so that all actions are taken as equally likely.
    pub(crate) assumed: bool,
}

impl DecisionLog {
    /// A log without contexts, in which items are told apart by a feature each: rows of action, reward and
    /// propensity, all of one user.
    ///
    /// # Panics
    /// If an action is not below `actions`.
    #[must_use]
    pub fn of_actions(actions: usize, rows: &[(u32, f64, f64)]) -> Self {
        assert!(rows.iter().all(|(action, ..)| (*action as usize) < actions), "actions are known");
        Self {
            users: vec![0; rows.len()],
            agents: vec![0; rows.len()],
            actions: rows.iter().map(|row| row.0).collect(),
            rewards: rows.iter().map(|row| row.1).collect(),
            propensities: rows.iter().map(|row| row.2).collect(),
            context: Vec::new(),
            context_width: 0,
            items: Vec::new(),
            item_width: 0,
            item_count: actions,
            context_use: ContextUse::Blocks,
            names: Vec::new(),
            assumed: false,
        }
    }

    /// A log with a context of `width` numbers in each row, otherwise as [`DecisionLog::of_actions`].
    ///
    /// # Panics
    /// If an action is not below `actions`, or there are not `width` numbers for each row.
    #[must_use]
    pub fn with_context(actions: usize, rows: &[(u32, f64, f64)], context: Vec<f64>, width: usize) -> Self {
        assert_eq!(context.len(), rows.len() * width, "every row has its context");
        Self { context, context_width: width, ..Self::of_actions(actions, rows) }
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rewards.len()
    }

    /// How many actions there are to choose from.
    #[must_use]
    pub const fn actions(&self) -> usize {
        self.item_count
    }

    /// What the numbers of a row's context do to its arms.
    #[must_use]
    pub const fn context_use(&self) -> ContextUse {
        self.context_use
    }

    /// What actions are called, in their order.
    #[must_use]
    pub fn action_names(&self) -> &[String] {
        &self.names
    }

    /// Whether the log was prepared without propensities, so that all actions count as equally likely.
    #[must_use]
    pub const fn assumes_uniform(&self) -> bool {
        self.assumed
    }

    /// How many numbers go with an action in a row, from which its reward may be predicted.
    #[must_use]
    pub const fn regressors(&self) -> usize {
        match self.context_use {
            ContextUse::Blocks => self.context_width,
            ContextUse::PerItem => self.item_width + 1,
            ContextUse::None => self.item_width,
        }
    }

    /// Appends the numbers that go with an action in a row.
    pub(crate) fn push_regressors(&self, row: usize, action: usize, numbers: &mut Vec<f64>) {
        let context = &self.context[row * self.context_width..][..self.context_width];
        let item = &self.items[action * self.item_width..][..self.item_width];
        match self.context_use {
            ContextUse::Blocks => numbers.extend_from_slice(context),
            ContextUse::PerItem => numbers.extend(item.iter().copied().chain([context[action]])),
            ContextUse::None => numbers.extend_from_slice(item),
        }
    }

    /// How many features an arm has.
    #[must_use]
    pub const fn dimension(&self) -> usize {
        match self.context_use {
            ContextUse::Blocks => self.item_count * (self.context_width + 1),
            ContextUse::PerItem => self.item_width + 1,
            ContextUse::None => self.item_width,
        }
    }

    /// The user that the decision of this row was about.
    #[must_use]
    pub fn user(&self, row: usize) -> u32 {
        self.users[row]
    }

    /// The agent at which the decision of this row was taken.
    #[must_use]
    pub fn agent(&self, row: usize) -> u32 {
        self.agents[row]
    }

    /// The action that was taken in this row, counted from 0.
    #[must_use]
    pub fn action(&self, row: usize) -> usize {
        self.actions[row] as usize
    }

    /// The reward of the action that was taken in this row.
    #[must_use]
    pub fn reward(&self, row: usize) -> f64 {
        self.rewards[row]
    }

    /// With which probability it was done.
    #[must_use]
    pub fn propensity(&self, row: usize) -> f64 {
        self.propensities[row]
    }

    /// Fills in the arms of a row.
    pub fn fill_arms(&self, row: usize, arms: &mut Arms) {
        arms.reset(self.dimension());
        let mut arm = vec![0.0; self.dimension()];
        let context = &self.context[row * self.context_width..][..self.context_width];
        for item in 0..self.item_count {
            let own = &self.items[item * self.item_width..][..self.item_width];
            match self.context_use {
                ContextUse::Blocks => {
                    arm.fill(0.0);
                    let block = &mut arm[item * (context.len() + 1)..][..context.len() + 1];
                    block[..context.len()].copy_from_slice(context);
                    block[context.len()] = 1.0;
                }
                ContextUse::PerItem => {
                    arm[..own.len()].copy_from_slice(own);
                    arm[own.len()] = context[item];
                }
                ContextUse::None => arm.copy_from_slice(own),
            }
            arms.push(&arm).expect("prepared features are finite");
        }
    }
}

/// Loads a prepared log. Every value is hashed on the way.
pub fn load_log(directory: &Path) -> Result<DecisionLog, DataError> {
    let manifest = Manifest::read(directory)?;
    check_hash(&manifest, directory)?;
    let refuse = |reason: &str| Problem::NotPrepared(reason.into()).of(directory);
    if manifest.kind != "log" {
        return Err(refuse(&format!("it is a {}, not a log of decisions", manifest.kind)));
    }
    let word = manifest.settings.get("context").map_or("", String::as_str);
    let context_use = ContextUse::ALL.into_iter().find(|context| context.word() == word);
    let mut log = DecisionLog {
        context_use: context_use.ok_or_else(|| refuse("it does not say how it uses contexts"))?,
        assumed: manifest.settings.get("propensity").is_some_and(|word| word == ASSUMED),
        ..DecisionLog::of_actions(0, &[])
    };
    scan(directory, manifest.table(LOG_ITEMS, directory)?, |columns| {
        log.item_count += columns[0].len();
        log.names.extend(columns[0].texts().iter().cloned());
        append_rows(&columns[1..], &mut log.items, &mut log.item_width);
        Ok(())
    })?;
    scan(directory, manifest.table(DECISIONS, directory)?, |columns| {
        let small = |column: &Column| -> Vec<u32> {
            column.wholes().iter().map(|&value| u32::try_from(value).unwrap_or(u32::MAX)).collect()
        };
        log.users.extend(small(&columns[0]));
        log.agents.extend(small(&columns[1]));
        log.actions.extend(small(&columns[2]));
        log.rewards.extend(columns[4].numbers());
        log.propensities.extend(columns[5].numbers());
        append_rows(&columns[6..], &mut log.context, &mut log.context_width);
        Ok(())
    })?;
    let known = log.actions.iter().all(|&action| (action as usize) < log.item_count);
    let proper = log.propensities.iter().all(|p| *p > 0.0 && *p <= 1.0);
    let matching = log.context_use != ContextUse::PerItem || log.context_width == log.item_count;
    if !(known && proper && matching) || log.rows() == 0 || log.dimension() == 0 {
        return Err(refuse("its values make no sense together"));
    }
    Ok(log)
}

/// Adds the rows of number columns to numbers in rows.
fn append_rows(columns: &[Column], rows: &mut Vec<f64>, width: &mut usize) {
    *width = columns.len();
    let Some(first) = columns.first() else { return };
    for row in 0..first.len() {
        rows.extend(columns.iter().map(|column| column.numbers()[row]));
    }
}
