//! A buffer of numbers that starts on a cache line.
//!
//! Vector stores that straddle a cache line cannot be forwarded to the scalar loads that follow them in
//! the rank-one update; an unlucky allocation made that update three times slower.

use std::fmt;
use std::ops::{Deref, DerefMut};

const CACHE_LINE: usize = 64;
const SLACK: usize = CACHE_LINE / size_of::<f64>();

/// A fixed number of `f64`, aligned to a cache line.
pub(crate) struct Aligned {
    memory: Vec<f64>,
    start: usize,
    len: usize,
}

impl Aligned {
    pub(crate) fn zeros(len: usize) -> Self {
        let memory = vec![0.0; len + SLACK];
        let start = start_of(&memory);
        Self { memory, start, len }
    }
}

/// The first place in a vector's memory that lies on a cache line.
fn start_of(memory: &Vec<f64>) -> usize {
    // `align_offset` may decline to answer; any start is correct, this one is fast.
    Some(memory.as_ptr().align_offset(CACHE_LINE)).filter(|&o| o <= SLACK).unwrap_or(0)
}

impl Deref for Aligned {
    type Target = [f64];

    #[inline]
    fn deref(&self) -> &[f64] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for Aligned {
    #[inline]
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl Clone for Aligned {
    fn clone(&self) -> Self {
        let mut memory = Vec::with_capacity(self.len + SLACK);
        let start = start_of(&memory);
        memory.resize(start, 0.0);
        memory.extend_from_slice(self);
        Self { memory, start, len: self.len }
    }
}

impl fmt::Debug for Aligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}
