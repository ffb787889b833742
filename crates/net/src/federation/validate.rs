//! Whether a message can come from observations within the federation's bounds, whatever kind of message it is.
//!
//! Dimension, finiteness and positive sums are core's business; the arithmetic is in [`possible`].

use posse_core::{ClusterUpload, EvidenceUpload, Parcel, ProtocolError, Pull, Uplink};

use super::{FederationConfig, possible};

/// `Ok` if observations within the federation's bounds could have produced the message.
pub(super) fn check(config: &FederationConfig, message: &Uplink) -> Result<(), ProtocolError> {
    match message {
        Uplink::Pull(Pull { upload: Some(EvidenceUpload { evidence, .. }), .. })
        | Uplink::Evidence(EvidenceUpload { evidence, .. })
        | Uplink::RoundEvidence { evidence, .. } => parcel(config, evidence),
        Uplink::RoundParts { parts, .. } => parts.iter().try_for_each(|part| parcel(config, &part.evidence)),
        Uplink::Cluster(upload) => cluster(config, upload),
        Uplink::Clusters(list) => list.uploads.iter().try_for_each(|upload| cluster(config, upload)),
        // Sums of other things than features and rewards: core checks their shapes and that they are finite. Bytes of algorithms
        // from outside are their own business.
        Uplink::Gradient(_) | Uplink::NetworkPart(_) | Uplink::Weights(_) | Uplink::Extension(_) => Ok(()),
        // Under masks any number is as possible as any other. What the sum may be is checked when it is opened.
        Uplink::Secure(_) => Ok(()),
        Uplink::Pull(Pull { upload: None, .. })
        | Uplink::RoundRequest { .. }
        | Uplink::RoundLoss { .. }
        | Uplink::NetworkRequest { .. } => Ok(()),
    }
}

/// The same for the sums of one agent.
fn parcel(config: &FederationConfig, evidence: &Parcel) -> Result<(), ProtocolError> {
    // Of another dimension: core says it better.
    if evidence.dimension() as u64 != config.dimension {
        return Ok(());
    }
    // The coordinator that takes the message in finds it unpacked.
    possible::check(evidence.evidence(), config.feature_bound, config.reward_bound)
}

/// The same for one cluster. Private uploads carry noise, so that any matrix may come of it: they are not checked.
fn cluster(config: &FederationConfig, upload: &ClusterUpload) -> Result<(), ProtocolError> {
    if upload.released || upload.evidence.dimension() as u64 != config.dimension {
        return Ok(());
    }
    possible::check(&upload.evidence, config.feature_bound, config.reward_bound)
}

#[cfg(test)]
mod tests {
    use posse_core::{
        Algorithm, AsyncLinUcb, ClusterId, ClusterList, Evidence, FclubDc, Parcel, PhaseId, Version,
    };

    use super::*;

    fn upload(length: f64, reward: f64, released: bool) -> ClusterUpload {
        let mut evidence = Evidence::none(2);
        evidence.observe(&[length, 0.0], reward).unwrap();
        let (cluster, number, based_on) = (ClusterId(0), 1, Version(0));
        let (variance, members) = (0.0, 1);
        ClusterUpload { cluster, number, based_on, information: 0.1, evidence, released, variance, members }
    }

    #[test]
    fn an_upload_that_was_checked_is_not_unpacked_again() {
        let config = FederationConfig::new("x", Algorithm::AsyncLinUcb(AsyncLinUcb::default()), 9);
        let mut evidence = Evidence::none(9);
        evidence.observe(&[0.5; 9], 1.0).unwrap();
        let evidence = Parcel::wrap(&evidence);
        assert!(!evidence.is_unpacked());
        let upload = EvidenceUpload { number: 1, based_on: Version(0), information: 0.1, evidence };
        for message in [
            Uplink::Evidence(upload.clone()),
            Uplink::Pull(Pull { based_on: Version(0), doubt: 0.0, upload: Some(upload) }),
        ] {
            check(&config, &message).unwrap();
            let (Uplink::Evidence(upload) | Uplink::Pull(Pull { upload: Some(upload), .. })) = &message
            else {
                panic!("it is one of the two")
            };
            assert!(upload.evidence.is_unpacked(), "the coordinator would unpack {message:?} again");
        }
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
