//! k-means: which rows belong together. The same seed gives the same clusters, bit for bit.

use posse_core::Seed;

/// The result of k-means.
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    /// The coordinates of the centres, one centre after the other.
    pub centroids: Vec<f64>,
    /// The cluster of each row.
    pub assignment: Vec<u32>,
    /// How many rows each cluster has.
    pub sizes: Vec<u64>,
    /// Σ of squared distances of rows to their centres.
    pub inertia: f64,
    /// How often all centres were moved.
    pub iterations: u32,
}

/// Most moves of all centres; data of this kind settles long before, or has no clusters.
const MAX_ITERATIONS: u32 = 100;
/// Centres have settled when the inertia improves by less than this share.
const SETTLED: f64 = 1e-5;

/// Divides rows of `width` features, one after the other, into at most `count` clusters: k-means++ draws the
/// first centres (Arthur and Vassilvitskii, 2007), then Lloyd's iteration moves them. There are fewer
/// clusters than asked for if there are fewer different rows.
///
/// # Panics
/// If there are no rows, no features or no clusters.
#[must_use]
pub fn cluster(rows: &[f64], width: usize, count: usize, seed: Seed) -> Clusters {
    assert!(width > 0 && rows.len() >= width && count > 0, "there is something to divide");
    let mut centroids = first_centroids(rows, width, count, seed);
    let mut nearest = Nearest::new(rows.len() / width);
    let mut iterations = 0;
    let mut inertia = nearest.assign(rows, width, &centroids);
    while iterations < MAX_ITERATIONS {
        nearest.move_centroids(rows, width, &mut centroids);
        iterations += 1;
        let better = nearest.assign(rows, width, &centroids);
        let settled = inertia - better <= SETTLED * inertia;
        inertia = better;
        if settled {
            break;
        }
    }
    let mut sizes = vec![0; centroids.len() / width];
    nearest.assignment.iter().for_each(|&cluster| sizes[cluster as usize] += 1);
    Clusters { centroids, assignment: nearest.assignment, sizes, inertia, iterations }
}

/// k-means++: each next centre is a row, drawn with probability proportional to its squared distance from
/// the centres so far.
fn first_centroids(rows: &[f64], width: usize, count: usize, seed: Seed) -> Vec<f64> {
    let mut stream = seed.stream("k-means", 0, 0);
    let row = |at: usize| &rows[at * width..][..width];
    let total = rows.len() / width;
    let mut centroids = row(stream.below(total as u64) as usize).to_vec();
    let mut distances = vec![f64::INFINITY; total];
    while centroids.len() < count * width {
        let latest = centroids[centroids.len() - width..].to_vec();
        let mut sum = 0.0;
        for (x, distance) in rows.chunks_exact(width).zip(&mut distances) {
            *distance = distance.min(squared_distance(x, &latest));
            sum += *distance;
        }
        if sum <= 0.0 {
            break;
        }
        let mut left = stream.uniform() * sum;
        let at = distances.iter().position(|&distance| {
            left -= distance;
            left < 0.0
        });
        // Rounding may leave a little: the last row with any distance takes it.
        let at = at.or_else(|| distances.iter().rposition(|&distance| distance > 0.0));
        centroids.extend_from_slice(row(at.expect("some distance is above zero")));
    }
    centroids
}

struct Nearest {
    assignment: Vec<u32>,
    distances: Vec<f64>,
}

impl Nearest {
    fn new(rows: usize) -> Self {
        Self { assignment: vec![0; rows], distances: vec![0.0; rows] }
    }

    /// Gives each row to its nearest centre, the lowest among equals, and returns the inertia.
    fn assign(&mut self, rows: &[f64], width: usize, centroids: &[f64]) -> f64 {
        let mut inertia = 0.0;
        let places = self.assignment.iter_mut().zip(&mut self.distances);
        for (x, (cluster, distance)) in rows.chunks_exact(width).zip(places) {
            *distance = f64::INFINITY;
            for (index, centre) in centroids.chunks_exact(width).enumerate() {
                let own = squared_distance(x, centre);
                if own < *distance {
                    (*cluster, *distance) = (index as u32, own);
                }
            }
            inertia += *distance;
        }
        inertia
    }

    /// Moves each centre to the mean of its rows. A centre without rows moves to the row that is farthest
    /// from its own.
    fn move_centroids(&mut self, rows: &[f64], width: usize, centroids: &mut [f64]) {
        let mut sizes = vec![0u64; centroids.len() / width];
        centroids.fill(0.0);
        for (x, &cluster) in rows.chunks_exact(width).zip(&self.assignment) {
            sizes[cluster as usize] += 1;
            let sum = &mut centroids[cluster as usize * width..][..width];
            sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
        }
        for (centre, &size) in centroids.chunks_exact_mut(width).zip(&sizes) {
            if size > 0 {
                centre.iter_mut().for_each(|x| *x /= size as f64);
                continue;
            }
            let compare = |a: &usize, b: &usize| self.distances[*a].total_cmp(&self.distances[*b]);
            let farthest = (0..self.distances.len()).max_by(compare).expect("there are rows");
            self.distances[farthest] = 0.0;
            centre.copy_from_slice(&rows[farthest * width..][..width]);
        }
    }
}

/// ‖x − y‖², in an order that does not depend on the processor.
fn squared_distance(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| (x - y) * (x - y)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows around three points far apart, in turn.
    fn blobs(rows: u64) -> Vec<f64> {
        let mut stream = Seed(5).stream("test", 0, 0);
        let centres = [[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]];
        (0..rows).flat_map(|row| centres[(row % 3) as usize].map(|x| x + stream.normal())).collect()
    }

    #[test]
    fn clusters_far_apart_are_found() {
        for seed in 0..20 {
            let found = cluster(&blobs(300), 2, 3, Seed(seed));
            assert_eq!(found.sizes, [100, 100, 100]);
            for (row, &own) in found.assignment.iter().enumerate() {
                assert_eq!(own, found.assignment[row % 3]);
            }
            // 600 squared standard normals.
            assert!((450.0..750.0).contains(&found.inertia), "{}", found.inertia);
        }
    }

    #[test]
    fn a_centre_is_the_mean_of_its_rows_and_each_row_is_at_its_nearest() {
        let rows = blobs(200);
        let found = cluster(&rows, 2, 7, Seed(1));
        let mut inertia = 0.0;
        for (x, &own) in rows.chunks_exact(2).zip(&found.assignment) {
            let distance = |index: usize| squared_distance(x, &found.centroids[2 * index..][..2]);
            inertia += distance(own as usize);
            assert!((0..7).all(|other| distance(own as usize) <= distance(other)));
        }
        assert!((inertia - found.inertia).abs() < 1e-9);
        assert_eq!(found.sizes.iter().sum::<u64>(), 200);
    }

    #[test]
    fn equal_rows_make_one_cluster_and_the_same_seed_the_same_ones() {
        let same = cluster(&[1.0, 2.0, 1.0, 2.0, 1.0, 2.0], 2, 3, Seed(1));
        assert_eq!(
            (same.centroids.as_slice(), same.sizes.as_slice()),
            ([1.0, 2.0].as_slice(), [3].as_slice())
        );
        assert_eq!(cluster(&blobs(100), 2, 5, Seed(9)), cluster(&blobs(100), 2, 5, Seed(9)));
    }
}
