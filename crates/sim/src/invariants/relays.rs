//! Evidence is conserved at every level (INV-2): what a relay took in from below is with its parent, on its way there
//! or waits, once; and what it shows its children is what it holds.

use std::collections::BTreeMap;

use posse_core::{Algorithm, Evidence, EvidenceUpload, Relay, Sharing};

use super::Invariant;
use super::conservation::uploaded;
use crate::observer::{Event, Stage};

/// A relay, by depth and number.
type RelayAt = (usize, usize);

#[derive(Default)]
pub(super) struct Relayed {
    /// Uploads carry what is new. Parts of rounds stay with agents until a round has them, and are counted there.
    by_uploads: bool,
    /// Observations that each relay took in from below.
    taken_in: BTreeMap<RelayAt, u64>,
    /// Uploads of each relay that its parent took in, in order.
    passed: Vec<(RelayAt, u64, Evidence)>,
    /// Observations that the root confirmed and then lost with the end of its log.
    lost: BTreeMap<RelayAt, u64>,
    /// Observations of an upload that the root lost while it was in flight: sent again, unless a message from
    /// before the loss confirms it.
    limbo: BTreeMap<RelayAt, u64>,
}

impl Relayed {
    pub(super) fn of(algorithm: &Algorithm) -> Self {
        Self { by_uploads: algorithm.sharing() == Sharing::Uploads, ..Self::default() }
    }

    fn note(&mut self, event: &Event<'_>, relays: &[Vec<&dyn Relay>], stage: &dyn Stage) {
        match event {
            Event::Up { agent, message, .. } => {
                if let (Some(upload), Some(above), Some(own)) =
                    (uploaded(message), relays.len().checked_sub(1), stage.relay_of(*agent))
                {
                    self.take_in((above, own), upload);
                }
            }
            Event::Passed { depth, relay, message } => {
                let Some(upload) = uploaded(message) else { return };
                let place = (*depth, *relay);
                self.limbo.remove(&place);
                self.passed.push((place, upload.number, upload.evidence.evidence().clone()));
                if let Some(above) = depth.checked_sub(1) {
                    self.take_in((above, relay % relays[above].len()), upload);
                }
            }
            Event::Restarted { lost, .. } if *lost > 0 => {
                self.forget(stage.coordinator().inspect().observations, relays);
            }
            _ => {}
        }
    }

    fn take_in(&mut self, place: RelayAt, upload: &EvidenceUpload) {
        *self.taken_in.entry(place).or_default() += upload.evidence.count();
    }

    fn at_root(&self) -> impl Iterator<Item = &Evidence> {
        self.passed.iter().filter(|((depth, _), ..)| *depth == 0).map(|(_, _, evidence)| evidence)
    }

    /// The end of the root's log is gone, and with it the last uploads.
    fn forget(&mut self, left: u64, relays: &[Vec<&dyn Relay>]) {
        let mut total: u64 = self.at_root().map(Evidence::count).sum();
        while total > left {
            let Some(last) = self.passed.iter().rposition(|((depth, _), ..)| *depth == 0) else { return };
            let (place, number, evidence) = self.passed.remove(last);
            total -= evidence.count();
            let in_flight = relays[place.0][place.1].above().in_flight.map(|(number, _)| number);
            if in_flight == Some(number) {
                self.limbo.insert(place, evidence.count());
            } else {
                *self.lost.entry(place).or_default() += evidence.count();
            }
        }
    }

    fn check_root(&self, stage: &dyn Stage) -> Result<(), String> {
        let Some(held) = stage.coordinator().inspect().evidence else { return Ok(()) };
        let mut sum = Evidence::none(held.dimension());
        self.at_root().for_each(|evidence| sum.add(evidence));
        same(held, &sum)
            .map_err(|what| format!("the root's sums are not those of the relays' uploads: {what}"))
    }

    fn check_relay(&mut self, place: RelayAt, relay: &dyn Relay) -> Result<(), String> {
        let (above, below) = (relay.above(), relay.below());
        let of = |map: &BTreeMap<RelayAt, u64>| map.get(&place).copied().unwrap_or(0);
        let arrived = |number| self.passed.iter().any(|(at, n, _)| *at == place && *n == number);
        let on_its_way =
            above.in_flight.filter(|(number, _)| !arrived(*number)).map_or(0, |(_, count)| count);
        let passed: u64 =
            self.passed.iter().filter(|(at, ..)| *at == place).map(|(_, _, evidence)| evidence.count()).sum();
        let (taken_in, lost, confirmed) = (of(&self.taken_in), of(&self.lost), of(&self.limbo));
        let accounted = passed + lost + on_its_way + above.unsent;
        if confirmed > 0 && taken_in == accounted + confirmed {
            *self.lost.entry(place).or_default() += confirmed;
            self.limbo.remove(&place);
        } else if taken_in != accounted {
            return Err(format!(
                "relay {place:?} took in {taken_in} observations: {passed} are with its parent, {lost} were lost \
                 there, {on_its_way} are on their way, {} wait",
                above.unsent
            ));
        }
        let (Some(shown), Some(linear)) = (below.evidence, above.linear) else { return Ok(()) };
        let mut sum = linear.base.clone();
        linear.in_flight.into_iter().chain([linear.buffer]).for_each(|evidence| sum.add(evidence));
        same(shown, &sum).map_err(|what| format!("relay {place:?} shows its children something else: {what}"))
    }
}

fn same(one: &Evidence, other: &Evidence) -> Result<(), String> {
    if one.count() != other.count() {
        return Err(format!("{} observations, not {}", one.count(), other.count()));
    }
    let scale = other.gram().iter().fold(1.0_f64, |a, b| a.max(b.abs()));
    let off = |a: &[f64], b: &[f64]| a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-9 * scale);
    if off(one.gram(), other.gram()) || off(one.moment(), other.moment()) {
        return Err("the same count and other sums".to_owned());
    }
    Ok(())
}

impl Invariant for Relayed {
    fn check(&mut self, event: &Event<'_>, stage: &dyn Stage) -> Result<(), String> {
        let relays = stage.relays();
        if relays.is_empty() || !self.by_uploads {
            return Ok(());
        }
        self.note(event, &relays, stage);
        self.check_root(stage)?;
        for (depth, relays) in relays.iter().enumerate() {
            for (number, relay) in relays.iter().enumerate() {
                self.check_relay((depth, number), *relay)?;
            }
        }
        Ok(())
    }
}
