//! An agent's model is that of its view: base + in flight + buffer, with nothing stale (INV-1).

use posse_core::{AgentView, Algorithm, Evidence, Ridge};

use super::Invariant;
use crate::observer::{Event, Stage};

pub(super) struct Views {
    /// The algorithm chooses with the base alone.
    base_only: bool,
}

impl Views {
    pub(super) fn of(algorithm: &Algorithm) -> Self {
        let released_only = algorithm.privacy().is_some_and(|privacy| !privacy.raw_buffer);
        Self {
            base_only: released_only
                || matches!(algorithm, Algorithm::FedLinUcb(_) | Algorithm::FedGlbUcb1(_)),
        }
    }

    fn check_view(&self, view: &AgentView<'_>) -> Result<(), String> {
        let mut sum = Evidence::none(view.base.dimension());
        sum.add(view.base);
        if !self.base_only {
            sum.add(view.buffer);
            if let Some((_, in_flight)) = view.in_flight {
                sum.add(in_flight);
            }
        }
        let mut plain = Ridge::new(sum.dimension(), view.model.regularization());
        plain.refresh([&sum].into_iter()).map_err(|error| error.to_string())?;
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-7 * a.abs().max(b.abs()).max(1.0);
        if !close(plain.information(), view.model.information()) {
            let (has, should) = (view.model.information(), plain.information());
            return Err(format!("the model's information is {has}, its view gives {should}"));
        }
        let (has, should) = (view.model.estimate(), plain.estimate());
        if has.iter().zip(&should).any(|(a, b)| !close(*a, *b)) {
            return Err(format!("the model's estimate is {has:?}, its view gives {should:?}"));
        }
        if view.fresh_information < 0.0 || (view.buffer.is_empty() && view.fresh_information != 0.0) {
            return Err(format!("fresh information {} without a buffer", view.fresh_information));
        }
        Ok(())
    }
}

impl Invariant for Views {
    fn check(&mut self, event: &Event<'_>, stage: &dyn Stage) -> Result<(), String> {
        let (Event::Learned { agent, .. } | Event::Down { agent, .. }) = event else { return Ok(()) };
        let Some(machine) = stage.agent(*agent) else { return Ok(()) };
        self.check_view(&machine.inspect()).map_err(|what| format!("{agent}: {what}"))
    }
}
