//! UCB-GLM: the maximum likelihood estimate over everything seen, and a fixed width (Li et al. 2017). One
//! learner an agent (N-UCB-GLM), or one for all agents (One-UCB-GLM), the reference that moves all raw data.

use crate::settings::Described;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::config::{Constants, GlmConfig};
use super::history::History;
use super::link::LinkFunction;
use super::projection::{dot, norm};
use crate::agent::{Agent, AgentView, Choice, LinearView};
use crate::arms::{Arms, best};
use crate::error::{ConfigError, DecodeError, InputError, ProtocolError};
use crate::evidence::{Evidence, check_observation};
use crate::ids::UserId;
use crate::message::{Downlink, Uplink};
use crate::ridge::Ridge;
use crate::scoring::check_arms;
use crate::width::NOT_NEGATIVE;
use crate::wire::{self, v1};

/// Newton's method needs fewer gradients than this from wherever it starts.
const MAX_STEPS: usize = 60;
/// A gradient of so many times the tolerance is as good as none.
const NEAR: f64 = 1e3;
/// One recursive step moves the observed arm's z = xᵀθ by at most this where the link curves. The curve is a line only nearby: a longer
/// step leads to where it is flat, and there every next step is longer still.
const LONGEST_STEP: f64 = 1.0;

/// Settings of `n-ucb-glm` and `one-ucb-glm`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Described)]
#[serde(default)]
pub struct UcbGlm {
    /// The model and its width.
    #[serde(flatten)]
    pub model: GlmConfig,
    /// ≥ 0: the estimate is made anew from all observations when they have grown by this fraction, and moved by
    /// one recursive step for each observation between. 0 makes it anew every time, at a cost that grows
    /// with the square of the observations. Default 0.01.
    pub refit_growth: f64,
}

impl Default for UcbGlm {
    fn default() -> Self {
        Self { model: GlmConfig::default(), refit_growth: 0.01 }
    }
}

impl UcbGlm {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.model.check()?;
        let fine = self.refit_growth >= 0.0 && self.refit_growth.is_finite();
        ConfigError::require(fine, "refit_growth", self.refit_growth, NOT_NEGATIVE)
    }

    /// A learner that will see about `horizon` observations.
    pub(crate) fn agent(&self, name: &'static str, dimension: usize, horizon: u64) -> UcbGlmAgent {
        let constants = self.model.constants();
        let d = dimension as f64;
        // (R/c_μ)·√((d/2)·ln(1 + 2T/d) + ln(1/δ)).
        let information = 0.5 * d * libm::log1p(2.0 * horizon as f64 / d);
        let failure = libm::log(1.0 / constants.confidence);
        let width = constants.noise / constants.smallest * (information + failure).sqrt();
        let ridge = Ridge::new(dimension, constants.lambda);
        UcbGlmAgent {
            name,
            constants,
            width: constants.practical(width),
            refit_growth: self.refit_growth,
            evidence: Evidence::none(dimension),
            nothing: Evidence::none(dimension),
            model: ridge.clone(),
            history: History::new(dimension),
            estimate: vec![0.0; dimension],
            curvature: ridge,
            refitted: 0,
        }
    }
}

/// A learner with its own maximum likelihood estimate.
#[derive(Clone, Debug)]
pub(crate) struct UcbGlmAgent {
    name: &'static str,
    constants: Constants,
    width: f64,
    refit_growth: f64,
    evidence: Evidence,
    /// Always empty: the agent sends nothing, and views need something to refer to.
    nothing: Evidence,
    /// Σxxᵀ + λI of what was observed, which gives the widths of arms.
    model: Ridge,
    history: History,
    estimate: Vec<f64>,
    /// Σ μ'(xᵀθ)xxᵀ + λI, each summand at the estimate of its time.
    curvature: Ridge,
    /// How many observations there were when the estimate was last made anew.
    refitted: usize,
}

impl UcbGlmAgent {
    /// θ ← θ − H⁻¹x(μ(xᵀθ) − y), which is exact for a link that is a line, and shortened for one that is not.
    fn step(&mut self, x: &[f64], y: f64) {
        let z = dot(x, &self.estimate);
        let slope = self.constants.link.slope(z).sqrt();
        let weighted: Vec<f64> = x.iter().map(|x| slope * x).collect();
        self.curvature.append(&weighted, 0.0);
        let mut direction = x.to_vec();
        self.curvature.solve(&mut direction);
        let mut error = self.constants.link.mean(z) - y;
        let length = (error * dot(x, &direction)).abs();
        if length > LONGEST_STEP && self.constants.link != LinkFunction::Identity {
            error *= LONGEST_STEP / length;
        }
        let moved: Vec<f64> = self.estimate.iter().zip(&direction).map(|(t, w)| t - error * w).collect();
        if moved.iter().all(|v| v.is_finite()) {
            self.estimate = moved;
        }
    }

    /// Newton's method over all observations, from where the estimate is. A step after which the gradient is longer than before
    /// is halved until it is shorter; a step that is short enough always makes it so.
    fn refit(&mut self) {
        self.refitted = self.history.len();
        let (lambda, link, count) = (self.constants.lambda, self.constants.link, self.history.len());
        let tolerance = 1e-10 * (1.0 + (count as f64).sqrt());
        let mut last = f64::INFINITY;
        let mut before = self.estimate.clone();
        let mut direction = vec![0.0; before.len()];
        for _ in 0..MAX_STEPS {
            let (gradient, matrix) = self.history.gradient_and_curvature(link, &self.estimate, count);
            let total: Vec<f64> = gradient.iter().zip(&self.estimate).map(|(g, t)| g + lambda * t).collect();
            let slope = norm(&total);
            // A gradient this short only grows by rounding.
            let is_near = slope <= NEAR * tolerance;
            if (slope >= last || !slope.is_finite()) && !is_near {
                direction.iter_mut().for_each(|w| *w *= 0.5);
            } else {
                let bent = super::online::bent(matrix, self.estimate.len());
                let mut curvature = self.curvature.clone();
                if curvature.refresh([&bent].into_iter()).is_err() {
                    return;
                }
                self.curvature = curvature;
                if slope <= tolerance || slope >= last {
                    return;
                }
                last = slope;
                before.clone_from(&self.estimate);
                direction = total;
                self.curvature.solve(&mut direction);
            }
            let moved: Vec<f64> = before.iter().zip(&direction).map(|(t, w)| t - w).collect();
            if !moved.iter().all(|v| v.is_finite()) {
                return;
            }
            self.estimate = moved;
        }
        // No end in sight: the best that was found.
        self.estimate = before;
    }
}

impl Agent for UcbGlmAgent {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        check_arms(self.model.dimension(), arms)?;
        let (estimate, width) = (&self.estimate, self.width);
        let arm = self.model.score(arms.all(), |scores| {
            let bound = |(k, own): (usize, &f64)| dot(arms.row(k), estimate) + width * own;
            best(scores.widths.iter().enumerate().map(bound))
        })?;
        Ok(Choice { arm, propensity: Some(1.0) })
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        check_observation(self.model.dimension(), arm, reward)?;
        self.constants.link.check_reward(reward)?;
        self.evidence.add_observation(arm, reward);
        self.model.learn(arm, reward, [&self.evidence].into_iter());
        self.history.push(arm, reward);
        self.step(arm, reward);
        if self.history.len() as f64 >= self.refitted as f64 * (1.0 + self.refit_growth) {
            self.refit();
        }
        Ok(None)
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        Err(ProtocolError::Unexpected { algorithm: self.name, message: message.kind() })
    }

    fn inspect(&self) -> AgentView<'_> {
        AgentView::alone(self.evidence.count(), self.model.information()).with_linear(LinearView {
            base: &self.nothing,
            in_flight: None,
            buffer: &self.evidence,
            model: &self.model,
        })
    }

    fn save(&self) -> Vec<u8> {
        let (features, rewards) = self.history.save();
        v1::GlmAgentState {
            view: Some(v1::ViewState {
                buffer: Some(wire::evidence_to_wire(&self.evidence)),
                model: Some(self.model.save()),
                ..Default::default()
            }),
            features,
            rewards,
            iterate: self.estimate.clone(),
            model: Some(self.curvature.save()),
            refitted: self.refitted as u64,
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::GlmAgentState = wire::decode(state)?;
        let d = self.model.dimension();
        let view = state.view.unwrap_or_default();
        let evidence = wire::evidence_from_wire(view.buffer.unwrap_or_default())?;
        let history = History::restored(d, &state.features, &state.rewards);
        let finite = state.iterate.iter().all(|v| v.is_finite());
        let (Some(history), true) =
            (history, evidence.dimension() == d && state.iterate.len() == d && finite)
        else {
            return Err(DecodeError::invalid("history", "it does not fit this federation"));
        };
        let (mut model, mut curvature) = (self.model.clone(), self.curvature.clone());
        model.restore(&view.model.unwrap_or_default())?;
        curvature.restore(&state.model.unwrap_or_default())?;
        self.refitted = usize::try_from(state.refitted).unwrap_or(0).min(history.len());
        (self.evidence, self.model, self.history) = (evidence, model, history);
        (self.estimate, self.curvature) = (state.iterate, curvature);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With hardly any regulariser, whole Newton steps lead to where the curve is flat, and never back.
    #[test]
    fn the_estimate_is_the_likeliest_with_hardly_any_regulariser() {
        let model = GlmConfig { regularization: 8e-7, norm_bound: 14.0, ..GlmConfig::default() };
        for refit_growth in [0.0, 0.01, 0.3] {
            let mut agent = UcbGlm { model: model.clone(), refit_growth }.agent("n-ucb-glm", 2, 1000);
            // Two arms that look alike, one of which pays in 49 of 50 times and the other in one of three.
            let arms = [[0.8, 0.6], [0.75, 0.66]];
            for t in 0..300 {
                let pays = if t % 2 == 0 { t % 100 != 50 } else { t % 3 == 0 };
                agent.learn(UserId(0), &arms[t % 2], f64::from(u8::from(pays))).unwrap();
            }
            agent.refit();
            // The minimiser gives both arms the means that were seen, to within the regulariser.
            for (arm, seen) in arms.iter().zip([147.0 / 150.0, 50.0 / 150.0]) {
                let mean = agent.constants.link.mean(dot(arm, &agent.estimate));
                assert!(
                    (mean - seen).abs() < 1e-5,
                    "{mean} instead of {seen} with refit_growth {refit_growth}"
                );
            }
        }
    }
}
