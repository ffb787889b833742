//! The class `Connection`: an agent of a running federation. `posse._live` puts the documented class around it.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use posse_core::privacy::{PrivacyPolicy, Unit};
use posse_net::agent::{AgentError, AgentTls, Carriage, ChooseError, RewardError};
use posse_net::{Agent, AgentConfig, Arms, UserId};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::runtime::Runtime;

use crate::array::{Offer, number};
use crate::error::{config, connect, input, wrong_input};
use crate::settings::Whole;

/// The threads that carry messages, of all agents of this process.
static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// How long Ctrl-C waits at most while an agent connects.
const LOOK: Duration = Duration::from_millis(50);

fn runtime() -> PyResult<Arc<Runtime>> {
    let mut kept = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((owner, runtime)) = kept.take() {
        if owner == process {
            *kept = Some((owner, Arc::clone(&runtime)));
            return Ok(runtime);
        }
        // It is the parent's: its threads do not exist in this process, so that ending it would wait for ever.
        std::mem::forget(runtime);
    }
    let made = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("posse-agent")
        .enable_all()
        .build()
        .map_err(|error| connect(format!("cannot start a thread: {error}")))?;
    let made = Arc::new(made);
    *kept = Some((process, Arc::clone(&made)));
    Ok(made)
}

/// An agent of a running federation.
#[pyclass(frozen, module = "posse._posse")]
pub(crate) struct Connection {
    agent: Mutex<Option<Agent>>,
    runtime: Arc<Runtime>,
    /// The process that connected; a forked child has none of the threads that carry messages.
    process: u32,
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| config(format!("`{name}` is {value}: expected a time in seconds")))
}

fn policy(required: &Bound<'_, PyDict>) -> PyResult<PrivacyPolicy> {
    let mut policy = PrivacyPolicy::default();
    for (key, value) in required {
        match key.extract::<String>()?.as_str() {
            "max_epsilon" => policy.max_epsilon = value.extract()?,
            "max_delta" => policy.max_delta = value.extract()?,
            "unit" => {
                policy.unit = match value.extract::<String>()?.as_str() {
                    "agent" => Unit::Agent,
                    "user" => Unit::User,
                    "interaction" => Unit::Interaction,
                    other => {
                        return Err(config(format!(
                            "`unit` is {other}: expected interaction, user or agent"
                        )));
                    }
                }
            }
            other => {
                return Err(config(format!(
                    "unknown key `{other}` for privacy: its keys are max_epsilon, max_delta, unit"
                )));
            }
        }
    }
    Ok(policy)
}

/// Connect an agent to a coordinator. Returns once the rules of the federation are known.
#[pyfunction]
#[pyo3(signature = (url, *, token = None, token_file = None, ca = None, certificate = None, key = None, state = None,
    federation = None, agent = None, local_features = Whole::of(0), expire_after = None, default_reward = None,
    exchange_every = None, new_life = false, privacy = None, timeout = 10.0))]
#[allow(clippy::too_many_arguments, reason = "only the Python package calls it, with names")]
pub(crate) fn open_connection(
    py: Python<'_>,
    url: String,
    token: Option<String>,
    token_file: Option<PathBuf>,
    ca: Option<Vec<u8>>,
    certificate: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    state: Option<PathBuf>,
    federation: Option<String>,
    agent: Option<Whole>,
    local_features: Whole,
    expire_after: Option<f64>,
    default_reward: Option<f64>,
    exchange_every: Option<f64>,
    new_life: bool,
    privacy: Option<&Bound<'_, PyDict>>,
    timeout: f64,
) -> PyResult<Connection> {
    if exchange_every.is_some_and(|every| every <= 0.0) {
        return Err(config("`exchange_every` must be above 0 seconds"));
    }
    let settings = AgentConfig {
        coordinator: url,
        federation,
        token,
        token_file,
        agent: agent.map(|agent| agent.number("agent")).transpose()?,
        state,
        local_features: local_features.size("local_features")?,
        expire_after: expire_after.map(|value| seconds("expire_after", value)).transpose()?,
        default_reward,
        carriage: exchange_every
            .map(|value| seconds("exchange_every", value))
            .transpose()?
            .map_or(Carriage::Link, Carriage::Exchange),
        policy: privacy.map(policy).transpose()?,
        new_life_if_superseded: new_life,
        tls: AgentTls { authority: ca, identity: certificate.zip(key), name: None },
        ..AgentConfig::default()
    };
    let (limit, runtime) = (seconds("timeout", timeout)?, runtime()?);
    let (sender, mut receiver) = channel();
    let start = runtime.spawn(async move {
        // If the caller gave up, the agent is dropped, which stops it.
        let _ = sender.send(Agent::start(settings).await);
    });
    let begun = Instant::now();
    let started = loop {
        let waiting = &mut receiver;
        let received = py.detach(move || waiting.recv_timeout(LOOK));
        match received {
            Ok(started) => break started,
            Err(RecvTimeoutError::Disconnected) => return Err(connect("the agent ended while it started")),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let waited = py.check_signals().and_then(|()| {
            if begun.elapsed() < limit {
                return Ok(());
            }
            Err(connect(format!("the coordinator did not answer within {timeout} seconds")))
        });
        if let Err(error) = waited {
            start.abort();
            return Err(error);
        }
    };
    let agent = started.map_err(|error| match error {
        AgentError::Config(error) => config(error.to_string()),
        other => connect(other.to_string()),
    })?;
    Ok(Connection { agent: Mutex::new(Some(agent)), runtime, process: std::process::id() })
}

impl Connection {
    fn agent(&self) -> PyResult<Agent> {
        if std::process::id() != self.process {
            return Err(connect(
                "this agent was connected before the process forked: connect in the child, as an agent of its own",
            ));
        }
        let agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        agent.clone().ok_or_else(|| connect("the agent was closed"))
    }

    /// Waits without the interpreter's lock, and looks at Ctrl-C now and then.
    fn wait<T: Send>(&self, py: Python<'_>, work: impl Future<Output = T> + Send) -> PyResult<T> {
        let mut work = Box::pin(work);
        loop {
            let waiting = work.as_mut();
            let done =
                py.detach(|| self.runtime.block_on(async { tokio::time::timeout(LOOK, waiting).await }));
            if let Ok(done) = done {
                return Ok(done);
            }
            py.check_signals()?;
        }
    }
}

#[pymethods]
impl Connection {
    fn id(&self) -> PyResult<u64> {
        Ok(self.agent()?.id().0)
    }

    fn dimension(&self) -> PyResult<usize> {
        Ok(self.agent()?.dimension())
    }

    /// The name of the choice, the index of the arm, and its probability if that is known.
    fn choose(
        &self,
        py: Python<'_>,
        arms: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] user: u64,
        wait: f64,
    ) -> PyResult<(String, usize, Option<f64>)> {
        let (agent, offer) = (self.agent()?, Offer::read(arms)?);
        let mut filled = Arms::new(agent.dimension());
        offer.fill(&mut filled)?;
        let (user, limit) = (UserId(user), seconds("wait", wait)?);
        let chosen = if limit.is_zero() {
            py.detach(|| agent.choose(user, &filled))
        } else {
            self.wait(py, agent.choose_after_news(user, &filled, limit))?
        };
        let chosen = chosen.map_err(|error| match error {
            ChooseError::Input(error) => input(&error),
            other => connect(other.to_string()),
        })?;
        Ok((chosen.id.to_string(), chosen.arm, chosen.propensity))
    }

    fn reward(&self, py: Python<'_>, id: &str, reward: f64) -> PyResult<()> {
        let (agent, id) = (self.agent()?, id.parse().map_err(|error: &str| wrong_input(error))?);
        py.detach(|| agent.reward(id, reward)).map_err(|error| match error {
            RewardError::Input(error) => input(&error),
            RewardError::Unknown(_) => wrong_input(error.to_string()),
            other => connect(other.to_string()),
        })
    }

    /// Counts and the state of the link.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let agent = self.agent()?;
        let (status, settled) = (agent.status(), agent.is_settled());
        let dict = PyDict::new(py);
        dict.set_item("life", status.life)?;
        dict.set_item("connected", status.connected)?;
        dict.set_item("settled", settled)?;
        dict.set_item("trouble", status.trouble)?;
        dict.set_item("superseded", status.superseded)?;
        dict.set_item("set_aside", status.set_aside)?;
        dict.set_item("last_refusal", status.last_refusal)?;
        dict.set_item("pending", status.pending)?;
        dict.set_item("choices", status.choices)?;
        dict.set_item("rewards", status.rewards)?;
        dict.set_item("expired", status.expired)?;
        dict.set_item("uplinks", status.uplinks)?;
        dict.set_item("downlinks", status.downlinks)?;
        dict.set_item("bytes", status.bytes)?;
        Ok(dict)
    }

    /// What may be claimed about privacy, as JSON, or None if nothing was promised.
    fn privacy(&self) -> PyResult<Option<String>> {
        let report = self.agent()?.privacy();
        let written = report.map(|report| serde_json::to_string(&report.statement())).transpose();
        written.map_err(|error| connect(error.to_string()))
    }

    /// Wait at most `seconds` until the coordinator has answered everything. Returns whether it has.
    fn settle(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let (agent, limit) = (self.agent()?, self::seconds("seconds", seconds)?);
        self.wait(py, async { tokio::time::timeout(limit, agent.settled()).await.is_ok() })
    }

    fn take_new_life(&self) -> PyResult<()> {
        self.agent()?.take_new_life();
        Ok(())
    }

    /// Stop carrying messages and save the state. Doing it twice does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if std::process::id() != self.process {
            return Ok(());
        }
        let agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner).take();
        let closed = agent.map(|agent| py.detach(|| self.runtime.block_on(agent.close())));
        closed.transpose().map(|_| ()).map_err(|error| connect(error.to_string()))
    }
}
