//! O17: without noise, private agents do what public ones do.

use std::collections::VecDeque;

use posse_core::privacy::Mechanism;
use posse_core::*;

use super::{D, NOW, RELEASES, agent, clustered, observation, privacy, release};

#[test]
fn o17_with_a_huge_budget_releases_are_the_sums() {
    let huge = PrivacyConfig { epsilon: 1e13, ..privacy() };
    let mut agent = agent(&clustered(huge, f64::INFINITY), 1);
    let mut truth = Evidence::none(D);
    for step in 0..RELEASES {
        let (x, y) = observation(step, 1.0);
        truth.observe(&x, y).unwrap();
        let upload = release(&mut *agent, &x, y).unwrap();
        let released = upload.evidence.gram().iter().chain(upload.evidence.moment());
        let exact = truth.gram().iter().chain(truth.moment());
        released.zip(exact).for_each(|(a, b)| assert!((a - b).abs() < 2e-4, "{a} {b}"));
    }
}

/// What two agents chose and said, in order.
#[derive(Debug, Default, PartialEq)]
struct Play {
    choices: Vec<usize>,
    uploads: Vec<(u64, ClusterId, Evidence)>,
    clusters: usize,
}

/// Lets two agents serve four users of two kinds; all features are multiples of 1/64.
fn play(algorithm: &Algorithm) -> Play {
    let federation = Federation { agents: 2, horizon: 600, seed: Seed(2) };
    let shape = Shape::shared(D);
    let mut coordinator = algorithm.coordinator(shape).unwrap();
    let ids = [AgentId(0), AgentId(1)];
    let mut agents = ids.map(|id| algorithm.agent(id, shape, &federation).unwrap());
    ids.iter().for_each(|id| drop(coordinator.join(NOW, *id, Entrance::NewLife)));
    let mut play = Play::default();
    let mut random = Seed(4).stream("play", 0, 0);
    for step in 0..600u64 {
        let mut arms = Arms::new(D);
        for _ in 0..4 {
            arms.push(&[0, 0].map(|_| (random.below(65) as f64 - 32.0) / 64.0)).unwrap();
        }
        let (place, user) = ((step % 2) as usize, UserId(step / 2 % 4));
        let arm = agents[place].choose(user, &arms).unwrap().arm;
        play.choices.push(arm);
        let x = arms.row(arm);
        let likes = if user.0 < 2 { x[0] } else { -x[0] };
        let reward = f64::from(u8::from(random.uniform() < 0.5 + likes));
        let said = agents[place].learn(user, x, reward).unwrap();
        let mut waiting: VecDeque<_> = said.map(|up| (place, up)).into_iter().collect();
        while let Some((from, up)) = waiting.pop_front() {
            let all = match &up {
                Uplink::Cluster(upload) => std::slice::from_ref(upload),
                Uplink::Clusters(list) => &list.uploads,
                other => panic!("{other:?}"),
            };
            let said = all.iter().map(|upload| (ids[from].0, upload.cluster, upload.evidence.clone()));
            play.uploads.extend(said);
            for outgoing in coordinator.receive(NOW, ids[from], up).unwrap() {
                for (to, agent) in agents.iter_mut().enumerate() {
                    if outgoing.to.includes(ids[to]) {
                        let answer = agent.receive(outgoing.message.clone()).unwrap();
                        waiting.extend(answer.map(|up| (to, up)));
                    }
                }
            }
        }
    }
    play.clusters = agents.iter().map(|agent| agent.clusters().len()).sum();
    play
}

/// Noise so small that the units of releases swallow it: what is left must be the algorithm without privacy.
#[test]
fn o17_without_noise_every_upload_is_that_of_the_public_algorithm_bit_for_bit() {
    let off = PrivacyConfig {
        epsilon: 1e30,
        mechanism: Mechanism::Tree,
        max_releases: 512,
        first_release: 1,
        release_growth: 1.0 + 1e-9,
        edge_releases: 512,
        edge_first: 1,
        edge_growth: 1.0 + 1e-9,
        ..Default::default()
    };
    assert!(off.calibration(D, true).matrix_bound < 1e-11, "it is not swallowed");
    let model = ModelConfig { fixed_width: Some(0.5), regularization: 1.0, ..Default::default() };
    let clusters = ClusterConfig { edge_scale: Threshold(1.0), ..Default::default() };
    let public = play(&Algorithm::Fclub(Fclub { model: model.clone(), clusters: clusters.clone() }));
    let private = play(&Algorithm::CdpFclubDc(CdpFclubDc {
        model,
        clusters,
        download_threshold: Threshold(1.0),
        privacy: off,
    }));
    assert_eq!(private, public);
    assert!(
        public.uploads.len() >= 600 && public.clusters > 2,
        "everything is shared, and users are told apart"
    );
}
