//! The agent: greedy most of the time, curious now and then.

use posse_core::{
    Agent, AgentId, AgentView, Arms, Choice, DecodeError, Downlink, Evidence, InputError, ProtocolError,
    Ridge, Seed, Uplink, UserId, Version,
};

use crate::message::{Note, Reader, Writer};
use crate::{NAME, SharedGreedy};

#[derive(Debug)]
pub(crate) struct GreedyAgent {
    settings: SharedGreedy,
    id: AgentId,
    seed: Seed,
    /// All that this agent observed.
    own: Evidence,
    /// What all other agents observed, as far as this one was told.
    others: Evidence,
    model: Ridge,
    /// How many own observations the coordinator has for certain.
    confirmed: u64,
    /// How many own observations were in the last upload, until it is answered.
    sent: Option<u64>,
    uploads: u64,
    /// The coordinator's version in its last answer.
    version: Version,
    choices: u64,
}

impl GreedyAgent {
    pub(crate) fn new(settings: &SharedGreedy, id: AgentId, dimension: usize, seed: Seed) -> Self {
        Self {
            settings: settings.clone(),
            id,
            seed,
            own: Evidence::none(dimension),
            others: Evidence::none(dimension),
            model: Ridge::new(dimension, settings.regularization),
            confirmed: 0,
            sent: None,
            uploads: 0,
            version: Version(0),
            choices: 0,
        }
    }

    fn upload_if_due(&mut self) -> Option<Uplink> {
        let due = self.own.count() >= self.confirmed + self.settings.upload_every;
        if self.sent.is_some() || !due {
            return None;
        }
        self.sent = Some(self.own.count());
        self.uploads += 1;
        Some(Uplink::Extension(Note { version: 0, confirmed: 0, evidence: self.own.clone() }.encode()))
    }

    /// A number for an arm that depends on its features and on how often was chosen, and not on its place.
    fn whim(&self, features: &[f64]) -> f64 {
        let name = features.iter().fold(self.id.0, |name, value| name.rotate_left(7) ^ value.to_bits());
        self.seed.stream("shared-greedy-arm", name, self.choices).uniform()
    }
}

impl Agent for GreedyAgent {
    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        let (expected, got) = (self.own.dimension(), arms.dimension());
        if expected != got {
            return Err(InputError::Dimension { expected, got });
        }
        let coin = self.seed.stream("shared-greedy-coin", self.id.0, self.choices).uniform();
        let explores = coin < self.settings.exploration;
        let theta = self.model.estimate();
        let score = |features: &[f64]| -> f64 {
            if explores { self.whim(features) } else { features.iter().zip(&theta).map(|(x, t)| x * t).sum() }
        };
        let mut best: Option<(usize, f64)> = None;
        for arm in 0..arms.len() {
            let score = score(arms.row(arm));
            if best.is_none_or(|(_, most)| score > most) {
                best = Some((arm, score));
            }
        }
        let (arm, _) = best.ok_or(InputError::NoArms)?;
        self.choices += 1;
        Ok(Choice { arm, propensity: None })
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        // Tried on copies: an observation that is refused must change nothing.
        let (mut own, mut model) = (self.own.clone(), self.model.clone());
        own.observe(arm, reward)?;
        model.refresh([&own, &self.others].into_iter()).map_err(|_| InputError::Overflow)?;
        (self.own, self.model) = (own, model);
        Ok(self.upload_if_due())
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        let Downlink::Extension(extension) = &message else {
            return Err(ProtocolError::Unexpected { algorithm: NAME, message: message.kind() });
        };
        let note = Note::decode(extension, self.own.dimension())?;
        if note.confirmed > self.own.count() {
            return Err(ProtocolError::Sequence { expected: self.own.count(), got: note.confirmed });
        }
        let mut model = self.model.clone();
        model.refresh([&self.own, &note.evidence].into_iter())?;
        (self.model, self.others) = (model, note.evidence);
        (self.confirmed, self.sent) = (note.confirmed, None);
        self.version = Version(note.version);
        Ok(self.upload_if_due())
    }

    fn inspect(&self) -> AgentView<'_> {
        let flying = self.sent.map(|count| count - self.confirmed);
        let unsent = self.own.count() - self.sent.unwrap_or(self.confirmed);
        let mut alone = Ridge::new(self.own.dimension(), self.settings.regularization);
        let known = alone.refresh([&self.own].into_iter()).map_or(0.0, |()| alone.information());
        let mut view = AgentView::alone(unsent, if unsent > 0 { known } else { 0.0 });
        view.version = self.version;
        view.shared = self.others.count() + self.confirmed;
        view.in_flight = flying.map(|count| (self.uploads, count));
        view
    }

    fn save(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        let sent = self.sent.map_or(0, |count| count + 1);
        for value in [self.confirmed, sent, self.uploads, self.version.0, self.choices] {
            writer.integer(value);
        }
        writer.evidence(&self.own);
        writer.evidence(&self.others);
        writer.0
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let mut reader = Reader::new(state);
        let (confirmed, sent) = (reader.integer()?, reader.integer()?);
        let (uploads, version, choices) = (reader.integer()?, reader.integer()?, reader.integer()?);
        let d = self.own.dimension();
        let (own, others) = (reader.evidence(d)?, reader.evidence(d)?);
        reader.end()?;
        let sent = sent.checked_sub(1);
        if confirmed > own.count() || sent.is_some_and(|sent| sent > own.count() || sent < confirmed) {
            return Err(DecodeError::invalid("state", "it confirms more than there is"));
        }
        let mut model = Ridge::new(d, self.settings.regularization);
        model
            .refresh([&own, &others].into_iter())
            .map_err(|_| DecodeError::invalid("state", "no model fits it"))?;
        (self.own, self.others, self.model) = (own, others, model);
        (self.confirmed, self.sent) = (confirmed, sent);
        (self.uploads, self.version, self.choices) = (uploads, Version(version), choices);
        Ok(())
    }
}
