//! Lengths of time, written with their unit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time in whole microseconds. Files write it with a unit: `"250ms"`, `"30s"`, `"10min"`.
///
/// A bare number is refused, because a reader could not tell seconds from milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(u64);

/// The units and how many microseconds each has, the longest first.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// A text that is no length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotATimeSpan;

impl TimeSpan {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of so many microseconds.
    #[must_use]
    pub const fn from_micros(microseconds: u64) -> Self {
        Self(microseconds)
    }

    /// A span of so many milliseconds, or the longest that there is.
    #[must_use]
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(milliseconds.saturating_mul(1_000))
    }

    /// A span of so many seconds, or the longest that there is.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// Returns the span in microseconds.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }
}

impl From<TimeSpan> for std::time::Duration {
    fn from(span: TimeSpan) -> Self {
        Self::from_micros(span.0)
    }
}

impl FromStr for TimeSpan {
    type Err = NotATimeSpan;

    /// Reads a whole number with a unit after it. More than fits is refused.
    fn from_str(text: &str) -> Result<Self, NotATimeSpan> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| NotATimeSpan)?;
        let (_, microseconds) =
            UNITS.into_iter().find(|(name, _)| *name == unit.trim_start()).ok_or(NotATimeSpan)?;
        number.checked_mul(microseconds).map(Self).ok_or(NotATimeSpan)
    }
}

/// Writes the span in the longest unit in which it is a whole number, as it can be read again.
impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(_, microseconds): &(&str, u64)| self.0.is_multiple_of(*microseconds);
        let zero = ("s", 1);
        let (unit, microseconds) =
            if self.0 == 0 { zero } else { UNITS.into_iter().find(whole).unwrap_or(("us", 1)) };
        write!(f, "{}{unit}", self.0 / microseconds)
    }
}

impl fmt::Display for NotATimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write a whole number with a unit, such as \"250ms\", \"30s\" or \"10min\"")
    }
}

impl std::error::Error for NotATimeSpan {}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = TimeSpan;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time with its unit, such as \"30s\"")
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<TimeSpan, E> {
                value.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(value), &self))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_they_are_written() {
        for (text, microseconds) in [
            ("0s", 0),
            ("7us", 7),
            ("250ms", 250_000),
            ("30s", 30_000_000),
            ("10min", 600_000_000),
            ("36h", 129_600_000_000),
            ("365d", 31_536_000_000_000),
        ] {
            let span: TimeSpan = text.parse().unwrap();
            assert_eq!((span.as_micros(), span.to_string().as_str()), (microseconds, text));
        }
        assert_eq!("90 s".parse::<TimeSpan>().unwrap().to_string(), "90s");
        assert_eq!("1000ms".parse::<TimeSpan>().unwrap().to_string(), "1s");
    }

    #[test]
    fn what_has_no_unit_or_does_not_fit_is_refused() {
        for text in [
            "",
            "30",
            "s",
            "-1s",
            "1.5s",
            "1 week",
            "30 S",
            "18446744073709551615s",
            "99999999999999999999us",
        ] {
            assert_eq!(text.parse::<TimeSpan>(), Err(NotATimeSpan), "{text:?}");
        }
        assert!(serde_json::from_str::<TimeSpan>("30").unwrap_err().to_string().contains("with its unit"));
        assert!(
            serde_json::from_str::<TimeSpan>("\"30\"").unwrap_err().to_string().contains("with its unit")
        );
    }

    #[test]
    fn spans_survive_being_saved() {
        for microseconds in [0, 1, 999, 1_000, 1_001, 3_600_000_000, u64::MAX] {
            let span = TimeSpan::from_micros(microseconds);
            let saved = serde_json::to_string(&span).unwrap();
            assert_eq!(serde_json::from_str::<TimeSpan>(&saved).unwrap(), span, "{saved}");
        }
    }
}
