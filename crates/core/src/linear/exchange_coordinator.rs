//! The coordinator of the exchange: adds what is pushed, answers what is asked, and says with every answer
//! how much there is to hear. It never speaks unasked, except to agents that join.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use crate::coordinator::{AgentStanding, Coordinator, CoordinatorView, Entrance};
use crate::error::{DecodeError, ProtocolError};
use crate::evidence::Evidence;
use crate::ids::{AgentId, Tick, Version};
use crate::message::{Answer, Downlink, EvidenceUpload, News, Outgoing, Pull, Snapshot, Uplink};
use crate::ridge::Ridge;
use crate::wire::{self, v1};

/// Observations before the pace is first measured anew.
const FIRST_MARK: u64 = 8;

/// The coordinator of `exchange-lin-ucb`, `exchange-lin-ts` and `exchange-lin-igw`.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeCoordinator {
    name: &'static str,
    min_growth: f64,
    version: Version,
    evidence: Arc<Evidence>,
    model: Ridge,
    seats: BTreeMap<AgentId, ExchangeSeat>,
    pace: Pace,
    /// The geometric mean of recent reports of loss × observations; 0 before the first.
    doubt: f64,
}

/// What the coordinator remembers of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ExchangeSeat {
    version: Version,
    /// How many uploads of the agent are in the evidence.
    uploads: u64,
    /// Observations of the evidence that it has.
    count: u64,
    /// Information of what the agent has.
    information: f64,
}

/// How fast observations come in: measured from the last but one time at which their number had doubled, so
/// over the last half of them at least.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Pace {
    /// Observations and milliseconds, the older mark first. Empty before anything happened.
    marks: Option<[(u64, u64); 2]>,
}

impl Pace {
    /// Takes in that there are `count` observations at `now`.
    fn observe(&mut self, count: u64, now: Tick) {
        let here = (count, now.milliseconds());
        let marks = self.marks.get_or_insert([(0, here.1); 2]);
        if count > 2 * marks[1].0.max(FIRST_MARK) {
            *marks = [marks[1], here];
        }
    }

    /// Returns how many observations the federation makes in a millisecond, or 0 while that is unknown.
    fn rate(&self, count: u64, now: Tick) -> f64 {
        let Some([(before, then), _]) = self.marks else { return 0.0 };
        let elapsed = now.milliseconds().saturating_sub(then);
        if elapsed == 0 { 0.0 } else { count.saturating_sub(before) as f64 / elapsed as f64 }
    }
}

impl ExchangeCoordinator {
    pub(crate) fn new(name: &'static str, model: Ridge, min_growth: f64) -> Self {
        Self {
            name,
            min_growth,
            version: Version(0),
            evidence: Arc::new(Evidence::none(model.dimension())),
            model,
            seats: BTreeMap::new(),
            pace: Pace::default(),
            doubt: 0.0,
        }
    }

    fn news(&self, now: Tick) -> News {
        News {
            version: self.version,
            count: self.evidence.count(),
            information: self.model.information(),
            agents: self.seats.len() as u64,
            rate: self.pace.rate(self.evidence.count(), now),
            doubt: self.doubt,
        }
    }

    /// All evidence, for an agent whose `contains` uploads are in it.
    fn snapshot(&self, contains: u64, authoritative: bool) -> Snapshot {
        let (version, evidence) = (self.version, Arc::clone(&self.evidence));
        Snapshot { authoritative, version, contains, information: self.model.information(), evidence }
    }

    /// The seat of an agent that has everything.
    fn informed(&self, uploads: u64) -> ExchangeSeat {
        let (count, information) = (self.evidence.count(), self.model.information());
        ExchangeSeat { version: self.version, uploads, count, information }
    }

    /// The evidence with an upload, and what the uploader then has, or an error that changes nothing.
    fn add(&mut self, seat: ExchangeSeat, upload: &EvidenceUpload) -> Result<ExchangeSeat, ProtocolError> {
        let (expected, got) = (seat.uploads + 1, upload.number);
        if expected != got {
            return Err(ProtocolError::Sequence { expected, got });
        }
        let (expected, got) = (self.evidence.dimension(), upload.evidence.dimension());
        if expected != got {
            return Err(ProtocolError::Dimension { expected, got });
        }
        if upload.evidence.count() == 0 {
            return Err(ProtocolError::Evidence("an upload without observations"));
        }
        if !(upload.information.is_finite() && upload.information >= 0.0) {
            return Err(ProtocolError::Evidence("the information is not a finite number"));
        }
        let increment = upload.evidence.evidence();
        increment.check()?;
        let sum = self.evidence.checked_sum(increment)?;
        self.model.refresh([&sum].into_iter())?;
        let in_sync = seat.version == self.version && upload.based_on == self.version;
        self.evidence = Arc::new(sum);
        self.version = self.version.next();
        if in_sync {
            return Ok(self.informed(upload.number));
        }
        Ok(ExchangeSeat {
            version: upload.based_on.min(self.version),
            uploads: upload.number,
            count: seat.count.saturating_add(upload.evidence.count()).min(self.evidence.count()),
            information: upload.information.min(self.model.information()),
        })
    }

    /// Reports move the mean by an eighth of the way, and count for at most twice or half of it: an agent
    /// that reports nonsense cannot make all agents talk, or fall silent, at once.
    fn hear_doubt(&mut self, report: f64) {
        if self.doubt == 0.0 {
            self.doubt = report;
        } else if report > 0.0 {
            self.doubt *= libm::pow((report / self.doubt).clamp(0.5, 2.0), 0.125);
        }
    }

    fn answer(&mut self, now: Tick, agent: AgentId, seat: ExchangeSeat, pulled: bool) -> Outgoing {
        let behind = self.evidence.count() as f64 >= (1.0 + self.min_growth) * seat.count as f64;
        let tell = pulled && behind && seat.version < self.version;
        let snapshot = tell.then(|| self.snapshot(seat.uploads, false));
        let seat = if tell { self.informed(seat.uploads) } else { seat };
        self.seats.insert(agent, seat);
        let version = (seat.version == self.version).then_some(self.version);
        let news = self.news(now);
        let answer = Answer { pulled, number: seat.uploads, version, news, snapshot };
        Outgoing::to(agent, Downlink::Answer(answer))
    }

    fn answer_to_greeting(
        &self,
        now: Tick,
        agent: AgentId,
        number: u64,
        snapshot: Option<Snapshot>,
    ) -> Outgoing {
        let (version, news) = (Some(self.version), self.news(now));
        Outgoing::to(agent, Downlink::Answer(Answer { pulled: false, number, version, news, snapshot }))
    }
}

impl Coordinator for ExchangeCoordinator {
    fn join(&mut self, now: Tick, agent: AgentId, entrance: Entrance) -> Vec<Outgoing> {
        self.pace.observe(self.evidence.count(), now);
        let returning = entrance == Entrance::Returning;
        let known = self.seats.get(&agent).map_or(0, |seat| seat.uploads);
        let uploads = if returning { known } else { 0 };
        if !returning && self.version == Version(0) {
            // There is nothing to hear, but the agent waits for an answer before its first choice.
            self.seats.insert(agent, ExchangeSeat::default());
            return vec![self.answer_to_greeting(now, agent, uploads, None)];
        }
        self.seats.insert(agent, self.informed(uploads));
        let snapshot = self.snapshot(uploads, returning);
        vec![self.answer_to_greeting(now, agent, uploads, Some(snapshot))]
    }

    fn leave(&mut self, _now: Tick, agent: AgentId) -> Vec<Outgoing> {
        self.seats.remove(&agent);
        Vec::new()
    }

    fn receive(&mut self, now: Tick, from: AgentId, message: Uplink) -> Result<Vec<Outgoing>, ProtocolError> {
        let seat = *self.seats.get(&from).ok_or(ProtocolError::UnknownAgent(from))?;
        let (seat, pulled) = match message {
            Uplink::Evidence(upload) => (self.add(seat, &upload)?, false),
            Uplink::Pull(Pull { doubt, upload, .. }) => {
                if !(doubt.is_finite() && doubt >= 0.0) {
                    return Err(ProtocolError::Evidence("the doubt is not a finite number"));
                }
                let seat = upload.map_or(Ok(seat), |upload| self.add(seat, &upload))?;
                self.hear_doubt(doubt);
                (seat, true)
            }
            other => {
                return Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() });
            }
        };
        self.pace.observe(self.evidence.count(), now);
        Ok(vec![self.answer(now, from, seat, pulled)])
    }

    fn tick(&mut self, _now: Tick) -> Vec<Outgoing> {
        Vec::new()
    }

    fn deadline(&self) -> Option<Tick> {
        None
    }

    fn inspect(&self) -> CoordinatorView<'_> {
        CoordinatorView::of(self.version, &self.evidence, self.model.information(), self.seats.len())
    }

    fn agent(&self, agent: AgentId) -> Option<AgentStanding> {
        self.seats.get(&agent).map(|seat| AgentStanding {
            uploads: seat.uploads,
            version: seat.version,
            information: seat.information,
        })
    }

    fn save(&self) -> Vec<u8> {
        let seats = self.seats.iter().map(|(agent, seat)| v1::ExchangeSeat {
            agent: agent.0,
            version: seat.version.0,
            uploads: seat.uploads,
            count: seat.count,
            information: seat.information,
        });
        let marks = self.pace.marks.iter().flatten().flat_map(|(count, at)| [*count, *at]);
        v1::ExchangeCoordinatorState {
            version: self.version.0,
            evidence: Some(wire::evidence_to_wire(&self.evidence)),
            model: Some(self.model.save()),
            seats: seats.collect(),
            marks: marks.collect(),
            doubt: self.doubt,
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::ExchangeCoordinatorState = wire::decode(state)?;
        let evidence = wire::evidence_from_wire(state.evidence.unwrap_or_default())?;
        if evidence.dimension() != self.evidence.dimension() {
            return Err(DecodeError::invalid("evidence", "it has another dimension"));
        }
        let numbers = state.seats.iter().map(|seat| seat.information).chain([state.doubt]);
        if !numbers.into_iter().all(|v| v.is_finite() && v >= 0.0) {
            return Err(DecodeError::invalid("coordinator", "a number is not finite"));
        }
        let marks = match state.marks[..] {
            [] => None,
            [a, b, c, d] => Some([(a, b), (c, d)]),
            _ => return Err(DecodeError::invalid("coordinator", "it needs four marks or none")),
        };
        self.model.restore(&state.model.unwrap_or_default())?;
        self.evidence = Arc::new(evidence);
        self.version = Version(state.version);
        self.pace = Pace { marks };
        self.doubt = state.doubt;
        let seat = |seat: v1::ExchangeSeat| {
            let (version, uploads) = (Version(seat.version), seat.uploads);
            let known = ExchangeSeat { version, uploads, count: seat.count, information: seat.information };
            (AgentId(seat.agent), known)
        };
        self.seats = state.seats.into_iter().map(seat).collect();
        Ok(())
    }
}
