//! What an agent believes: a snapshot, its own uploads that are not in it yet, and its buffer.

use std::cell::OnceCell;
use std::sync::Arc;

use crate::agent::{AgentView, LinearView};
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::evidence::{Evidence, check_observation};
use crate::ids::Version;
use crate::message::{EvidenceUpload, Snapshot};
use crate::parcel::Parcel;
use crate::ridge::Ridge;
use crate::wire::{self, v1};

/// base + in flight + buffer, with the model of their sum.
#[derive(Clone, Debug)]
pub(crate) struct Belief {
    version: Version,
    base: Arc<Evidence>,
    in_flight: Option<Evidence>,
    buffer: Evidence,
    /// Uploads sent in this life; the last of them is the one in flight, if any.
    uploads: u64,
    regularization: f64,
    /// Made anew when it is first needed after a new base: most snapshots are overtaken by a newer one
    /// before the agent acts. A base is accepted only once it was factorised, so nothing fails later.
    derived: OnceCell<Derived>,
}

/// What follows from the evidence of a view.
#[derive(Clone, Debug)]
struct Derived {
    model: Ridge,
    fresh_information: f64,
}

impl Belief {
    pub(crate) fn new(model: Ridge) -> Self {
        let nothing = Evidence::none(model.dimension());
        Self {
            version: Version(0),
            base: Arc::new(nothing.clone()),
            in_flight: None,
            buffer: nothing,
            uploads: 0,
            regularization: model.regularization(),
            derived: OnceCell::from(Derived { model, fresh_information: 0.0 }),
        }
    }

    /// Takes in an observation, or refuses it unchanged.
    #[inline]
    pub(crate) fn learn(&mut self, x: &[f64], y: f64) -> Result<(), InputError> {
        check_observation(self.dimension(), x, y)?;
        self.observe(x, y);
        Ok(())
    }

    /// Takes in an observation that was checked before.
    #[inline]
    pub(crate) fn observe(&mut self, x: &[f64], y: f64) {
        self.derived();
        self.buffer.add_observation(x, y);
        let parts = [&*self.base, &self.buffer].into_iter().chain(&self.in_flight);
        let derived = self.derived.get_mut().expect("it was made above");
        derived.fresh_information += derived.model.learn(x, y, parts);
    }

    /// Adds evidence of others, checked before, to what is not sent yet: what a relay does.
    pub(crate) fn absorb(&mut self, evidence: &Evidence) {
        self.buffer.add(evidence);
        self.derived.take();
    }

    /// All parts in one sum.
    pub(crate) fn sum(&self) -> Evidence {
        let mut sum = Evidence::clone(&self.base);
        self.in_flight.iter().for_each(|evidence| sum.add(evidence));
        sum.add(&self.buffer);
        sum
    }

    /// Information of everything but the buffer.
    pub(crate) fn sent_information(&self) -> f64 {
        self.information_of([&*self.base].into_iter().chain(&self.in_flight))
    }

    /// Moves the buffer to what is on its way, and returns it as an upload.
    pub(crate) fn send(&mut self) -> EvidenceUpload {
        debug_assert!(self.in_flight.is_none(), "one upload at a time");
        self.uploads += 1;
        let evidence = self.freeze();
        let information = self.model().information();
        EvidenceUpload { number: self.uploads, based_on: self.version, information, evidence }
    }

    /// A view whose evidence has to be said from the beginning: nothing of it is in any base.
    pub(crate) fn from_parts(model: Ridge, in_flight: Option<Evidence>, buffer: Evidence) -> Self {
        let mut view = Self::new(model);
        view.uploads = u64::from(in_flight.is_some());
        (view.in_flight, view.buffer) = (in_flight, buffer);
        view.derived.take();
        view
    }

    /// Sends the buffer on its way inside something larger that does not wrap it: number of the upload, what
    /// it is based on, and the information of the view.
    pub(crate) fn send_inside(&mut self) -> (u64, Version, f64) {
        debug_assert!(self.in_flight.is_none(), "one upload at a time");
        let information = self.model().information();
        self.uploads += 1;
        let nothing = Evidence::none(self.dimension());
        self.in_flight = Some(std::mem::replace(&mut self.buffer, nothing));
        if let Some(derived) = self.derived.get_mut() {
            derived.fresh_information = 0.0;
        }
        (self.uploads, self.version, information)
    }

    /// Moves the buffer, and what was frozen before, into flight.
    pub(crate) fn freeze(&mut self) -> Parcel {
        if !self.buffer.is_empty() || self.in_flight.is_some() {
            // Sums in another order round differently: what follows from them must exist before.
            self.derived();
        }
        self.unfreeze();
        let parcel = Parcel::wrap(&self.buffer);
        if !self.buffer.is_empty() {
            // What the other side will hold after unwrapping, bit for bit.
            self.in_flight = Some(parcel.to_evidence());
            self.buffer.clear();
        }
        if let Some(derived) = self.derived.get_mut() {
            derived.fresh_information = 0.0;
        }
        parcel
    }

    /// Upload `number` has arrived: it is part of the base now. `false` if that is no news.
    pub(crate) fn acknowledge(&mut self, number: u64, version: Option<Version>) -> bool {
        if number != self.uploads {
            return false;
        }
        self.derived();
        let Some(arrived) = self.in_flight.take() else { return false };
        Arc::make_mut(&mut self.base).add(&arrived);
        self.version = version.unwrap_or(self.version);
        true
    }

    /// Takes in a snapshot, unless it is older than what the agent has.
    pub(crate) fn adopt(&mut self, snapshot: &Snapshot) -> Result<Adopted, ProtocolError> {
        let acknowledged = self.uploads - u64::from(self.in_flight.is_some());
        let newer = snapshot.version > self.version && snapshot.contains >= acknowledged;
        if !(newer || snapshot.authoritative) {
            return Ok(Adopted::Stale);
        }
        if snapshot.contains > self.uploads {
            return Err(ProtocolError::Sequence { expected: self.uploads, got: snapshot.contains });
        }
        let contained = self.in_flight.is_some() && snapshot.contains >= self.uploads;
        let fate = if contained { InFlight::Arrived } else { InFlight::Underway };
        if !(snapshot.information.is_finite() && snapshot.information >= 0.0) {
            return Err(ProtocolError::Evidence("the information is not a finite number"));
        }
        self.replace_base(snapshot.version, &snapshot.evidence, fate)?;
        if !snapshot.authoritative {
            return Ok(if contained { Adopted::WithUpload } else { Adopted::Yes });
        }
        // The coordinator may have lost uploads that it had confirmed: count from what it has.
        self.uploads = snapshot.contains + u64::from(self.in_flight.is_some());
        Ok(match &self.in_flight {
            None => Adopted::WithUpload,
            Some(evidence) => {
                let information = self.information_of([&*self.base, evidence].into_iter());
                Adopted::Again(EvidenceUpload {
                    number: self.uploads,
                    based_on: self.version,
                    information,
                    evidence: Parcel::wrap(evidence),
                })
            }
        })
    }

    /// Replaces the base, or changes nothing.
    pub(crate) fn replace_base(
        &mut self,
        version: Version,
        base: &Arc<Evidence>,
        fate: InFlight,
    ) -> Result<(), ProtocolError> {
        let (expected, got) = (self.dimension(), base.dimension());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        Ridge::check(base, self.regularization)?;
        match fate {
            InFlight::Underway => {}
            InFlight::Arrived => self.in_flight = None,
            InFlight::Unsent => self.unfreeze(),
        }
        self.base = Arc::clone(base);
        self.version = version;
        self.derived.take();
        Ok(())
    }

    fn derived(&self) -> &Derived {
        self.derived.get_or_init(|| self.derive())
    }

    #[cold]
    fn derive(&self) -> Derived {
        let mut model = Ridge::new(self.dimension(), self.regularization);
        let sent = [&*self.base].into_iter().chain(&self.in_flight);
        let made = match (&self.in_flight, self.buffer.is_empty()) {
            (None, true) => model.refresh_to(&self.base),
            _ => model.refresh(sent.clone().chain([&self.buffer])),
        };
        if made.is_err() {
            // Own observations are positive semidefinite; should rounding make them spoil a base that is
            // fine by itself, the base is what is left to believe.
            model.refresh_to(&self.base).expect("a base is factorised before it is accepted");
        }
        let fresh_information = if self.buffer.is_empty() {
            0.0
        } else {
            (model.information() - self.information_of(sent)).max(0.0)
        };
        Derived { model, fresh_information }
    }

    /// Information of the base and perhaps more.
    fn information_of<'e>(&self, parts: impl Iterator<Item = &'e Evidence> + Clone) -> f64 {
        let mut model = Ridge::new(self.dimension(), self.regularization);
        if parts.clone().count() > 1 && model.refresh(parts).is_ok() {
            return model.information();
        }
        Ridge::check(&self.base, self.regularization).expect("a base is factorised before it is accepted")
    }

    /// A new base, with nothing in flight and an empty buffer, or no change. The caller observes again
    /// what the base does not contain.
    pub(crate) fn start_over(&mut self, version: Version, base: &Arc<Evidence>) -> Result<(), ProtocolError> {
        self.replace_base(version, base, InFlight::Arrived)?;
        self.buffer.clear();
        Ok(())
    }

    /// Takes back what was frozen and not sent for good.
    pub(crate) fn thaw(&mut self) {
        self.derived();
        self.unfreeze();
        self.derived.take();
    }

    fn unfreeze(&mut self) {
        if let Some(frozen) = self.in_flight.take() {
            self.buffer.add(&frozen);
        }
    }

    pub(crate) fn model(&self) -> &Ridge {
        &self.derived().model
    }

    pub(crate) fn dimension(&self) -> usize {
        self.base.dimension()
    }

    pub(crate) const fn regularization(&self) -> f64 {
        self.regularization
    }

    pub(crate) const fn buffer(&self) -> &Evidence {
        &self.buffer
    }

    pub(crate) const fn base(&self) -> &Arc<Evidence> {
        &self.base
    }

    pub(crate) const fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn fresh_information(&self) -> f64 {
        self.derived().fresh_information
    }

    pub(crate) const fn uploads(&self) -> u64 {
        self.uploads
    }

    pub(crate) fn in_flight(&self) -> Option<&Evidence> {
        self.in_flight.as_ref()
    }

    pub(crate) const fn is_sending(&self) -> bool {
        self.in_flight.is_some()
    }

    /// All observations in the view.
    pub(crate) fn count(&self) -> u64 {
        self.parts().map(Evidence::count).sum()
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &Evidence> + Clone {
        [&*self.base, &self.buffer].into_iter().chain(&self.in_flight)
    }

    pub(crate) fn inspect(&self) -> AgentView<'_> {
        self.inspect_with(self.model())
    }

    /// The same for an agent that chooses with another model than that of the whole view.
    pub(crate) fn inspect_with<'a>(&'a self, model: &'a Ridge) -> AgentView<'a> {
        AgentView {
            version: self.version,
            shared: self.base.count(),
            in_flight: self.in_flight.as_ref().map(|evidence| (self.uploads, evidence.count())),
            ..AgentView::alone(self.buffer.count(), self.fresh_information())
        }
        .with_linear(LinearView {
            base: &self.base,
            in_flight: self.in_flight.as_ref(),
            buffer: &self.buffer,
            model,
        })
    }

    pub(crate) fn save(&self) -> v1::ViewState {
        v1::ViewState {
            version: self.version.0,
            base: Some(wire::evidence_to_wire(&self.base)),
            in_flight: self.in_flight.as_ref().map(wire::evidence_to_wire),
            buffer: Some(wire::evidence_to_wire(&self.buffer)),
            uploads: self.uploads,
            model: Some(self.model().save()),
            fresh_information: self.fresh_information(),
        }
    }

    /// The view that was saved; `self` gives the dimension and the regularisation.
    pub(crate) fn restored(&self, state: v1::ViewState) -> Result<Self, DecodeError> {
        let dimension = self.dimension();
        let evidence = |part: Option<v1::Evidence>| {
            let evidence = wire::evidence_from_wire(part.unwrap_or_default())?;
            if evidence.dimension() != dimension {
                return Err(DecodeError::invalid("evidence", "it has another dimension"));
            }
            Ok(evidence)
        };
        let in_flight = state.in_flight.map(|part| evidence(Some(part))).transpose()?;
        if !state.fresh_information.is_finite() {
            return Err(DecodeError::invalid("view", "its information is not finite"));
        }
        let mut model = Ridge::new(dimension, self.regularization);
        model.restore(&state.model.unwrap_or_default())?;
        Ok(Self {
            version: Version(state.version),
            base: Arc::new(evidence(state.base)?),
            in_flight,
            buffer: evidence(state.buffer)?,
            uploads: state.uploads,
            regularization: self.regularization,
            derived: OnceCell::from(Derived { model, fresh_information: state.fresh_information }),
        })
    }
}

/// What a new base means for what is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InFlight {
    /// The upload in flight is still on its way.
    Underway,
    /// The upload in flight is in the new base.
    Arrived,
    /// It was left out and must be sent again.
    Unsent,
}

/// What the view did with a snapshot.
#[derive(Clone, Debug)]
pub(crate) enum Adopted {
    /// It was older than what the agent has and changed nothing.
    Stale,
    /// The snapshot is the new base.
    Yes,
    /// It is the new base, and what was in flight is in it or was given up.
    WithUpload,
    /// It is the new base, from a coordinator that lost the upload in flight: send this again.
    Again(EvidenceUpload),
}
