//! What was spent: every release of every tree, and every tree that the same interactions passed through.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::privacy::config::{Calibration, PrivacyConfig};
use crate::privacy::report::PrivacyReport;
use crate::privacy::{conversion, tree};
use crate::wire::v1;

/// A release that the budget does not allow. Nothing was released.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exhausted {
    /// The tree has no release left.
    #[error("all {0} releases of this stream are spent")]
    Releases(u64),
    /// Its interactions passed through as many trees as they may.
    #[error("these interactions are in {0} trees already, and may not enter another")]
    Trees(u32),
}

/// Records the trees of one agent. Its interactions are nobody else's, so a federation has spent what the
/// agent that spent most has.
#[derive(Clone, Debug, PartialEq)]
pub struct Accountant {
    config: PrivacyConfig,
    calibration: Calibration,
    open: BTreeMap<u64, Record>,
    /// Of all trees ever opened.
    trees: u64,
    releases: u64,
    /// The largest ρ of any interaction, and the most trees it is in; closed trees included.
    spent: f64,
    deepest: u32,
}

/// What the accountant knows of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Record {
    /// Trees that its oldest interactions are in, this one included.
    lineage: u32,
    /// What was spent on them before.
    inherited: f64,
    releases: u64,
}

impl Accountant {
    /// Nothing was released yet.
    #[must_use]
    pub const fn new(config: PrivacyConfig, calibration: Calibration) -> Self {
        let open = BTreeMap::new();
        Self { config, calibration, open, trees: 0, releases: 0, spent: 0.0, deepest: 0 }
    }

    /// A tree opens over new interactions, or over those of `parent`, which closes when all its children
    /// are open.
    pub fn open_tree(&mut self, tree: u64, parent: Option<u64>) -> Result<(), Exhausted> {
        let (lineage, inherited) = match parent.and_then(|parent| self.open.get(&parent)) {
            Some(parent) => (parent.lineage, parent.inherited + self.rho_of(parent.releases)),
            None => (0, 0.0),
        };
        if lineage >= self.config.max_trees {
            return Err(Exhausted::Trees(lineage));
        }
        self.open.insert(tree, Record { lineage: lineage + 1, inherited, releases: 0 });
        self.trees += 1;
        Ok(())
    }

    /// Whether the interactions of a tree may enter another one.
    #[must_use]
    pub fn may_reopen(&self, tree: u64) -> bool {
        self.open.get(&tree).is_some_and(|record| record.lineage < self.config.max_trees)
    }

    /// A tree is released once more, if that is allowed.
    pub fn release(&mut self, tree: u64) -> Result<(), Exhausted> {
        let most = self.config.max_releases;
        let record = self.open.get_mut(&tree).ok_or(Exhausted::Releases(0))?;
        if record.releases >= most {
            return Err(Exhausted::Releases(most));
        }
        record.releases += 1;
        let record = *record;
        self.releases += 1;
        self.spent = self.spent.max(record.inherited + self.rho_of(record.releases));
        self.deepest = self.deepest.max(record.lineage);
        Ok(())
    }

    /// A tree is not released any more.
    pub fn close(&mut self, tree: u64) {
        self.open.remove(&tree);
    }

    /// ρ of an interaction in a tree after so many releases: it is in one node for each level so far.
    fn rho_of(&self, releases: u64) -> f64 {
        let levels = if releases == 0 { 0 } else { tree::depth(releases) };
        f64::from(levels) * self.calibration.rho_node
    }

    /// What may be said about this agent, if no user had more than so many interactions.
    #[must_use]
    pub fn report(&self, most_of_a_user: u64, clipped: u64) -> PrivacyReport {
        let Self { config, calibration, trees, releases, spent, deepest, .. } = self;
        let (k, delta) = (most_of_a_user as f64, config.delta);
        PrivacyReport {
            epsilon_budget: config.epsilon,
            delta,
            rho: *spent,
            epsilon: conversion::epsilon(*spent, delta),
            most_of_a_user,
            user_epsilon: conversion::epsilon(k * k * spent, delta),
            trees: *trees,
            trees_of_one: *deepest,
            releases: *releases,
            exhausted: self.open.values().filter(|r| r.releases >= config.max_releases).count() as u64,
            sigma: calibration.sigma,
            shift: calibration.bounds.shift(),
            clipped,
            interactive: !config.raw_buffer,
            splits: *deepest > 1 || config.max_trees > 1,
            repairs: 0,
            signal_to_shift: None,
            life: 0,
        }
    }

    pub(crate) fn save(&self) -> v1::AccountantState {
        v1::AccountantState {
            open: self
                .open
                .iter()
                .map(|(tree, record)| v1::TreeRecord {
                    tree: *tree,
                    lineage: record.lineage,
                    inherited: record.inherited,
                    releases: record.releases,
                })
                .collect(),
            trees: self.trees,
            releases: self.releases,
            spent: self.spent,
            deepest: self.deepest,
        }
    }

    pub(crate) fn restore(&mut self, state: &v1::AccountantState) {
        let record = |r: &v1::TreeRecord| {
            (r.tree, Record { lineage: r.lineage, inherited: r.inherited, releases: r.releases })
        };
        self.open = state.open.iter().map(record).collect();
        (self.trees, self.releases) = (state.trees, state.releases);
        (self.spent, self.deepest) = (state.spent, state.deepest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accountant(max_releases: u64, max_trees: u32) -> Accountant {
        let config = PrivacyConfig { max_releases, max_trees, ..Default::default() };
        let calibration = config.calibration(10);
        Accountant::new(config, calibration)
    }

    /// The brute force: every interaction, every node of every tree that contains it.
    #[test]
    fn o19_what_is_spent_is_the_sum_over_nodes_that_contain_an_interaction() {
        for releases in 1..=16 {
            let mut accountant = accountant(16, 1);
            accountant.open_tree(1, None).unwrap();
            let mut nodes = Vec::new();
            for k in 1..=releases {
                accountant.release(1).unwrap();
                let level = u64::from(u64::trailing_zeros(k));
                nodes.push(((((k >> level) - 1) << level) + 1, k));
            }
            let worst = (1..=releases)
                .map(|leaf| nodes.iter().filter(|(first, last)| (*first..=*last).contains(&leaf)).count())
                .max()
                .unwrap();
            let report = accountant.report(1, 0);
            let expected = worst as f64 * accountant.calibration.rho_node;
            assert!(report.rho >= expected * (1.0 - 1e-12), "{releases}: {} < {expected}", report.rho);
            // Closed form: a node for each level so far.
            assert!(report.rho <= f64::from(tree::depth(releases)) * accountant.calibration.rho_node + 1e-15);
        }
    }

    #[test]
    fn o19_the_budget_is_never_exceeded_and_release_number_max_plus_one_is_refused() {
        let mut accountant = accountant(16, 4);
        let mut parent = None;
        for tree in 0..4 {
            accountant.open_tree(tree, parent).unwrap();
            for _ in 0..16 {
                accountant.release(tree).unwrap();
            }
            assert_eq!(accountant.release(tree), Err(Exhausted::Releases(16)));
            parent = Some(tree);
        }
        assert!(!accountant.may_reopen(3));
        assert_eq!(accountant.open_tree(9, parent), Err(Exhausted::Trees(4)));
        let report = accountant.report(3, 0);
        assert!((report.epsilon - 1.0).abs() < 1e-6, "all of it is spent: {}", report.epsilon);
        assert!(report.user_epsilon > 3.0 * report.epsilon);
        assert_eq!((report.trees, report.trees_of_one, report.releases), (4, 4, 64));
    }

    #[test]
    fn separate_streams_do_not_add_up_and_lineages_do() {
        let mut separate = accountant(4, 2);
        separate.open_tree(1, None).unwrap();
        separate.open_tree(2, None).unwrap();
        separate.release(1).unwrap();
        separate.release(2).unwrap();
        let one = separate.report(1, 0).rho;
        assert_eq!(one, separate.calibration.rho_node);
        separate.open_tree(3, Some(1)).unwrap();
        separate.close(1);
        separate.release(3).unwrap();
        assert_eq!(separate.report(1, 0).rho, 2.0 * one);
    }

    #[test]
    fn a_restored_accountant_remembers_everything() {
        let mut one = accountant(4, 2);
        one.open_tree(1, None).unwrap();
        one.release(1).unwrap();
        one.open_tree(2, Some(1)).unwrap();
        let mut other = accountant(4, 2);
        other.restore(&one.save());
        assert_eq!(one, other);
    }
}
