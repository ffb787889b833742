//! Coordinators whose work on large matrices others share: they say and hold the same bits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use posse_core::*;

/// Says that it has so many workers, does the last piece first, and counts the pieces.
#[derive(Debug)]
struct Backwards {
    count: usize,
    pieces: AtomicUsize,
}

impl Workers for Backwards {
    fn count(&self) -> usize {
        self.count
    }

    fn run(&self, pieces: Vec<Piece<'_>>) {
        self.pieces.fetch_add(pieces.len(), Ordering::Relaxed);
        pieces.into_iter().rev().for_each(|piece| piece());
    }
}

/// Everything that a coordinator said while three agents learned in turns, and its state at the end.
fn play(
    algorithm: &Algorithm,
    dimension: usize,
    workers: Option<Arc<dyn Workers>>,
) -> (Vec<Outgoing>, Vec<u8>) {
    const AGENTS: u64 = 3;
    let federation = Federation { agents: AGENTS, horizon: 100, seed: Seed(3) };
    let shape = Shape::shared(dimension);
    let mut coordinator = algorithm.coordinator(shape).expect("settings in range");
    if let Some(workers) = workers {
        coordinator.use_workers(workers);
    }
    let agent = |id| algorithm.agent(AgentId(id), shape, &federation).expect("settings in range");
    let mut agents: Vec<Box<dyn Agent>> = (0..AGENTS).map(agent).collect();
    let (mut stream, mut said) = (Seed(5).stream("observations", 0, 0), Vec::new());
    for id in 0..AGENTS {
        for Outgoing { message, .. } in coordinator.join(Tick(1), AgentId(id), Entrance::NewLife) {
            let answer = agents[id as usize].receive(message).expect("an honest message");
            assert_eq!(answer, None, "there is nothing to say yet");
        }
    }
    for step in 0..4 * AGENTS {
        let id = step % AGENTS;
        let x: Vec<f64> = (0..dimension).map(|_| 0.1 * stream.normal()).collect();
        let reward = stream.normal();
        let mut letters = VecDeque::new();
        let spoken = agents[id as usize].learn(UserId(0), &x, reward).expect("a sound observation");
        letters.extend(spoken.map(|message| (id, message)));
        while let Some((from, message)) = letters.pop_front() {
            let outgoing = coordinator.receive(Tick(1), AgentId(from), message).expect("an honest message");
            for Outgoing { to, message } in &outgoing {
                for id in (0..AGENTS).filter(|id| to.includes(AgentId(*id))) {
                    let answer = agents[id as usize].receive(message.clone()).expect("an honest message");
                    letters.extend(answer.map(|answer| (id, answer)));
                }
            }
            said.extend(outgoing);
        }
    }
    assert!(coordinator.inspect().version > Version(1), "{}", algorithm.name());
    (said, coordinator.save())
}

#[test]
fn a_coordinator_with_workers_says_and_holds_the_same_bits() {
    let often = ProtocolConfig { upload_threshold: Threshold(1.0), ..ProtocolConfig::default() };
    let neural = NeuralConfig { hidden_width: 20, training_steps: 1, ..NeuralConfig::default() };
    let algorithms = [
        (Algorithm::AsyncLinUcb(AsyncLinUcb { protocol: often, ..AsyncLinUcb::default() }), 330),
        (Algorithm::ExchangeLinUcb(ExchangeLinUcb::default()), 330),
        (Algorithm::SyncLinUcb(SyncLinUcb { round_threshold: Threshold(0.0), ..SyncLinUcb::default() }), 330),
        (Algorithm::FnUcb(FnUcb { neural, ..FnUcb::default() }), 34),
    ];
    for (algorithm, dimension) in algorithms {
        let alone = play(&algorithm, dimension, None);
        for count in [1, 2, 3, 5] {
            let workers = Arc::new(Backwards { count, pieces: AtomicUsize::new(0) });
            let shared = play(&algorithm, dimension, Some(workers.clone()));
            let name = algorithm.name();
            assert!(shared == alone, "{name} with {count} workers");
            let pieces = workers.pieces.load(Ordering::Relaxed);
            assert_eq!(pieces > 0, count > 1, "{name} with {count} workers handed out {pieces} pieces");
        }
    }
}
