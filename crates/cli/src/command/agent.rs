//! `posse agent`: an agent beside a service, over HTTP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use posse_core::privacy::{PrivacyPolicy, Unit};
use posse_net::agent::{AgentTls, Carriage, SidecarAccess, sidecar_for, sidecar_on_socket};
use posse_net::{Agent, AgentConfig, Tracer, is_local};
use tokio::net::{TcpListener, UnixListener};

use super::runtime::{LogFormat, Signals, log_to_stderr, runtime};
use super::{Ending, print};
use crate::statement;

/// Run an agent: choose and reward over HTTP, share through a coordinator
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  POSSE_TOKEN=… posse agent --coordinator https://coordinator:7447 --ca ca.pem --state agent-state
  curl -d '{\"arms\": [[1, 0], [0, 1]]}' -H 'content-type: application/json' localhost:7448/choose

Endpoints: POST /choose, POST /reward, POST /new-life, GET /healthz, /privacy, /metrics, /openapi.json.
The token is read from POSSE_TOKEN or --token-file, so that it is in no list of processes.")]
pub(crate) struct Args {
    /// Address of the coordinator; several, with commas between them, for coordinators that take over from each other
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7447")]
    coordinator: String,
    /// Which federation, where there are several
    #[arg(long, value_name = "NAME")]
    federation: Option<String>,
    /// A file with the agent's token, read again for every connection
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Who the agent is, where no tokens are asked for
    #[arg(long, value_name = "NUMBER")]
    agent: Option<u64>,
    /// Address at which the agent listens for requests of applications
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7448")]
    listen: SocketAddr,
    /// A name besides localhost under which applications may ask; repeat it for several
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Listen on a socket in the file system instead of a port
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "host"])]
    listen_socket: Option<PathBuf>,
    /// A file with a secret that applications must show, as `authorization: Bearer SECRET`
    #[arg(long, value_name = "FILE")]
    sidecar_token_file: Option<PathBuf>,
    /// A directory for the agent's state; without one, a restart is a new life
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Features that only this agent has, after the shared ones
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    local_features: usize,
    /// Seconds after which a choice stops waiting for its reward
    #[arg(long, value_name = "SECONDS")]
    expire_after: Option<f64>,
    /// The reward of a choice that stops waiting; without one, nothing is learned from it
    #[arg(long, value_name = "REWARD", requires = "expire_after", allow_negative_numbers = true)]
    default_reward: Option<f64>,
    /// Call every so many seconds instead of keeping a stream open
    #[arg(long, value_name = "SECONDS")]
    exchange_every: Option<f64>,
    /// Who vouches for the coordinator's certificate (PEM)
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The agent's own certificate (PEM), where the coordinator asks for one
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Join private federations only, whatever the coordinator offers; kept in the state
    #[arg(long)]
    require_privacy: bool,
    /// The largest ε that this agent accepts; 1 if only --require-privacy is given
    #[arg(long, value_name = "EPSILON")]
    max_epsilon: Option<f64>,
    /// The largest δ that this agent accepts; 1e-5 if only --require-privacy is given
    #[arg(long, value_name = "DELTA")]
    max_delta: Option<f64>,
    /// What ε must protect at least
    #[arg(long, value_enum, value_name = "UNIT")]
    unit: Option<UnitArg>,
    /// A TOML file with a table `privacy` of the same: max_epsilon, max_delta, unit, allow_raw_buffer, allow_secure_aggregation
    #[arg(long, value_name = "FILE", conflicts_with_all = ["require_privacy", "max_epsilon", "max_delta", "unit"])]
    policy: Option<PathBuf>,
    /// Begin a new life if another process has spoken for this agent, instead of stopping
    #[arg(long)]
    new_life: bool,
    /// Send the token without TLS, or listen beyond loopback
    #[arg(long)]
    insecure: bool,
    /// Send traces of uploads to an OpenTelemetry collector (OTLP over HTTP), for example http://127.0.0.1:4318
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// How logs are written, to stderr
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: LogFormat,
    /// Also log details that help to find faults
    #[arg(long, short)]
    verbose: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let config = config(args)?;
    let tracer = config.tracer.clone();
    log_to_stderr(args.log_format, args.verbose);
    runtime()?.block_on(async {
        let mut signals = Signals::listen()?;
        let agent = tokio::select! {
            agent = Agent::start(config) => agent?,
            () = signals.asked_to_end() => return Ok(Ending::Done),
        };
        let access = access(args)?;
        if let Some(path) = &args.listen_socket {
            let sidecar = sidecar_on_socket(agent.clone(), socket(path)?, access);
            print(&format!("unix:{}\n", path.display()))?;
            signals.asked_to_end().await;
            sidecar.stop().await;
            let _ = std::fs::remove_file(path);
        } else {
            let listener = TcpListener::bind(args.listen);
            let listener = listener.await.with_context(|| format!("cannot listen on {}", args.listen))?;
            let sidecar = sidecar_for(agent.clone(), listener, access)?;
            print(&format!("http://{}\n", sidecar.address))?;
            signals.asked_to_end().await;
            sidecar.stop().await;
        }
        agent.clone().close().await?;
        if let Some(tracer) = tracer {
            tracer.flush();
        }
        if let Some(report) = agent.privacy() {
            let lines = statement::lines(&report, 1);
            print(&lines.into_iter().map(|line| line + "\n").collect::<String>())?;
        }
        Ok(Ending::Done)
    })
}

/// Who may ask the agent.
fn access(args: &Args) -> anyhow::Result<SidecarAccess> {
    let read = |path: &PathBuf| {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        match text.trim() {
            "" => bail!("{} is empty: it must hold the secret", path.display()),
            token => Ok(token.to_owned()),
        }
    };
    let token = args.sidecar_token_file.as_ref().map(read).transpose()?;
    Ok(SidecarAccess { token, hosts: args.host.clone() })
}

/// A socket in the file system that its owner and group may use. One that a process left behind is replaced.
fn socket(path: &Path) -> anyhow::Result<UnixListener> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            bail!("{} is in use by another process", path.display());
        }
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

fn config(args: &Args) -> anyhow::Result<AgentConfig> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let token = std::env::var("POSSE_TOKEN").ok().filter(|_| args.token_file.is_none());
    let shows_token = token.is_some() || args.token_file.is_some();
    if !args.insecure && !args.listen.ip().is_loopback() {
        bail!(
            "--listen {} is beyond loopback and HTTP is not encrypted: add --insecure if that is meant",
            args.listen
        );
    }
    if !args.insecure
        && shows_token
        && !args.coordinator.split(',').map(str::trim).all(|url| url.starts_with("https:") || is_local(url))
    {
        bail!(
            "{} would send the token unencrypted: use https, or add --insecure if that is meant",
            args.coordinator
        );
    }
    let seconds = |name: &str, value: f64| {
        Duration::try_from_secs_f64(value)
            .with_context(|| format!("--{name} {value} is not a time in seconds"))
    };
    let identity = match (&args.certificate, &args.key) {
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        _ => None,
    };
    let every = args.exchange_every.map(|value| seconds("exchange-every", value)).transpose()?;
    Ok(AgentConfig {
        coordinator: args.coordinator.clone(),
        federation: args.federation.clone(),
        token,
        token_file: args.token_file.clone(),
        agent: args.agent,
        state: args.state.clone(),
        local_features: args.local_features,
        expire_after: args.expire_after.map(|value| seconds("expire-after", value)).transpose()?,
        default_reward: args.default_reward,
        new_life_if_superseded: args.new_life,
        carriage: every.map_or(Carriage::Link, Carriage::Exchange),
        policy: policy(args)?,
        tracer: args.otlp.as_deref().map(|url| Tracer::new(url, "posse-agent")).transpose()?,
        tls: AgentTls { authority: args.ca.as_deref().map(read).transpose()?, identity, name: None },
        ..AgentConfig::default()
    })
}

/// The least unit that privacy must protect, from the weakest to the strictest.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum UnitArg {
    /// Protect one interaction at least
    Interaction,
    /// Protect all interactions of one user with this agent
    User,
    /// Protect everything that this agent saw and did
    Agent,
}

/// The table of a policy's file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    privacy: PrivacyPolicy,
}

/// What the agent requires about privacy: from the file, from the flags, or nothing.
fn policy(args: &Args) -> anyhow::Result<Option<PrivacyPolicy>> {
    if let Some(path) = &args.policy {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file: PolicyFile =
            toml::from_str(&text).with_context(|| format!("{} is not a privacy policy", path.display()))?;
        return Ok(Some(file.privacy));
    }
    let Args { require_privacy, max_epsilon, max_delta, unit, .. } = args;
    if !require_privacy && max_epsilon.is_none() && max_delta.is_none() && unit.is_none() {
        return Ok(None);
    }
    let usual = PrivacyPolicy::default();
    Ok(Some(PrivacyPolicy {
        max_epsilon: max_epsilon.unwrap_or(usual.max_epsilon),
        max_delta: max_delta.unwrap_or(usual.max_delta),
        unit: match unit {
            Some(UnitArg::Agent) => Unit::Agent,
            Some(UnitArg::User) => Unit::User,
            Some(UnitArg::Interaction) | None => Unit::Interaction,
        },
        ..usual
    }))
}
