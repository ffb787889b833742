//! The relay of the asynchronous protocols: evidence adds on its way up, snapshots replace on their way down.
//!
//! All that a relay knows is the sum of three parts: what it took over from its parent, what is on its way there,
//! and what it has not sent. Its children see only the sum, in the coordinator of the flat federation; its parent
//! sees only the parts, in the view of an agent. Each upload of a child is in the sum once, wherever it is.

use prost::Message;

use super::exchange::Exchange;
use crate::agent::AgentView;
use crate::coordinator::{AgentStanding, Coordinator, CoordinatorView, Entrance};
use crate::error::{DecodeError, ProtocolError};
use crate::exchange::belief::{Adopted, Belief};
use crate::ids::{AgentId, Tick};
use crate::message::{Downlink, EvidenceUpload, Outgoing, Snapshot, Uplink};
use crate::relay::{Passed, Relay};
use crate::ridge::Ridge;
use crate::trigger::UploadTrigger;
use crate::wire::{self, v1};

/// The relay of every algorithm whose coordinator is an [`Exchange`].
#[derive(Clone, Debug)]
pub(crate) struct ExchangeRelay {
    name: &'static str,
    /// Its evidence is the sum of all parts of `view`.
    below: Exchange,
    view: Belief,
    /// Information of what the parent has or is about to have: without the buffer of `view`.
    sent_information: f64,
    trigger: UploadTrigger,
}

impl ExchangeRelay {
    pub(crate) fn new(name: &'static str, model: Ridge, below: Exchange, trigger: UploadTrigger) -> Self {
        Self { name, below, view: Belief::new(model), sent_information: 0.0, trigger }
    }

    /// By how much the evidence that waits here raised the information of what the parent has of this relay.
    fn fresh_information(&self) -> f64 {
        if self.view.buffer().is_empty() {
            return 0.0;
        }
        (self.below.inspect().information - self.sent_information).max(0.0)
    }

    /// The next upload, if it is due and none is on its way.
    fn upload_if_due(&mut self) -> Option<EvidenceUpload> {
        let due = self.trigger.fires(self.fresh_information(), self.view.buffer().count());
        if !due || self.view.is_sending() {
            return None;
        }
        let upload = self.view.send();
        self.sent_information = self.below.inspect().information;
        Some(upload)
    }

    /// Takes over what the parent says is known, unless it is older than what is here.
    fn adopt(&mut self, snapshot: &Snapshot) -> Result<Passed, ProtocolError> {
        // On a copy: the sum of its parts must have a model as well before anything changes.
        let mut view = self.view.clone();
        let (said, may_upload) = match view.adopt(snapshot)? {
            Adopted::Stale => return Ok(Passed::default()),
            Adopted::Yes => (None, false),
            Adopted::WithUpload => (None, true),
            Adopted::Again(upload) => (Some(upload), false),
        };
        // A parent that lost part of its history knows less than it did. What the children believe of that is
        // replaced at once. No epoch begins for them: versions and uploads that they count by did not go back.
        let down = self.below.replace(view.sum(), snapshot.authoritative)?;
        self.view = view;
        self.sent_information = if self.view.buffer().is_empty() {
            self.below.inspect().information
        } else {
            self.view.sent_information()
        };
        let said = if may_upload { self.upload_if_due() } else { said };
        Ok(passed(said, down))
    }
}

fn passed(said: Option<EvidenceUpload>, down: Vec<Outgoing>) -> Passed {
    Passed { up: said.map(Uplink::Evidence).into_iter().collect(), down }
}

impl Relay for ExchangeRelay {
    fn join(&mut self, now: Tick, child: AgentId, entrance: Entrance) -> Passed {
        passed(None, self.below.join(now, child, entrance))
    }

    fn leave(&mut self, now: Tick, child: AgentId) -> Passed {
        passed(None, self.below.leave(now, child))
    }

    fn receive(&mut self, now: Tick, from: AgentId, message: Uplink) -> Result<Passed, ProtocolError> {
        let Uplink::Evidence(upload) = &message else {
            return Err(ProtocolError::Unexpected { algorithm: self.name, message: message.kind() });
        };
        let increment = upload.evidence.clone();
        let down = self.below.receive(now, from, message)?;
        self.view.absorb(increment.evidence());
        let said = self.upload_if_due();
        Ok(passed(said, down))
    }

    fn hear(&mut self, _now: Tick, message: Downlink) -> Result<Passed, ProtocolError> {
        match message {
            Downlink::Receipt { number, version } => {
                let news = self.view.acknowledge(number, version);
                let said = if news { self.upload_if_due() } else { None };
                Ok(passed(said, Vec::new()))
            }
            Downlink::Snapshot(snapshot) => self.adopt(&snapshot),
            other => Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() }),
        }
    }

    fn below(&self) -> CoordinatorView<'_> {
        self.below.inspect()
    }

    fn above(&self) -> AgentView<'_> {
        AgentView { fresh_information: self.fresh_information(), ..self.view.inspect() }
    }

    fn child(&self, child: AgentId) -> Option<AgentStanding> {
        self.below.agent(child)
    }

    fn save(&self) -> Vec<u8> {
        v1::ExchangeRelayState {
            below: self.below.save(),
            view: Some(self.view.save()),
            sent_information: self.sent_information,
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::ExchangeRelayState = wire::decode(state)?;
        let view = self.view.restored(state.view.unwrap_or_default())?;
        if !state.sent_information.is_finite() {
            return Err(DecodeError::invalid("relay", "its information is not finite"));
        }
        self.below.restore(&state.below)?;
        (self.view, self.sent_information) = (view, state.sent_information);
        Ok(())
    }
}
