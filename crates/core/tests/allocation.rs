//! Memory: deciding and learning take none, and bytes from elsewhere no more than they are worth.
#![allow(unsafe_code, reason = "a global allocator that counts is unsafe to write")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use posse_core::session::{DownFrame, LogEntry, UpFrame};
use posse_core::wire::{decode_downlink, decode_uplink, encode_downlink, encode_uplink};
use posse_core::{AgentId, Algorithm, Arms, Federation, Seed, Shape, Threshold, UserId};
use posse_core::{AsyncLinTs, AsyncLinUcb, LinUcb, ProtocolConfig};
use posse_core::{Downlink, Evidence, Snapshot, Version};
use proptest::prelude::*;
use support::NOW;

thread_local! {
    /// How often this thread allocated, and how many bytes.
    static COUNTED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    /// How many bytes this thread holds.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn hold(bytes: i64) {
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

struct Counting;

fn count(bytes: usize) {
    // A thread that is being torn down has nobody left to count for.
    let _ = COUNTED.try_with(|counted| {
        let (times, sum) = counted.get();
        counted.set((times + 1, sum + bytes as u64));
    });
}

// SAFETY: every call is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        hold(layout.size() as i64);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        hold(layout.size() as i64);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        hold(size as i64 - layout.size() as i64);
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64));
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `work` allocated, and how many bytes.
fn allocations(work: impl FnOnce()) -> (u64, u64) {
    let (times, bytes) = COUNTED.get();
    work();
    let (times_after, bytes_after) = COUNTED.get();
    (times_after - times, bytes_after - bytes)
}

#[test]
fn the_counter_counts() {
    let (times, bytes) = allocations(|| drop(std::hint::black_box(vec![1u8; 1000])));
    assert_eq!((times, bytes), (1, 1000));
}

/// Plays 2000 interactions, with several repairs of the model among them.
fn an_interaction_allocates_nothing(algorithm: &Algorithm) {
    let d = 25;
    let federation = Federation { agents: 1, horizon: 3000, seed: Seed(3) };
    let mut agent = algorithm.agent(AgentId(0), Shape::shared(d), &federation).unwrap();
    let mut stream = Seed(4).stream("interactions", 0, 0);
    let mut arms = Arms::new(d);
    let mut features = vec![0.0; d];
    let mut play = |interactions: u32| {
        for _ in 0..interactions {
            arms.clear();
            for _ in 0..20 {
                features.iter_mut().for_each(|x| *x = stream.normal());
                arms.push(&features).unwrap();
            }
            let choice = agent.choose(UserId(0), &arms).unwrap();
            let said = agent.learn(UserId(0), arms.row(choice.arm), stream.normal()).unwrap();
            assert_eq!(said, None);
        }
    };
    play(300);
    assert_eq!(allocations(|| play(2000)), (0, 0), "{}", algorithm.name());
}

fn silent() -> ProtocolConfig {
    ProtocolConfig { upload_threshold: Threshold::NEVER, ..Default::default() }
}

#[test]
fn lin_ucb_decides_and_learns_without_allocating() {
    an_interaction_allocates_nothing(&Algorithm::LinUcb(LinUcb::default()));
}

#[test]
fn async_lin_ucb_decides_and_learns_without_allocating() {
    let config = AsyncLinUcb { protocol: silent(), ..Default::default() };
    an_interaction_allocates_nothing(&Algorithm::AsyncLinUcb(config));
}

#[test]
fn async_lin_ts_decides_and_learns_without_allocating() {
    let config = AsyncLinTs { protocol: silent(), ..Default::default() };
    an_interaction_allocates_nothing(&Algorithm::AsyncLinTs(config));
}

/// Bytes that decoding these allocates, with every decoder.
fn decoding(bytes: &[u8]) -> u64 {
    let each = [
        allocations(|| drop(std::hint::black_box(decode_uplink(bytes)))),
        allocations(|| drop(std::hint::black_box(decode_downlink(bytes)))),
        allocations(|| drop(std::hint::black_box(UpFrame::decode(bytes)))),
        allocations(|| drop(std::hint::black_box(DownFrame::decode(bytes)))),
        allocations(|| drop(std::hint::black_box(LogEntry::decode(bytes)))),
    ];
    each.into_iter().map(|(_, bytes)| bytes).max().expect("five decoders")
}

/// A varint of one byte becomes a number of four, vectors double, and an error has words.
fn worth(bytes: &[u8]) -> u64 {
    1024 + 32 * bytes.len() as u64
}

proptest! {
    #[test]
    fn decoding_allocates_in_proportion_to_what_is_there(
        frame in support::up_frames(), other in support::down_frames(), place: prop::sample::Index, byte: u8,
    ) {
        let messages = [frame.message.as_ref().map(encode_uplink), other.message.as_ref().map(encode_downlink)];
        let encoded = messages.into_iter().flatten().chain([frame.encode(), other.encode()]);
        for mut bytes in encoded.filter(|bytes| !bytes.is_empty()) {
            prop_assert!(decoding(&bytes) <= worth(&bytes));
            let place = place.index(bytes.len());
            bytes[place] = byte;
            prop_assert!(decoding(&bytes) <= worth(&bytes), "{} of {}", decoding(&bytes), bytes.len());
        }
    }
}

#[test]
fn a_declared_length_without_the_bytes_allocates_nothing_for_it() {
    // An upload whose packed matrix says that it has 2^35 bytes, then one whose vector does.
    let huge = [0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    for field in [0x1a, 0x12, 0x22] {
        let evidence: Vec<u8> = [field].into_iter().chain(huge).collect();
        let upload: Vec<u8> = [0x22, evidence.len() as u8].into_iter().chain(evidence).collect();
        let uplink: Vec<u8> = [0x0a, upload.len() as u8].into_iter().chain(upload).collect();
        assert!(decode_uplink(&uplink).is_err());
        assert!(decoding(&uplink) <= worth(&uplink), "{}", decoding(&uplink));
    }
    let many_pivots = {
        let factor: Vec<u8> = [0x0a, 100].into_iter().chain([7; 100]).collect();
        let evidence: Vec<u8> = [0x22, factor.len() as u8].into_iter().chain(factor).collect();
        let upload: Vec<u8> = [0x22, evidence.len() as u8].into_iter().chain(evidence).collect();
        [0x0a, upload.len() as u8].into_iter().chain(upload).collect::<Vec<u8>>()
    };
    assert!(decode_uplink(&many_pivots).is_err());
    assert!(decoding(&many_pivots) <= worth(&many_pivots));
}

#[test]
fn a_coordinator_of_a_hundred_thousand_agents_holds_less_than_a_hundred_bytes_an_agent() {
    const AGENTS: u64 = 100_000;
    let algorithm = Algorithm::AsyncLinUcb(AsyncLinUcb::default());
    let mut coordinator = algorithm.coordinator(Shape::shared(25)).unwrap();
    let before = HELD.get();
    for agent in 0..AGENTS {
        coordinator.join(NOW, AgentId(agent), posse_core::Entrance::NewLife);
    }
    let held = (HELD.get() - before) as f64 / AGENTS as f64;
    assert!(held > 8.0, "{held} bytes an agent: was anything counted?");
    assert!(held < 100.0, "{held} bytes an agent");
}

#[test]
fn an_agent_at_rest_holds_its_own_observations_and_little_else() {
    const AGENTS: u64 = 200;
    let d = 25;
    let algorithm = Algorithm::AsyncLinUcb(AsyncLinUcb { protocol: silent(), ..Default::default() });
    let federation = Federation { agents: AGENTS, horizon: 1000, seed: Seed(3) };
    let mut stream = Seed(5).stream("observations", 0, 0);
    let mut x = vec![0.0; d];
    let mut evidence = Evidence::none(d);
    for _ in 0..100 {
        stream.fill_normal(&mut x);
        evidence.observe(&x, 1.0).unwrap();
    }
    let evidence = Arc::new(evidence);
    let before = HELD.get();
    let each = || (HELD.get() - before) as f64 / AGENTS as f64;
    let mut agents: Vec<_> = (0..AGENTS)
        .map(|agent| algorithm.agent(AgentId(agent), Shape::shared(d), &federation).unwrap())
        .collect();
    for agent in &mut agents {
        let (version, evidence) = (Version(1), Arc::clone(&evidence));
        let snapshot = Snapshot { authoritative: false, version, contains: 0, information: 9.0, evidence };
        agent.receive(Downlink::Snapshot(snapshot)).unwrap();
        for _ in 0..3 {
            stream.fill_normal(&mut x);
            agent.learn(UserId(0), &x, 1.0).unwrap();
        }
    }
    let awake = each();
    agents.iter_mut().for_each(|agent| agent.rest());
    let resting = each();
    // Three observations of 26 numbers are 624 bytes, and there may be room for a fourth; a model has 4 kB, a sum of evidence
    // 2.8 kB.
    assert!((5000.0..6500.0).contains(&awake), "{awake} bytes an agent");
    assert!((624.0..1450.0).contains(&resting), "{resting} bytes an agent");
    agents.iter_mut().for_each(|agent| drop(agent.learn(UserId(0), &x, 1.0).unwrap()));
    assert!(each() > 5000.0, "an agent that wakes up has its model again");
}
