//! Single kernels beside the bound that the machine sets for them.

use std::hint::black_box;
use std::num::NonZero;

use posse_core::{
    AgentId, Algorithm, Arms, Evidence, Federation, LinUcb, ModelConfig, Parcel, Ridge, Seed, Shape,
    ThisThread, UserId, WidthForm, Workers, packed,
};
use posse_sim::Threads;
use serde::Serialize;

use crate::gradient::{gradient_sums, hessian_sum};
use crate::roofline::Roofline;
use crate::{Effort, shortest};

const ARMS: usize = 25;
/// Observations in a parcel that travels as columns.
const RANK: usize = 4;
/// Features of two sums that no cache holds: 67 MB each.
const BEYOND_CACHES: usize = 4096;

/// What one call of a kernel takes, and the least that it could take on this core.
#[derive(Debug, Serialize)]
pub struct KernelTime {
    /// What is computed.
    pub name: &'static str,
    /// How many features an arm has.
    pub dimension: usize,
    /// Microseconds of a call.
    pub micros: f64,
    /// Multiplications and additions of a call, if arithmetic is what bounds it.
    pub operations: Option<f64>,
    /// Bytes that a call reads from memory, if that is what bounds it.
    pub bytes: Option<f64>,
}

impl KernelTime {
    /// The least time that the bound allows divided by the time taken: 1 is as fast as this core can be.
    #[must_use]
    pub fn fraction(&self, roofline: &Roofline) -> f64 {
        let arithmetic =
            self.operations.map_or(0.0, |operations| operations / roofline.operations_per_second);
        let memory = self.bytes.map_or(0.0, |bytes| bytes / roofline.bytes_per_second);
        1e6 * arithmetic.max(memory) / self.micros
    }
}

/// Measures every kernel at a small and at a large dimension.
pub fn kernels(effort: Effort) -> anyhow::Result<Vec<KernelTime>> {
    let mut all = Vec::new();
    for dimension in [25, 100] {
        linear(dimension, effort, &mut all)?;
    }
    let large: &[usize] = if effort == Effort::Quick { &[256] } else { &[256, 1024, 4096] };
    for &dimension in large {
        all.push(refactoring(dimension, "model: make the factor anew", &ThisThread)?);
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        if processors > 1 {
            all.push(refactoring(dimension, "the same on all cores", &Threads(processors))?);
        }
    }
    for dimension in [25, 100] {
        let sums = gradient_sums(dimension, effort)?;
        let bytes = (sums.observations * (dimension + 1) * size_of::<f64>()) as f64;
        let micros = bytes / sums.posse_rate / 1e3;
        let (name, operations) = ("gradient over stored clicks", None);
        all.push(KernelTime { name, dimension, micros, operations, bytes: Some(bytes) });
    }
    for dimension in [25, 100] {
        let sums = hessian_sum(dimension, effort)?;
        let (observations, d) = (sums.observations as f64, dimension as f64);
        // A multiplication and an addition for each entry of the matrix, of the gradient and of the product with the point.
        let operations = Some(observations * (2.0 * packed(dimension) as f64 + 4.0 * d));
        let bytes = Some(observations * (d + 1.0) * size_of::<f64>() as f64);
        let (name, micros) = ("gradient and Hessian over stored clicks", sums.seconds * 1e6);
        all.push(KernelTime { name, dimension, micros, operations, bytes });
    }
    if effort == Effort::Full {
        all.push(large_merge()?);
    }
    Ok(all)
}

/// Adding evidence where memory is the bound: two numbers are read for each that is written.
fn large_merge() -> anyhow::Result<KernelTime> {
    let dimension = BEYOND_CACHES;
    let mut sum = Evidence::none(dimension);
    let mut other = Evidence::none(dimension);
    let x: Vec<f64> = (0..dimension).map(|n| (n % 7) as f64 * 0.01).collect();
    sum.observe(&x, 0.5)?;
    other.observe(&x, 0.5)?;
    let seconds = shortest(9, || black_box(&mut sum).add(black_box(&other)));
    let numbers = (packed(dimension) + dimension) as f64;
    let bytes = Some(2.0 * numbers * size_of::<f64>() as f64);
    let name = "evidence: add a sum";
    Ok(KernelTime { name, dimension, micros: seconds * 1e6, operations: Some(numbers), bytes })
}

/// What a coordinator of many features does for every upload. The bound is that of one core.
fn refactoring(dimension: usize, name: &'static str, workers: &dyn Workers) -> anyhow::Result<KernelTime> {
    let mut stream = Seed(2).stream("kernels", dimension as u64, 0);
    let mut evidence = Evidence::none(dimension);
    for _ in 0..4 {
        let x: Vec<f64> = (0..dimension).map(|_| stream.normal()).collect();
        evidence.observe(&x, 0.5)?;
    }
    let mut ridge = Ridge::new(dimension, 0.1);
    ridge.refresh([&evidence].into_iter())?;
    let seconds = shortest(3, || {
        let _ = black_box(&mut ridge).refresh_on([black_box(&evidence)].into_iter(), workers);
    });
    let d = dimension as f64;
    let operations = Some(d * d * d / 3.0 + 2.0 * d * d);
    Ok(KernelTime { name, dimension, micros: seconds * 1e6, operations, bytes: None })
}

fn linear(dimension: usize, effort: Effort, all: &mut Vec<KernelTime>) -> anyhow::Result<()> {
    let calls = if effort == Effort::Quick { 40_000 } else { 2_000_000 } / (dimension * dimension / 25);
    let mut stream = Seed(1).stream("kernels", 0, 0);
    let mut row = || -> Vec<f64> { (0..dimension).map(|_| 0.1 * stream.normal()).collect() };
    let rows: Vec<Vec<f64>> = (0..ARMS).map(|_| row()).collect();
    let arms = Arms::from_rows(dimension, &rows)?;
    let model = ModelConfig { width: WidthForm::DetTrace, ..Default::default() };
    let federation = Federation { agents: 1, horizon: 1_000_000, seed: Seed(0) };
    let mut agent =
        Algorithm::LinUcb(LinUcb { model }).agent(AgentId(0), Shape::shared(dimension), &federation)?;
    let mut evidence = Evidence::none(dimension);
    for x in &rows {
        evidence.observe(x, 0.5)?;
        agent.learn(UserId(0), x, 0.5)?;
    }
    let mut ridge = Ridge::new(dimension, 0.1);
    ridge.refresh([&evidence].into_iter())?;
    let (d, triangle) = (dimension as f64, packed(dimension) as f64);
    let mut time = |name, operations: f64, work: &mut dyn FnMut(usize)| {
        let seconds = shortest(5, || (0..calls).for_each(&mut *work));
        let micros = seconds * 1e6 / calls as f64;
        all.push(KernelTime { name, dimension, micros, operations: Some(operations), bytes: None });
    };
    // A multiplication and a subtraction for each pair of features, then d of scaling, squares and products with q.
    time("choose: score 25 arms", ARMS as f64 * (d * (d - 1.0) + 5.0 * d), &mut |_| {
        let _ = black_box(agent.choose(UserId(0), black_box(&arms)));
    });
    // Five for each entry of the factor and two for each of the evidence.
    time("learn: update of the factor, and evidence", 7.0 * (triangle + d), &mut |n| {
        let _ = black_box(agent.learn(UserId(0), arms.row(n % ARMS), 0.5));
    });
    time("evidence: add an observation", 2.0 * (triangle + d), &mut |n| {
        let _ = black_box(&mut evidence).observe(arms.row(n % ARMS), 0.5);
    });
    let other = evidence.clone();
    // An addition for each entry.
    time("evidence: add a sum", triangle + d, &mut |_| {
        black_box(&mut evidence).add(black_box(&other));
    });
    let mut few = Evidence::none(dimension);
    for x in rows.iter().take(RANK) {
        few.observe(x, 0.5)?;
    }
    let parcel = Parcel::wrap(&few);
    // A multiplication and an addition for each entry and column, and the sum.
    time("evidence: add a parcel of rank 4", (2.0 * RANK as f64 + 1.0) * triangle + d, &mut |_| {
        // A copy of a parcel is not unpacked yet.
        black_box(&mut evidence).add(black_box(&parcel).clone().evidence());
    });
    time("model: make the factor anew", d * d * d / 3.0 + 2.0 * d * d, &mut |_| {
        let _ = black_box(&mut ridge).refresh([black_box(&other)].into_iter());
    });
    Ok(())
}
