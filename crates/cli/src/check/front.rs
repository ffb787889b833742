//! `front`: whether one way of doing things is nowhere beaten, cost for cost.

use super::judge::{Court, Finding, Ruling, gather, is_clear, world_of};
use super::{Front, Selector};
use crate::metric::Column;
use crate::statistics::mean;
use crate::table::compact;

impl Court<'_> {
    /// Holds every group of `above` against the curve through the groups of `below`, at the same cost. One line a world
    /// says where that comes out worst.
    pub(super) fn front(&self, claim: &Front) -> Finding {
        let mut worlds: Vec<Vec<(String, String)>> = Vec::new();
        for index in self.groups(&claim.above) {
            let world = world_of(&self.experiment.groups[index]);
            if !worlds.contains(&world) {
                worlds.push(world);
            }
        }
        gather(worlds.iter().map(|world| {
            let here = |selector: &Selector| -> Vec<usize> {
                let own = self.groups(selector);
                own.filter(|index| world_of(&self.experiment.groups[*index]) == *world).collect()
            };
            let ours = here(&claim.below);
            let points: Vec<Point> =
                here(&claim.above).into_iter().map(|theirs| self.match_point(claim, &ours, theirs)).collect();
            let name: Vec<String> = world.iter().map(|(key, value)| format!("{key}={value} ")).collect();
            let of = |ruling: Ruling| points.iter().filter(|point| point.ruling == ruling).count();
            let (broken, unclear) = (of(Ruling::Broken), of(Ruling::Unclear));
            let ruling = match (broken, unclear) {
                (0, 0) => Ruling::Holds,
                (0, _) => Ruling::Unclear,
                _ => Ruling::Broken,
            };
            let of_ruling = points.iter().filter(|point| point.ruling == ruling);
            let worst = of_ruling.max_by(|a, b| a.share.total_cmp(&b.share));
            let counted = match ruling {
                Ruling::Holds => format!("{} points, the nearest: ", points.len()),
                Ruling::Unclear => format!("{unclear} of {} points cannot be told: ", points.len()),
                Ruling::Broken => format!("{broken} of {} points are not matched: ", points.len()),
            };
            let line = worst.map_or("nothing to compare", |point| point.line.as_str());
            (ruling, format!("{}{counted}{line}", name.concat()))
        }))
    }

    /// What a group costs, on average over its seeds.
    fn spent(&self, group: usize, cost: Column) -> f64 {
        mean(self.rows.iter().filter(|row| row.cell.group == group).map(|row| cost.of(row.tally())))
    }

    /// Compares a group with the curve through `ours` at its cost.
    fn match_point(&self, claim: &Front, ours: &[usize], theirs: usize) -> Point {
        let Front { metric, cost, factor, .. } = claim;
        let (spent, reached) = (self.spent(theirs, *cost), self.mean(theirs, metric));
        let name = &self.experiment.groups[theirs].id;
        let Some(own) = self.at_cost(claim, ours, spent) else {
            let line = format!("nothing costs as little as {name} ({} {})", compact(spent), cost.name);
            return Point { ruling: Ruling::Broken, share: f64::INFINITY, line };
        };
        let others = self.values(theirs, metric);
        let beyond = |(seed, own): &(u64, f64)| {
            let other = others.iter().find(|(theirs, _)| theirs == seed)?.1;
            Some(own - factor * other)
        };
        let differences: Vec<f64> = own.iter().filter_map(beyond).collect();
        let own = mean(own.iter().map(|(_, value)| *value));
        let line = format!(
            "{} {} against {} of {name} at {} {}",
            metric.name,
            compact(own),
            compact(reached),
            compact(spent),
            cost.name
        );
        let ruling = Ruling::of(own <= factor * reached, is_clear(&differences));
        Point { ruling, share: own / reached, line }
    }

    /// The metric, seed by seed, that some group of `ours` reaches for at most `spent`, or that the straight line reaches, in
    /// logarithms, between the two groups whose costs are next to it: whichever is lower. `None` if all of them cost more.
    fn at_cost(&self, claim: &Front, ours: &[usize], spent: f64) -> Option<Vec<(u64, f64)>> {
        let costs = |group: usize| self.spent(group, claim.cost);
        let by_cost = |a: &usize, b: &usize| costs(*a).total_cmp(&costs(*b));
        let (cheaper, dearer): (Vec<usize>, Vec<usize>) = ours.iter().partition(|own| costs(**own) <= spent);
        let reached = |group: usize| self.values(group, claim.metric);
        let average = |values: &[(u64, f64)]| mean(values.iter().map(|(_, value)| *value));
        let best =
            cheaper.iter().map(|own| reached(*own)).min_by(|a, b| average(a).total_cmp(&average(b)))?;
        let ends = (cheaper.iter().copied().max_by(by_cost)?, dearer.iter().copied().min_by(by_cost));
        let (low, Some(high)) = ends else { return Some(best) };
        let share = (spent / costs(low)).ln() / (costs(high) / costs(low)).ln();
        let dear = reached(high);
        let between = |(seed, cheap): (u64, f64)| {
            let dear = dear.iter().find(|(theirs, _)| *theirs == seed)?.1;
            Some((seed, (cheap.ln() * (1.0 - share) + dear.ln() * share).exp()))
        };
        let line: Vec<(u64, f64)> = reached(low).into_iter().filter_map(between).collect();
        Some(if average(&line) < average(&best) { line } else { best })
    }
}

/// What became of one group of `above`.
struct Point {
    ruling: Ruling,
    /// The metric that `below` reaches at the same cost, as a share of this one's.
    share: f64,
    line: String,
}
