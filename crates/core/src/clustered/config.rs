//! Settings of the algorithms with clustered users.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use crate::clustered::merging::{Linkage, Merging};
use crate::error::ConfigError;
use crate::privacy::response::Response;
use crate::privacy::{Budget, PrivacyConfig};
use crate::time_span::TimeSpan;
use crate::trigger::Threshold;
use crate::width::ModelConfig;

/// How users are sorted into clusters and clusters into groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct ClusterConfig {
    /// α₁ in [0, ∞]: two users of an agent are told apart when their estimates are further away than this times
    /// F(T) + F(T'), F(T) = √((1 + ln(1+T))/(1+T)). Small values split what belongs together, for good;
    /// large ones keep together what does not. inf never splits. Default 1.5.
    pub edge_scale: Threshold,
    /// α₂ in [0, ∞]: two clusters of different agents are alike when their estimates are nearer than this times
    /// F(T) + F(T'). Default 1.5.
    pub merge_scale: Threshold,
    /// Which clusters form a group. Default complete.
    pub linkage: Linkage,
    /// in [0, ∞]: pairs whose F(T) + F(T') is not below this are not compared, because too little is known of them. inf compares
    /// everything. Default 0.3.
    pub merge_gate: Threshold,
    /// ≥ 2: phase s has this to the power s interactions; clusters change between phases. Default 2.
    pub phase_base: u64,
    /// How long the begin of a phase waits for all agents. Not set: it waits for all agents.
    pub phase_deadline: Option<TimeSpan>,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            edge_scale: Threshold(1.5),
            merge_scale: Threshold(1.5),
            linkage: Linkage::Complete,
            merge_gate: Threshold(0.3),
            phase_base: 2,
            phase_deadline: None,
        }
    }
}

impl ClusterConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.edge_scale.check_not_negative("edge_scale")?;
        self.merge_scale.check_not_negative("merge_scale")?;
        self.merge_gate.check_not_negative("merge_gate")?;
        if self.phase_base < 2 {
            return Err(ConfigError::new("phase_base", self.phase_base, "it must be at least 2"));
        }
        Ok(())
    }

    /// Whether users of an agent may be told apart at all.
    #[must_use]
    pub const fn may_split(&self) -> bool {
        self.edge_scale.0.is_finite()
    }

    pub(crate) fn merging(&self) -> Merging {
        Merging { linkage: self.linkage, scale: self.merge_scale.0, gate: self.merge_gate.0 }
    }
}

/// Settings of `fclub`: every interaction is shared at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct Fclub {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// How users are sorted into clusters, and clusters into groups.
    #[serde(flatten)]
    pub clusters: ClusterConfig,
}

/// Settings of `fclub-dc`: sharing waits until it is worth a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct FclubDc {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// How users are sorted into clusters, and clusters into groups.
    #[serde(flatten)]
    pub clusters: ClusterConfig,
    /// U in [1, ∞]: a cluster uploads when its buffer multiplied det V(λ) by this. Default 1.25.
    pub upload_threshold: Threshold,
    /// D in [1, ∞]: a cluster is sent its group's sums when det V(λ) of them exceeds that of its own view by
    /// more. Default 1.25.
    pub download_threshold: Threshold,
}

/// Settings of `cdp-fclub-dc`: what leaves an agent carries noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct CdpFclubDc {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// How users are sorted into clusters, and clusters into groups.
    #[serde(flatten)]
    pub clusters: ClusterConfig,
    /// D in [1, ∞]: as in `fclub-dc`, on sums with noise. Default 1.25.
    pub download_threshold: Threshold,
    /// The privacy that the federation promises, and the bounds on observations that it rests on.
    #[serde(flatten)]
    pub privacy: PrivacyConfig,
}

/// Settings of `homo`: all users are taken to be alike, and every interaction is shared at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct Homo {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
}

/// Settings of `homo-dc`: all users are taken to be alike, and sharing waits until it is worth a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct HomoDc {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// U in [1, ∞]: as in `fclub-dc`. Default 1.01.
    pub upload_threshold: Threshold,
    /// D in [1, ∞]: as in `fclub-dc`. Default 1.01.
    pub download_threshold: Threshold,
}

/// Settings of `club`: clusters of users, each agent for itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct Club {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// α in [0, ∞]: users are told apart as in `fclub`, after each interaction. Default 1.5.
    pub edge_scale: Threshold,
}

/// Settings of `sclub`: clusters that split and merge, each agent for itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct Sclub {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// α in [0, ∞]: a user leaves its cluster when further from it than this times F(T) + F(T'); clusters merge
    /// within half of it. Default 1.5.
    pub edge_scale: Threshold,
    /// α_p in [0, ∞]: users of a cluster may differ by twice this times F(t) in how often they come. Default 1.
    pub frequency_scale: Threshold,
    /// Whether clusters merge. Default true.
    pub merge: bool,
}

/// Settings of `user-lin-ucb`: a learner for each user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct UserLinUcb {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
}

impl Default for FclubDc {
    fn default() -> Self {
        Self {
            model: ModelConfig::default(),
            clusters: ClusterConfig::default(),
            upload_threshold: Threshold(1.25),
            download_threshold: Threshold(1.25),
        }
    }
}

impl Default for CdpFclubDc {
    fn default() -> Self {
        Self {
            model: ModelConfig::default(),
            clusters: ClusterConfig::default(),
            download_threshold: Threshold(1.25),
            privacy: PrivacyConfig::default(),
        }
    }
}

impl Default for HomoDc {
    fn default() -> Self {
        let (upload_threshold, download_threshold) = (Threshold(1.01), Threshold(1.01));
        Self { model: ModelConfig::default(), upload_threshold, download_threshold }
    }
}

impl Default for Club {
    fn default() -> Self {
        Self { model: ModelConfig::default(), edge_scale: Threshold(1.5) }
    }
}

impl Default for Sclub {
    fn default() -> Self {
        let (edge_scale, frequency_scale) = (Threshold(1.5), Threshold(1.0));
        Self { model: ModelConfig::default(), edge_scale, frequency_scale, merge: true }
    }
}

/// What an agent and a coordinator of this family are made of: the settings above in one form.
#[derive(Clone, Debug)]
pub(crate) struct ClusterPlan<'c> {
    pub(crate) name: &'static str,
    pub(crate) model: &'c ModelConfig,
    /// `None`: all users are in one cluster and all clusters in one group, for ever.
    pub(crate) clusters: Option<&'c ClusterConfig>,
    pub(crate) upload: Threshold,
    pub(crate) download: Threshold,
    pub(crate) privacy: Option<&'c PrivacyConfig>,
    /// Choose by Thompson sampling with this scale, in private federations. Not set: by upper confidence bounds.
    pub(crate) sampling: Option<f64>,
    /// Collect from all agents whenever one of them is due, with this deadline. Only private federations without clusters do.
    pub(crate) rounds: Option<Option<TimeSpan>>,
    /// How rewards enter private sums. Not set: as they are.
    pub(crate) response: Option<Response>,
}

impl<'c> ClusterPlan<'c> {
    /// The plan of a private federation in which every agent has one cluster and all are in one group: releases with noise
    /// replace each other, as clusters' uploads do, where plain uploads add up.
    pub(crate) const fn of_one_group(
        name: &'static str,
        model: &'c ModelConfig,
        download: Threshold,
        privacy: &'c PrivacyConfig,
    ) -> Self {
        let (clusters, upload) = (None, Threshold::NEVER);
        Self {
            name,
            model,
            clusters,
            upload,
            download,
            privacy: Some(privacy),
            sampling: None,
            rounds: None,
            response: None,
        }
    }

    pub(crate) fn may_split(&self) -> bool {
        self.clusters.is_some_and(ClusterConfig::may_split)
    }

    /// How the budget of a private federation is divided.
    pub(crate) fn budget(&self, dimension: usize) -> Option<Budget> {
        self.privacy.map(|privacy| Budget::new(privacy, dimension, self.may_split()))
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.clusters.map_or(Ok(()), ClusterConfig::check)?;
        self.upload.check_ratio("upload_threshold")?;
        self.download.check_ratio("download_threshold")?;
        self.privacy.map_or(Ok(()), PrivacyConfig::check_for_sums)
    }
}

const ONE: Threshold = Threshold(1.0);

const fn public<'c>(
    name: &'static str,
    model: &'c ModelConfig,
    clusters: Option<&'c ClusterConfig>,
    upload: Threshold,
    download: Threshold,
) -> ClusterPlan<'c> {
    ClusterPlan {
        name,
        model,
        clusters,
        upload,
        download,
        privacy: None,
        sampling: None,
        rounds: None,
        response: None,
    }
}

impl Fclub {
    pub(crate) const fn plan(&self) -> ClusterPlan<'_> {
        let clusters = Some(&self.clusters);
        public("fclub", &self.model, clusters, ONE, ONE)
    }
}

impl FclubDc {
    pub(crate) const fn plan(&self) -> ClusterPlan<'_> {
        let (upload, download) = (self.upload_threshold, self.download_threshold);
        let clusters = Some(&self.clusters);
        public("fclub-dc", &self.model, clusters, upload, download)
    }
}

impl CdpFclubDc {
    pub(crate) const fn plan(&self) -> ClusterPlan<'_> {
        ClusterPlan {
            name: "cdp-fclub-dc",
            model: &self.model,
            clusters: Some(&self.clusters),
            upload: Threshold::NEVER,
            download: self.download_threshold,
            privacy: Some(&self.privacy),
            sampling: None,
            rounds: None,
            response: None,
        }
    }
}

impl Homo {
    pub(crate) const fn plan(&self) -> ClusterPlan<'_> {
        public("homo", &self.model, None, ONE, ONE)
    }
}

impl HomoDc {
    pub(crate) const fn plan(&self) -> ClusterPlan<'_> {
        let (upload, download) = (self.upload_threshold, self.download_threshold);
        public("homo-dc", &self.model, None, upload, download)
    }
}

impl Club {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.edge_scale.check_not_negative("edge_scale")
    }
}

impl Sclub {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.edge_scale.check_not_negative("edge_scale")?;
        self.frequency_scale.check_not_negative("frequency_scale")
    }
}

impl UserLinUcb {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()
    }
}
