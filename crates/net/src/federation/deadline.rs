//! How long rounds and phases wait for agents that do not answer, where the algorithm's settings do not say.

use posse_core::{Algorithm, TimeSpan};
use serde_json::Value;

/// The settings that say how long rounds and phases wait.
const SETTINGS: [&str; 2] = ["round_deadline", "phase_deadline"];

/// The algorithm with every deadline that is not set put at `span`.
///
/// Only the coordinator uses it: agents are told the settings as they were written, and a log is replayed by the
/// ticks that it holds, so the default may change without a visible effect.
pub(super) fn with_default(algorithm: &Algorithm, span: TimeSpan) -> Algorithm {
    if matches!(algorithm, Algorithm::Outside(_)) {
        // How an algorithm from outside calls its deadlines, if it has any, is its own business.
        return algorithm.clone();
    }
    let mut settings = serde_json::to_value(algorithm).expect("settings have string keys");
    fill(&mut settings, span);
    serde_json::from_value(settings).expect("a deadline is a length of time")
}

/// Settings lie in tables within tables: those of clusters in one of their own.
fn fill(settings: &mut Value, span: TimeSpan) {
    let Value::Object(settings) = settings else { return };
    for (name, value) in settings {
        if value.is_null() && SETTINGS.contains(&name.as_str()) {
            *value = span.to_string().into();
        }
        fill(value, span);
    }
}

#[cfg(test)]
mod tests {
    use posse_core::{FclubDc, FedGlbUcb, FnUcb, SyncLinUcb};

    use super::*;

    #[test]
    fn rounds_and_phases_of_every_family_have_a_deadline_and_keep_their_own() {
        let algorithms = [
            Algorithm::SyncLinUcb(SyncLinUcb::default()),
            Algorithm::FedGlbUcb(FedGlbUcb::default()),
            Algorithm::FnUcb(FnUcb::default()),
            Algorithm::FclubDc(FclubDc::default()),
        ];
        for algorithm in algorithms {
            let (usual, short) = (TimeSpan::from_secs(77), TimeSpan::from_secs(5));
            let filled = serde_json::to_string(&with_default(&algorithm, usual)).unwrap();
            assert!(filled.contains("_deadline\":\"77s\""), "{filled}");
            let own = with_default(&with_default(&algorithm, short), usual);
            assert_eq!(own, with_default(&algorithm, short));
        }
    }
}
