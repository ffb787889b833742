//! The suite notices bugs: one algorithm of each family, with a mistake planted around its agents.

use posse_core::{
    Agent, AgentId, AgentView, Algorithm, Arms, AsyncLinUcb, Choice, ConfigError, Coordinator, DecodeError,
    Downlink, FclubDc, FedGlbUcb, Federation, FnUcb, Incarnation, InputError, KernelConfig, LinUcb,
    NeuralConfig, NeuralUcb, Outside, ProtocolError, Recipe, Shape, Sharing, SyncLinUcb, Threshold, Uplink,
    UserId,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    /// None at all: the wrapper itself must pass.
    Nothing,
    /// Every fifth observation is dropped without a word.
    Drops,
    /// Every fifth observation is learned twice.
    Doubles,
    /// The first arm is preferred whatever it is.
    LikesTheFirst,
    /// A restored agent is a new one.
    Forgets,
    /// An observation that is refused counts all the same.
    LearnsFromErrors,
    /// The arm that was foreseen is always the first.
    ForeseesTheFirst,
}

#[derive(Debug)]
struct Planted {
    inner: Algorithm,
    bug: Bug,
}

struct PlantedAgent {
    inner: Box<dyn Agent>,
    bug: Bug,
    learned: u64,
}

impl Recipe for Planted {
    fn name(&self) -> &'static str {
        "planted"
    }

    fn check(&self, shape: Shape) -> Result<(), ConfigError> {
        self.inner.check(shape)
    }

    fn agent(&self, id: AgentId, shape: Shape, federation: &Federation) -> Box<dyn Agent> {
        let inner = self.inner.agent(id, shape, federation).expect("it was checked");
        Box::new(PlantedAgent { inner, bug: self.bug, learned: 0 })
    }

    fn coordinator(&self, shape: Shape) -> Box<dyn Coordinator> {
        self.inner.coordinator(shape).expect("it was checked")
    }

    fn sharing(&self) -> Sharing {
        self.inner.sharing()
    }

    fn link_function(&self) -> Option<posse_core::LinkFunction> {
        self.inner.link_function()
    }
}

impl Agent for PlantedAgent {
    fn choose(&mut self, user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        let choice = self.inner.choose(user, arms)?;
        Ok(if self.bug == Bug::LikesTheFirst { Choice { arm: 0, ..choice } } else { choice })
    }

    fn foresee(&self, user: UserId, arms: &Arms) -> Option<usize> {
        if self.bug == Bug::ForeseesTheFirst { Some(0) } else { self.inner.foresee(user, arms) }
    }

    fn choose_foreseen(&mut self) {
        self.inner.choose_foreseen();
    }

    fn learn(&mut self, user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        let fifth = (self.learned + 1).is_multiple_of(5);
        let said = match self.bug {
            Bug::Drops if fifth => Ok(None),
            Bug::Doubles if fifth => {
                let first = self.inner.learn(user, arm, reward);
                // Only one message can be returned; the other waits inside.
                if matches!(first, Ok(None)) { self.inner.learn(user, arm, reward) } else { first }
            }
            Bug::LearnsFromErrors => {
                let learned = self.inner.learn(user, arm, reward);
                if learned.is_err() {
                    let zeros = vec![0.0; self.dimension(arm.len())];
                    let _ = self.inner.learn(user, &zeros, 0.0);
                }
                learned
            }
            _ => self.inner.learn(user, arm, reward),
        };
        self.learned += u64::from(said.is_ok());
        said
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        self.inner.receive(message)
    }

    fn inspect(&self) -> AgentView<'_> {
        self.inner.inspect()
    }

    fn begin_life(&mut self, life: Incarnation) {
        self.inner.begin_life(life);
    }

    fn save(&self) -> Vec<u8> {
        let mut state = self.inner.save();
        state.extend(self.learned.to_le_bytes());
        state
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let cut = || DecodeError::invalid("state", "it is cut short");
        let (inner, learned) = state.split_last_chunk::<8>().ok_or_else(cut)?;
        if self.bug != Bug::Forgets {
            self.inner.restore(inner)?;
        }
        self.learned = u64::from_le_bytes(*learned);
        Ok(())
    }
}

impl PlantedAgent {
    /// The right number of features, of an observation that may have the wrong one.
    fn dimension(&self, given: usize) -> usize {
        if given == DIMENSION + 1 { DIMENSION } else { given }
    }
}

const DIMENSION: usize = 4;

/// One algorithm of each family, talkative enough for few interactions.
fn families() -> Vec<Algorithm> {
    let mut exchange = AsyncLinUcb::default();
    exchange.protocol.upload_threshold = Threshold(1.2);
    let neural = NeuralConfig { hidden_width: 5, training_steps: 3, ..NeuralConfig::default() };
    let round_threshold = Threshold(0.5);
    vec![
        Algorithm::LinUcb(LinUcb::default()),
        Algorithm::AsyncLinUcb(exchange),
        Algorithm::SyncLinUcb(SyncLinUcb { round_threshold, ..SyncLinUcb::default() }),
        Algorithm::FedGlbUcb(FedGlbUcb { round_threshold, ..FedGlbUcb::default() }),
        Algorithm::FclubDc(FclubDc::default()),
        Algorithm::KernelUcb(KernelConfig::default()),
        Algorithm::NeuralUcb(NeuralUcb { neural: neural.clone(), ..NeuralUcb::default() }),
        Algorithm::FnUcb(FnUcb { neural, round_threshold, lockstep: false, ..FnUcb::default() }),
    ]
}

fn judged(inner: &Algorithm, bug: Bug) -> Result<(), posse_conformance::Violation> {
    let planted = Planted { inner: inner.clone(), bug };
    posse_conformance::check(&Algorithm::Outside(Outside::new(planted)), Shape::shared(DIMENSION))
}

#[test]
fn without_a_bug_every_family_passes() {
    for inner in families() {
        judged(&inner, Bug::Nothing).unwrap_or_else(|violation| panic!("{}: {violation}", inner.name()));
    }
}

#[test]
fn every_planted_bug_is_noticed_in_every_family() {
    let bugs = [
        Bug::Drops,
        Bug::Doubles,
        Bug::LikesTheFirst,
        Bug::Forgets,
        Bug::LearnsFromErrors,
        Bug::ForeseesTheFirst,
    ];
    for inner in families() {
        for bug in bugs {
            assert!(judged(&inner, bug).is_err(), "{} with the bug {bug:?} passed", inner.name());
        }
    }
}
