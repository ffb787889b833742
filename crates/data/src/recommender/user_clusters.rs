//! Users and their clusters from who liked what, for the world in which users of a cluster are alike.

use std::collections::BTreeMap;
use std::path::Path;

use posse_core::Seed;

use super::ratings::{Pairs, Ratings};
use super::svd::project;
use super::text::Sparse;
use crate::error::{DataError, Problem};
use crate::kmeans;
use crate::records::Watch;
use crate::store::{ColumnKind, Draft, Manifest};

/// The table of centres in a prepared directory of kind `users`: the parameters of each cluster.
pub const CENTRES: &str = "centres.parquet";
/// The table of users there: how many items, and the cluster. Those with most items come first.
pub const MEMBERS: &str = "members.parquet";

/// How users and their clusters are prepared.
#[derive(Clone, Debug, PartialEq)]
pub struct UserClusterSettings {
    /// Parameters of a user (d), at least 2: coordinates in d − 1 directions, and a constant. Default 10.
    pub dimension: usize,
    /// How many users, those with most items. Default 1000.
    pub users: usize,
    /// How many items, those with most users. Default 1000.
    pub items: usize,
    /// Clusters of users. Default 10.
    pub clusters: usize,
    /// Ratings below this do not count. Default 0: all do.
    pub min_rating: f64,
    /// Where projection and clusters start. Default 0.
    pub seed: Seed,
}

impl Default for UserClusterSettings {
    fn default() -> Self {
        Self { dimension: 10, users: 1000, items: 1000, clusters: 10, min_rating: 0.0, seed: Seed(0) }
    }
}

/// Prepares users: the matrix of who liked what has a row for each; its left singular vectors say where users
/// lie, and k-means which of them belong together. The parameters of all users of a cluster are its centre.
///
/// Users are v = [u/‖u‖; 1]/√2 with u the first d − 1 singular vectors at their row, as Liu, Zhao, Yu, Li and
/// Lui (2022) have it. All pairs are held in memory.
pub fn prepare_user_clusters(
    ratings: &Ratings,
    settings: &UserClusterSettings,
    target: &Path,
    force: bool,
    watch: Watch<'_>,
) -> Result<Manifest, DataError> {
    let mut draft = Draft::begin(target, force)?;
    let UserClusterSettings { dimension, users, items, clusters, min_rating, seed } = *settings;
    for (holds, problem) in [
        (dimension >= 2, "there must be at least two parameters: the last is the same for everybody"),
        (users > 0 && items > 0, "there must be at least one user and one item"),
        (clusters > 0, "there must be at least one cluster"),
    ] {
        if !holds {
            return Err(Problem::Setting(problem.into()).of(target));
        }
    }
    let (pairs, source) = ratings.pairs(min_rating, watch)?;
    if pairs.pairs.is_empty() {
        let problem = format!("no rating is {min_rating} or more");
        return Err(Problem::Setting(problem).of(target));
    }
    let matrix = Matrix::select(&pairs, users, items);
    let width = dimension;
    let vectors = places(&matrix.rows, width, seed);
    let found = kmeans::cluster(&vectors, width, clusters, seed);

    let columns = (1..=width).map(|feature| (format!("x{feature}"), ColumnKind::Number)).collect();
    let mut table = draft.table(CENTRES, columns)?;
    for centre in found.centroids.chunks_exact(width) {
        centre.iter().enumerate().for_each(|(feature, x)| table.number(feature, *x));
        table.end_row()?;
    }
    draft.add(table)?;
    let columns = ["items", "cluster"].map(|name| (name.to_owned(), ColumnKind::Whole)).to_vec();
    let mut table = draft.table(MEMBERS, columns)?;
    for (row, &cluster) in matrix.rows.rows.iter().zip(&found.assignment) {
        table.whole(0, row.len() as i64);
        table.whole(1, cluster.into());
        table.end_row()?;
    }
    draft.add(table)?;

    let (name, licence) = ratings.title();
    let mut manifest = Manifest::new(&name, "users", licence);
    manifest.set("dimension", dimension);
    manifest.set("users", users);
    manifest.set("items", items);
    manifest.set("clusters", clusters);
    manifest.set("min_rating", min_rating);
    manifest.set("seed", seed.0);
    manifest.count("users", matrix.users.len());
    manifest.count("items", matrix.rows.columns);
    manifest.count("pairs", matrix.rows.rows.iter().map(Vec::len).sum());
    manifest.count("clusters", found.sizes.len());
    let names = matrix.users.iter().map(|user| pairs.users[*user as usize].clone());
    manifest.names.insert("users".into(), names.collect());
    manifest.sources = vec![source];
    draft.finish(manifest)
}

/// The part of the matrix with most in it: a row for each user, ones where it liked something.
struct Matrix {
    users: Vec<u32>,
    rows: Sparse,
}

impl Matrix {
    /// Three times as many users as wanted, those with most items; of their items, those with most users;
    /// of the users, those with most of these items.
    fn select(pairs: &Pairs, users: usize, items: usize) -> Self {
        let all = || pairs.pairs.iter().copied();
        let candidates = most(all().map(|(user, _)| user), users.saturating_mul(3));
        let chosen = |pair: &(u32, u32)| candidates.contains_key(&pair.0);
        let items = most(all().filter(chosen).map(|(_, item)| item), items);
        let left = || all().filter(chosen).filter(|(_, item)| items.contains_key(item));
        let users = most(left().map(|(user, _)| user), users);
        let mut rows = vec![Vec::new(); users.len()];
        for (user, item) in left() {
            if let Some(&place) = users.get(&user) {
                rows[place].push((items[&item] as u32, 1.0));
            }
        }
        let mut order = vec![0; users.len()];
        users.iter().for_each(|(&user, &place)| order[place] = user);
        rows.iter_mut().for_each(|row| row.sort_by_key(|(item, _)| *item));
        debug_assert!(items.len() <= pairs.items);
        Self { users: order, rows: Sparse { rows, columns: items.len() } }
    }
}

/// The `count` numbers that occur most often, each with its place; the lower first among equals.
fn most(numbers: impl Iterator<Item = u32>, count: usize) -> BTreeMap<u32, usize> {
    let mut occurrences: BTreeMap<u32, u64> = BTreeMap::new();
    numbers.for_each(|number| *occurrences.entry(number).or_insert(0) += 1);
    let mut order: Vec<(u32, u64)> = occurrences.into_iter().collect();
    order.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    order.truncate(count);
    order.into_iter().enumerate().map(|(place, (number, _))| (number, place)).collect()
}

/// [u/‖u‖; 1]/√2 for each row; a row of nothing lies in no direction.
fn places(matrix: &Sparse, width: usize, seed: Seed) -> Vec<f64> {
    let directions = width - 1;
    let projection = project(matrix, directions, seed);
    let mut vectors = Vec::with_capacity(matrix.rows.len() * width);
    for row in projection.rows.chunks_exact(directions) {
        let scaled = row.iter().zip(&projection.singular);
        let left = scaled.map(|(x, singular)| if *singular > 0.0 { x / singular } else { 0.0 });
        let left: Vec<f64> = left.collect();
        let length = left.iter().map(|x| x * x).sum::<f64>().sqrt();
        let scale = if length > 0.0 { std::f64::consts::FRAC_1_SQRT_2 / length } else { 0.0 };
        vectors.extend(left.iter().map(|x| x * scale));
        vectors.push(std::f64::consts::FRAC_1_SQRT_2);
    }
    vectors
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use posse_sim::world::{Data, UserClusters};

    use super::super::ratings::OwnRatings;
    use super::*;

    /// Ratings by two kinds of users, who like different items. Every user misses one item of its kind.
    fn two_kinds(users: u32, items: u32) -> String {
        let mut text = String::from("who;what;stars\n");
        for user in 0..users {
            for item in (0..items).filter(|item| *item != user % items) {
                let liked = item % 2 == user % 2;
                text += &format!("u{user};i{item};{}\n", if liked { 5 } else { 1 });
            }
        }
        text
    }

    fn own(file: PathBuf) -> Ratings {
        Ratings::Own(OwnRatings {
            file,
            separator: ";".into(),
            user: "who".into(),
            item: "what".into(),
            rating: Some("stars".into()),
        })
    }

    fn prepared(text: &str, settings: &UserClusterSettings) -> Result<(Manifest, UserClusters), String> {
        let home = tempfile::tempdir().unwrap();
        let (raw, out) = (home.path().join("likes.csv"), home.path().join("out"));
        std::fs::write(&raw, text).unwrap();
        let manifest = prepare_user_clusters(&own(raw), settings, &out, false, &mut |_| {})
            .map_err(|error| error.problem.to_string())?;
        match crate::load(&out, &manifest.hash).unwrap().0 {
            Data::Users(users) => Ok((manifest, UserClusters::clone(&users))),
            other => panic!("{}", other.kind()),
        }
    }

    fn settings() -> UserClusterSettings {
        UserClusterSettings { dimension: 3, clusters: 2, min_rating: 3.0, ..Default::default() }
    }

    #[test]
    fn people_who_like_the_same_items_are_in_a_cluster() {
        let (manifest, users) = prepared(&two_kinds(20, 12), &settings()).unwrap();
        assert_eq!((manifest.counts["users"], manifest.counts["items"]), (20, 12));
        let names = &manifest.names["users"];
        let kind = |name: &String| name[1..].parse::<u64>().unwrap() % 2;
        let first = users.labels()[0];
        for (name, label) in names.iter().zip(users.labels()) {
            assert_eq!(*label == first, kind(name) == kind(&names[0]), "{name}");
        }
        // Two kinds without anything in common lie at right angles: [u/‖u‖; 1]/√2 are 1 apart.
        let [one, other] = [&users.centres()[0], &users.centres()[1]];
        let apart: f64 = one.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum();
        assert!((apart - 1.0).abs() < 1e-6, "{apart}");
        assert!((one[2] - std::f64::consts::FRAC_1_SQRT_2).abs() < 1e-12);
    }

    #[test]
    fn those_with_most_come_first_and_the_rest_is_left_out() {
        let text = "who;what;stars\na;x;5\na;y;5\nb;x;5\nb;y;5\nb;z;5\nc;z;1\nd;x;5\nb;x;5\n";
        let few = UserClusterSettings { users: 2, items: 2, ..settings() };
        let (manifest, _) = prepared(text, &few).unwrap();
        // x has three users, y two and z one; c liked nothing, and b liked x twice, which counts once.
        assert_eq!(manifest.names["users"], ["a", "b"]);
        assert_eq!((manifest.counts["items"], manifest.counts["pairs"]), (2, 4));
    }

    #[test]
    fn the_same_file_gives_the_same_hash() {
        let text = two_kinds(9, 7);
        let hash = || prepared(&text, &settings()).unwrap().0.hash;
        assert_eq!(hash(), hash());
    }

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        let refused = |text: &str, settings: UserClusterSettings| prepared(text, &settings).unwrap_err();
        let good = two_kinds(4, 4);
        assert!(
            refused(&good, UserClusterSettings { dimension: 1, ..settings() }).contains("two parameters")
        );
        assert!(refused(&good, UserClusterSettings { users: 0, ..settings() }).contains("one user"));
        assert!(refused(&good, UserClusterSettings { clusters: 0, ..settings() }).contains("one cluster"));
        assert_eq!(
            refused(&good, UserClusterSettings { min_rating: 6.0, ..settings() }),
            "no rating is 6 or more"
        );
        assert!(refused("who;stars\na;5\n", settings()).contains("no column `what`"));
        assert!(refused("who;what;stars\na;;5\n", settings()).contains("is not a name"));
        assert!(refused("who;what;stars\na;x;many\n", settings()).contains("\"many\""));
    }
}
