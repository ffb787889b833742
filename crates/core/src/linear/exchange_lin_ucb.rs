//! Settings of the exchange that speaks when silence costs more: `exchange-lin-ucb`, `exchange-lin-ts` and
//! `exchange-lin-igw`.

use crate::settings::Described;
use serde::{Deserialize, Serialize};

use crate::error::ConfigError;
use crate::evidence::packed;
use crate::ids::AgentId;
use crate::linear::ages::Ages;
use crate::linear::exchange_agent::ExchangeAgent;
use crate::linear::exchange_coordinator::ExchangeCoordinator;
use crate::linear::inverse_gap::InverseGap;
use crate::linear::lin_ts::Thompson;
use crate::linear::rule::Rule;
use crate::linear::trust::Trust;
use crate::random::Seed;
use crate::scoring::Draws;
use crate::trigger::Threshold;
use crate::width::{ModelConfig, NOT_NEGATIVE, Width};

/// When agents and the coordinator speak: what a message costs, and bounds that hold whatever it costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct ExchangeConfig {
    /// ≥ 0: the regret, in units of reward, that a message has to save to be worth sending. It is the one knob
    /// between regret and traffic. 0 speaks whenever the bounds below allow it. Default 0.0125.
    pub message_price: f64,
    /// ≥ 0: the regret that a byte has to save, on top of that of its message. Default 0.
    pub byte_price: f64,
    /// in [0, 0.5]: by what share widths may be wrong because snapshots are rounded. Agents widen theirs by as much, so
    /// that they hold as they did. The coordinator looks for the fewest bits that keep it; uploads travel in single
    /// precision. 0.01 lowers bytes to a fourth. 0 sends every number with 64 bits. Default 0.
    pub rounding: f64,
    /// ≥ 0: the coordinator sends a snapshot only if it has at least this share more observations than the
    /// agent. An agent that joins at n observations is sent at most 1 + ln(N/n)/ln(1 + share) of them
    /// until there are N. Default 0.1.
    pub min_growth: f64,
    /// An agent asks before choosing, whatever the price, once it expects the federation to have this many
    /// times more observations than it knows of, beside those it knows. Default 31.
    pub max_growth: f64,
    /// γ in [1, ∞]: evidence travels only if it multiplied det V(λ) of its agent's view by more. An agent sends
    /// at most (information of everything)/ln γ uploads. Default 1.0005.
    pub min_news: Threshold,
    /// γ ≥ `min_news`: evidence that multiplied det V(λ) by more is pushed whatever the price. Default 4.
    pub max_withheld: Threshold,
    /// ≥ 1: the fewest observations that an upload may hold. 2d or more keep single interactions from being read
    /// off it. Bounds on what is withheld yield to it. Default 1.
    pub min_upload: u64,
    /// What the coordinator does about agents that lie. Default `off`.
    pub robust: Robust,
    /// in (0, 1): with `robust`, the probability with which a judgement sets an honest agent aside whose noise is
    /// normal. Default 1e-6.
    pub false_alarm: f64,
    /// How far back the coordinator's evidence reaches. Default `all`.
    pub memory: Memory,
    /// ≥ 1: with `memory = "window"`, over how many observations of all agents it reaches. Default 1000.
    pub window: u64,
}

/// How far back the coordinator's evidence reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Memory {
    /// To the beginning: for worlds that stand still.
    #[default]
    All,
    /// Over the newest `window` observations.
    Window,
    /// Over 32, 64, 128 … observations or to the beginning, whichever predicts what comes in best.
    Adaptive,
}

/// What the coordinator does about agents that lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Robust {
    /// It believes all of them.
    #[default]
    Off,
    /// It keeps the evidence of each agent apart and leaves out those that deviate from the model of the majority
    /// by more than noise does. They are judged again with all others, so that it can be undone.
    Trimmed,
}

impl Robust {
    /// What a coordinator needs to hold agents against each other, if it does.
    pub(crate) fn trust(self, model: &ModelConfig, false_alarm: f64) -> Option<Trust> {
        match self {
            Self::Off => None,
            Self::Trimmed => Some(Trust::new(model.regularization, model.noise, false_alarm)),
        }
    }
}

pub(crate) fn check_false_alarm(value: f64) -> Result<(), ConfigError> {
    ConfigError::require(0.0 < value && value < 1.0, "false_alarm", value, "it must lie between 0 and 1")
}

impl Default for ExchangeConfig {
    fn default() -> Self {
        Self {
            message_price: 0.0125,
            byte_price: 0.0,
            rounding: 0.0,
            min_growth: 0.1,
            max_growth: 31.0,
            min_news: Threshold(1.0005),
            max_withheld: Threshold(4.0),
            min_upload: 1,
            robust: Robust::Off,
            false_alarm: 1e-6,
            memory: Memory::All,
            window: 1000,
        }
    }
}

impl ExchangeConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let not_negative = |v: f64| v >= 0.0 && v.is_finite();
        let Self { message_price, byte_price, min_growth, max_growth, .. } = *self;
        let require = ConfigError::require;
        require(not_negative(message_price), "message_price", message_price, NOT_NEGATIVE)?;
        require(not_negative(byte_price), "byte_price", byte_price, NOT_NEGATIVE)?;
        let rounding = self.rounding;
        require((0.0..=0.5).contains(&rounding), "rounding", rounding, "it must lie between 0 and 0.5")?;
        require(not_negative(min_growth), "min_growth", min_growth, NOT_NEGATIVE)?;
        let above = "it must be at least min_growth; inf means never";
        require(max_growth >= min_growth, "max_growth", max_growth, above)?;
        self.min_news.check_ratio("min_news")?;
        let above = "it must be at least min_news; inf means never";
        let most = self.max_withheld.0;
        require(most >= self.min_news.0, "max_withheld", most, above)?;
        check_false_alarm(self.false_alarm)?;
        if self.window == 0 {
            return Err(ConfigError::new("window", 0, "it must be at least 1"));
        }
        if self.min_upload == 0 {
            return Err(ConfigError::new("min_upload", 0, "it must be at least 1"));
        }
        Ok(())
    }

    fn coordinator(&self, name: &'static str, model: &ModelConfig, dimension: usize) -> ExchangeCoordinator {
        let trust = self.robust.trust(model, self.false_alarm);
        let ages = |window| Some(Ages::new(dimension, model.regularization, model.noise, window));
        let ages = match self.memory {
            Memory::All => None,
            Memory::Window => ages(Some(self.window)),
            Memory::Adaptive => ages(None),
        };
        ExchangeCoordinator::new(name, model.model(dimension), self, trust, ages)
    }

    /// Whether agents watch out for rewards that contradict what they were told, because others may lie or the world
    /// may change.
    pub(crate) fn is_wary(&self) -> bool {
        self.robust != Robust::Off || self.memory != Memory::All
    }

    /// The width of an agent's confidence, which allows for what rounding did to its model.
    pub(crate) fn width(&self, model: &ModelConfig, dimension: usize) -> Width {
        if self.rounding > 0.0 { model.width().for_rounded(self.rounding, dimension) } else { model.width() }
    }

    /// What an upload of `count` observations in `dimension` features costs.
    pub(crate) fn price_of_push(&self, dimension: usize, count: u64) -> f64 {
        let rows = usize::try_from(count).unwrap_or(usize::MAX);
        let matrix = rows.saturating_mul(dimension).min(packed(dimension)) as f64;
        let bytes = if self.rounding > 0.0 {
            3.0 * matrix + 4.0 * rows.min(dimension) as f64
        } else {
            8.0 * (matrix + dimension as f64)
        };
        self.message_price + self.byte_price * bytes
    }

    /// What asking and being sent a snapshot costs.
    pub(crate) fn price_of_pull(&self, dimension: usize) -> f64 {
        let (matrix, vector) = (packed(dimension) as f64, dimension as f64);
        // Most snapshots need eight to ten bits for an entry, and single precision for the pivots and the vector.
        let bytes = if self.rounding > 0.0 { 1.25 * matrix + 8.0 * vector } else { 8.0 * (matrix + vector) };
        2.0 * self.message_price + self.byte_price * bytes
    }
}

/// Settings of `exchange-lin-ucb`: upper confidence bounds, with messages sent when they are worth their
/// price.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct ExchangeLinUcb {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// The price of a message, which decides when agents push and pull, and bounds that hold whatever it is.
    #[serde(flatten)]
    pub exchange: ExchangeConfig,
}

/// Settings of `exchange-lin-ts`: Thompson sampling with the protocol of `exchange-lin-ucb`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct ExchangeLinTs {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// The price of a message, which decides when agents push and pull, and bounds that hold whatever it is.
    #[serde(flatten)]
    pub exchange: ExchangeConfig,
    /// ≥ 0: multiplies the width to give the standard deviation of the sampled model: 0 is greedy, 1 is theory
    /// up to a logarithm. Default 0.3.
    pub sampling_scale: f64,
}

/// Settings of `exchange-lin-igw`: inverse gap weighting with the protocol of `exchange-lin-ucb`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct ExchangeLinIgw {
    /// The model and its width.
    #[serde(flatten)]
    pub model: ModelConfig,
    /// The price of a message, which decides when agents push and pull, and bounds that hold whatever it is.
    #[serde(flatten)]
    pub exchange: ExchangeConfig,
    /// ≥ 0: multiplies the width of the best arm to give the gap at which another arm is played half as often as
    /// one without a gap: 0 is greedy. Default 0.02.
    pub gap_scale: f64,
}

impl Default for ExchangeLinTs {
    fn default() -> Self {
        Self { model: ModelConfig::default(), exchange: ExchangeConfig::default(), sampling_scale: 0.3 }
    }
}

impl Default for ExchangeLinIgw {
    fn default() -> Self {
        Self { model: ModelConfig::default(), exchange: ExchangeConfig::default(), gap_scale: 0.02 }
    }
}

impl ExchangeLinUcb {
    pub(crate) const NAME: &'static str = "exchange-lin-ucb";

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.exchange.check()
    }

    pub(crate) fn agent(&self, dimension: usize) -> ExchangeAgent {
        let rule = Rule::Ucb(self.exchange.width(&self.model, dimension));
        ExchangeAgent::new(Self::NAME, &self.model, &self.exchange, rule, dimension)
    }

    pub(crate) fn coordinator(&self, dimension: usize) -> ExchangeCoordinator {
        self.exchange.coordinator(Self::NAME, &self.model, dimension)
    }
}

impl ExchangeLinTs {
    pub(crate) const NAME: &'static str = "exchange-lin-ts";

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.exchange.check()?;
        let scale = self.sampling_scale;
        ConfigError::require(scale >= 0.0 && scale.is_finite(), "sampling_scale", scale, NOT_NEGATIVE)
    }

    pub(crate) fn agent(&self, id: AgentId, dimension: usize, seed: Seed) -> ExchangeAgent {
        let width = self.exchange.width(&self.model, dimension);
        let rule = Rule::Thompson(Thompson::new(self.sampling_scale, width, id, seed));
        ExchangeAgent::new(Self::NAME, &self.model, &self.exchange, rule, dimension)
    }

    pub(crate) fn coordinator(&self, dimension: usize) -> ExchangeCoordinator {
        self.exchange.coordinator(Self::NAME, &self.model, dimension)
    }
}

impl ExchangeLinIgw {
    pub(crate) const NAME: &'static str = "exchange-lin-igw";

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        self.exchange.check()?;
        let scale = self.gap_scale;
        ConfigError::require(scale >= 0.0 && scale.is_finite(), "gap_scale", scale, NOT_NEGATIVE)
    }

    pub(crate) fn agent(&self, id: AgentId, dimension: usize, seed: Seed) -> ExchangeAgent {
        let width = self.exchange.width(&self.model, dimension);
        let draws = Draws::new(id, seed);
        let rule = Rule::InverseGap(InverseGap::new(self.gap_scale, width, draws));
        ExchangeAgent::new(Self::NAME, &self.model, &self.exchange, rule, dimension)
    }

    pub(crate) fn coordinator(&self, dimension: usize) -> ExchangeCoordinator {
        self.exchange.coordinator(Self::NAME, &self.model, dimension)
    }
}
