//! Copies of an agent's state: only the process that joined last speaks, and a copy that missed something is recognised.
//!
//! Messages are carried by hand, so that each test is one order of events and not what the machine makes of it.

use std::path::{Path, PathBuf};

use posse_core::session::UpFrame;
use posse_core::{AgentId, Algorithm, Arms, Epoch, Incarnation, SyncLinUcb, Threshold, TimeSpan, UserId};
use posse_net::agent::Carriage;
use posse_net::coordinator::{Options, Running, ServeConfig, serve};
use posse_net::federation::FederationConfig;
use posse_net::v1::coordinator_client::CoordinatorClient;
use posse_net::v1::{JoinReply, JoinRequest, LeaveRequest};
use posse_net::{Agent, AgentConfig, PROTOCOL};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::silence::copy;
use crate::support::{DIMENSION, config, coordinator, federation, look, talkative};

/// A round after every observation.
fn rounds() -> FederationConfig {
    let rounds = SyncLinUcb { round_threshold: Threshold(0.01), ..SyncLinUcb::default() };
    // Nobody is that slow: no round ends without a part.
    FederationConfig { deadline: TimeSpan::from_secs(3600), ..federation(Algorithm::SyncLinUcb(rounds)) }
}

async fn by_hand(running: &Running, agent: u64, state: &Path) -> Agent {
    let by_hand = AgentConfig {
        state: Some(state.into()),
        carriage: Carriage::ByHand,
        ..config(running.address, agent)
    };
    Agent::start(by_hand).await.unwrap()
}

fn learn(agent: &Agent) {
    let arms = Arms::from_rows(DIMENSION, &[[1.0, 0.0, 0.0, 0.0]]).unwrap();
    let chosen = agent.choose(UserId(0), &arms).unwrap();
    agent.reward(chosen.id, 1.0).unwrap();
}

/// Lets each of these agents speak and listen, again and again. Refusals are part of it.
async fn talk(agents: &[&Agent]) {
    for _ in 0..12 {
        for agent in agents {
            let _ = agent.exchange().await;
        }
    }
}

/// An agent that has learned one observation and was asked for its part of a round, which is on its way; and a copy of its state
/// at that moment.
async fn asked_for_its_part(running: &Running, data: &Path) -> (Agent, PathBuf) {
    let (state, old) = (data.join("agent"), data.join("copy"));
    let agent = by_hand(running, 1, &state).await;
    learn(&agent);
    // A hello, and the request for a round, which is answered with the call for parts.
    assert!(agent.exchange().await.unwrap());
    assert!(agent.exchange().await.unwrap());
    copy(&state, &old);
    (agent, old)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_joined_before_another_does_not_take_the_others_words_for_its_own() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), rounds()).await;
    let (original, copied) = asked_for_its_part(&running, data.path()).await;
    // The copy joins, gives the part and hears the end of the round.
    let clone = by_hand(&running, 1, &copied).await;
    talk(&[&clone]).await;
    assert_eq!(look(&running).await.observations, 1);
    // The original was told at its join that nothing had been said yet.
    let other = by_hand(&running, 2, &data.path().join("other")).await;
    learn(&other);
    talk(&[&original, &other, &clone]).await;
    assert_eq!(look(&running).await.observations, 2, "each of the two observations counts once");
    assert!(original.status().superseded.is_some(), "{original:?}");
    let audit = std::fs::read_to_string(data.path().join("federations/test/audit.jsonl")).unwrap();
    let happened = |event: &str| audit.lines().filter(|line| line.contains(event)).count();
    let counts = [happened("\"joined\""), happened("\"took over\""), happened("\"join refused\"")];
    assert_eq!(counts[..2], [2, 1], "{audit}");
    assert!(counts[2] > 0, "{audit}");
    assert_eq!((clone.status().life, clone.status().superseded), (1, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_state_that_missed_the_end_of_a_round_takes_a_new_life() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), rounds()).await;
    let (agent, old) = asked_for_its_part(&running, data.path()).await;
    talk(&[&agent]).await;
    assert_eq!(look(&running).await.observations, 1);
    agent.abort().await;
    // The part on its way from the old state is the one that was accepted. Nothing but the end of the round is missing.
    let old = by_hand(&running, 1, &old).await;
    let other = by_hand(&running, 2, &data.path().join("other")).await;
    learn(&other);
    talk(&[&old, &other]).await;
    assert_eq!(look(&running).await.observations, 2, "each of the two observations counts once");
    assert_eq!((old.status().life, old.status().superseded.clone()), (2, None));
    learn(&old);
    talk(&[&old, &other]).await;
    assert_eq!(look(&running).await.observations, 3, "the new life is heard");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_state_of_an_epoch_that_ended_takes_a_new_life() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), rounds()).await;
    let third = by_hand(&running, 3, &data.path().join("third")).await;
    talk(&[&third]).await;
    let (agent, old) = asked_for_its_part(&running, data.path()).await;
    talk(&[&agent, &third]).await;
    assert_eq!(look(&running).await.observations, 1);
    running.federations[0].retract(AgentId(3)).await.unwrap().expect("it is known");
    talk(&[&agent]).await;
    agent.abort().await;
    // A round waits for the agent's part when the old state greets in the epoch that it knows.
    let other = by_hand(&running, 2, &data.path().join("other")).await;
    talk(&[&other]).await;
    learn(&other);
    talk(&[&other]).await;
    let old = by_hand(&running, 1, &old).await;
    talk(&[&old, &other]).await;
    assert_eq!(look(&running).await.observations, 2, "each of the two observations counts once");
    assert_eq!((old.status().life, old.status().superseded.clone()), (2, None));
}

/// A client that speaks for agent 1 without being an agent.
struct Client(CoordinatorClient<Channel>);

impl Client {
    async fn of(running: &Running) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
        Self(CoordinatorClient::new(endpoint.connect().await.unwrap()))
    }

    fn request<T>(instance: Option<u64>, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("posse-agent", "1".parse().unwrap());
        if let Some(instance) = instance {
            request.metadata_mut().insert("posse-instance", instance.to_string().parse().unwrap());
        }
        request
    }

    async fn join(&mut self, instance: u64, previous: &[u64], life: u64) -> JoinReply {
        let join = JoinRequest {
            protocol: PROTOCOL,
            resumes: life > 0,
            instance,
            previous: previous.to_vec(),
            life,
            ..JoinRequest::default()
        };
        self.0.join(Self::request(None, join)).await.unwrap().into_inner()
    }

    async fn exchange(&mut self, instance: Option<u64>, frame: UpFrame) -> Result<usize, Status> {
        let reply = self.0.exchange(Self::request(instance, frame.to_wire())).await?;
        Ok(reply.into_inner().frames.len())
    }

    /// Says hello over a link, and returns whether it is answered.
    async fn link(&mut self, instance: Option<u64>) -> Result<bool, Status> {
        // The link ends when the sender is dropped.
        let (sender, frames) = tokio::sync::mpsc::channel(1);
        sender.try_send(hello(0, 1).to_wire()).expect("there is room for one");
        let request = Self::request(instance, ReceiverStream::new(frames));
        Ok(self.0.link(request).await?.into_inner().message().await?.is_some())
    }

    async fn leave(&mut self, instance: Option<u64>) -> Result<(), Status> {
        self.0.leave(Self::request(instance, LeaveRequest {})).await.map(drop)
    }
}

fn hello(epoch: u64, greeting: u64) -> UpFrame {
    UpFrame {
        epoch: Epoch(epoch),
        incarnation: Incarnation(1),
        acknowledged: 0,
        sequence: 0,
        message: None,
        greeting,
    }
}

fn assert_must_join<T: std::fmt::Debug>(answer: Result<T, Status>) {
    let refused = answer.unwrap_err();
    let reason = refused.metadata().get("posse-reason").map(|reason| reason.to_str().unwrap());
    assert_eq!((refused.code(), reason), (Code::Aborted, Some("not-joined")), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_process_that_joined_last_is_heard_by_whichever_call() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), talkative()).await;
    let mut client = Client::of(&running).await;
    assert_eq!(client.join(10, &[], 0).await.incarnation, 1);
    assert!(client.exchange(Some(10), hello(0, 1)).await.unwrap() > 0);
    assert!(client.link(Some(10)).await.unwrap());
    // A second process with the same state. What the first one was told at its join is not true any more.
    client.join(20, &[10], 1).await;
    assert_must_join(client.exchange(Some(10), hello(0, 1)).await);
    assert_must_join(client.link(Some(10)).await);
    assert_must_join(client.leave(Some(10)).await);
    assert!(client.exchange(Some(20), hello(0, 1)).await.unwrap() > 0);
    assert!(client.link(Some(20)).await.unwrap());
    // Agents of earlier versions do not say which process they are.
    assert!(client.exchange(None, hello(0, 1)).await.unwrap() > 0);
    // A coordinator that was started again does not know yet who joined.
    let again = ServeConfig::on_loopback(data.path(), vec![talkative()]);
    running.drain().await;
    let running = serve(again, Options::default()).await.unwrap();
    let mut client = Client::of(&running).await;
    assert_must_join(client.exchange(Some(20), hello(0, 1)).await);
    client.join(20, &[], 1).await;
    assert!(client.exchange(Some(20), hello(0, 1)).await.unwrap() > 0);
    client.leave(Some(20)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_that_was_overtaken_on_its_way_does_not_silence_a_sound_agent() {
    let data = tempfile::tempdir().unwrap();
    let running = coordinator(data.path(), rounds()).await;
    let third = by_hand(&running, 3, &data.path().join("third")).await;
    talk(&[&third]).await;
    let mut client = Client::of(&running).await;
    client.join(10, &[], 0).await;
    client.exchange(Some(10), hello(0, 1)).await.unwrap();
    running.federations[0].retract(AgentId(3)).await.unwrap().expect("it is known");
    // It hears what the new epoch begins with, and says so; then its first hello comes a second time.
    client.join(10, &[], 1).await;
    assert_eq!(client.exchange(Some(10), hello(0, 2)).await.unwrap(), 1);
    let received = UpFrame { acknowledged: 1, greeting: 0, ..hello(1, 0) };
    client.exchange(Some(10), received.clone()).await.unwrap();
    assert_eq!(client.exchange(Some(10), hello(0, 2)).await.unwrap(), 0);
    let next = UpFrame { greeting: 3, ..received };
    assert_eq!(client.exchange(Some(10), next).await.unwrap(), 1);
}
