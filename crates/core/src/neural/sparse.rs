//! A vector that is mostly zero: the gradient of a network, in which dead units and absent features leave no
//! trace.

/// Entries that are not zero, by rising index.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sparse {
    index: Vec<u32>,
    value: Vec<f64>,
}

impl Sparse {
    pub(crate) fn clear(&mut self) {
        self.index.clear();
        self.value.clear();
    }

    /// Adds the entry `index`, which is larger than all before, unless it is zero.
    #[inline]
    pub(crate) fn push_nonzero(&mut self, index: usize, value: f64) {
        debug_assert!(self.index.last().is_none_or(|last| (*last as usize) < index), "indices rise");
        if value != 0.0 {
            self.index.push(index as u32);
            self.value.push(value);
        }
    }

    pub(crate) fn from_dense(dense: &[f64]) -> Self {
        let mut sparse = Self::default();
        dense.iter().enumerate().for_each(|(index, value)| sparse.push_nonzero(index, *value));
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
        self.value.iter().all(|v| v.abs() <= 1e100)
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
