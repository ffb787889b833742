//! The private side of an agent with clusters: what is uploaded, and who is told apart, both with noise.

use crate::clustered::config::ClusterPlan;
use crate::clustered::users::{Users, radius};
use crate::clustered::width::{Noisy, PrivateWidth, noise_radius};
use crate::evidence::Evidence;
use crate::ids::AgentId;
use crate::privacy::privatizer::Privatizer;
use crate::privacy::{Release, repair, smallest_eigenvalue};
use crate::random::Seed;
use crate::ridge::Ridge;

/// What an agent of a private federation has in addition.
#[derive(Debug)]
pub(super) struct Private {
    pub(super) privatizer: Privatizer,
    pub(super) width: PrivateWidth,
}

/// What is known of a user from the released sums of that user.
struct KnownUser {
    estimate: Vec<f64>,
    /// How far chance may have moved the estimate: α₁·F(T).
    chance: f64,
    /// How far noise usually moves it.
    noise: f64,
}

impl Private {
    /// The private side of an agent, if its federation is private.
    pub(super) fn new(plan: &ClusterPlan<'_>, id: AgentId, dimension: usize, seed: Seed) -> Option<Self> {
        let (privacy, budget) = (plan.privacy?, plan.budget(dimension)?);
        Some(Self {
            width: PrivateWidth::new(plan.model, privacy, budget.clone(), dimension),
            privatizer: Privatizer::new(privacy, budget, dimension, id, seed),
        })
    }

    /// Releases the sums of users who are due, and deletes edges between users whose released sums differ by more
    /// than chance and noise explain; whether there were any. Raw sums of users decide nothing.
    pub(super) fn tell_apart(&mut self, users: &mut Users, scale: f64, model: &Ridge) -> bool {
        if self.privatizer.budget().user.is_none() {
            return false;
        }
        self.privatizer.release_users(users.list.iter().map(|user| (user.id.0, user.evidence.count())));
        let known: Vec<Option<KnownUser>> =
            users.list.iter().map(|user| self.known(user.id.0, scale, model)).collect();
        users.prune_by(|one, other| match (&known[one], &known[other]) {
            (Some(a), Some(b)) => {
                // Two estimates of the same parameters differ by the root of the sum of squares of their noise.
                let far = a.chance + b.chance + a.noise.hypot(b.noise);
                crate::clustered::users::distance_squared(&a.estimate, &b.estimate) > far * far
            }
            // Nothing tells them apart before both were released.
            _ => false,
        })
    }

    fn known(&self, user: u64, scale: f64, model: &Ridge) -> Option<KnownUser> {
        let Release { mut evidence, variance } = self.privatizer.last_of_user(user)?;
        let (budget, dimension) = (self.privatizer.budget(), model.dimension());
        repair(evidence.gram_mut(), dimension, budget.floor(variance));
        let mut scratch = model.clone();
        scratch.refresh([&evidence].into_iter()).ok()?;
        let estimate = scratch.estimate();
        let lowest = smallest_eigenvalue(evidence.gram(), dimension);
        let sums = Noisy { variance, lowest, count: evidence.count() };
        let noise = noise_radius(budget, sums, &estimate, model.regularization());
        Some(KnownUser { estimate, chance: scale * radius(evidence.count()), noise })
    }

    /// Whether the sums of a user were ever released.
    pub(super) fn is_known(&self, user: u64) -> bool {
        self.privatizer.last_of_user(user).is_some()
    }

    /// What a new cluster begins with: the released sums of its users. Their interactions are in the stream of the
    /// cluster they leave, and may not enter another one.
    pub(super) fn baseline(&self, users: impl Iterator<Item = u64>, dimension: usize) -> Release {
        let mut sum = Release { evidence: Evidence::none(dimension), variance: 0.0 };
        for release in users.filter_map(|user| self.privatizer.last_of_user(user)) {
            sum.evidence.add(&release.evidence);
            sum.variance += release.variance;
        }
        sum
    }
}
