//! Parts of a plan, for several machines.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Part `number` of `count`: every `count`-th cell, beginning with the `number`-th.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Shard {
    /// Which of the parts this is, counted from 1.
    number: usize,
    count: usize,
}

impl Shard {
    /// Whether the cell at this place of the plan belongs to the part.
    pub(crate) const fn holds(self, index: usize) -> bool {
        index % self.count == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected i/n with 1 ≤ i ≤ n, as in 2/3".to_owned();
        let (number, count) = text.split_once('/').ok_or_else(expected)?;
        let (number, count) =
            (number.parse().map_err(|_| expected())?, count.parse().map_err(|_| expected())?);
        if number == 0 || number > count { Err(expected()) } else { Ok(Self { number, count }) }
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> Self {
        shard.to_string()
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::Shard;

    #[test]
    fn the_parts_of_a_plan_hold_every_cell_once() {
        let parts: Vec<Shard> = ["1/3", "2/3", "3/3"].map(|text| text.parse().unwrap()).to_vec();
        for index in 0..20 {
            assert_eq!(parts.iter().filter(|part| part.holds(index)).count(), 1);
        }
        for wrong in ["", "1", "0/3", "4/3", "1/0", "-1/3", "1/3/3", "a/b"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
