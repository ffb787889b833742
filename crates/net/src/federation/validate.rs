//! Whether evidence is possible for the count it claims, where bounds on features and rewards are known.
//!
//! Dimension, finiteness and positive sums are core's business. With a bound L on the norm of features and
//! Y on rewards, n observations also satisfy tr Σxxᵀ ≤ nL² and, because Σxy is a combination of the
//! features, (Σxy)ᵀ(Σxxᵀ + I)⁻¹(Σxy) ≤ nY².

use posse_core::{Evidence, Parcel, ProtocolError, Ridge, Uplink};

use super::FederationConfig;

/// Room for rounding.
const SLACK: f64 = 1.0 + 1e-9;

/// `Ok` if observations within the federation's bounds could have produced the message.
pub(super) fn check(config: &FederationConfig, message: &Uplink) -> Result<(), ProtocolError> {
    if config.feature_bound.is_none() && config.reward_bound.is_none() {
        return Ok(());
    }
    let parcel: &Parcel = match message {
        Uplink::Evidence(upload) => &upload.evidence,
        Uplink::RoundEvidence { evidence, .. } => evidence,
        _ => return Ok(()),
    };
    if parcel.dimension() != config.dimension as usize {
        // Core says it better.
        return Ok(());
    }
    let evidence = parcel.unwrap();
    let count = evidence.count() as f64;
    if let Some(bound) = config.feature_bound
        && trace(&evidence) > count * bound * bound * SLACK
    {
        return Err(ProtocolError::Evidence("features are longer than feature_bound allows"));
    }
    if let Some(bound) = config.reward_bound {
        let mut ridge = Ridge::new(evidence.dimension(), 1.0);
        ridge.refresh([&evidence].into_iter())?;
        let explained: f64 = ridge.estimate().iter().zip(evidence.moment()).map(|(a, b)| a * b).sum();
        if explained > count * bound * bound * SLACK {
            return Err(ProtocolError::Evidence("rewards are larger than reward_bound allows"));
        }
    }
    Ok(())
}

fn trace(evidence: &Evidence) -> f64 {
    (0..evidence.dimension()).map(|i| evidence.gram()[posse_core::packed(i) + i]).sum()
}
