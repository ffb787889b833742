//! What is agreed on in a federation, and kept beside its log.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use posse_core::session::{Hub, LogEntry, LogEvent};
use posse_core::settings::Described;
use posse_core::{AgentId, Algorithm, ConfigError, Federation, LinUcb, Placement, Seed, Shape, TimeSpan};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::levels::upwards;
use super::parent::RelayIdentity;
use super::threads::Threads;
use super::{FederationError, ParentConfig, deadline};
use crate::lengths::Lengths;
use crate::log::{LogError, Replay};
use crate::upgrade;

/// The most bytes of a message that a federation may be configured to send: a receiver holds all of it in
/// memory.
const LARGEST: u64 = 1 << 30;
const YEAR: TimeSpan = TimeSpan::from_secs(31_536_000);

/// What is agreed on in a federation. Agents learn it when they join.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(deny_unknown_fields)]
pub struct FederationConfig {
    /// Its name, in metadata and in the data directory: letters, digits, `-` and `_`.
    pub name: String,
    /// How agents choose and share.
    pub algorithm: Algorithm,
    /// d in [1, 16384]: features of an arm that mean the same to all agents.
    pub dimension: u64,
    /// N ≥ 1: how many agents the algorithm may assume; only some use it. Default 100.
    #[serde(default = "default_agents")]
    pub agents: u64,
    /// T ≥ 1: how many interactions the algorithm may assume; only some use it. Default 1 000 000.
    #[serde(default = "default_horizon")]
    pub horizon: u64,
    /// Where randomised rules draw from. Default 0.
    #[serde(default)]
    pub seed: u64,
    /// L > 0: largest norm of an arm's features. Uploads that need larger ones are refused. Not set: not checked.
    #[serde(default)]
    pub feature_bound: Option<f64>,
    /// Y > 0: largest absolute reward. Uploads that need larger ones are refused. Not set: not checked.
    #[serde(default)]
    pub reward_bound: Option<f64>,
    /// in [1, 1048576]: kilobytes of the longest frame that is taken. Not set: what a matrix of the dimension needs, 256 times
    /// that where agents speak of clusters of users, and for networks a matrix of their parameters.
    #[serde(default)]
    pub frame_kilobytes: Option<u64>,
    /// How long a frame may be unanswered before it is sent again. Default 2 s.
    #[serde(default = "default_resend")]
    pub resend_after: TimeSpan,
    /// ≥ 1: megabytes of log after which the state is saved and the log cut. Default 64.
    #[serde(default = "default_snapshot")]
    pub snapshot_megabytes: u64,
    /// ≥ 1: refused messages in a row after which an agent is quarantined. Default 10.
    #[serde(default = "default_quarantine_after")]
    pub quarantine_after: u64,
    /// How long an agent stays in quarantine. Default 10 minutes.
    #[serde(default = "default_quarantine")]
    pub quarantine: TimeSpan,
    /// in [1, 100000000]: observations a second that an agent may make on average. Uploads that claim more are refused. Default 10 000.
    #[serde(default = "default_observations")]
    pub observations_per_second: u64,
    /// How long a round or a phase waits for agents that do not answer, unless the algorithm's own
    /// `round_deadline` or `phase_deadline` says so. Default 30 s.
    #[serde(default = "default_deadline")]
    pub deadline: TimeSpan,
    /// How long an agent without a link counts as there: after its link ended, or after its last call. Rounds and
    /// phases that wait only for agents that are away do not wait any longer. Default 5 minutes.
    #[serde(default = "default_lease")]
    pub lease: TimeSpan,
    /// Whether entries of the log are kept that saved states have made superfluous. An agent's part can be retracted
    /// only as long as every entry since the beginning is there. Default false.
    #[serde(default)]
    pub keep_history: bool,
    /// in [1, 6]: levels of links between an agent and the root. 1: no relays, or thresholds that hold as each machine's file
    /// has them. 2: relays between agents and the root. 3: relays of relays. From 2 on each level has γ^(1/levels), so
    /// that an agent is about as far behind as without relays. The root and all relays must agree. Default 1.
    #[serde(default = "default_levels")]
    pub levels: u64,
    /// The parent of this federation. With one, this coordinator is a relay: it collects what its own agents share
    /// and passes it on. Not set: it is the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentConfig>,
}

const fn default_agents() -> u64 {
    100
}
const fn default_horizon() -> u64 {
    1_000_000
}
const fn default_resend() -> TimeSpan {
    TimeSpan::from_secs(2)
}
const fn default_snapshot() -> u64 {
    64
}
const fn default_quarantine_after() -> u64 {
    10
}
const fn default_quarantine() -> TimeSpan {
    TimeSpan::from_secs(600)
}
const fn default_observations() -> u64 {
    10_000
}
const fn default_deadline() -> TimeSpan {
    TimeSpan::from_secs(30)
}
const fn default_lease() -> TimeSpan {
    TimeSpan::from_secs(300)
}
const fn default_levels() -> u64 {
    1
}

impl FederationConfig {
    /// A federation with every other setting at its default.
    #[must_use]
    pub fn new(name: impl Into<String>, algorithm: Algorithm, dimension: u64) -> Self {
        Self {
            name: name.into(),
            algorithm,
            dimension,
            agents: default_agents(),
            horizon: default_horizon(),
            seed: 0,
            feature_bound: None,
            reward_bound: None,
            frame_kilobytes: None,
            resend_after: default_resend(),
            snapshot_megabytes: default_snapshot(),
            quarantine_after: default_quarantine_after(),
            quarantine: default_quarantine(),
            observations_per_second: default_observations(),
            deadline: default_deadline(),
            lease: default_lease(),
            keep_history: false,
            levels: default_levels(),
            parent: None,
        }
    }

    /// `Ok` if every setting is in its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let named = !self.name.is_empty()
            && self.name.len() <= 64
            && self.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if !named {
            let allowed = "it must have 1 to 64 letters, digits, `-` or `_`";
            return Err(ConfigError::new("name", &self.name, allowed));
        }
        let largest = posse_core::wire::MAX_DIMENSION as u64;
        if self.dimension == 0 || self.dimension > largest {
            return Err(ConfigError::new("dimension", self.dimension, "it must be between 1 and 16384"));
        }
        for (name, bound) in [("feature_bound", self.feature_bound), ("reward_bound", self.reward_bound)] {
            if let Some(bound) = bound {
                ConfigError::require(bound > 0.0 && bound.is_finite(), name, bound, "it must be above 0")?;
            }
        }
        if let Some(kilobytes) = self.frame_kilobytes
            && (kilobytes == 0 || kilobytes > 1 << 20)
        {
            let allowed = "it must be between 1 and 1048576";
            return Err(ConfigError::new("frame_kilobytes", kilobytes, allowed));
        }
        if self.algorithm.placement() == Placement::Central {
            let allowed = "its one learner would need the raw data of all agents: it is for experiments";
            return Err(ConfigError::new("algorithm", self.algorithm.name(), allowed));
        }
        for (name, span) in [("deadline", self.deadline), ("lease", self.lease)] {
            if span > YEAR {
                return Err(ConfigError::new(name, span, "it must be at most 365d"));
            }
        }
        if self.observations_per_second > 100_000_000 {
            let allowed = "it must be at most 100000000";
            return Err(ConfigError::new("observations_per_second", self.observations_per_second, allowed));
        }
        if self.quarantine > YEAR {
            let allowed = "it must be at most 365d: revoke the token of an agent that should stay away";
            return Err(ConfigError::new("quarantine", self.quarantine, allowed));
        }
        let at_least_one = [
            ("agents", self.agents),
            ("horizon", self.horizon),
            ("snapshot_megabytes", self.snapshot_megabytes),
            ("quarantine_after", self.quarantine_after),
            ("observations_per_second", self.observations_per_second),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                return Err(ConfigError::new(name, value, "it must be at least 1"));
            }
        }
        let spans = [("resend_after", self.resend_after), ("deadline", self.deadline), ("lease", self.lease)];
        for (name, span) in spans {
            if span < TimeSpan::from_millis(1) {
                return Err(ConfigError::new(name, span, "it must be at least 1ms"));
            }
        }
        if !(1..=6).contains(&self.levels) {
            return Err(ConfigError::new("levels", self.levels, "it must lie between 1 and 6"));
        }
        self.algorithm.check(self.shape())?;
        self.spread(&self.algorithm)?;
        if let Some(parent) = &self.parent {
            parent.check(self.levels)?;
            self.relay(&self.algorithm, parent)?;
        }
        self.check_lengths()
    }

    /// `Ok` if the algorithm's messages fit into frames: it should not be found out by the first agent.
    fn check_lengths(&self) -> Result<(), ConfigError> {
        let lengths = self.lengths();
        if let Some(kilobytes) = self.frame_kilobytes
            && kilobytes * 1000 < lengths.least()
        {
            let allowed =
                "the longest message of this algorithm and dimension is longer: raise it, or leave it out";
            return Err(ConfigError::new("frame_kilobytes", kilobytes, allowed));
        }
        let (dimension, agents) = (self.dimension, self.agents);
        if lengths.download() > LARGEST {
            return Err(self.algorithm.with_recipe(|recipe| recipe.too_long(dimension, agents)));
        }
        let parts = self.algorithm.with_recipe(|recipe| recipe.largest_relayed(dimension).parts);
        if self.levels > 1 && parts > 1 && lengths.frame() > LARGEST {
            let allowed =
                "the messages of a relay would be longer than 1 GB: lower it, or use fewer features";
            return Err(ConfigError::new("agents_per_relay", parts, allowed));
        }
        Ok(())
    }

    /// The arms' shape as the coordinator sees it.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        Shape::shared(self.dimension as usize)
    }

    /// Returns what the algorithm may assume about the federation.
    #[must_use]
    pub const fn federation(&self) -> Federation {
        Federation { agents: self.agents, horizon: self.horizon, seed: Seed(self.seed) }
    }

    /// Bytes of the longest frame that is taken: as the settings say, or what the algorithm's messages need.
    #[must_use]
    pub fn longest_frame(&self) -> u64 {
        self.frame_kilobytes.map_or_else(|| self.lengths().frame(), |kilobytes| kilobytes * 1000)
    }

    /// Bytes of the longest frame that an agent may be sent.
    #[must_use]
    pub fn longest_answer(&self) -> u64 {
        self.lengths().answer(self.longest_frame())
    }

    fn lengths(&self) -> Lengths {
        Lengths::new(&self.algorithm, self.dimension, self.agents, self.levels)
    }

    /// The settings with who this relay is at its parent, as the directory of its log says: without, the log of a relay
    /// cannot be replayed. Settings of other federations are returned as they are. Fails if the file cannot be read.
    pub fn with_identity_of(mut self, directory: &Path) -> Result<Self, LogError> {
        if let Some(parent) = &mut self.parent
            && let Some(identity) = RelayIdentity::read(directory)?
        {
            parent.identity = identity;
        }
        Ok(self)
    }

    /// A hub at the beginning of its history.
    pub fn hub(&self) -> Result<Hub, ConfigError> {
        let algorithm = deadline::with_default(&self.algorithm, self.deadline);
        let Some(parent) = &self.parent else {
            let mut coordinator = self.spread(&algorithm)?.coordinator(self.shape())?;
            coordinator.use_workers(Arc::new(Threads::of_this_machine()));
            return Ok(Hub::new(coordinator, self.resend_after));
        };
        let identity = &parent.identity;
        Ok(Hub::relay(self.relay(&algorithm, parent)?, identity.id(), identity.life(), self.resend_after))
    }

    /// The hub that a log leads to. Entries that the hub refuses are damage or of other settings. What a retracted
    /// agent had shared is left out; that needs all entries since the beginning, so with a saved state before the
    /// retraction it fails.
    pub fn replay(&self, replay: &Replay) -> Result<Hub, FederationError> {
        self.replay_with(replay, |_, _| {})
    }

    /// The same, with a look at every entry that counts and at its bytes, in order.
    pub(super) fn replay_with(
        &self,
        replay: &Replay,
        mut look: impl FnMut(&LogEntry, &[u8]),
    ) -> Result<Hub, FederationError> {
        let mut hub = self.hub()?;
        let retracted = retractions(&replay.entries)?.unwrap_or_default();
        if let Some(state) = &replay.state {
            if !retracted.is_empty() {
                return Err(FederationError::HistoryGone);
            }
            hub.restore(state).map_err(|error| broken(0, &error))?;
        }
        for (index, bytes) in replay.entries.iter().enumerate() {
            let mut entry = Some(LogEntry::decode(bytes).map_err(|error| broken(index, &error))?);
            for (agent, _) in retracted.iter().filter(|(_, until)| index < **until) {
                let Some(whole) = entry else { break };
                entry = whole.without(*agent).map_err(|error| broken(index, &error))?;
            }
            if let Some(entry) = entry {
                look(&entry, bytes);
                hub.replay(entry).map_err(|error| broken(index, &error))?;
            }
        }
        Ok(hub)
    }
}

fn broken(entry: usize, why: &dyn std::fmt::Display) -> FederationError {
    FederationError::Replay { entry, why: why.to_string() }
}

/// Agents that were retracted, each with the position of the entry that says so last; nothing if none was.
pub(super) fn retractions(entries: &[Vec<u8>]) -> Result<Option<BTreeMap<AgentId, usize>>, FederationError> {
    let mut retracted = BTreeMap::new();
    for (index, bytes) in entries.iter().enumerate() {
        let entry = LogEntry::decode(bytes).map_err(|error| broken(index, &error))?;
        if let LogEvent::Retracted(agent) = entry.event {
            retracted.insert(agent, index);
        }
    }
    Ok((!retracted.is_empty()).then_some(retracted))
}

/// Settings that decide what the bytes of a log mean are kept beside it and may not change.
pub(super) fn check_unchanged(config: &FederationConfig, directory: &Path) -> Result<(), FederationError> {
    crate::log::private_directory(directory)?;
    if !config.check_begun(directory)? {
        crate::log::replace(&directory.join("federation.json"), config.to_keep().as_bytes())?;
    }
    Ok(())
}

impl FederationConfig {
    /// The settings in `text`, as this version or an earlier one wrote them beside a log.
    pub fn from_kept(text: &str) -> Result<Self, serde_json::Error> {
        let mut written = serde_json::from_str(text)?;
        upgrade::federation(&mut written);
        serde_json::from_value(written)
    }

    /// The settings as they are kept beside the log.
    pub(crate) fn to_keep(&self) -> String {
        serde_json::to_string_pretty(self).expect("settings have string keys")
    }

    /// Whether the federation in `directory` was begun, and an error if it was with other settings than these.
    pub(crate) fn check_begun(&self, directory: &Path) -> Result<bool, FederationError> {
        let path = directory.join("federation.json");
        let written = match std::fs::read_to_string(&path) {
            Ok(written) => written,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(LogError::io(&path)(error).into()),
        };
        self.check_kept(&written, &path)?;
        Ok(true)
    }

    /// `Ok` if these settings are those that were kept in `path` as `written`.
    pub(crate) fn check_kept(&self, written: &str, path: &Path) -> Result<(), FederationError> {
        let unreadable = |error: serde_json::Error| FederationError::Settings {
            path: path.into(),
            why: error.to_string(),
        };
        let json =
            |algorithm: &Algorithm| serde_json::to_string(algorithm).expect("settings have string keys");
        let mut written: Value = serde_json::from_str(written).map_err(unreadable)?;
        upgrade::federation(&mut written);
        let mut outside = None;
        if let (Algorithm::Outside(_), Some(algorithm)) = (&self.algorithm, written.get_mut("algorithm")) {
            // Algorithms from outside are compared as they were written: serde does not read them, and another
            // one stands in while the rest is read.
            outside = Some(algorithm.to_string());
            *algorithm = serde_json::to_value(Algorithm::LinUcb(LinUcb::default())).map_err(unreadable)?;
        }
        let before: Self = serde_json::from_value(written).map_err(unreadable)?;
        let fixed = [
            ("algorithm", outside.unwrap_or_else(|| json(&before.algorithm)), json(&self.algorithm)),
            ("dimension", before.dimension.to_string(), self.dimension.to_string()),
            ("agents", before.agents.to_string(), self.agents.to_string()),
            ("horizon", before.horizon.to_string(), self.horizon.to_string()),
            ("seed", before.seed.to_string(), self.seed.to_string()),
            ("levels", before.levels.to_string(), self.levels.to_string()),
            ("parent", upwards(before.parent.as_ref()), upwards(self.parent.as_ref())),
        ];
        match fixed.into_iter().find(|(_, was, is)| was != is) {
            Some((setting, was, is)) => {
                Err(FederationError::Changed { name: self.name.clone(), setting, was, is })
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use posse_core::session::UpFrame;
    use posse_core::{
        AsyncLinUcb, ClusterId, ClusterList, ClusterUpload, Epoch, Evidence, EvidenceUpload, FclubDc,
        FedGlbUcb, FnUcb, Gradient, Incarnation, Parcel, PhaseId, RoundId, Uplink, Version,
    };

    use super::*;

    const DIMENSION: usize = 30;

    fn length(message: Uplink) -> u64 {
        let frame = UpFrame {
            epoch: Epoch(u64::MAX),
            incarnation: Incarnation(u64::MAX),
            acknowledged: u64::MAX,
            sequence: u64::MAX,
            message: Some(message),
            greeting: u64::MAX,
        };
        frame.encode().len() as u64
    }

    fn evidence() -> Evidence {
        let mut evidence = Evidence::none(DIMENSION);
        for step in 0..2 * DIMENSION {
            let features: Vec<f64> = (0..DIMENSION).map(|i| 1.0 / (1 + i + step) as f64).collect();
            evidence.observe(&features, 0.3).unwrap();
        }
        evidence
    }

    #[test]
    fn the_longest_messages_that_can_be_right_fit_into_a_frame() {
        let config = |algorithm| FederationConfig::new("x", algorithm, DIMENSION as u64);
        let upload = EvidenceUpload {
            number: u64::MAX,
            based_on: Version(u64::MAX),
            information: 0.1,
            evidence: Parcel::Dense(evidence()),
        };
        let linear = config(Algorithm::AsyncLinUcb(AsyncLinUcb::default()));
        assert!(length(Uplink::Evidence(upload)) <= linear.longest_frame());
        let gradient = Gradient {
            round: RoundId(u64::MAX),
            step: u64::MAX,
            gradient: vec![0.1; DIMENSION],
            curvature: Some(vec![0.1; DIMENSION * (DIMENSION + 1) / 2]),
        };
        let rounds = config(Algorithm::FedGlbUcb(FedGlbUcb::default()));
        assert!(length(Uplink::Gradient(gradient)) <= rounds.longest_frame());
        let cluster = ClusterUpload {
            cluster: ClusterId(u64::MAX),
            number: u64::MAX,
            based_on: Version(u64::MAX),
            information: 0.1,
            evidence: evidence(),
            released: false,
            variance: 0.1,
            members: u64::MAX,
        };
        let list = ClusterList { phase: PhaseId(u64::MAX), kept: Vec::new(), uploads: vec![cluster; 256] };
        let clustered = config(Algorithm::FclubDc(FclubDc::default()));
        assert!(length(Uplink::Clusters(list)) <= clustered.longest_frame());
        let told = FederationConfig { frame_kilobytes: Some(7), ..clustered };
        assert_eq!(told.longest_frame(), 7000);
    }

    #[test]
    fn frames_that_the_algorithm_outgrows_are_refused_before_anybody_joins() {
        let refused = |config: FederationConfig| config.check().unwrap_err().name;
        let linear = FederationConfig::new("x", Algorithm::AsyncLinUcb(AsyncLinUcb::default()), 100);
        let enough = linear.longest_frame() / 1000 + 1;
        assert!(FederationConfig { frame_kilobytes: Some(enough), ..linear.clone() }.check().is_ok());
        assert_eq!(refused(FederationConfig { frame_kilobytes: Some(40), ..linear }), "frame_kilobytes");

        let networks = FederationConfig::new("x", Algorithm::FnUcb(FnUcb::default()), 60);
        assert!(networks.check().is_ok());
        let too_short = FederationConfig { frame_kilobytes: Some(100), ..networks.clone() };
        assert_eq!(refused(too_short), "frame_kilobytes");
        // The message holds a matrix of each agent: a few fit, those of a hundred agents do not.
        let all = |agents| FederationConfig {
            algorithm: Algorithm::FnUcb(FnUcb { less_communication: false, ..FnUcb::default() }),
            agents,
            ..networks.clone()
        };
        assert!(all(5).check().is_ok());
        assert!(all(5).longest_answer() > 6 * 8 * 1240 * 1240 / 2);
        assert_eq!(refused(all(1000)), "less_communication");
    }

    #[test]
    fn an_algorithm_whose_learner_sees_everything_cannot_be_a_federation() {
        let central = Algorithm::CentralLinUcb(LinUcb::default());
        let error = FederationConfig::new("x", central, 3).check().unwrap_err();
        assert_eq!(error.name, "algorithm");
    }

    #[test]
    fn settings_beside_a_log_are_whole_or_refused_and_may_not_change() {
        let directory = tempfile::tempdir().unwrap();
        let config = FederationConfig::new("x", Algorithm::AsyncLinUcb(AsyncLinUcb::default()), 3);
        check_unchanged(&config, directory.path()).unwrap();
        check_unchanged(&config, directory.path()).unwrap();
        let other = FederationConfig { dimension: 4, ..config.clone() };
        let changed = check_unchanged(&other, directory.path());
        assert!(matches!(changed, Err(FederationError::Changed { setting: "dimension", .. })), "{changed:?}");
        let path = directory.path().join("federation.json");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() / 2]).unwrap();
        let torn = check_unchanged(&config, directory.path());
        assert!(matches!(torn, Err(FederationError::Settings { .. })), "{torn:?}");
    }
}
