//! A vector that is mostly zero: the gradient of a network, in which dead units and absent features leave no
//! trace.

/// Entries that are not zero, by rising index.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sparse {
    index: Vec<u32>,
    value: Vec<f64>,
}

/// A vector that is being written anew.
pub(crate) struct Filling<'a> {
    vector: &'a mut Sparse,
    filled: usize,
}

impl Filling<'_> {
    /// Adds the entry `index`, which is larger than all before, unless it is zero. Which entries are zero is nothing that a
    /// processor could guess, so every entry is written, and one that is zero is written over by the next.
    #[inline(always)]
    pub(crate) fn push_nonzero(&mut self, index: usize, value: f64) {
        self.vector.index[self.filled] = index as u32;
        self.vector.value[self.filled] = value;
        self.filled += usize::from(value != 0.0);
    }

    /// Ends the vector with the last entry that was added.
    pub(crate) fn finish(self) {
        let Self { vector, filled } = self;
        vector.index.truncate(filled);
        vector.value.truncate(filled);
        debug_assert!(vector.index.windows(2).all(|pair| pair[0] < pair[1]), "indices rise");
    }
}

impl Sparse {
    /// Forgets all entries, to write up to `most` others, zeros among them.
    pub(crate) fn refill(&mut self, most: usize) -> Filling<'_> {
        self.index.resize(most, 0);
        self.value.resize(most, 0.0);
        Filling { vector: self, filled: 0 }
    }

    pub(crate) fn from_dense(dense: &[f64]) -> Self {
        let mut sparse = Self::default();
        let nonzero = || dense.iter().enumerate().filter(|(_, value)| **value != 0.0);
        sparse.index.extend(nonzero().map(|(index, _)| index as u32));
        sparse.value.extend(nonzero().map(|(_, value)| *value));
        sparse
    }

    /// Returns the index and the value of every entry, by rising index.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, f64)> + Clone + '_ {
        self.index.iter().zip(&self.value).map(|(index, value)| (*index as usize, *value))
    }

    pub(crate) fn indices(&self) -> &[u32] {
        &self.index
    }

    pub(crate) fn values(&self) -> &[f64] {
        &self.value
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Whether every entry is finite and its square can be added up.
    pub(crate) fn is_sound(&self) -> bool {
        // Without leaving early, so that several are compared at a time.
        self.value.iter().fold(true, |sound, v| sound & (v.abs() <= 1e100))
    }

    /// The inner product with a vector.
    #[inline]
    pub(crate) fn dot(&self, dense: &[f64]) -> f64 {
        self.iter().map(|(index, value)| value * dense[index]).sum()
    }

    /// Adds a multiple of this to a vector.
    pub(crate) fn add_to(&self, multiple: f64, dense: &mut [f64]) {
        self.iter().for_each(|(index, value)| dense[index] += multiple * value);
    }

    /// The entries and where they are, if they can be those of a vector of this length.
    pub(crate) fn restored(index: Vec<u32>, value: Vec<f64>, length: usize) -> Option<Self> {
        let rises = index.windows(2).all(|pair| pair[0] < pair[1]);
        let inside = index.last().is_none_or(|last| (*last as usize) < length);
        let sparse = Self { index, value };
        let fits = sparse.index.len() == sparse.value.len() && rises && inside;
        (fits && sparse.is_sound()).then_some(sparse)
    }
}
