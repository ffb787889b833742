//! The keys of `[[algorithm]]` tables, with their meaning and range.

use super::{Kind, Setting, setting};

/// The links of generalized linear models.
pub(super) const LINKS: &[&str] = &["identity", "logistic", "poisson", "probit"];

/// The kernels of kernel regression.
const KERNELS: &[&str] = &["exponential", "rbf", "matern-1.5", "matern-2.5", "linear"];

/// The keys that `[[algorithm]]` may have.
pub(super) const ALGORITHM: &[Setting] = &[
    setting("regularization", Kind::Number, "λ: weight of the belief that parameters are zero", "above 0"),
    setting("noise", Kind::Number, "σ: scale of the reward noise the width assumes", "0 or more"),
    setting("confidence", Kind::Number, "δ: chance that the width may fail", "between 0 and 1"),
    setting("norm_bound", Kind::Number, "S: bound on the norm of the true parameters", "above 0"),
    setting("width", Kind::OneOf(&["log-det", "det-trace"]), "how the width measures information", ""),
    setting("width_scale", Kind::Number, "multiplies the theoretical width", "0 or more"),
    setting("fixed_width", Kind::Number, "a constant instead of the theoretical width", "0 or more"),
    setting(
        "upload_threshold",
        Kind::Threshold,
        "γ_U: growth of det V that makes an agent upload",
        "1 to inf",
    ),
    setting("download_threshold", Kind::Threshold, "γ_D: growth of det V that sends a snapshot", "1 to inf"),
    setting("join", Kind::OneOf(&["lazy", "eager", "pull-on-join"]), "when newcomers become known", ""),
    setting("min_upload", Kind::Whole, "fewest observations an upload may hold", "1 or more"),
    setting("snapshot_in_receipt", Kind::Switch, "answer an upload of an agent behind at once", ""),
    setting("override", Kind::Tables(OVERRIDE), "tables of agent, upload_threshold, download_threshold", ""),
    setting("message_price", Kind::Number, "regret that a message has to save", "0 or more"),
    setting("byte_price", Kind::Number, "regret that a byte has to save, on top of its message", "0 or more"),
    setting("least_growth", Kind::Number, "growth of observations that a snapshot needs", "0 to most_growth"),
    setting("most_growth", Kind::Number, "expected growth that always asks", "least_growth or more"),
    setting("least_news", Kind::Threshold, "γ: growth of det V that an upload needs", "1 to most_withheld"),
    setting("most_withheld", Kind::Threshold, "γ: growth of det V pushed at any price", "least_news or more"),
    setting("gap_scale", Kind::Number, "multiplies the width that spreads choices over arms", "0 or more"),
    setting("sampling_scale", Kind::Number, "multiplies the width of the sampled model", "0 or more"),
    setting(
        "perturbations",
        Kind::Number,
        "a: coins added to each past reward, in distribution",
        "0 or more",
    ),
    setting(
        "perturbation",
        Kind::OneOf(&["exact", "approximate"]),
        "how the perturbation of unseen rewards is drawn",
        "",
    ),
    setting(
        "round_threshold",
        Kind::Threshold,
        "D: urgency above which an agent asks for a round",
        "0 to inf",
    ),
    setting(
        "round_clock",
        Kind::OneOf(&["steps", "observations"]),
        "what time since a round is counted in",
        "",
    ),
    setting("round_deadline", Kind::Span, "how long a round waits for all agents", ""),
    setting("quorum", Kind::Number, "share of agents that must answer in time", "0 to 1"),
    setting("round_every", Kind::Whole, "observations of all agents between two rounds (NT/B)", "1 or more"),
    setting("link", Kind::OneOf(LINKS), "μ: mean reward of xᵀθ", ""),
    setting("feature_bound", Kind::Number, "X̄: bound on the norm of an arm's features", "above 0"),
    setting(
        "solver",
        Kind::OneOf(&["auto", "restart", "nesterov", "newton", "preconditioned"]),
        "how θ is found",
        "",
    ),
    setting(
        "precision",
        Kind::OneOf(&["inverse-square", "inverse"]),
        "ε: 1/n² or 1/n above the least loss",
        "",
    ),
    setting("most_evaluations", Kind::Whole, "most gradients asked for in a round", "1 or more"),
    setting(
        "refit_growth",
        Kind::Number,
        "growth of data after which the estimate is made anew",
        "0 or more",
    ),
    setting("cold_start", Kind::Switch, "begin with a model of the agent's own (Algorithm 5)", ""),
    setting("duplicated", Kind::Switch, "use every feature in both blocks", ""),
    setting("iterations", Kind::Whole, "most alternations per observation", "1 or more"),
    setting("extra_noise", Kind::Number, "added to the noise in the widths of the blocks", "0 or more"),
    setting("edge_scale", Kind::Threshold, "α₁: how far apart users must be to be told apart", "0 to inf"),
    setting("merge_scale", Kind::Threshold, "α₂: how near clusters must be to be alike", "0 to inf"),
    setting("linkage", Kind::OneOf(&["complete", "transitive"]), "who must be alike in a group", ""),
    setting("merge_gate", Kind::Threshold, "clusters known less well are not compared", "0 to inf"),
    setting("phase_base", Kind::Whole, "phase s has this to the power s interactions", "2 or more"),
    setting("phase_deadline", Kind::Span, "how long a phase waits for all agents", ""),
    setting(
        "frequency_scale",
        Kind::Threshold,
        "α_p: how much users may differ in how often they come",
        "0 to inf",
    ),
    setting("merge", Kind::Switch, "whether clusters merge", ""),
    setting("kernel", Kind::OneOf(KERNELS), "k: likeness", ""),
    setting("length_scale", Kind::Number, "ℓ: features are divided by it", "above 0"),
    setting("exploration", Kind::Number, "ν: how much the variance counts", "0 or more"),
    setting("history_limit", Kind::Size(20_000), "most observations that are kept", "1 to 20000"),
    setting("network", Kind::OneOf(&["plain", "tangent"]), "which network", ""),
    setting(
        "hidden_width",
        Kind::Whole,
        "m: units of a hidden layer; even for tangent networks",
        "1 or more",
    ),
    setting("hidden_layers", Kind::Whole, "hidden layers", "1 to 64"),
    setting("learning_rate", Kind::Number, "η: step of gradient descent", "above 0"),
    setting("training_steps", Kind::Whole, "J: steps whenever the network is trained", ""),
    setting("training_stop", Kind::Whole, "observations of an agent after which training ends", ""),
    setting("statistic", Kind::OneOf(&["full", "diagonal"]), "how much of the gradients' matrix is kept", ""),
    setting("full_limit", Kind::Whole, "most parameters for whole matrices (4096: 67 MB each)", ""),
    setting("linear_width", Kind::Number, "ν_a: width of the linear model of gradients", "0 or more"),
    setting("network_width", Kind::Number, "ν_b: width of the network", "0 or more"),
    setting("lockstep", Kind::Switch, "answer a round at the end of an iteration", ""),
    setting(
        "training",
        Kind::OneOf(&["independent", "fedavg", "fedavg-rounds", "pooled"]),
        "how to train",
        "",
    ),
    setting(
        "training_data",
        Kind::OneOf(&["all", "rounds"]),
        "observations that networks are trained on",
        "",
    ),
    setting("trigger", Kind::OneOf(&["whole", "diagonal"]), "determinant that makes a round due", ""),
    setting("averaging_rounds", Kind::Whole, "r: averages a round (fedavg-rounds)", "1 or more"),
    setting("averaging", Kind::Switch, "predict with the average of all networks", ""),
    setting("features_at", Kind::OneOf(&["start", "current"]), "the network whose gradient is taken", ""),
    setting(
        "alpha",
        Kind::OneOf(&["schedule", "ratio", "zero", "one"]),
        "how far the network is trusted",
        "",
    ),
    setting("alpha_delay", Kind::Whole, "observations for which the schedule is 0", ""),
    setting("alpha_ramp", Kind::Whole, "observations over which it grows to 1", ""),
    setting("probes", Kind::Whole, "arms that uncertainties are compared on", ""),
    setting("less_communication", Kind::Switch, "send the mean of the agents' inverse matrices", ""),
    setting("rescale", Kind::Switch, "move linear means of an offer to [0, 1] (diagonal)", ""),
    setting("privacy", Kind::Table(PRIVACY), "what is promised about privacy; not set: nothing", ""),
];

/// Settings of `privacy`, which some algorithms have beside their others.
pub(super) const PRIVACY: &[Setting] = &[
    setting("epsilon", Kind::Number, "ε of one unit over the whole run", "above 0"),
    setting("delta", Kind::Number, "δ: probability with which ε may fail", "between 0 and 1"),
    setting("unit", Kind::OneOf(&["interaction", "user"]), "what ε protects", ""),
    setting("user_cap", Kind::Whole, "interactions of a user that count (unit user)", "1 or more"),
    setting("mechanism", Kind::OneOf(&["factorisation", "tree"]), "how noise of releases is correlated", ""),
    setting("max_releases", Kind::Whole, "releases of one stream of sums", "1 to 512"),
    setting("feature_bound", Kind::Number, "X̄: the longest features", "above 0"),
    setting("reward_bound", Kind::Number, "Ȳ: the furthest reward from the centre", "above 0"),
    setting("reward_centre", Kind::Number, "subtracted from every reward before it is learned", ""),
    setting("clip", Kind::OneOf(&["scale", "refuse"]), "what to do with what is larger", ""),
    setting("first_release", Kind::Whole, "observations before the first release", "1 or more"),
    setting("release_growth", Kind::Number, "growth of observations until the next release", "above 1"),
    setting("edge_share", Kind::Number, "share of the budget to tell users apart", "between 0 and 1"),
    setting("edge_releases", Kind::Whole, "releases of one user's sums to that end", "1 to 512"),
    setting("edge_first", Kind::Whole, "observations of a user before the first", "1 or more"),
    setting("edge_growth", Kind::Number, "growth of a user's observations until the next", "above 1"),
    setting("streams", Kind::Whole, "streams that noise bounds hold for at once", "1 or more"),
    setting("noise_failure", Kind::Number, "probability with which those may fail", "between 0 and 1"),
    setting("raw_buffer", Kind::Switch, "choose with raw observations: promise less", ""),
];

/// Settings that mean something else for `fed-lin-ucb`.
pub(super) const FED_LIN_UCB: &[Setting] = &[setting(
    "upload_threshold",
    Kind::Threshold,
    "growth of det V that makes an exchange due; default 1 + 1/M²",
    "1 to inf",
)];

/// Settings that mean something else for `kernel-ucb` and `kernel-ts`.
pub(super) const KERNEL: &[Setting] = &[setting(
    "regularization",
    Kind::Number,
    "λ: variance of noise, if that of rewards between arms is 1",
    "above 0",
)];

/// The keys that `[[algorithm.override]]` may have.
const OVERRIDE: &[Setting] = &[
    setting("agent", Kind::Whole, "whose", ""),
    setting("upload_threshold", Kind::Threshold, "its γ_U, if not everybody's", "1 to inf"),
    setting("download_threshold", Kind::Threshold, "its γ_D, if not everybody's", "1 to inf"),
];
