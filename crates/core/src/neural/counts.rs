//! How many observations are where, in the form in which all agents say so. The statistics of this family are
//! of gradients and too large to be copied for a look, so that a look shows counts alone.

use crate::agent::AgentView;
use crate::evidence::Evidence;
use crate::ids::Version;
use crate::ridge::Ridge;

/// Evidence without numbers, only counts.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    shared: Evidence,
    in_flight: Option<(u64, Evidence)>,
    buffer: Evidence,
    model: Ridge,
    pub(crate) version: Version,
    pub(crate) fresh_information: f64,
}

/// So many observations of a feature that is always zero.
pub(crate) fn counted(count: u64) -> Evidence {
    Evidence::from_parts_unchecked(vec![0.0], vec![0.0], count)
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            shared: counted(0),
            in_flight: None,
            buffer: counted(0),
            model: Ridge::new(1, 1.0),
            version: Version(0),
            fresh_information: 0.0,
        }
    }
}

impl Counts {
    /// So many are shared, so many are on their way in a round, so many are not.
    pub(crate) fn set(&mut self, shared: u64, in_flight: Option<(u64, u64)>, buffer: u64) {
        self.shared = counted(shared);
        self.in_flight = in_flight.map(|(round, count)| (round, counted(count)));
        self.buffer = counted(buffer);
    }

    pub(crate) fn view(&self) -> AgentView<'_> {
        AgentView {
            base: &self.shared,
            version: self.version,
            in_flight: self.in_flight.as_ref().map(|(round, evidence)| (*round, evidence)),
            buffer: &self.buffer,
            model: &self.model,
            withheld: 0,
            fresh_information: self.fresh_information,
        }
    }
}
