//! An agent's model is that of its view: base + in flight + buffer, with nothing stale (INV-1).

use std::collections::BTreeMap;

use posse_core::{AgentId, AgentView, Algorithm, Evidence, Incarnation, LinearView, Ridge};

use super::Invariant;
use crate::observer::{Event, Stage};

pub(super) struct Views {
    /// The algorithm chooses with the base alone.
    base_only: bool,
    /// Of each agent when it was last looked at: its life, its unsent observations and their information.
    last: BTreeMap<AgentId, (Incarnation, u64, f64)>,
}

impl Views {
    pub(super) fn of(algorithm: &Algorithm) -> Self {
        Self {
            base_only: !algorithm.with_recipe(|recipe| recipe.chooses_with_unsent()),
            last: BTreeMap::new(),
        }
    }

    /// What holds in every family: fresh information is never negative, and there is none without something unsent.
    fn check_counts(view: &AgentView<'_>) -> Result<(), String> {
        let fresh = view.fresh_information;
        if !(fresh >= 0.0 && fresh.is_finite()) || (view.unsent == 0 && fresh != 0.0) {
            return Err(format!("fresh information {fresh} of {} unsent observations", view.unsent));
        }
        Ok(())
    }

    /// One more unsent observation never lowers the information, beyond rounding.
    fn check_rise(&self, agent: AgentId, life: Incarnation, view: &AgentView<'_>) -> Result<(), String> {
        match self.last.get(&agent) {
            Some((before, unsent, information))
                if *before == life
                    && view.unsent == unsent + 1
                    && view.fresh_information < information - 1e-9 * information.max(1.0) =>
            {
                Err(format!(
                    "learning lowered its information from {information} to {}",
                    view.fresh_information
                ))
            }
            _ => Ok(()),
        }
    }

    fn check_linear(&self, view: &LinearView<'_>) -> Result<(), String> {
        let mut sum = Evidence::none(view.base.dimension());
        sum.add(view.base);
        if !self.base_only {
            sum.add(view.buffer);
            if let Some(in_flight) = view.in_flight {
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
        Ok(())
    }
}

impl Invariant for Views {
    fn check(&mut self, event: &Event<'_>, stage: &dyn Stage) -> Result<(), String> {
        let (Event::Learned { agent, .. } | Event::Down { agent, .. }) = event else { return Ok(()) };
        let Some(machine) = stage.agent(*agent) else { return Ok(()) };
        let view = machine.inspect();
        let linear = view.linear.as_ref().map_or(Ok(()), |linear| self.check_linear(linear));
        let rises = match event {
            Event::Learned { .. } => self.check_rise(*agent, stage.incarnation(*agent), &view),
            _ => Ok(()),
        };
        self.last.insert(*agent, (stage.incarnation(*agent), view.unsent, view.fresh_information));
        linear.and(Self::check_counts(&view)).and(rises).map_err(|what| format!("{agent}: {what}"))
    }
}
