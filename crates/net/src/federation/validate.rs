//! Whether evidence is possible for the count it claims, where bounds on features and rewards are known.
//!
//! Dimension, finiteness and positive sums are core's business. With a bound L on the norm of features and
//! Y on rewards, n observations also satisfy tr Σxxᵀ ≤ nL² and, because Σxy is a combination of the
//! features, (Σxy)ᵀ(Σxxᵀ + I)⁻¹(Σxy) ≤ nY².

use posse_core::{ClusterUpload, Evidence, EvidenceUpload, ProtocolError, Pull, Ridge, Uplink};

use super::FederationConfig;

/// Room for rounding.
const SLACK: f64 = 1.0 + 1e-9;

/// `Ok` if observations within the federation's bounds could have produced the message.
pub(super) fn check(config: &FederationConfig, message: &Uplink) -> Result<(), ProtocolError> {
    if config.feature_bound.is_none() && config.reward_bound.is_none() {
        return Ok(());
    }
    match message {
        Uplink::Pull(Pull { upload: Some(upload), .. }) => check(config, &Uplink::Evidence(upload.clone())),
        Uplink::Evidence(EvidenceUpload { evidence, .. }) | Uplink::RoundEvidence { evidence, .. } => {
            // Of another dimension: core says it better.
            if evidence.dimension() as u64 != config.dimension {
                return Ok(());
            }
            possible(config, &evidence.unwrap())
        }
        Uplink::Cluster(upload) => cluster(config, upload),
        Uplink::Clusters(list) => list.uploads.iter().try_for_each(|upload| cluster(config, upload)),
        _ => Ok(()),
    }
}

/// The same for one cluster. Noise may have made the impossible of anything.
fn cluster(config: &FederationConfig, upload: &ClusterUpload) -> Result<(), ProtocolError> {
    if upload.released || upload.evidence.dimension() as u64 != config.dimension {
        return Ok(());
    }
    possible(config, &upload.evidence)
}

fn possible(config: &FederationConfig, evidence: &Evidence) -> Result<(), ProtocolError> {
    let count = evidence.count() as f64;
    if let Some(bound) = config.feature_bound
        && trace(evidence) > count * bound * bound * SLACK
    {
        return Err(ProtocolError::Evidence("features are longer than feature_bound allows"));
    }
    if let Some(bound) = config.reward_bound {
        let mut ridge = Ridge::new(evidence.dimension(), 1.0);
        ridge.refresh([evidence].into_iter())?;
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

#[cfg(test)]
mod tests {
    use posse_core::{Algorithm, ClusterId, ClusterList, FclubDc, PhaseId, Version};

    use super::*;

    fn upload(length: f64, reward: f64, released: bool) -> ClusterUpload {
        let mut evidence = Evidence::none(2);
        evidence.observe(&[length, 0.0], reward).unwrap();
        let (cluster, number, based_on) = (ClusterId(0), 1, Version(0));
        ClusterUpload { cluster, number, based_on, information: 0.1, evidence, released }
    }

    #[test]
    fn clusters_are_held_to_the_bounds_unless_they_carry_noise() {
        let config = FederationConfig {
            feature_bound: Some(1.0),
            reward_bound: Some(1.0),
            ..FederationConfig::new("x", Algorithm::FclubDc(FclubDc::default()), 2)
        };
        let fits = |upload: ClusterUpload| {
            let list = ClusterList { phase: PhaseId(1), kept: Vec::new(), uploads: vec![upload.clone()] };
            let alone = check(&config, &Uplink::Cluster(upload)).is_ok();
            assert_eq!(check(&config, &Uplink::Clusters(list)).is_ok(), alone);
            alone
        };
        assert!(fits(upload(1.0, 1.0, false)));
        assert!(!fits(upload(2.0, 0.0, false)));
        assert!(!fits(upload(1.0, 9.0, false)));
        assert!(fits(upload(2.0, 9.0, true)));
    }
}
