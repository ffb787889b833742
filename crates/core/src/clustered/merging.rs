//! Which clusters are alike enough to share: by distances of their estimates.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use crate::clustered::users::{distance_squared, radius};

/// How clusters that are alike form groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum Linkage {
    /// Every two clusters of a group are alike. The default: a wrong merge costs regret for ever, a missing
    /// one only some variance.
    #[default]
    Complete,
    /// A cluster joins a group if it is like any one member, as the paper has it. One poorly known cluster
    /// can then join groups that have nothing in common.
    Transitive,
}

/// A cluster to be sorted into a group.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Clusters of the same agent are compared like others, but transitive linkage never starts from them.
    pub(crate) agent: u64,
    pub(crate) estimate: Vec<f64>,
    pub(crate) count: u64,
    /// How far noise usually moves the estimate; 0 where it is exact.
    pub(crate) noise: f64,
}

/// When two clusters are alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merging {
    pub(crate) linkage: Linkage,
    /// α₂: multiplies how far apart two clusters may be and still count as alike.
    pub(crate) scale: f64,
    /// Pairs that are known less well than this, noise included, are not looked at.
    pub(crate) gate: f64,
}

impl Merging {
    /// How far apart two clusters are, if they are alike.
    fn alike(&self, a: &Candidate, b: &Candidate) -> Option<f64> {
        let (spread, noise) = (radius(a.count) + radius(b.count), a.noise.hypot(b.noise));
        let distance = distance_squared(&a.estimate, &b.estimate);
        // A scale of 0 merges nothing, however much noise there is.
        let far = if self.scale > 0.0 { self.scale * spread + noise } else { 0.0 };
        (spread + noise < self.gate && distance < far * far).then_some(distance)
    }

    /// Groups of indices, each in order, by their first.
    pub(crate) fn groups(&self, candidates: &[Candidate]) -> Vec<Vec<usize>> {
        let mut of: Vec<usize> = (0..candidates.len()).collect();
        let mut members: Vec<Vec<usize>> = (0..candidates.len()).map(|one| vec![one]).collect();
        let mut pairs = Vec::new();
        for (i, a) in candidates.iter().enumerate() {
            for (j, b) in candidates.iter().enumerate().skip(i + 1) {
                let other_agent = a.agent != b.agent || self.linkage == Linkage::Complete;
                if let Some(distance) = self.alike(a, b).filter(|_| other_agent) {
                    pairs.push((distance, i, j));
                }
            }
        }
        // The nearest first: with complete linkage, who joins first decides who may join later.
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        for (_, i, j) in pairs {
            let (one, other) = (of[i].min(of[j]), of[i].max(of[j]));
            if one == other {
                continue;
            }
            let all_alike = || {
                members[one].iter().all(|&a| {
                    members[other].iter().all(|&b| self.alike(&candidates[a], &candidates[b]).is_some())
                })
            };
            if self.linkage == Linkage::Complete && !all_alike() {
                continue;
            }
            let joined = std::mem::take(&mut members[other]);
            joined.iter().for_each(|&member| of[member] = one);
            members[one].extend(joined);
        }
        members.retain(|group| !group.is_empty());
        members.iter_mut().for_each(|group| group.sort_unstable());
        members
    }

    /// The first group that a newcomer fits into.
    pub(crate) fn place<'c>(
        &self,
        newcomer: &Candidate,
        groups: impl Iterator<Item = &'c [Candidate]>,
    ) -> Option<usize> {
        let fits = |group: &[Candidate]| {
            let mut alike = group.iter().map(|member| self.alike(newcomer, member).is_some());
            match self.linkage {
                Linkage::Complete => alike.all(|alike| alike),
                Linkage::Transitive => alike.any(|alike| alike),
            }
        };
        groups.enumerate().find(|(_, group)| fits(group)).map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(agent: u64, place: f64, count: u64) -> Candidate {
        Candidate { agent, estimate: vec![place], count, noise: 0.0 }
    }

    fn merging(linkage: Linkage) -> Merging {
        Merging { linkage, scale: 1.0, gate: f64::INFINITY }
    }

    #[test]
    fn a_chain_is_one_group_by_transitivity_and_not_completely() {
        // F(1000) ≈ 0.089: neighbours 0.15 apart are alike, others are not.
        let chain = [at(0, 0.0, 1000), at(1, 0.15, 1000), at(2, 0.29, 1000)];
        assert_eq!(merging(Linkage::Transitive).groups(&chain), [vec![0, 1, 2]]);
        assert_eq!(merging(Linkage::Complete).groups(&chain), [vec![0], vec![1, 2]], "the nearest first");
    }

    #[test]
    fn the_gate_keeps_out_whoever_is_poorly_known() {
        let few = [at(0, 0.0, 5), at(1, 0.0, 5)];
        assert_eq!(merging(Linkage::Complete).groups(&few), [vec![0, 1]]);
        let gated = Merging { gate: 0.3, ..merging(Linkage::Complete) };
        assert_eq!(gated.groups(&few), [vec![0], vec![1]]);
    }

    #[test]
    fn noise_makes_clusters_look_alike_until_there_is_too_much_of_it_to_tell() {
        let noisy = |agent, place, noise| Candidate { noise, ..at(agent, place, 1000) };
        let open = merging(Linkage::Complete);
        assert_eq!(open.groups(&[noisy(0, 0.0, 0.0), noisy(1, 0.3, 0.0)]).len(), 2);
        assert_eq!(open.groups(&[noisy(0, 0.0, 0.1), noisy(1, 0.3, 0.1)]).len(), 1);
        let gated = Merging { gate: 0.3, ..open };
        assert_eq!(gated.groups(&[noisy(0, 0.0, 0.1), noisy(1, 0.3, 0.1)]).len(), 2, "they are not compared");
        assert_eq!(gated.groups(&[noisy(0, 0.0, 0.03), noisy(1, 0.2, 0.03)]).len(), 1);
    }

    #[test]
    fn clusters_of_one_agent_meet_through_a_third_only_if_linkage_is_transitive() {
        let pair = [at(0, 0.0, 1000), at(0, 0.1, 1000)];
        assert_eq!(merging(Linkage::Transitive).groups(&pair), [vec![0], vec![1]]);
        let three = [at(0, 0.0, 1000), at(0, 0.1, 1000), at(1, 0.05, 1000)];
        assert_eq!(merging(Linkage::Transitive).groups(&three), [vec![0, 1, 2]]);
        assert_eq!(merging(Linkage::Complete).groups(&pair), [vec![0, 1]]);
    }

    #[test]
    fn a_newcomer_goes_where_it_fits() {
        let groups = [vec![at(0, 5.0, 1000)], vec![at(1, 0.0, 1000), at(2, 9.0, 1000)]];
        let place = |linkage| merging(linkage).place(&at(3, 0.0, 0), groups.iter().map(Vec::as_slice));
        assert_eq!(place(Linkage::Complete), None);
        assert_eq!(place(Linkage::Transitive), Some(1));
    }
}
