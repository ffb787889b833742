//! The graph of an agent's users: an edge between two says that nothing yet tells them apart.

/// Undirected edges as bits: n²/8 bytes for n users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Graph {
    rows: Vec<Vec<u64>>,
}

impl Graph {
    /// One more user, with edges to these.
    pub(crate) fn add(&mut self, neighbours: &[usize]) -> usize {
        let user = self.rows.len();
        let words = (user + 1).div_ceil(64);
        for row in &mut self.rows {
            row.resize(words, 0);
        }
        self.rows.push(vec![0; words]);
        for &other in neighbours {
            self.rows[user][other / 64] |= 1 << (other % 64);
            self.rows[other][user / 64] |= 1 << (user % 64);
        }
        user
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    #[cfg(test)]
    fn has(&self, a: usize, b: usize) -> bool {
        self.rows[a][b / 64] >> (b % 64) & 1 == 1
    }

    /// Deletes every edge of `user` to users from `first` on that `differs` says so about; whether there was
    /// one.
    pub(crate) fn prune(
        &mut self,
        user: usize,
        first: usize,
        mut differs: impl FnMut(usize) -> bool,
    ) -> bool {
        let mut deleted = false;
        for word in first / 64..self.rows[user].len() {
            let mut left = self.rows[user][word];
            if word == first / 64 {
                left &= u64::MAX << (first % 64);
            }
            while left != 0 {
                let other = word * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                if differs(other) {
                    self.rows[user][word] &= !(1 << (other % 64));
                    self.rows[other][user / 64] &= !(1 << (user % 64));
                    deleted = true;
                }
            }
        }
        deleted
    }

    /// Returns `user` and all users connected with it, by rising index. Users marked in `seen` are left out,
    /// and those returned are marked.
    pub(crate) fn component(&self, user: usize, seen: &mut [u64]) -> Vec<usize> {
        let mut found = Vec::new();
        let mut open = vec![user];
        seen[user / 64] |= 1 << (user % 64);
        while let Some(next) = open.pop() {
            found.push(next);
            for (word, (row, seen)) in self.rows[next].iter().zip(seen.iter_mut()).enumerate() {
                let mut fresh = row & !*seen;
                *seen |= fresh;
                while fresh != 0 {
                    open.push(word * 64 + fresh.trailing_zeros() as usize);
                    fresh &= fresh - 1;
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// The components among `users`, by their first user. Edges to others lead nowhere.
    pub(crate) fn components(&self, users: &[usize]) -> Vec<Vec<usize>> {
        let mut seen = vec![u64::MAX; self.len().div_ceil(64)];
        users.iter().for_each(|user| seen[user / 64] &= !(1 << (user % 64)));
        let mut all = Vec::new();
        for &user in users {
            if seen[user / 64] >> (user % 64) & 1 == 0 {
                all.push(self.component(user, &mut seen));
            }
        }
        all
    }

    /// All rows, one after the other.
    pub(crate) fn words(&self) -> Vec<u64> {
        self.rows.concat()
    }

    /// The graph of `users` users that was saved, if it can be one.
    pub(crate) fn from_words(users: usize, words: &[u64]) -> Option<Self> {
        let stride = users.div_ceil(64);
        if words.len() != stride * users {
            return None;
        }
        let rows: Vec<Vec<u64>> = words.chunks(stride.max(1)).map(<[u64]>::to_vec).collect();
        let symmetric = (0..users).all(|a| {
            let beyond = !users.is_multiple_of(64) && rows[a][stride - 1] >> (users % 64) != 0;
            let mut others = (0..users).filter(|b| rows[a][b / 64] >> (b % 64) & 1 == 1);
            !beyond && others.all(|b| b != a && rows[b][a / 64] >> (a % 64) & 1 == 1)
        });
        symmetric.then_some(Self { rows })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn complete(users: usize) -> Graph {
        let mut graph = Graph::default();
        for user in 0..users {
            graph.add(&(0..user).collect::<Vec<_>>());
        }
        graph
    }

    /// Components by walking over pairs.
    fn plain_components(graph: &Graph) -> Vec<Vec<usize>> {
        let mut of: Vec<usize> = (0..graph.len()).collect();
        for _ in 0..graph.len() {
            for a in 0..graph.len() {
                for b in 0..graph.len() {
                    if graph.has(a, b) {
                        of[a] = of[a].min(of[b]);
                    }
                }
            }
        }
        let roots = (0..graph.len()).filter(|&user| of[user] == user);
        roots.map(|root| (0..graph.len()).filter(|&user| of[user] == root).collect()).collect()
    }

    proptest! {
        #[test]
        fn components_are_those_that_walking_over_pairs_finds(
            users in 1usize..140, cut in 0usize..1000, modulus in 2usize..9,
        ) {
            let mut graph = complete(users);
            for user in 0..users {
                graph.prune(user, user + 1, |other| (user * 7 + other * 3 + cut) % modulus != 0);
            }
            let everyone: Vec<usize> = (0..users).collect();
            prop_assert_eq!(graph.components(&everyone), plain_components(&graph));
            prop_assert_eq!(Graph::from_words(users, &graph.words()), Some(graph));
        }
    }

    #[test]
    fn edges_go_both_ways_and_stay_deleted() {
        let mut graph = complete(70);
        assert!(graph.has(0, 69) && graph.has(69, 0) && !graph.has(3, 3));
        assert!(graph.prune(69, 0, |other| other == 0));
        assert!(!graph.has(0, 69) && !graph.has(69, 0));
        assert!(!graph.prune(69, 0, |other| other == 0));
        graph.add(&[69]);
        assert!(graph.has(70, 69) && !graph.has(70, 0) && !graph.has(0, 69));
    }

    #[test]
    fn users_who_are_left_out_connect_nobody() {
        let mut graph = complete(70);
        graph.prune(0, 1, |other| other == 69);
        assert_eq!(graph.components(&[0, 69]), [[0], [69]]);
        assert_eq!(graph.components(&[0, 5, 69]), [[0, 5, 69]]);
    }

    #[test]
    fn words_that_are_no_graph_are_refused() {
        assert_eq!(Graph::from_words(2, &[2]), None, "too few");
        assert_eq!(Graph::from_words(2, &[2, 0]), None, "not symmetric");
        assert_eq!(Graph::from_words(2, &[1, 0]), None, "an edge to itself");
        assert_eq!(Graph::from_words(2, &[6, 1]), None, "a user that is not there");
    }
}
