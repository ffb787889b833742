//! `front`: whether one way of doing things is nowhere beaten, cost for cost.

use super::judge::{Court, Finding, Ruling, gather, is_clear, world_of};
use super::{Front, Selector};
use crate::metric::Column;
use crate::statistics::mean;
use crate::table::compact;

impl Court<'_> {
    /// Looks for a group of `below` that costs no more than a group of `above` and does better, for every group of
    /// `above`. One line a world says where that comes out worst.
    ///
    /// Nothing is interpolated: only settings that were run count.
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

    /// Compares a group with the best of `ours` that costs no more.
    fn match_point(&self, claim: &Front, ours: &[usize], theirs: usize) -> Point {
        let Front { metric, cost, factor, .. } = claim;
        let id = |group: usize| &self.experiment.groups[group].id;
        let (spent, reached) = (self.spent(theirs, *cost), self.mean(theirs, metric));
        let affordable = ours.iter().copied().filter(|own| self.spent(*own, *cost) <= spent);
        let best = affordable.min_by(|a, b| self.mean(*a, metric).total_cmp(&self.mean(*b, metric)));
        let Some(best) = best else {
            let line = format!("nothing costs as little as {} ({} {})", id(theirs), compact(spent), cost.name);
            return Point { ruling: Ruling::Broken, share: f64::INFINITY, line };
        };
        let own = self.mean(best, metric);
        let others = self.values(theirs, metric);
        let beyond = |(seed, own): &(u64, f64)| {
            let other = others.iter().find(|(theirs, _)| theirs == seed)?.1;
            Some(own - factor * other)
        };
        let differences: Vec<f64> = self.values(best, metric).iter().filter_map(beyond).collect();
        let line = format!(
            "{} {} with {} {} of {} against {} with {} of {}",
            metric.name,
            compact(own),
            compact(self.spent(best, *cost)),
            cost.name,
            id(best),
            compact(reached),
            compact(spent),
            id(theirs)
        );
        let ruling = Ruling::of(own <= factor * reached, is_clear(&differences));
        Point { ruling, share: own / reached, line }
    }
}

/// What became of one group of `above`.
struct Point {
    ruling: Ruling,
    /// The metric of the best affordable group of `below`, as a share of this one's.
    share: f64,
    line: String,
}
