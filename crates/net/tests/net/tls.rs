//! TLS: certificates on the coordinator's side, and on the agents' where they are asked for.

use posse_net::agent::{AgentError, AgentTls, Carriage};
use posse_net::coordinator::{Options, Running, ServeConfig, TlsFiles, serve};
use posse_net::{Agent, AgentConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::support::{config, in_a_minute, interact, talkative};

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// A certificate and its key.
    fn vouch(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.into()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn pem(&self) -> String {
        self.issuer.pem()
    }
}

async fn coordinator(data: &std::path::Path, authority: &Authority, mutual: bool) -> Running {
    let (certificate, key) = authority.vouch("localhost");
    let write = |name: &str, text: &str| {
        let path = data.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let tls = TlsFiles {
        certificate: write("certificate.pem", &certificate),
        key: write("key.pem", &key),
        client_ca: mutual.then(|| write("ca.pem", &authority.pem())),
    };
    let config = ServeConfig { tls: Some(tls), ..ServeConfig::on_loopback(data, vec![talkative()]) };
    serve(config, Options::default()).await.unwrap()
}

fn agent_config(running: &Running, tls: AgentTls) -> AgentConfig {
    let coordinator = format!("https://localhost:{}", running.address.port());
    AgentConfig { coordinator, tls, ..config(running.address, 2) }
}

/// A state with which an agent starts at once, answer or not. One with `config` must be let in.
async fn member(config: AgentConfig) -> tempfile::TempDir {
    let state = tempfile::tempdir().unwrap();
    let carriage = Carriage::ByHand;
    let settings = AgentConfig { state: Some(state.path().into()), carriage, ..config };
    in_a_minute(Agent::start(settings)).await.unwrap().close().await.unwrap();
    state
}

/// Whether an agent gets an answer when it calls once.
async fn gets_in(config: AgentConfig, state: &tempfile::TempDir) -> bool {
    let carriage = Carriage::ByHand;
    let settings = AgentConfig { state: Some(state.path().into()), carriage, ..config };
    let agent = Agent::start(settings).await.unwrap();
    let answered = agent.exchange().await;
    agent.close().await.unwrap();
    match answered {
        Ok(_) => true,
        // The connection failed; the coordinator itself names its reasons.
        Err(AgentError::Unreachable(_) | AgentError::Refused { reason: None, .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_speak_over_tls_with_whom_they_trust() {
    let data = tempfile::tempdir().unwrap();
    let (authority, stranger) = (Authority::new(), Authority::new());
    let running = coordinator(data.path(), &authority, false).await;
    let trusting = |authority: &Authority| AgentTls {
        authority: Some(authority.pem().into_bytes()),
        ..AgentTls::default()
    };
    let state = member(agent_config(&running, trusting(&authority))).await;
    assert!(gets_in(agent_config(&running, trusting(&authority)), &state).await);
    assert!(!gets_in(agent_config(&running, trusting(&stranger)), &state).await);
    // Without TLS nothing is understood.
    assert!(!gets_in(config(running.address, 2), &state).await);
    assert!(gets_in(agent_config(&running, trusting(&authority)), &state).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn mutual_tls_asks_agents_for_a_certificate() {
    let data = tempfile::tempdir().unwrap();
    let (authority, stranger) = (Authority::new(), Authority::new());
    let running = coordinator(data.path(), &authority, true).await;
    let with = |identity: Option<(String, String)>| AgentTls {
        authority: Some(authority.pem().into_bytes()),
        identity: identity.map(|(certificate, key)| (certificate.into_bytes(), key.into_bytes())),
        name: None,
    };
    let state = member(agent_config(&running, with(Some(authority.vouch("agent"))))).await;
    assert!(gets_in(agent_config(&running, with(Some(authority.vouch("agent")))), &state).await);
    assert!(!gets_in(agent_config(&running, with(None)), &state).await);
    assert!(!gets_in(agent_config(&running, with(Some(stranger.vouch("agent")))), &state).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_replaced_while_the_coordinator_runs_and_broken_ones_are_not_taken() {
    let data = tempfile::tempdir().unwrap();
    let (before, after) = (Authority::new(), Authority::new());
    let running = coordinator(data.path(), &before, false).await;
    let trusting = |authority: &Authority| AgentTls {
        authority: Some(authority.pem().into_bytes()),
        ..AgentTls::default()
    };
    let write = |name: &str, text: &str| {
        let draft = data.path().join("draft");
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(draft, data.path().join(name)).unwrap();
    };
    let linked = Agent::start(agent_config(&running, trusting(&before))).await.unwrap();
    interact(&linked, 0);
    linked.settled().await;
    let state = member(AgentConfig { agent: Some(3), ..agent_config(&running, trusting(&before)) }).await;
    let third = |authority| AgentConfig { agent: Some(3), ..agent_config(&running, trusting(authority)) };
    write("certificate.pem", "this is no certificate");
    running.reload().await;
    assert!(gets_in(third(&before), &state).await, "the old one stays");
    let (certificate, key) = after.vouch("localhost");
    write("certificate.pem", &certificate);
    // The key is still the old one: together they cannot be used.
    running.reload().await;
    assert!(gets_in(third(&before), &state).await);
    write("key.pem", &key);
    running.reload().await;
    assert!(gets_in(third(&after), &state).await);
    assert!(!gets_in(third(&before), &state).await);
    assert_eq!(linked.status().trouble, None, "links that are open stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_names_an_agent_speaks_for_no_other() {
    let data = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let running = coordinator(data.path(), &authority, true).await;
    let with = |name: &str| {
        let (certificate, key) = authority.vouch(name);
        let identity = Some((certificate.into_bytes(), key.into_bytes()));
        AgentTls { authority: Some(authority.pem().into_bytes()), identity, name: None }
    };
    member(agent_config(&running, with("agent-2"))).await;
    let refused = Agent::start(agent_config(&running, with("agent-22"))).await.unwrap_err().to_string();
    assert!(refused.contains("is for agent 22, not for agent 2"), "{refused}");
}
