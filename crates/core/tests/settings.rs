//! Settings: refused by name when out of range, and the same after a trip through a file.

use posse_core::*;
use serde_json::{Value, json};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn refused(algorithm: &Algorithm) -> &'static str {
    let shape = Shape::shared(3);
    let error = algorithm.check(shape).expect_err("out of range");
    let federation = Federation { agents: 2, horizon: 10, seed: Seed(0) };
    assert_eq!(algorithm.agent(AgentId(0), shape, &federation).err(), Some(error.clone()));
    assert_eq!(algorithm.coordinator(shape).err(), Some(error.clone()));
    assert!(error.to_string().starts_with(&format!("`{}` is {}: ", error.name, error.value)), "{error}");
    error.name
}

/// Every linear algorithm without clusters, with this model.
fn with_model(model: &ModelConfig) -> Vec<Algorithm> {
    let model = || model.clone();
    vec![
        Algorithm::LinUcb(LinUcb { model: model() }),
        Algorithm::LinTs(LinTs { model: model(), ..Default::default() }),
        Algorithm::CentralLinUcb(LinUcb { model: model() }),
        Algorithm::AsyncLinUcb(AsyncLinUcb { model: model(), ..Default::default() }),
        Algorithm::AsyncLinTs(AsyncLinTs { model: model(), ..Default::default() }),
        Algorithm::AsyncLinPhe(AsyncLinPhe { model: model(), ..Default::default() }),
        Algorithm::SyncLinUcb(SyncLinUcb { model: model(), ..Default::default() }),
        Algorithm::FedLinUcb(FedLinUcb { model: model(), ..Default::default() }),
        Algorithm::AsyncLinUcbAm(AsyncLinUcbAm { model: model(), ..Default::default() }),
    ]
}

#[test]
fn a_model_out_of_range_is_refused_by_name_in_linear_algorithms() {
    let good = ModelConfig::default;
    for value in [0.0, -1.0, NAN, INF] {
        for algorithm in with_model(&ModelConfig { regularization: value, ..good() }) {
            assert_eq!(refused(&algorithm), "regularization");
        }
        for algorithm in with_model(&ModelConfig { norm_bound: value, ..good() }) {
            assert_eq!(refused(&algorithm), "norm_bound");
        }
    }
    for value in [-1e-9, NAN, INF] {
        for algorithm in with_model(&ModelConfig { noise: value, ..good() }) {
            assert_eq!(refused(&algorithm), "noise");
        }
        for algorithm in with_model(&ModelConfig { width_scale: value, ..good() }) {
            assert_eq!(refused(&algorithm), "width_scale");
        }
        for algorithm in with_model(&ModelConfig { fixed_width: Some(value), ..good() }) {
            assert_eq!(refused(&algorithm), "fixed_width");
        }
    }
    for value in [0.0, 1.0, -0.1, 1.1, NAN] {
        for algorithm in with_model(&ModelConfig { confidence: value, ..good() }) {
            assert_eq!(refused(&algorithm), "confidence");
        }
    }
}

#[test]
fn a_protocol_out_of_range_is_refused_by_name_in_asynchronous_algorithms() {
    let good = ProtocolConfig::default;
    let with = |protocol: ProtocolConfig| {
        let model = ModelConfig::default();
        [
            Algorithm::AsyncLinUcb(AsyncLinUcb { model, protocol: protocol.clone(), privacy: None }),
            Algorithm::AsyncLinTs(AsyncLinTs { protocol: protocol.clone(), ..Default::default() }),
            Algorithm::AsyncLinPhe(AsyncLinPhe { protocol: protocol.clone(), ..Default::default() }),
            Algorithm::AsyncLinUcbAm(AsyncLinUcbAm { protocol, ..Default::default() }),
        ]
    };
    let own = |upload_threshold, download_threshold| {
        let overrides = vec![Override { agent: AgentId(1), upload_threshold, download_threshold }];
        ProtocolConfig { overrides, ..good() }
    };
    for value in [0.999, 0.0, -1.0, NAN, -INF].map(Threshold) {
        for protocol in [ProtocolConfig { upload_threshold: value, ..good() }, own(Some(value), None)] {
            for algorithm in with(protocol) {
                assert_eq!(refused(&algorithm), "upload_threshold");
            }
        }
        for protocol in [ProtocolConfig { download_threshold: value, ..good() }, own(None, Some(value))] {
            for algorithm in with(protocol) {
                assert_eq!(refused(&algorithm), "download_threshold");
            }
        }
        let fed = FedLinUcb { upload_threshold: Some(value), ..Default::default() };
        assert_eq!(refused(&Algorithm::FedLinUcb(fed)), "upload_threshold");
    }
    for algorithm in with(ProtocolConfig { min_upload: 0, ..good() }) {
        assert_eq!(refused(&algorithm), "min_upload");
    }
}

#[test]
fn a_setting_below_its_range_is_refused_by_name_in_every_algorithm_that_has_it() {
    // A number that is negative where only a scale, a probability or a duration makes sense.
    let keys = ["regularization", "norm_bound", "noise", "width_scale", "confidence", "exploration"];
    for algorithm in Algorithm::all() {
        let written = serde_json::to_value(&algorithm).unwrap();
        let own: Vec<&str> = keys.into_iter().filter(|key| written.get(key).is_some()).collect();
        assert!(!own.is_empty(), "{} has none of these settings", algorithm.name());
        for key in own {
            let mut changed = written.clone();
            changed[key] = json!(-1.0);
            let changed: Algorithm = serde_json::from_value(changed).unwrap();
            assert_eq!(refused(&changed), key, "{}", algorithm.name());
        }
    }
}

#[test]
fn an_algorithms_own_settings_are_refused_by_name() {
    for value in [-0.1, NAN, INF] {
        let ts = AsyncLinTs { sampling_scale: value, ..Default::default() };
        assert_eq!(refused(&Algorithm::AsyncLinTs(ts)), "sampling_scale");
        let ts = LinTs { sampling_scale: value, ..Default::default() };
        assert_eq!(refused(&Algorithm::LinTs(ts)), "sampling_scale");
        let phe = AsyncLinPhe { perturbations: value, ..Default::default() };
        assert_eq!(refused(&Algorithm::AsyncLinPhe(phe)), "perturbations");
        let am = AsyncLinUcbAm { extra_noise: value, ..Default::default() };
        assert_eq!(refused(&Algorithm::AsyncLinUcbAm(am)), "extra_noise");
    }
    for value in [-0.1, NAN, -INF] {
        let sync = SyncLinUcb { round_threshold: Threshold(value), ..Default::default() };
        assert_eq!(refused(&Algorithm::SyncLinUcb(sync)), "round_threshold");
    }
    let am = AsyncLinUcbAm { iterations: 0, ..Default::default() };
    assert_eq!(refused(&Algorithm::AsyncLinUcbAm(am)), "iterations");
}

#[test]
fn settings_of_kernels_are_refused_by_name() {
    let good = KernelConfig::default;
    let refuse = |config: KernelConfig, name| {
        assert_eq!(refused(&Algorithm::KernelUcb(config.clone())), name);
        assert_eq!(refused(&Algorithm::KernelTs(config)), name);
    };
    for value in [0.0, -1.0, NAN, INF] {
        refuse(KernelConfig { length_scale: value, ..good() }, "length_scale");
        refuse(KernelConfig { regularization: value, ..good() }, "regularization");
    }
    for value in [-0.1, NAN, INF] {
        refuse(KernelConfig { exploration: value, ..good() }, "exploration");
    }
    for value in [0, 20_001] {
        refuse(KernelConfig { max_history: value, ..good() }, "max_history");
    }
    let edge = KernelConfig { exploration: 0.0, max_history: 20_000, length_scale: 1e-100, ..good() };
    assert_eq!(Algorithm::KernelUcb(edge).check(Shape::shared(1)), Ok(()));
}

#[test]
fn arms_need_features_and_the_edges_of_ranges_are_in_range() {
    for algorithm in Algorithm::all() {
        assert_eq!(algorithm.check(Shape::shared(0)).unwrap_err().name, "dimension");
        assert_eq!(algorithm.check(Shape::shared(1)), Ok(()));
    }
    let protocol = ProtocolConfig {
        upload_threshold: Threshold(1.0),
        download_threshold: Threshold::NEVER,
        ..Default::default()
    };
    let model = ModelConfig { noise: 0.0, width_scale: 0.0, fixed_width: Some(0.0), ..Default::default() };
    let edge = Algorithm::AsyncLinUcb(AsyncLinUcb { model, protocol, privacy: None });
    assert_eq!(edge.check(Shape::shared(1)), Ok(()));
    for value in [0.0, INF] {
        let sync = SyncLinUcb { round_threshold: Threshold(value), ..Default::default() };
        assert_eq!(Algorithm::SyncLinUcb(sync).check(Shape::shared(1)), Ok(()));
    }
}

#[test]
fn every_algorithm_comes_back_from_a_file_under_its_name() {
    for algorithm in Algorithm::all() {
        let written = serde_json::to_value(&algorithm).unwrap();
        assert_eq!(written["name"], algorithm.name());
        assert_eq!(serde_json::from_value::<Algorithm>(written).unwrap(), algorithm);
        let bare = json!({ "name": algorithm.name() });
        assert_eq!(serde_json::from_value::<Algorithm>(bare).unwrap(), algorithm, "defaults may be left out");
        assert!(!algorithm.summary().is_empty());
    }
    serde_json::from_value::<Algorithm>(json!({ "name": "lin-usb" })).unwrap_err();
}

#[test]
fn settings_of_the_parts_stand_side_by_side() {
    let read: Algorithm = serde_json::from_value(json!({
        "name": "async-lin-ucb",
        "regularization": 0.2,
        "fixed_width": 0.3,
        "upload_threshold": 1.5,
        "join": "pull-on-join",
        "override": [{ "agent": 3, "download_threshold": "inf" }],
    }))
    .unwrap();
    let own =
        Override { agent: AgentId(3), upload_threshold: None, download_threshold: Some(Threshold::NEVER) };
    let expected = AsyncLinUcb {
        model: ModelConfig { regularization: 0.2, fixed_width: Some(0.3), ..Default::default() },
        protocol: ProtocolConfig {
            upload_threshold: Threshold(1.5),
            join: JoinPolicy::PullOnJoin,
            overrides: vec![own],
            ..Default::default()
        },
        privacy: None,
    };
    assert_eq!(read, Algorithm::AsyncLinUcb(expected));
}

#[test]
fn thresholds_may_be_infinite_in_a_file() {
    let never: Threshold = serde_json::from_value(json!("inf")).unwrap();
    assert_eq!(never, Threshold::NEVER);
    assert_eq!(serde_json::to_value(never).unwrap(), json!("inf"));
    assert_eq!(serde_json::to_value(Threshold(1.5)).unwrap(), json!(1.5));
    assert_eq!(serde_json::from_value::<Threshold>(json!(2)).unwrap(), Threshold(2.0));
    assert_eq!(serde_json::from_value::<Threshold>(json!(-2)).unwrap(), Threshold(-2.0));
    for wrong in [json!("infinity"), json!("2"), Value::Null, json!([1])] {
        serde_json::from_value::<Threshold>(wrong).unwrap_err();
    }
    let silent = FedLinUcb { upload_threshold: Some(Threshold::NEVER), ..Default::default() };
    let silent = Algorithm::FedLinUcb(silent);
    let written = serde_json::to_string(&silent).unwrap();
    assert_eq!(serde_json::from_str::<Algorithm>(&written).unwrap(), silent);
}
