//! The audit: what the coordinator of a private federation can learn. Coordinator and agents are processes; the coordinator is
//! the adversary, and what it knows is its log.
//!
//! Every attack has a planted leak in the same channel, which it must find. `cargo xtask audit` runs the same attacks on more agents.
#![allow(
    clippy::print_stdout,
    reason = "an audit prints the bounds that it proved: `cargo xtask audit` shows them"
)]

use std::fs;
use std::path::Path;
use std::process::Stdio;

use posse_core::wire::v1;
use prost::Message;
use serde_json::{Value, json};

use crate::support::{Process, call, posse};

/// What the federations under attack state.
const EPSILON: f64 = 1.0;
const DELTA: f64 = 1e-3;

/// How many agents are attacked in each statistical attack, half of them in each of two worlds.
fn agents() -> u64 {
    let asked = std::env::var("POSSE_AUDIT_AGENTS").ok();
    asked.map_or(24, |number| number.parse().expect("POSSE_AUDIT_AGENTS is a number of agents"))
}

/// A coordinator with `federations` federations of this algorithm, named f0, f1 …
struct Attacked {
    directory: tempfile::TempDir,
    coordinator: Process,
}

impl Attacked {
    fn start(algorithm: &str, federations: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let federation = |number: u64| {
            format!(
                "[[federation]]\nname = \"f{number}\"\ndimension = 2\n[federation.algorithm]\n{algorithm}\n"
            )
        };
        let head =
            "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\ndata = \"data\"\nauthentication = \"none\"\n";
        let text = [head.to_owned()].into_iter().chain((0..federations).map(federation)).collect::<String>();
        fs::write(directory.path().join("federation.toml"), text).unwrap();
        let coordinator = serve(directory.path());
        Self { directory, coordinator }
    }

    fn arguments(&self, federation: u64, agent: u64, more: &[&str]) -> Vec<String> {
        let (name, number) = (format!("f{federation}"), agent.to_string());
        let own =
            ["agent", "--federation", &name, "--agent", &number, "--coordinator", &self.coordinator.url];
        let listen = ["--listen", "127.0.0.1:0"];
        own.iter().chain(&listen).chain(more).map(|word| (*word).to_owned()).collect()
    }

    fn agent(&self, federation: u64, agent: u64, more: &[&str]) -> Process {
        Process::start(self.directory.path(), posse().args(self.arguments(federation, agent, more)))
    }

    /// What the agents of a federation said, by agent, in order.
    fn log(&self, federation: u64) -> Vec<(u64, v1::uplink::Kind)> {
        let place = self.directory.path().join("data/federations").join(format!("f{federation}"));
        let Ok(contents) = posse_net::log::read(&place) else { return Vec::new() };
        let said = |bytes: &Vec<u8>| {
            let entry = v1::LogEntry::decode(&bytes[..]).unwrap();
            let Some(v1::log_entry::Event::Accepted(frame)) = entry.event else { return None };
            Some((entry.agent, frame.message?.kind?))
        };
        contents.entries.iter().filter_map(said).collect()
    }

    /// The releases of clusters among it.
    fn releases(&self, federation: u64) -> Vec<(u64, v1::ClusterUpload)> {
        let said = self.log(federation).into_iter();
        said.filter_map(|(agent, kind)| match kind {
            v1::uplink::Kind::Cluster(upload) => Some((agent, upload)),
            _ => None,
        })
        .collect()
    }

    /// Waits until the coordinator knows what is asked for.
    fn until<T>(&self, known: impl Fn(&Self) -> Option<T>) -> T {
        for _ in 0..2_000_000 {
            if let Some(found) = known(self) {
                return found;
            }
            std::thread::yield_now();
        }
        panic!("the coordinator never heard of it");
    }
}

fn serve(directory: &Path) -> Process {
    Process::start(directory, posse().args(["serve", "--config", "federation.toml"]))
}

fn choose(agent: &Process, user: u64, arm: [f64; 2]) -> Value {
    let asked = json!({ "user": user, "arms": [arm] });
    let (status, chosen) = call(agent.address(), "POST", "/choose", &asked).expect("an answer");
    assert_eq!(status, 200, "{chosen}");
    chosen["id"].clone()
}

fn interact(agent: &Process, user: u64, arm: [f64; 2], reward: f64) {
    let rewarded = json!({ "id": choose(agent, user, arm), "reward": reward });
    let (status, answer) = call(agent.address(), "POST", "/reward", &rewarded).expect("an answer");
    assert_eq!(status, 200, "{answer}");
}

fn health(agent: &Process) -> Value {
    call(agent.address(), "GET", "/healthz", &Value::Null).expect("an answer").1
}

/// The probability of at least `hits` of `n` when each is one with probability `p`.
fn at_least(hits: u64, n: u64, p: f64) -> f64 {
    let (mut term, mut sum) = (n as f64 * libm::log1p(-p), 0.0);
    for k in 0..=n {
        if k >= hits {
            sum += libm::exp(term);
        }
        term += libm::log((n - k) as f64 / (k + 1) as f64 * p / (1.0 - p));
    }
    sum
}

/// The smallest rate that explains `hits` of `n`, but for a probability of 2.5 % (Clopper and Pearson, 1934).
fn lowest_rate(hits: u64, n: u64) -> f64 {
    if hits == 0 {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 1.0 - 1e-12);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if at_least(hits, n, middle) < 0.025 { low = middle } else { high = middle }
    }
    low
}

/// What guesses of one bit prove about ε with a confidence of 95 %: of `n` runs in each world, `hits` were guessed to be in the first
/// world and were, `alarms` were guessed to be in it and were not.
fn proven_epsilon(hits: u64, alarms: u64, n: u64) -> f64 {
    let bound = |hits: u64, alarms: u64| {
        let most = 1.0 - lowest_rate(n - alarms, n);
        libm::log(((lowest_rate(hits, n) - DELTA) / most).max(1e-9))
    };
    bound(hits, alarms).max(bound(n - alarms, n - hits)).max(0.0)
}

fn private(epsilon: f64, more: &str) -> String {
    format!(
        "name = \"async-lin-ucb\"\n[federation.algorithm.privacy]\nepsilon = {epsilon:e}\ndelta = {DELTA:e}\n{more}"
    )
}

/// Every agent has one interaction and releases it; the coordinator guesses whether its reward was 1 or −1.
fn canaries(epsilon: f64) -> f64 {
    let attacked = Attacked::start(&private(epsilon, "first_release = 1\nmax_releases = 1"), 1);
    for id in 0..agents() {
        let agent = attacked.agent(0, id, &[]);
        interact(&agent, 0, [0.6, 0.8], if id % 2 == 0 { 1.0 } else { -1.0 });
        attacked.until(|known| (known.releases(0).len() as u64 > id).then_some(()));
        agent.kill();
    }
    let looks_high = |upload: &v1::ClusterUpload| {
        let moment = &upload.evidence.as_ref().unwrap().moment;
        0.6 * moment[0] + 0.8 * moment[1] > 0.0
    };
    let releases = attacked.releases(0);
    let guessed = |bit: u64| releases.iter().filter(|(agent, up)| agent % 2 == bit && looks_high(up)).count();
    proven_epsilon(guessed(0) as u64, guessed(1) as u64, agents() / 2)
}

#[test]
fn audit_of_canaries_proves_no_more_than_is_stated_and_finds_too_little_noise() {
    let proven = canaries(EPSILON);
    println!("canaries: ε ≥ {proven:.3} is proven where ε = {EPSILON} is stated");
    assert!(proven <= EPSILON, "{proven}");
    // The planted leak: noise of ε = 100 under a statement of 1.
    let leaking = canaries(100.0);
    println!("canaries, planted leak: ε ≥ {leaking:.3}");
    assert!(leaking > EPSILON, "{leaking}");
}

/// Networks that release one update of nine numbers after one interaction.
fn networks(epsilon: f64) -> String {
    format!(
        "name = \"fn-ucb\"\nhidden_width = 2\ntraining_steps = 1\nupdate_steps = 10\nupdate_bound = 0.05\n\
         [federation.algorithm.privacy]\nunit = \"agent\"\nepsilon = {epsilon:e}\ndelta = {DELTA:e}\nfirst_release = 1\nmax_releases = 1"
    )
}

/// Every agent saw one interaction with a reward of 4 or of −4, and that is all it saw; the coordinator knows what either would have
/// made of the network, and guesses from the update in its log. Each agent is alone in a federation, so that no round waits
/// for those that were killed.
fn updates(epsilon: f64) -> f64 {
    let update = |attacked: &Attacked, federation: u64, reward: f64| -> Vec<f64> {
        let agent = attacked.agent(federation, 0, &[]);
        interact(&agent, 0, [0.6, 0.8], reward);
        let update = attacked.until(|known| {
            known.log(federation).into_iter().find_map(|(_, kind)| match kind {
                v1::uplink::Kind::NetworkPart(part) if part.trained => Some(part),
                _ => None,
            })
        });
        agent.kill();
        assert!(update.moment.is_empty() && update.weights.len() == 9, "nothing but the update: {update:?}");
        update.weights
    };
    let exact = Attacked::start(&networks(1e12), 2);
    let (high, low) = (update(&exact, 0, 4.0), update(&exact, 1, -4.0));
    let middle: f64 = high.iter().zip(&low).map(|(a, b)| 0.5 * (a * a - b * b)).sum();
    let attacked = Attacked::start(&networks(epsilon), agents());
    let mut guessed = [0, 0];
    for run in 0..agents() {
        let world = (run % 2) as usize;
        let seen = update(&attacked, run, [4.0, -4.0][world]);
        let along: f64 = seen.iter().zip(high.iter().zip(&low)).map(|(v, (a, b))| v * (a - b)).sum();
        guessed[world] += u64::from(along > middle);
    }
    proven_epsilon(guessed[0], guessed[1], agents() / 2)
}

#[test]
fn audit_of_updates_proves_no_more_than_is_stated_and_finds_too_little_noise() {
    let proven = updates(EPSILON);
    println!("updates: ε ≥ {proven:.3} is proven where ε = {EPSILON} is stated");
    assert!(proven <= EPSILON, "{proven}");
    // The planted leak: noise of ε = 100 under a statement of 1.
    let leaking = updates(100.0);
    println!("updates, planted leak: ε ≥ {leaking:.3}");
    assert!(leaking > EPSILON, "{leaking}");
}

/// In how many of `runs` federations with two users an agent's cluster split, and one reward of user 1 was `last` instead of `usual`.
fn splits(algorithm: &str, rounds: u64, usual: f64, last: f64, runs: u64, phase: u64) -> u64 {
    let attacked = Attacked::start(algorithm, runs);
    let mut split = 0;
    for run in 0..runs {
        let agent = attacked.agent(run, 0, &[]);
        for round in 1..=rounds {
            interact(&agent, 0, [1.0, 0.0], 1.0);
            interact(&agent, 1, [1.0, 0.0], if round == rounds { last } else { usual });
        }
        split += attacked.until(|known| {
            let mut lists = known.log(run).into_iter().filter_map(|(_, kind)| match kind {
                v1::uplink::Kind::Clusters(list) if list.phase == phase => Some(list),
                _ => None,
            });
            lists.next_back().map(|list| u64::from(list.kept.len() + list.uploads.len() > 1))
        });
        agent.kill();
    }
    split
}

#[test]
fn audit_of_splits_proves_no_more_than_is_stated_and_finds_raw_sums() {
    // Releases of users decide, with nearly the whole budget and no margin for chance.
    let private = format!(
        "name = \"cdp-fclub-dc\"\nedge_scale = 0\nepsilon = {EPSILON:e}\ndelta = {DELTA:e}\nfirst_release = 20\n\
         edge_first = 5\nedge_share = 0.9\nedge_releases = 1"
    );
    let half = agents() / 2;
    let [far, near] = [-1.0, 1.0].map(|last| splits(&private, 10, 0.9, last, half, 4));
    let proven = proven_epsilon(far, near, half);
    println!("splits: {far} and {near} of {half}, ε ≥ {proven:.3} where ε = {EPSILON} is stated");
    assert!(proven <= EPSILON, "{proven}");
    // The planted leak: raw sums decide, and one reward of 126 is enough.
    let public = "name = \"fclub\"\nedge_scale = 1";
    let [far, near] = [-1.0, 1.0].map(|last| splits(public, 63, 0.438, last, 1, 7));
    assert_eq!((far, near), (1, 0), "one reward decides");
    println!(
        "splits, planted leak: ε ≥ {:.3} if {half} of {half} split alike",
        proven_epsilon(half, 0, half)
    );
    assert!(proven_epsilon(half, 0, half) > EPSILON, "so many alike would prove it");
}

#[test]
fn audit_of_policies_finds_nothing_said_to_a_coordinator_that_promises_less() {
    let attacked = Attacked::start(&private(1e30, "first_release = 1"), 1);
    let require = ["--require-privacy", "--max-epsilon", "1", "--max-delta", "1e-3", "--unit", "interaction"];
    let mut refused = posse();
    refused.args(attacked.arguments(0, 0, &require)).current_dir(attacked.directory.path());
    let ended = refused.stdout(Stdio::null()).output().unwrap();
    let why = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && why.contains("ε = 1e30"), "{why}");
    assert_eq!(attacked.log(0), [], "nothing was said");
    // The planted leak: an agent without a policy. The coordinator reads its features and its reward off the log.
    let careless = attacked.agent(0, 1, &[]);
    interact(&careless, 0, [0.6, 0.8], 0.5);
    let (_, upload) = attacked.until(|known| known.releases(0).into_iter().next());
    let moment = upload.evidence.unwrap().moment;
    assert!((moment[0] - 0.3).abs() < 1e-3 && (moment[1] - 0.4).abs() < 1e-3, "{moment:?}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn audit_of_restored_states_finds_no_node_released_twice() {
    let attacked = Attacked::start(&private(EPSILON, "first_release = 3"), 1);
    let place = attacked.directory.path().to_owned();
    let before = attacked.agent(0, 0, &["--state", "state"]);
    (0..2).for_each(|_| interact(&before, 0, [0.6, 0.8], 1.0));
    assert_eq!(before.terminate(), Some(0));
    copy(&place.join("state"), &place.join("copy"));
    let after = attacked.agent(0, 0, &["--state", "state"]);
    interact(&after, 0, [0.6, 0.8], 1.0);
    let first = attacked.until(|known| known.releases(0).into_iter().next());
    assert_eq!(after.terminate(), Some(0));
    let old = attacked.agent(0, 0, &["--state", "copy", "--new-life"]);
    interact(&old, 0, [0.6, 0.8], 1.0);
    attacked.until(|_| (health(&old)["life"] == json!(2)).then_some(()));
    assert_eq!(
        attacked.releases(0),
        std::slice::from_ref(&first),
        "its first three interactions were released once"
    );
    old.kill();
    // The planted leak: an agent without its state that sees the same interactions once more releases them with other noise.
    let forgetful = attacked.agent(0, 0, &[]);
    (0..3).for_each(|_| interact(&forgetful, 0, [0.6, 0.8], 1.0));
    let second = attacked.until(|known| known.releases(0).into_iter().nth(1));
    let counts = [&first, &second].map(|(_, upload)| upload.evidence.as_ref().unwrap().count);
    assert_eq!(counts, [3, 3], "the same three interactions");
    assert_ne!(second.1.evidence, first.1.evidence, "both together tell more than was stated for one life");
    let statement = call(forgetful.address(), "GET", "/privacy", &Value::Null).unwrap().1;
    assert!(
        statement["uncovered"].to_string().contains("earlier lives"),
        "and the statement says so: {statement}"
    );
}

#[test]
fn audit_of_counts_finds_choices_without_a_reward_among_the_others() {
    let attacked = Attacked::start(&private(EPSILON, "first_release = 3"), 2);
    let patient = attacked.agent(0, 0, &["--expire-after", "0.001"]);
    let released = attacked.until(|known| {
        choose(&patient, 0, [0.6, 0.8]);
        known.releases(0).into_iter().next()
    });
    assert!(released.1.evidence.unwrap().count >= 3, "counted, although no reward ever came");
    // The planted leak: choices wait for ever, and three without a reward are not counted where three with one are.
    let careless = attacked.agent(1, 0, &[]);
    (0..3).for_each(|_| drop(choose(&careless, 0, [0.6, 0.8])));
    let statement = call(careless.address(), "GET", "/privacy", &Value::Null).unwrap().1;
    assert!(
        statement["uncovered"].to_string().contains("reward at all"),
        "and the statement says so: {statement}"
    );
    (0..3).for_each(|_| interact(&careless, 0, [0.6, 0.8], 1.0));
    let (_, upload) = attacked.until(|known| known.releases(1).into_iter().next());
    assert_eq!(upload.evidence.unwrap().count, 3, "six choices, of which three show");
}
