//! What an agent believes: a snapshot, its own uploads that are not in it yet, and its buffer.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use crate::agent::{AgentView, LinearView};
use crate::buffer::Buffer;
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
    buffer: Buffer,
    /// Uploads sent in this life; the last of them is the one in flight, if any.
    uploads: u64,
    regularization: f64,
    /// Made anew when it is first needed after a new base: most snapshots are overtaken by a newer one
    /// before the agent acts. A base is accepted only once it was factorised, so nothing fails later.
    derived: OnceCell<Box<Derived>>,
    memory: ModelMemory,
    /// See [`Derived::since`]: of the model that the view let go of when it went to rest.
    rested_since: Option<usize>,
}

/// What follows from the evidence of a view.
#[derive(Clone, Debug)]
struct Derived {
    model: Ridge,
    fresh_information: f64,
    /// With how many observations of the buffer the model was made, if all later ones were appended and are still there
    /// as they came. Then deriving it again in the same two steps gives the same bits. `None` if it would not.
    since: Option<usize>,
}

/// A model that no longer follows from the view, kept for its memory: every snapshot takes an agent's model, and the choice
/// after it makes one of the same size. Always written before it is read.
#[derive(Default)]
struct ModelMemory(Cell<Option<Box<Derived>>>);

impl Clone for ModelMemory {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl std::fmt::Debug for ModelMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ModelMemory")
    }
}

/// How many models that are not needed a thread keeps for their memory.
const SPARE: usize = 4;

thread_local! {
    /// Models of views that went to rest, for those that wake up next. Always written before it is read.
    static SPARES: RefCell<[Option<Box<Derived>>; SPARE]> = const { RefCell::new([const { None }; SPARE]) };
}

/// Keeps the memory of a model for the next one.
fn recycle(derived: Option<Box<Derived>>) {
    if derived.is_none() {
        return;
    }
    SPARES.with_borrow_mut(|spares| {
        if let Some(free) = spares.iter_mut().find(|spare| spare.is_none()) {
            *free = derived;
        }
    });
}

/// A model in whatever memory there is, with unspecified contents.
fn spare(dimension: usize, regularization: f64) -> Box<Derived> {
    let known = SPARES.with_borrow_mut(|spares| spares.iter_mut().find_map(Option::take));
    let fits = |model: &Ridge| model.dimension() == dimension && model.regularization() == regularization;
    known.filter(|derived| fits(&derived.model)).unwrap_or_else(|| {
        let model = Ridge::new(dimension, regularization);
        Box::new(Derived { model, fresh_information: 0.0, since: None })
    })
}

impl Belief {
    pub(crate) fn new(model: Ridge) -> Self {
        let dimension = model.dimension();
        Self {
            version: Version(0),
            base: Evidence::nothing(dimension),
            in_flight: None,
            buffer: Buffer::new(dimension),
            uploads: 0,
            regularization: model.regularization(),
            derived: OnceCell::from(Box::new(Derived { model, fresh_information: 0.0, since: Some(0) })),
            memory: ModelMemory::default(),
            rested_since: None,
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
        self.buffer.observe(x, y);
        let derived = self.derived.get_mut().expect("it was made above");
        derived.fresh_information += derived.model.append(x, y);
        if derived.model.is_worn() {
            let parts = [&*self.base, self.buffer.settle()].into_iter().chain(&self.in_flight);
            derived.model.repair(parts);
        }
        if !self.buffer.is_unsummed() {
            derived.since = None;
        }
    }

    /// Lets go of everything that can be derived again, if that gives the same bits.
    pub(crate) fn rest(&mut self) {
        self.buffer.rest();
        recycle(self.memory.0.take());
        let Some(since) = self.derived.get().and_then(|derived| derived.since) else { return };
        recycle(self.derived.take());
        self.rested_since = Some(since);
    }

    /// Adds evidence of others, checked before, to what is not sent yet: what a relay does.
    pub(crate) fn absorb(&mut self, evidence: &Evidence) {
        self.buffer.add(evidence);
        self.forget_model();
    }

    /// All parts in one sum.
    pub(crate) fn sum(&self) -> Evidence {
        let mut sum = Evidence::clone(&self.base);
        self.in_flight.iter().for_each(|evidence| sum.add(evidence));
        sum.add(self.buffer.evidence());
        sum
    }

    /// Information of everything but the buffer.
    pub(crate) fn sent_information(&self) -> f64 {
        self.information_of([&*self.base].into_iter().chain(&self.in_flight))
    }

    /// Moves the buffer to what is on its way, and returns it as an upload.
    pub(crate) fn send(&mut self) -> EvidenceUpload {
        self.send_wrapped(Parcel::wrap)
    }

    /// The same, wrapped in a way of the caller's.
    pub(crate) fn send_wrapped(&mut self, wrap: fn(&Evidence) -> Parcel) -> EvidenceUpload {
        debug_assert!(self.in_flight.is_none(), "one upload at a time");
        self.uploads += 1;
        let evidence = self.freeze_wrapped(wrap);
        let information = self.model().information();
        EvidenceUpload { number: self.uploads, based_on: self.version, information, evidence }
    }

    /// A view whose evidence has to be said from the beginning: nothing of it is in any base.
    pub(crate) fn from_parts(model: Ridge, in_flight: Option<Evidence>, buffer: Evidence) -> Self {
        let mut view = Self::new(model);
        view.uploads = u64::from(in_flight.is_some());
        (view.in_flight, view.buffer) = (in_flight, Buffer::of(buffer));
        view.forget_model();
        view
    }

    /// Sends the buffer on its way inside something larger that does not wrap it: number of the upload, what
    /// it is based on, and the information of the view.
    pub(crate) fn send_inside(&mut self) -> (u64, Version, f64) {
        debug_assert!(self.in_flight.is_none(), "one upload at a time");
        let information = self.model().information();
        self.uploads += 1;
        self.in_flight = Some(self.buffer.take());
        self.nothing_fresh();
        (self.uploads, self.version, information)
    }

    /// Moves the buffer, and what was frozen before, into flight.
    pub(crate) fn freeze(&mut self) -> Parcel {
        self.freeze_wrapped(Parcel::wrap)
    }

    fn freeze_wrapped(&mut self, wrap: fn(&Evidence) -> Parcel) -> Parcel {
        if !self.buffer.is_empty() || self.in_flight.is_some() {
            // Sums in another order round differently: what follows from them must exist before.
            self.derived();
        }
        self.unfreeze();
        if self.buffer.is_empty() {
            self.nothing_fresh();
            return wrap(&Evidence::nothing(self.dimension()));
        }
        let parcel = wrap(self.buffer.evidence());
        // What the other side will hold after unwrapping, bit for bit.
        self.in_flight = Some(parcel.to_evidence());
        self.buffer.clear();
        if matches!(parcel, Parcel::Rounded(_)) {
            // The model has observations with all their bits, the view no longer does.
            self.forget_model();
        }
        self.nothing_fresh();
        parcel
    }

    /// The buffer is empty now; its observations are elsewhere in the view.
    fn nothing_fresh(&mut self) {
        if let Some(derived) = self.derived.get_mut() {
            derived.fresh_information = 0.0;
            derived.since = None;
        }
    }

    /// Upload `number` has arrived: it is part of the base now. `false` if that is no news.
    pub(crate) fn acknowledge(&mut self, number: u64, version: Option<Version>) -> bool {
        if number != self.uploads {
            return false;
        }
        self.derived();
        let Some(arrived) = self.in_flight.take() else { return false };
        self.keep_model();
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
        self.forget_model();
        Ok(())
    }

    /// The evidence no longer gives the model: it is made anew when it is needed.
    fn forget_model(&mut self) {
        if let Some(derived) = self.derived.take() {
            self.memory.0.set(Some(derived));
        }
        self.rested_since = None;
    }

    /// The model stays although its evidence is summed in another order now, so that it cannot be made again.
    fn keep_model(&mut self) {
        if let Some(derived) = self.derived.get_mut() {
            derived.since = None;
        }
    }

    fn derived(&self) -> &Derived {
        self.derived.get_or_init(|| self.derive())
    }

    #[cold]
    fn derive(&self) -> Box<Derived> {
        let sent = [&*self.base].into_iter().chain(&self.in_flight);
        // A view that rested makes the model that it let go of: from as many observations as then, and the rest appended.
        let since = self.rested_since.unwrap_or(self.buffer.waiting());
        let whole = since == self.buffer.waiting();
        let has_buffered = if whole { !self.buffer.is_empty() } else { since > 0 };
        let known = self.memory.0.take();
        let mut derived = known.unwrap_or_else(|| spare(self.dimension(), self.regularization));
        let model = &mut derived.model;
        model.forget_drift();
        // Own observations are positive semidefinite; should rounding make them spoil a base that is fine by itself,
        // the base is what is left to believe.
        let fits = if has_buffered {
            self.buffer.with_first(since, |buffered| model.refresh(sent.clone().chain([buffered])).is_ok())
        } else {
            self.in_flight.is_some() && model.refresh(sent.clone()).is_ok()
        };
        if !fits {
            model.refresh_to(&self.base).expect("a base is factorised before it is accepted");
        }
        let mut fresh_information =
            if has_buffered { (model.information() - self.information_of(sent)).max(0.0) } else { 0.0 };
        for (x, y) in self.buffer.recent().skip(since) {
            fresh_information += model.append(x, y);
        }
        derived.fresh_information = fresh_information;
        derived.since = self.buffer.is_unsummed().then_some(since);
        derived
    }

    /// Information of the base and perhaps more.
    fn information_of<'e>(&self, parts: impl Iterator<Item = &'e Evidence> + Clone) -> f64 {
        if parts.clone().count() > 1 {
            let mut model = Ridge::new(self.dimension(), self.regularization);
            if model.refresh(parts).is_ok() {
                return model.information();
            }
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
        self.forget_model();
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

    pub(crate) const fn buffer(&self) -> &Buffer {
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
        self.base.count() + self.buffer.count() + self.in_flight.as_ref().map_or(0, Evidence::count)
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &Evidence> + Clone {
        // One at a time: a buffer is added up only for those who get that far.
        (0..3).filter_map(|part| match part {
            0 => Some(&*self.base),
            1 => Some(self.buffer.evidence()),
            _ => self.in_flight.as_ref(),
        })
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
            buffer: self.buffer.evidence(),
            model,
        })
    }

    pub(crate) fn save(&self) -> v1::ViewState {
        v1::ViewState {
            version: self.version.0,
            base: Some(wire::evidence_to_wire(&self.base)),
            in_flight: self.in_flight.as_ref().map(wire::evidence_to_wire),
            buffer: Some(wire::evidence_to_wire(self.buffer.evidence())),
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
            buffer: Buffer::of(evidence(state.buffer)?),
            uploads: state.uploads,
            regularization: self.regularization,
            derived: OnceCell::from(Box::new(Derived {
                model,
                fresh_information: state.fresh_information,
                since: None,
            })),
            memory: ModelMemory::default(),
            rested_since: None,
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
