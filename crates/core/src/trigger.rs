//! When to speak: thresholds on the growth of information.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::ConfigError;

/// A determinant ratio γ in [1, ∞] that something must exceed. 1 is exceeded by every observation with
/// features, ∞ by nothing. Configuration files may write ∞ as `inf` or `"inf"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold(pub f64);

impl Threshold {
    /// A threshold that nothing exceeds.
    pub const NEVER: Self = Self(f64::INFINITY);

    /// ln γ, what a growth of information is compared with.
    pub(crate) fn ln(self) -> f64 {
        libm::log(self.0)
    }

    /// The threshold that, exceeded `times` times over, is this one: γ^(1/times).
    pub(crate) fn root(self, times: usize) -> Self {
        // One level is the threshold as it was written, to the last bit.
        if times <= 1 { self } else { Self(libm::exp(self.ln() / times as f64)) }
    }

    pub(crate) fn check_ratio(self, name: &'static str) -> Result<(), ConfigError> {
        ConfigError::require(self.0 >= 1.0, name, self.0, "it must be at least 1; inf means never")
    }

    pub(crate) fn check_not_negative(self, name: &'static str) -> Result<(), ConfigError> {
        ConfigError::require(self.0 >= 0.0, name, self.0, "it must be zero or more; inf means never")
    }
}

impl Serialize for Threshold {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() { serializer.serialize_f64(self.0) } else { serializer.serialize_str("inf") }
    }
}

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Threshold;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or \"inf\"")
            }
            fn visit_f64<E>(self, value: f64) -> Result<Threshold, E> {
                Ok(Threshold(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Threshold, E> {
                Ok(Threshold(value as f64))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Threshold, E> {
                Ok(Threshold(value as f64))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Threshold, E> {
                match value {
                    "inf" => Ok(Threshold::NEVER),
                    _ => Err(E::invalid_value(de::Unexpected::Str(value), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// When an agent uploads: once its buffer holds enough observations and raised its information enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadTrigger {
    ln_threshold: f64,
    min_upload: u64,
}

impl UploadTrigger {
    pub(crate) fn new(threshold: Threshold, min_upload: u64) -> Self {
        Self { ln_threshold: threshold.ln(), min_upload }
    }

    /// Strictly: at γ = 1 an observation without features does not fire.
    pub(crate) fn fires(self, fresh_information: f64, buffered: u64) -> bool {
        fresh_information > self.ln_threshold && buffered >= self.min_upload
    }
}
