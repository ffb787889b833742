//! The settings of worlds, arrivals, networks and faults.

use super::algorithm::LINKS;
use super::{Kind, Setting, setting};

/// The networks that people know.
pub(crate) const PRESETS: &[&str] = &["ideal", "wifi", "cellular", "satellite", "hostile"];

/// The keys that `[environment]` may have.
pub(super) const ENVIRONMENT: &[Setting] = &[
    setting("dimension", Kind::Size(10_000), "d: features of an arm", "1 or more"),
    setting(
        "shared",
        Kind::Size(10_000),
        "d_g: features whose parameters all agents share",
        "1 to dimension",
    ),
    setting(
        "local_spread",
        Kind::Size(10_000),
        "how far numbers of local features differ",
        "0 to dimension - shared",
    ),
    setting("arms", Kind::Size(1_000_000), "K: arms an offer", "1 or more"),
    setting("noise", Kind::Number, "σ: standard deviation of the reward noise", "0 or more"),
    setting("form", Kind::OneOf(&["paper", "authors"]), "how parameters and arms are drawn", ""),
    setting("pool", Kind::Size(1_000_000), "arms in the catalogue of the authors' form", "arms or more"),
    setting("link", Kind::OneOf(LINKS), "μ: mean reward of xᵀθ", ""),
    setting("parameter_norm", Kind::Number, "‖θ‖: norm of the true parameters", "0 or more"),
    setting("most", Kind::Number, "the largest count of the poisson link", "0 or more"),
    setting("users", Kind::Size(10_000_000), "n: users of all agents", "agents or more"),
    setting("clusters", Kind::Size(10_000_000), "m: clusters of users", "1 to users"),
    setting("assignment", Kind::OneOf(&["shuffled", "contiguous"]), "which users an agent serves", ""),
    setting("noise_shape", Kind::Table(NOISE_SHAPE), "the distribution of the noise", ""),
    setting(
        "data",
        Kind::Text,
        "directory of the prepared data, made by `posse data prepare`",
        "must be set",
    ),
    setting(
        "hash",
        Kind::Text,
        "its content hash or twelve digits of it; any: whatever is there",
        "must be set",
    ),
    setting(
        "split",
        Kind::OneOf(&["shared", "id", "time", "cluster", "label-skew"]),
        "how the data is divided over agents",
        "",
    ),
    setting("concentration", Kind::Number, "α: how even label-skew is", "above 0"),
    setting("constant", Kind::Switch, "give items a further feature that is always 1", ""),
    setting("unit", Kind::Switch, "divide all arms by the length of the longest", ""),
    setting("drift", Kind::Table(DRIFT), "parameters that turn over time; not set: they stay", ""),
];

/// The keys that the table `noise_shape` may have.
const NOISE_SHAPE: &[Setting] = &[
    setting("law", Kind::OneOf(&["gaussian", "uniform", "student-t"]), "the family", ""),
    setting("degrees", Kind::Number, "degrees of freedom of student-t", "above 2"),
];

/// The keys that the table `drift` may have.
const DRIFT: &[Setting] = &[setting("period", Kind::Whole, "steps of one full turn", "2 or more")];

/// The keys that `[arrival]` may have.
pub(super) const ARRIVAL: &[Setting] = &[
    setting("exponent", Kind::Number, "how uneven; 0 is uniform", "0 or more"),
    setting("concentration", Kind::Number, "α: how even", "above 0"),
    setting("share", Kind::Number, "the probability of agent 0", "0 to 1"),
    setting("mean_length", Kind::Number, "mean steps of a burst", "1 or more"),
    setting("lifetime", Kind::Number, "mean stay of an agent as a share of the horizon", "above 0"),
];

/// The keys that `[network]` may have.
pub(super) const NETWORK: &[Setting] = &[
    setting("preset", Kind::OneOf(PRESETS), "gives what is not set", ""),
    setting("interval", Kind::Number, "ms from one interaction to the next, over all agents", "above 0"),
    setting("reward_delay", Kind::Number, "ms from a choice to its reward", "0 or more"),
    setting("wait", Kind::Number, "ms an agent waits at most for an answer before it chooses", "0 or more"),
    setting("resend", Kind::Number, "ms after which an unanswered message is sent again", "above 0"),
    setting("latency", Kind::Number, "ms a message needs at least", "0 or more"),
    setting("jitter", Kind::Number, "up to this many ms more", "0 or more"),
    setting("loss", Kind::Number, "share of messages that are lost", "0 to below 1"),
    setting("repeat", Kind::Number, "share of messages that arrive twice", "0 to below 1"),
    setting("straggle", Kind::Number, "share of messages that arrive a second late", "0 to below 1"),
    setting("partition_every", Kind::Number, "ms; each agent is cut off once in this time", "0 or more"),
    setting("partition_length", Kind::Number, "ms; for how long", "below partition_every"),
];

/// The keys that `[faults]` may have.
pub(super) const FAULTS: &[Setting] = &[
    setting("agent_crash", Kind::Number, "probability per interaction that some agent crashes", "0 to 1"),
    setting("volatile", Kind::Number, "share of crashes after which an agent knows nothing", "0 to 1"),
    setting("downtime", Kind::Number, "ms that a crashed agent is away, unless it is needed", "0 or more"),
    setting(
        "coordinator_restart",
        Kind::Number,
        "probability per interaction that the coordinator restarts",
        "0 to 1",
    ),
    setting("lost_entries", Kind::Whole, "entries at the end of its log that a restart loses", ""),
];
