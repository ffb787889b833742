//! The coordinator of the exchange: adds what is pushed, answers what is asked, and says with every answer
//! how much there is to hear. It speaks unasked only to agents that join, and when the world has changed abruptly.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use crate::coordinator::{AgentAccount, AgentStanding, Coordinator, CoordinatorView, Entrance, Suspicion};
use crate::error::{DecodeError, ProtocolError};
use crate::evidence::Evidence;
use crate::ids::{AgentId, AgentPath, Tick, Version};
use crate::linear::ages::Ages;
use crate::linear::exchange_lin_ucb::ExchangeConfig;
use crate::linear::trust::{Trust, Verdict};
use crate::linear::warnings::Warnings;
use crate::message::{Answer, Downlink, EvidenceUpload, News, Outgoing, Pull, Snapshot, Uplink};
use crate::ridge::Ridge;
use crate::rounded::Rounded;
use crate::wire::{self, v1};
use crate::workers::{ThisThread, Workers};

/// Observations before the pace is first measured anew.
const FIRST_MARK: u64 = 8;

/// The coordinator of `exchange-lin-ucb`, `exchange-lin-ts` and `exchange-lin-igw`.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeCoordinator {
    name: &'static str,
    min_growth: f64,
    /// By what share rounded snapshots may misstate widths; 0 sends them whole.
    rounding: f64,
    version: Version,
    evidence: Arc<Evidence>,
    model: Ridge,
    seats: BTreeMap<AgentId, ExchangeSeat>,
    pace: Pace,
    /// The geometric mean of recent reports of loss × observations; 0 before the first.
    doubt: f64,
    /// Evidence of each agent by itself, kept only if `robust` lets the coordinator leave agents out.
    trust: Option<Trust>,
    /// Evidence by age, where the coordinator forgets what is old.
    ages: Option<Ages>,
    /// Observations that were in the evidence and are no longer.
    removed: u64,
    warnings: Warnings,
    workers: Arc<dyn Workers>,
}

/// What the coordinator remembers of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ExchangeSeat {
    version: Version,
    /// How many uploads of the agent are in the evidence.
    uploads: u64,
    /// Observations that the coordinator had taken in when it sent the agent everything, and the agent's own since.
    count: u64,
    /// Information of what the agent has.
    information: f64,
    /// What `removed` was when the agent was last sent everything.
    removed: u64,
    /// Observations that the coordinator had taken in after the agent's last upload, or when it joined.
    spoke_at: u64,
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
    pub(crate) fn new(
        name: &'static str,
        model: Ridge,
        config: &ExchangeConfig,
        trust: Option<Trust>,
        ages: Option<Ages>,
    ) -> Self {
        Self {
            name,
            min_growth: config.min_growth,
            rounding: config.rounding,
            version: Version(0),
            evidence: Arc::new(Evidence::none(model.dimension())),
            model,
            seats: BTreeMap::new(),
            pace: Pace::default(),
            doubt: 0.0,
            trust,
            ages,
            removed: 0,
            warnings: Warnings::default(),
            workers: Arc::new(ThisThread),
        }
    }

    fn news(&self, now: Tick) -> News {
        News {
            version: self.version,
            count: self.evidence.count(),
            information: self.model.information(),
            agents: self.seats.len() as u64,
            rate: self.pace.rate(self.total(), now),
            doubt: self.doubt,
            forgotten: self.total() - self.evidence.count(),
        }
    }

    /// All evidence, for an agent whose `contains` uploads are in it, and how it travels if it is rounded.
    fn snapshot(&self, contains: u64, authoritative: bool) -> (Snapshot, Option<Arc<Rounded>>) {
        let rounded = (self.rounding > 0.0)
            .then(|| Rounded::snapshot(&self.evidence, &self.model, self.rounding))
            .flatten()
            .map(Arc::new);
        let evidence = rounded.as_ref().map_or(&self.evidence, |rounded| rounded.evidence());
        let (version, evidence) = (self.version, Arc::clone(evidence));
        let information = self.model.information();
        (Snapshot { authoritative, version, contains, information, evidence }, rounded)
    }

    /// Observations in the evidence, and those that are too old to be.
    fn total(&self) -> u64 {
        self.ages.as_ref().map_or(self.evidence.count(), Ages::total)
    }

    /// The seat of an agent that has everything.
    fn informed(&self, uploads: u64) -> ExchangeSeat {
        let (count, information) = (self.total(), self.model.information());
        let (version, removed) = (self.version, self.removed);
        ExchangeSeat { version, uploads, count, information, removed, spoke_at: count }
    }

    /// The evidence with an upload, and what the uploader then has, or an error that changes nothing.
    fn add(
        &mut self,
        agent: AgentId,
        seat: ExchangeSeat,
        upload: &EvidenceUpload,
    ) -> Result<ExchangeSeat, ProtocolError> {
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
        let in_sync = seat.version == self.version && upload.based_on == self.version;
        let believed = self.believe(agent, increment, self.mean_age(seat, increment.count()))?;
        let seat = ExchangeSeat { uploads: upload.number, spoke_at: self.total(), ..seat };
        if !believed {
            return Ok(seat);
        }
        if in_sync {
            return Ok(self.informed(upload.number));
        }
        Ok(ExchangeSeat {
            version: upload.based_on.min(self.version),
            count: seat.count.saturating_add(upload.evidence.count()).min(self.total()),
            information: upload.information.min(self.model.information()),
            ..seat
        })
    }

    /// The mean age of the `count` observations of an upload, made evenly since the agent's last one, the newest just now.
    fn mean_age(&self, seat: ExchangeSeat, count: u64) -> u64 {
        let since = self.total().saturating_sub(seat.spoke_at);
        (since / 2).saturating_sub(since / (2 * count))
    }

    /// Adds to the evidence what an agent says, if it is believed; or fails and changes nothing.
    fn believe(&mut self, agent: AgentId, increment: &Evidence, age: u64) -> Result<bool, ProtocolError> {
        if let Some(ages) = &self.ages {
            let ages = ages.clone();
            return self.believe_for_a_while(ages, agent, increment, age);
        }
        let path = AgentPath::from(agent);
        let Some(trust) = &mut self.trust else {
            let sum = self.evidence.checked_sum(increment)?;
            self.replace(sum)?;
            return Ok(true);
        };
        let (account, verdict) = trust.examine(&path, trust.sums_with(&path, increment)?, &self.model)?;
        let taken_back = trust.count_of(&path);
        let sum = match verdict {
            Verdict::Believed => Some(self.evidence.checked_sum(increment)?),
            Verdict::StaysAside => None,
            Verdict::SetAside => Some(trust.believed(increment.dimension(), Some(&path))),
        };
        if let Some(sum) = sum {
            self.replace(sum)?;
        }
        if verdict == Verdict::SetAside {
            self.removed += taken_back;
        }
        let trust = self.trust.as_mut().expect("it was there above");
        trust.keep(path, account);
        Ok(verdict == Verdict::Believed)
    }

    /// The same where the coordinator forgets what is old. `ages` is what it remembers.
    fn believe_for_a_while(
        &mut self,
        mut ages: Ages,
        agent: AgentId,
        increment: &Evidence,
        age: u64,
    ) -> Result<bool, ProtocolError> {
        self.evidence.checked_sum(increment)?;
        ages.check_room_for(increment.count())?;
        let (before, reach, dimension) = (self.evidence.count(), ages.reach(), increment.dimension());
        let account = match &self.trust {
            None => {
                ages.take_in(increment, age);
                None
            }
            Some(trust) => {
                let known = trust.believes(&agent.into());
                ages.take_in_from(agent, increment, age, known);
                let sums = ages.sum_of(agent, dimension);
                let (account, verdict) = trust.examine(&agent.into(), sums, &self.model)?;
                let believed = verdict == Verdict::Believed;
                if known && !believed {
                    ages.believe_only(|other| other != agent && trust.believes(&other.into()));
                }
                Some((account, believed))
            }
        };
        self.replace(ages.sum(dimension))?;
        self.removed += before.saturating_sub(self.evidence.count());
        let forgot = ages.reach() < reach;
        self.ages = Some(ages);
        let Some((trust, (account, believed))) = self.trust.as_mut().zip(account) else { return Ok(true) };
        trust.keep(agent.into(), account);
        if forgot {
            // What most agents say may have changed with the world.
            trust.hasten();
        }
        Ok(believed)
    }

    /// Judges all agents again, if it is time.
    fn judge(&mut self) {
        let Some(trust) = &self.trust else { return };
        let taken_in = self.ages.as_ref().map_or_else(|| trust.total(), Ages::total);
        if !trust.is_due(taken_in) {
            return;
        }
        let (mut judged, mut ages) = (trust.clone(), self.ages.clone());
        if let Some(ages) = &ages
            && judged.retell(ages.sums_by_agent(self.evidence.dimension())).is_err()
        {
            return;
        }
        let (out, back) = judged.judge_if_due(taken_in);
        // The sum of fewer positive semidefinite matrices has a model as well. Should rounding say otherwise, all
        // stays as it is until the next judgement.
        let same = out == 0 && back == 0;
        if !same {
            let dimension = self.evidence.dimension();
            let sum = match &mut ages {
                None => judged.believed(dimension, None),
                Some(ages) => {
                    ages.believe_only(|agent| judged.believes(&agent.into()));
                    ages.sum(dimension)
                }
            };
            if self.replace(sum).is_err() {
                return;
            }
        }
        self.removed += out;
        (self.trust, self.ages) = (Some(judged), ages);
    }

    /// Makes `sum` the evidence, or fails and changes nothing.
    fn replace(&mut self, mut sum: Evidence) -> Result<(), ProtocolError> {
        self.model.refresh_noting(&mut sum, &*self.workers)?;
        self.evidence = Arc::new(sum);
        self.version = self.version.next();
        Ok(())
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
        // What was taken back is missing from the evidence and too much with the agent: it counts twice.
        let taken_back = self.removed - seat.removed;
        let count = self.evidence.count() + 2 * taken_back;
        let (behind, many) = match &self.ages {
            None => {
                let behind = count as f64 >= (1.0 + self.min_growth) * seat.count as f64;
                (behind, self.min_growth * seat.count as f64)
            }
            Some(ages) => {
                let many = self.min_growth * self.evidence.count() as f64;
                ((ages.total() - seat.count) as f64 >= many, many)
            }
        };
        // An agent that believes liars, or what no longer holds, hears so unasked as soon as it speaks.
        let misled = taken_back > 0 && taken_back as f64 >= many;
        let tell = ((pulled && behind) || misled) && seat.version < self.version;
        let (snapshot, rounded) = tell.then(|| self.snapshot(seat.uploads, false)).unzip();
        let seat =
            if tell { ExchangeSeat { spoke_at: seat.spoke_at, ..self.informed(seat.uploads) } } else { seat };
        self.seats.insert(agent, seat);
        let version = (seat.version == self.version).then_some(self.version);
        let news = self.news(now);
        let rounded = rounded.flatten();
        let answer = Answer { pulled, number: seat.uploads, version, news, snapshot, rounded };
        Outgoing::to(agent, Downlink::Answer(answer))
    }

    /// Warns all agents that hold much of what was forgotten, if the world has changed abruptly.
    fn warn(&mut self, now: Tick, speaker: AgentId) -> Vec<Outgoing> {
        let changed = self.ages.as_ref().is_some_and(Ages::has_changed_for_certain);
        if !changed || !self.warnings.are_worth_it(self.total(), self.seats.len()) {
            return Vec::new();
        }
        self.warnings.give(self.total());
        let holds_much = |seat: &ExchangeSeat| 2 * (self.removed - seat.removed) >= self.evidence.count();
        let misled: Vec<AgentId> = self
            .seats
            .iter()
            .filter(|(agent, seat)| **agent != speaker && seat.version < self.version && holds_much(seat))
            .map(|(agent, _)| *agent)
            .collect();
        // Rounding takes time, and is the same for all.
        let (snapshot, rounded) = self.snapshot(0, false);
        let tell = |agent: AgentId| {
            let seat = self.seats.get(&agent).copied().unwrap_or_default();
            let told = ExchangeSeat { spoke_at: seat.spoke_at, ..self.informed(seat.uploads) };
            self.seats.insert(agent, told);
            let snapshot = Snapshot { contains: seat.uploads, ..snapshot.clone() };
            self.unasked(now, agent, seat.uploads, Some((snapshot, rounded.clone())))
        };
        misled.into_iter().map(tell).collect()
    }

    /// A message to an agent that did not ask, with the number of its newest upload that was taken in.
    fn unasked(
        &self,
        now: Tick,
        agent: AgentId,
        number: u64,
        snapshot: Option<(Snapshot, Option<Arc<Rounded>>)>,
    ) -> Outgoing {
        let (version, news) = (Some(self.version), self.news(now));
        let (snapshot, rounded) = snapshot.unzip();
        let rounded = rounded.flatten();
        let answer = Answer { pulled: false, number, version, news, snapshot, rounded };
        Outgoing::to(agent, Downlink::Answer(answer))
    }
}

impl Coordinator for ExchangeCoordinator {
    fn join(&mut self, now: Tick, agent: AgentId, entrance: Entrance) -> Vec<Outgoing> {
        self.pace.observe(self.total(), now);
        let returning = entrance == Entrance::Returning;
        let known = self.seats.get(&agent).copied().filter(|_| returning);
        let uploads = known.map_or(0, |seat| seat.uploads);
        if !returning && self.version == Version(0) {
            // There is nothing to hear, but the agent waits for an answer before its first choice.
            self.seats.insert(agent, ExchangeSeat::default());
            return vec![self.unasked(now, agent, uploads, None)];
        }
        let seat = self.informed(uploads);
        // What a returning agent has not sent keeps its age.
        let spoke_at = known.map_or(seat.spoke_at, |known| known.spoke_at);
        self.seats.insert(agent, ExchangeSeat { spoke_at, ..seat });
        let snapshot = self.snapshot(uploads, returning);
        vec![self.unasked(now, agent, uploads, Some(snapshot))]
    }

    fn leave(&mut self, _now: Tick, agent: AgentId) -> Vec<Outgoing> {
        self.seats.remove(&agent);
        Vec::new()
    }

    fn receive(&mut self, now: Tick, from: AgentId, message: Uplink) -> Result<Vec<Outgoing>, ProtocolError> {
        let seat = *self.seats.get(&from).ok_or(ProtocolError::UnknownAgent(from))?;
        let before = self.total();
        let (seat, pulled) = match message {
            Uplink::Evidence(upload) => (self.add(from, seat, &upload)?, false),
            Uplink::Pull(Pull { doubt, upload, .. }) => {
                if !(doubt.is_finite() && doubt >= 0.0) {
                    return Err(ProtocolError::Evidence("the doubt is not a finite number"));
                }
                let seat = upload.map_or(Ok(seat), |upload| self.add(from, seat, &upload))?;
                if self.suspicion(from).is_none() {
                    self.hear_doubt(doubt);
                }
                (seat, true)
            }
            other => {
                return Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() });
            }
        };
        self.judge();
        self.pace.observe(self.total(), now);
        if self.ages.is_some() {
            self.warnings.hear(self.total() - before, pulled);
        }
        let answer = self.answer(now, from, seat, pulled);
        Ok([answer].into_iter().chain(self.warn(now, from)).collect())
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

    fn suspicion(&self, agent: AgentId) -> Option<Suspicion> {
        self.trust.as_ref()?.suspicion_of(&agent.into())
    }

    fn accounts(&self) -> Vec<AgentAccount> {
        self.trust.as_ref().map_or_else(Vec::new, Trust::accounts)
    }

    fn set_aside(&self) -> u64 {
        self.trust.as_ref().map_or(0, Trust::set_aside)
    }

    fn use_workers(&mut self, workers: Arc<dyn Workers>) {
        self.workers = workers;
    }

    fn save(&self) -> Vec<u8> {
        let seats = self.seats.iter().map(|(agent, seat)| v1::ExchangeSeat {
            agent: agent.0,
            version: seat.version.0,
            uploads: seat.uploads,
            count: seat.count,
            information: seat.information,
            removed: seat.removed,
            spoke_at: seat.spoke_at,
        });
        let marks = self.pace.marks.iter().flatten().flat_map(|(count, at)| [*count, *at]);
        let (warned, asking) = self.warnings.save();
        v1::ExchangeCoordinatorState {
            version: self.version.0,
            evidence: Some(wire::evidence_to_wire(&self.evidence)),
            model: Some(self.model.save()),
            seats: seats.collect(),
            marks: marks.collect(),
            doubt: self.doubt,
            removed: self.removed,
            trust: self.trust.as_ref().map(Trust::save),
            ages: self.ages.as_ref().map(Ages::save),
            warned,
            asking,
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
        if state.seats.iter().any(|seat| seat.removed > state.removed) {
            return Err(DecodeError::invalid("coordinator", "an agent knows of more than was taken back"));
        }
        let trust = match &self.trust {
            None => None,
            Some(trust) => Some(trust.restored(state.trust.unwrap_or_default(), evidence.dimension())?),
        };
        let ages = match &self.ages {
            None => None,
            Some(ages) => {
                let (state, by_agent) = (state.ages.unwrap_or_default(), trust.is_some());
                Some(ages.restored(state, evidence.dimension(), by_agent)?)
            }
        };
        let total = ages.as_ref().map_or(evidence.count(), Ages::total);
        if total < evidence.count()
            || (ages.is_some() && state.seats.iter().any(|seat| seat.count.max(seat.spoke_at) > total))
        {
            return Err(DecodeError::invalid("coordinator", "its counts contradict each other"));
        }
        let warnings = Warnings::restored(state.warned, state.asking, total)
            .ok_or_else(|| DecodeError::invalid("coordinator", "its warnings are impossible"))?;
        self.model.restore(&state.model.unwrap_or_default())?;
        (self.trust, self.ages, self.removed) = (trust, ages, state.removed);
        self.warnings = warnings;
        self.evidence = Arc::new(evidence);
        self.version = Version(state.version);
        self.pace = Pace { marks };
        self.doubt = state.doubt;
        let seat = |seat: v1::ExchangeSeat| {
            let (version, uploads) = (Version(seat.version), seat.uploads);
            let v1::ExchangeSeat { agent, count, information, removed, spoke_at, .. } = seat;
            (AgentId(agent), ExchangeSeat { version, uploads, count, information, removed, spoke_at })
        };
        self.seats = state.seats.into_iter().map(seat).collect();
        Ok(())
    }
}
