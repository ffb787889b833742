//! Releases carry the noise that the budget says, and what is made of them afterwards can be used.

use posse_core::privacy::{Budget, Mechanism, smallest_eigenvalue};
use posse_core::wire::decode_uplink;
use posse_core::*;

use super::{D, NOW, RELEASES, agent, clustered, observation, privacy, private_async, release};

#[test]
fn encoded_uploads_carry_the_noise_of_their_row() {
    for mechanism in [Mechanism::Factorisation, Mechanism::Tree] {
        let privacy = PrivacyConfig { mechanism, ..privacy() };
        let share = Budget::new(&privacy, D, false).cluster;
        let own = || Some(privacy.clone());
        let algorithms = [
            clustered(privacy.clone(), f64::INFINITY),
            private_async(privacy.clone()),
            Algorithm::AsyncLinTs(AsyncLinTs { privacy: own(), ..Default::default() }),
            Algorithm::FedLinUcb(FedLinUcb { privacy: own(), ..Default::default() }),
            Algorithm::SyncLinUcb(SyncLinUcb { privacy: own(), ..Default::default() }),
            // With this link rewards enter as they are.
            Algorithm::PrivateGlmUcb(PrivateGlmUcb {
                link: LinkFunction::Identity,
                privacy: privacy.clone(),
                ..Default::default()
            }),
        ];
        for algorithm in algorithms {
            let seeds = 1000;
            let mut squares = [[0.0; 5]; RELEASES as usize];
            for seed in 0..seeds {
                let mut agent = agent(&algorithm, seed);
                let mut truth = Evidence::none(D);
                for (step, sums) in (0..RELEASES).zip(&mut squares) {
                    let (x, y) = observation(step, 1.0);
                    truth.observe(&x, y).unwrap();
                    let upload = release(&mut *agent, &x, y).expect("a release after every observation");
                    assert_eq!(upload.evidence.count(), step + 1, "counts are public");
                    assert_eq!(
                        upload.variance,
                        share.variance(step + 1),
                        "and so is how much noise there is"
                    );
                    let released = upload.evidence.gram().iter().chain(upload.evidence.moment());
                    let exact = truth.gram().iter().chain(truth.moment());
                    let noise = released.zip(exact).map(|(a, b)| a - b);
                    sums.iter_mut().zip(noise).for_each(|(sum, value)| *sum += value * value);
                }
                let (x, y) = observation(9, 1.0);
                assert_eq!(release(&mut *agent, &x, y), None, "the budget is spent, and the agent silent");
                assert_eq!(agent.privacy().unwrap().silent, 1);
            }
            for (k, sums) in (1u64..).zip(&squares) {
                let vector = privacy.vector_noise * privacy.vector_noise;
                for (entry, factor) in [2.0, 1.0, 2.0, vector, vector].into_iter().enumerate() {
                    let expected = factor * share.variance(k);
                    let n = seeds as f64;
                    let off = (sums[entry] / n - expected).abs() / (expected * (2.0 / n).sqrt());
                    assert!(off < 5.0, "release {k}, entry {entry}: {} is not {expected}", sums[entry] / n);
                }
            }
        }
    }
}

#[test]
fn what_is_shared_stays_positive_definite_whatever_the_noise() {
    let algorithm = private_async(privacy());
    let floor = Budget::new(&privacy(), D, false).floor(25.0);
    let mut coordinator = algorithm.coordinator(Shape::shared(D)).unwrap();
    coordinator.join(NOW, AgentId(0), Entrance::NewLife);
    // Releases far below zero, as noise may make them.
    for number in 1..=5 {
        let evidence = posse_core::wire::v1::Evidence {
            count: number,
            moment: vec![1.0; D],
            dimension: 0,
            matrix: Some(posse_core::wire::v1::evidence::Matrix::Packed(posse_core::wire::v1::Packed {
                entries: vec![-50.0, 900.0, -3.0],
            })),
        };
        let upload = posse_core::wire::v1::ClusterUpload {
            cluster: 1,
            number,
            released: true,
            evidence: Some(evidence),
            variance: 25.0,
            ..Default::default()
        };
        let kind = Some(posse_core::wire::v1::uplink::Kind::Cluster(upload));
        let wire = posse_core::wire::v1::Uplink { kind };
        let upload = decode_uplink(&prost::Message::encode_to_vec(&wire)).unwrap();
        let told = coordinator.receive(NOW, AgentId(0), upload).unwrap();
        let Downlink::Group(group) = &told[0].message else { panic!("an answer with sums") };
        assert!(smallest_eigenvalue(group.snapshot.evidence.gram(), D) >= floor * (1.0 - 1e-9));
        assert_eq!((coordinator.repairs(), group.variance), (number, 25.0));
    }
}

#[test]
fn private_thompson_sampling_chooses_among_released_sums_and_varies() {
    let algorithm = Algorithm::AsyncLinTs(AsyncLinTs { privacy: Some(privacy()), ..Default::default() });
    let mut agent = agent(&algorithm, 1);
    let arms = Arms::from_rows(D, &[[1.0, 0.0], [0.0, 1.0], [-0.6, 0.8]]).unwrap();
    let chosen: std::collections::BTreeSet<usize> =
        (0..40).map(|_| agent.choose(UserId(0), &arms).unwrap().arm).collect();
    assert_eq!(chosen.len(), 3, "nothing is known, so that every arm has its turn");
    assert_eq!(agent.choose(UserId(0), &arms).unwrap().propensity, None);
}
