//! What an upload costs the coordinator, for few agents and for many.

use std::time::Instant;

use anyhow::Context;
use posse_core::{
    AgentId, Algorithm, AsyncLinUcb, Coordinator, Entrance, Evidence, EvidenceUpload, Parcel, ProtocolConfig,
    Seed, Shape, Threshold, Tick, Uplink, Version,
};
use serde::Serialize;

use crate::Effort;
use crate::literal::Literal;

/// No deadlines are measured, so that time may stand still.
const NOW: Tick = Tick(1_700_000_000_000_000);

const DIMENSION: usize = 25;
/// So high that no agent is due for a download: the deciding is measured, not the sending.
const THRESHOLD: f64 = 1e300;

/// Taking in an upload, by the coordinator with a heap and by the literal one.
#[derive(Debug, Serialize)]
pub struct Uploads {
    /// Agents that the coordinator knows.
    pub agents: usize,
    /// Microseconds that posse's coordinator takes for one upload.
    pub posse_micros: f64,
    /// Microseconds that the literal coordinator takes for one upload.
    pub literal_micros: f64,
    /// The time of the literal coordinator divided by ours.
    pub ratio: f64,
    /// Resident memory an agent, where the system tells and there are enough of them to see it.
    pub bytes_per_agent: Option<f64>,
    /// The literal coordinator's matrix and vector an agent.
    pub literal_bytes_per_agent: usize,
}

/// Measures with that many agents.
pub fn uploads(agents: usize, effort: Effort) -> anyhow::Result<Uploads> {
    let (uploads, literal_uploads) = match effort {
        Effort::Quick => (2_000, (20_000 / agents).clamp(1, 200)),
        Effort::Full => (20_000, (200_000 / agents).clamp(2, 2_000)),
    };
    let (posse_micros, bytes_per_agent) = posse(agents, uploads)?;
    let literal_micros = literal(agents, literal_uploads);
    Ok(Uploads {
        agents,
        posse_micros,
        literal_micros,
        ratio: literal_micros / posse_micros,
        bytes_per_agent,
        literal_bytes_per_agent: 8 * (DIMENSION * DIMENSION + DIMENSION),
    })
}

fn posse(agents: usize, uploads: usize) -> anyhow::Result<(f64, Option<f64>)> {
    let protocol = ProtocolConfig { download_threshold: Threshold(THRESHOLD), ..Default::default() };
    let algorithm = Algorithm::AsyncLinUcb(AsyncLinUcb { protocol, ..Default::default() });
    let mut coordinator = algorithm.coordinator(Shape::shared(DIMENSION))?;
    let before = resident_bytes();
    for agent in 0..agents as u64 {
        coordinator.join(NOW, AgentId(agent), Entrance::NewLife);
    }
    let grown = resident_bytes().zip(before).map(|(after, before)| after.saturating_sub(before));
    let bytes_per_agent = grown.filter(|_| agents >= 50_000).map(|bytes| bytes as f64 / agents as f64);
    let mut stream = Seed(2).stream("bench", 0, 0);
    let mut numbers = vec![0; agents];
    let mut send = |coordinator: &mut Box<dyn Coordinator>, count: usize| -> anyhow::Result<f64> {
        let mut seconds = 0.0;
        for _ in 0..count {
            let agent = stream.below(agents as u64);
            let x: Vec<f64> = (0..DIMENSION).map(|_| 0.2 * stream.normal()).collect();
            let mut evidence = Evidence::none(DIMENSION);
            evidence.observe(&x, 0.5)?;
            numbers[agent as usize] += 1;
            let message = Uplink::Evidence(EvidenceUpload {
                number: numbers[agent as usize],
                based_on: Version(0),
                information: 1.0,
                evidence: Parcel::wrap(&evidence),
            });
            let start = Instant::now();
            let answers =
                coordinator.receive(NOW, AgentId(agent), message).context("the benchmark's upload")?;
            seconds += start.elapsed().as_secs_f64();
            drop(answers);
        }
        Ok(seconds * 1e6 / count as f64)
    };
    send(&mut coordinator, uploads / 10)?;
    let best = (0..5).map(|_| send(&mut coordinator, uploads / 5)).collect::<Result<Vec<_>, _>>()?;
    Ok((best.into_iter().fold(f64::INFINITY, f64::min), bytes_per_agent))
}

fn literal(agents: usize, uploads: usize) -> f64 {
    let mut coordinator = Literal::new(DIMENSION, 0.1, agents);
    let mut stream = Seed(2).stream("bench", 1, 0);
    let mut best = f64::INFINITY;
    for _ in 0..2 {
        let start = Instant::now();
        for _ in 0..uploads {
            let agent = stream.below(agents as u64) as usize;
            let x: Vec<f64> = (0..DIMENSION).map(|_| 0.2 * stream.normal()).collect();
            std::hint::black_box(coordinator.upload(agent, &x, 0.5, THRESHOLD.ln()));
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / uploads as f64);
    }
    best
}

/// Memory of this process that is really there, on systems that tell it this way.
pub(super) fn resident_bytes() -> Option<u64> {
    const PAGE: u64 = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    pages.split_whitespace().nth(1)?.parse::<u64>().ok().map(|pages| pages * PAGE)
}
