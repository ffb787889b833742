//! Relays that break a promise on purpose, so that a test can see that the checks of relays find them.

use std::collections::{BTreeMap, BTreeSet};

use posse_core::{
    Agent, AgentId, AgentStanding, AgentView, Algorithm, ClusterUpload, ConfigError, Coordinator,
    CoordinatorView, DecodeError, Downlink, Entrance, Evidence, EvidenceUpload, Federation, JoinPolicy,
    KnownCluster, LinkFunction, LinkThresholds, NetworkEvidence, Outside, Parcel, Passed, ProtocolError,
    Recipe, Recipient, Relay, Relaying, Shape, Sharing, Tick, Uplink, UpperLink,
};

/// What a relay does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It adds the parts of its children up twice, or sends every upload twice.
    CountsTwice,
    /// In rounds, it leaves out the parts of every second child, and tells those that they are counted. It cuts their releases
    /// down to one observation.
    Forgets,
    /// It adds the gradients of its children up twice.
    DoublesGradients,
    /// Where parts go up one by one, it says that the first is that of the agent with the last.
    Misnames,
}

/// `algorithm` with relays that have a fault. Agents and coordinator are as they were. Of networks, those with diagonal statistics
/// have the fault.
#[must_use]
pub fn with_faulty_relays(algorithm: &Algorithm, fault: Fault) -> Algorithm {
    Algorithm::Outside(Outside::new(FaultyRelays { algorithm: algorithm.clone(), fault }))
}

#[derive(Debug)]
struct FaultyRelays {
    algorithm: Algorithm,
    fault: Fault,
}

struct FaultyRelay {
    inner: Box<dyn Relay>,
    fault: Fault,
    /// Observations in the parent's model: as there are, and as the parent counts them.
    shared: Counts,
    /// The same of the part that was sent last, and whether it was everything.
    sent: Option<(bool, Counts)>,
    whole: bool,
    /// Observations of each child that are in no part, of rounds that have ended and of the open one.
    forgotten: BTreeMap<AgentId, u64>,
    forgetting: BTreeMap<AgentId, (bool, u64)>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    real: u64,
    claimed: u64,
}

impl FaultyRelay {
    fn spoil(&mut self, passed: Passed) -> Passed {
        let up = passed.up.into_iter().flat_map(|message| self.spoiled(message)).collect();
        let mut down = passed.down;
        for outgoing in &mut down {
            let Recipient::Agent(child) = outgoing.to else { continue };
            let forgotten = self.forgotten.get(&child).copied().unwrap_or(0);
            match &mut outgoing.message {
                Downlink::Model(model) => model.contains += forgotten,
                Downlink::Network(model) => model.contains += forgotten,
                _ => {}
            }
        }
        Passed { up, down }
    }

    /// What the relay takes in of a child's message.
    fn taken_in(&mut self, from: AgentId, message: Uplink) -> Uplink {
        if self.fault != Fault::Forgets || !from.0.is_multiple_of(2) {
            return message;
        }
        match message {
            Uplink::RoundEvidence { round, evidence } => {
                self.forgetting.insert(from, (self.whole, evidence.count()));
                let nothing = Evidence::none(evidence.dimension());
                Uplink::RoundEvidence { round, evidence: Parcel::wrap(&nothing) }
            }
            Uplink::RoundParts { round, .. } => Uplink::RoundParts { round, parts: Vec::new() },
            Uplink::NetworkPart(mut part) => {
                self.forgetting.insert(from, (false, part.evidence.count()));
                multiply(&mut part.evidence, 0);
                Uplink::NetworkPart(part)
            }
            Uplink::Cluster(mut upload) => {
                forget_all_but_one(&mut upload);
                Uplink::Cluster(upload)
            }
            Uplink::Clusters(mut list) => {
                list.uploads.iter_mut().for_each(forget_all_but_one);
                Uplink::Clusters(list)
            }
            other => other,
        }
    }

    /// A round has ended with a model.
    fn forget(&mut self) {
        for (child, (whole, count)) in std::mem::take(&mut self.forgetting) {
            let forgotten = self.forgotten.entry(child).or_default();
            *forgotten = if whole { count } else { *forgotten + count };
        }
    }

    fn spoiled(&mut self, message: Uplink) -> Vec<Uplink> {
        let spoiled = match message {
            Uplink::Evidence(upload) if self.fault == Fault::CountsTwice => {
                let number = 2 * upload.number;
                let first = EvidenceUpload { number: number - 1, ..upload.clone() };
                return vec![Uplink::Evidence(first), Uplink::Evidence(EvidenceUpload { number, ..upload })];
            }
            Uplink::RoundEvidence { round, evidence } => {
                let real = evidence.count();
                let mut sum = Evidence::none(evidence.dimension());
                (0..self.times()).for_each(|_| sum.add(evidence.evidence()));
                self.sent = Some((self.whole, Counts { real, claimed: sum.count() }));
                Uplink::RoundEvidence { round, evidence: Parcel::wrap(&sum) }
            }
            Uplink::RoundParts { round, mut parts } => {
                if self.fault == Fault::Misnames && parts.len() > 1 {
                    let first = parts.remove(0);
                    let last = parts.last_mut().expect("there were two");
                    let mut sum = last.evidence.evidence().clone();
                    sum.add(first.evidence.evidence());
                    last.evidence = Parcel::wrap(&sum);
                }
                for part in &mut parts {
                    let mut sum = Evidence::none(part.evidence.dimension());
                    (0..self.times()).for_each(|_| sum.add(part.evidence.evidence()));
                    part.evidence = Parcel::wrap(&sum);
                }
                Uplink::RoundParts { round, parts }
            }
            Uplink::NetworkPart(mut part) => {
                let real = part.evidence.count();
                multiply(&mut part.evidence, self.times());
                let claimed = part.evidence.count();
                if let Some(sum) = &mut part.sum {
                    sum.seen = sum.seen.max(claimed);
                }
                self.sent = Some((false, Counts { real, claimed }));
                Uplink::NetworkPart(part)
            }
            Uplink::Cluster(mut upload) => {
                self.repeat(&mut upload);
                Uplink::Cluster(upload)
            }
            Uplink::Clusters(mut list) => {
                list.uploads.iter_mut().for_each(|upload| self.repeat(upload));
                Uplink::Clusters(list)
            }
            Uplink::Gradient(mut gradient) if self.fault == Fault::DoublesGradients => {
                gradient.gradient.iter_mut().for_each(|value| *value *= 2.0);
                gradient.curvature.iter_mut().flatten().for_each(|value| *value *= 2.0);
                Uplink::Gradient(gradient)
            }
            other => other,
        };
        vec![spoiled]
    }

    /// Counts releases several times.
    fn repeat(&self, upload: &mut ClusterUpload) {
        let once = upload.evidence.clone();
        (1..self.times()).for_each(|_| upload.evidence.add(&once));
    }

    const fn times(&self) -> u64 {
        match self.fault {
            Fault::CountsTwice => 2,
            Fault::Forgets | Fault::DoublesGradients | Fault::Misnames => 1,
        }
    }

    /// How many observations a model contains that the parent says has so many.
    fn real(&mut self, contains: u64) -> u64 {
        if let Some((whole, part)) = self.sent.take() {
            let before = if whole { Counts::default() } else { self.shared };
            if contains == before.claimed + part.claimed {
                self.shared = Counts { real: before.real + part.real, claimed: contains };
            }
        }
        if contains == self.shared.claimed { self.shared.real } else { contains }
    }
}

/// Leaves one observation of a release, in which nothing was seen: without any it would be refused.
fn forget_all_but_one(upload: &mut ClusterUpload) {
    let dimension = upload.evidence.dimension();
    upload.evidence = Evidence::none(dimension);
    upload.evidence.observe(&vec![0.0; dimension], 0.0).expect("zeros of its dimension");
}

/// Counts diagonal statistics several times, or not at all.
fn multiply(evidence: &mut NetworkEvidence, times: u64) {
    if let NetworkEvidence::Diagonal { squares, moment, count } = evidence {
        squares.iter_mut().chain(moment).for_each(|value| *value *= times as f64);
        *count *= times;
    }
}

impl Relay for FaultyRelay {
    fn join(&mut self, now: Tick, child: AgentId, entrance: Entrance) -> Passed {
        let passed = self.inner.join(now, child, entrance);
        self.spoil(passed)
    }
    fn leave(&mut self, now: Tick, child: AgentId) -> Passed {
        let passed = self.inner.leave(now, child);
        self.spoil(passed)
    }
    fn receive(&mut self, now: Tick, from: AgentId, message: Uplink) -> Result<Passed, ProtocolError> {
        let message = self.taken_in(from, message);
        let passed = self.inner.receive(now, from, message)?;
        Ok(self.spoil(passed))
    }
    fn hear(&mut self, now: Tick, mut message: Downlink) -> Result<Passed, ProtocolError> {
        match &mut message {
            Downlink::Collect { whole, .. } => self.whole = *whole,
            Downlink::Model(model) => model.contains = self.real(model.contains),
            Downlink::Network(model) => model.contains = self.real(model.contains),
            Downlink::Receipt { number, .. } => *number /= self.times(),
            Downlink::Snapshot(snapshot) => snapshot.contains /= self.times(),
            _ => {}
        }
        if matches!(message, Downlink::Model(_) | Downlink::Network(_)) {
            self.forget();
        }
        let passed = self.inner.hear(now, message)?;
        Ok(self.spoil(passed))
    }
    fn tick_without(&mut self, now: Tick, absent: &BTreeSet<AgentId>) -> Passed {
        let passed = self.inner.tick_without(now, absent);
        self.spoil(passed)
    }
    fn tick(&mut self, now: Tick) -> Passed {
        self.tick_without(now, &BTreeSet::new())
    }
    fn deadline(&self) -> Option<Tick> {
        self.inner.deadline()
    }
    fn waits_for(&self) -> Option<&BTreeSet<AgentId>> {
        self.inner.waits_for()
    }
    fn below(&self) -> CoordinatorView<'_> {
        self.inner.below()
    }
    fn above(&self) -> AgentView<'_> {
        self.inner.above()
    }
    fn child(&self, child: AgentId) -> Option<AgentStanding> {
        self.inner.child(child)
    }
    fn clusters(&self) -> Vec<KnownCluster> {
        self.inner.clusters()
    }
    fn save(&self) -> Vec<u8> {
        self.inner.save()
    }
    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        self.inner.restore(state)
    }
}

impl Recipe for FaultyRelays {
    fn name(&self) -> &'static str {
        "faulty-relays"
    }
    fn check(&self, shape: Shape) -> Result<(), ConfigError> {
        self.algorithm.check(shape)
    }
    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        self.algorithm.with_recipe(|recipe| recipe.agent(id, shape, federation))
    }
    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        self.algorithm.with_recipe(|recipe| recipe.coordinator(shape))
    }
    fn root(&self, shape: Shape, levels: usize) -> Box<dyn Coordinator> {
        self.algorithm.with_recipe(|recipe| recipe.root(shape, levels))
    }
    fn sharing(&self) -> Sharing {
        self.algorithm.sharing()
    }
    fn join_policy(&self) -> JoinPolicy {
        self.algorithm.join_policy()
    }
    fn link_function(&self) -> Option<LinkFunction> {
        self.algorithm.link_function()
    }
    fn relaying(&self, federation: &Federation) -> Relaying {
        self.algorithm.with_recipe(|recipe| recipe.relaying(federation))
    }
    fn on_level(&self, thresholds: LinkThresholds, agents: bool) -> Option<Algorithm> {
        let algorithm = self.algorithm.with_recipe(|recipe| recipe.on_level(thresholds, agents))?;
        Some(with_faulty_relays(&algorithm, self.fault))
    }
    fn relay(&self, shape: Shape, above: UpperLink) -> Option<Box<dyn Relay>> {
        let inner = self.algorithm.with_recipe(|recipe| recipe.relay(shape, above))?;
        let (fault, shared) = (self.fault, Counts::default());
        Some(Box::new(FaultyRelay {
            inner,
            fault,
            shared,
            sent: None,
            whole: false,
            forgotten: BTreeMap::new(),
            forgetting: BTreeMap::new(),
        }))
    }
}
