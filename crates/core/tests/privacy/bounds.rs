//! What one interaction, and one user, may contribute at most, and that counts tell nothing about rewards.

use posse_core::*;

use super::{agent, clustered, privacy, private_async, release};

#[test]
fn larger_features_and_rewards_are_scaled_or_refused() {
    let mut scaling = agent(&clustered(PrivacyConfig { epsilon: 1e13, ..privacy() }, 1.0), 1);
    let upload = release(&mut *scaling, &[30.0, 40.0], -7.0).unwrap();
    let trace = upload.evidence.gram()[0] + upload.evidence.gram()[2];
    assert!((trace - 1.0).abs() < 2e-4, "one observation of length one: {trace}");
    assert!((upload.evidence.moment()[1] + 0.8).abs() < 2e-4, "with a reward of -1");
    let report = scaling.privacy().unwrap();
    assert_eq!(
        (report.clipped, report.public().clipped),
        (Some(1), None),
        "raw counts are not for everybody"
    );
    // Rewards around a centre: 0.75 is 0.25 away from it, and 7 is cut to 0.5.
    let centred = PrivacyConfig { epsilon: 1e13, reward_centre: 0.5, reward_bound: 0.5, ..privacy() };
    for (reward, expected) in [(0.75, 0.25), (7.0, 0.5), (-7.0, -0.5)] {
        let upload = release(&mut *agent(&clustered(centred.clone(), 1.0), 1), &[1.0, 0.0], reward).unwrap();
        assert!((upload.evidence.moment()[0] - expected).abs() < 2e-4, "{reward}");
    }

    let refuse = PrivacyConfig { clip: posse_core::privacy::Clip::Refuse, ..privacy() };
    let mut refusing = agent(&clustered(refuse, 1.0), 1);
    let before = refusing.save();
    let error = refusing.learn(UserId(0), &[3.0, 4.0], 0.5).unwrap_err();
    assert_eq!(error, InputError::FeatureBound { length: 5.0, bound: 1.0 });
    let error = refusing.learn(UserId(0), &[0.6, 0.8], -2.0).unwrap_err();
    assert_eq!(error, InputError::RewardBound { value: -2.0, bound: 1.0 });
    assert_eq!(refusing.save(), before);
}

/// Two histories: in one the last choice got no reward. Counts and noise are the same, so that only the sums differ.
#[test]
fn choices_without_a_reward_are_counted_like_others() {
    let uploads = [true, false].map(|rewarded| {
        let privacy = PrivacyConfig { first_release: 3, epsilon: 1e9, ..privacy() };
        let mut agent = agent(&private_async(privacy), 4);
        assert_eq!(agent.learn(UserId(0), &[0.5, 0.5], 1.0).unwrap(), None);
        assert_eq!(agent.give_up(UserId(0)), None);
        let said = if rewarded {
            agent.learn(UserId(0), &[0.5, 0.5], 1.0).unwrap()
        } else {
            agent.give_up(UserId(0))
        };
        let Some(Uplink::Cluster(upload)) = said else { panic!("the third interaction is due: {said:?}") };
        assert_eq!(agent.privacy().unwrap().most_of_a_user, 3);
        upload
    });
    assert_eq!(uploads[0].evidence.count(), uploads[1].evidence.count());
    assert!(
        (uploads[0].evidence.moment()[0] - 1.0).abs() < 0.01
            && (uploads[1].evidence.moment()[0] - 0.5).abs() < 0.01
    );
    let plain = Algorithm::AsyncLinUcb(AsyncLinUcb::default());
    assert_eq!(agent(&plain, 1).give_up(UserId(0)), None, "only private agents count");
}

#[test]
fn a_user_beyond_the_cap_is_served_and_not_learned_from() {
    let privacy =
        PrivacyConfig { unit: posse_core::privacy::Unit::User, user_cap: 2, max_releases: 8, ..privacy() };
    let mut agent = agent(&private_async(privacy), 4);
    for interaction in 0..5 {
        let upload = release(&mut *agent, &[0.5, 0.5], 1.0);
        assert_eq!(upload.is_some(), interaction < 2, "{interaction}");
    }
    agent.learn(UserId(1), &[0.5, 0.5], 1.0).unwrap().expect("another user may still contribute");
    let report = agent.privacy().unwrap();
    assert_eq!((report.beyond_cap, report.most_of_a_user), (3, 2));
    assert_eq!(report.user_epsilon, report.epsilon, "the unit is the user");
}
