//! `posse agents`: lists the agents of a running coordinator's federation, and evicts, pardons or retracts one of them.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use posse_net::coordinator::{AdminAccess, ServeConfig};
use posse_net::federation::{AgentInfo, KeptInfo};
use serde_json::Value;

use super::{Ending, print, print_json};
use crate::federation;

/// List, show, evict, pardon and retract the agents of a running coordinator
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse agents list --config federation.toml
  posse agents evict 7 --config federation.toml --federation shop

The coordinator must run on this machine with `admin` set in its file, and this command must be allowed to read
admin.json in its data directory. Counts are since the coordinator started; uploads are those of the agent's life.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// The coordinator's configuration file
    #[arg(long, value_name = "FILE", global = true, default_value = "federation.toml")]
    config: PathBuf,
    /// Which federation, where there are several
    #[arg(long, value_name = "NAME", global = true)]
    federation: Option<String>,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List all agents that have joined or were refused
    List,
    /// Show everything that the coordinator knows of one agent
    Show {
        /// The number of the agent
        agent: u64,
    },
    /// End an agent's life: rounds stop waiting for it and its link is cut; what it shared stays
    Evict {
        /// The number of the agent
        agent: u64,
    },
    /// Hear an agent again that is in quarantine
    Pardon {
        /// The number of the agent
        agent: u64,
    },
    /// Take out everything that an agent has ever shared, by replaying the log without it; a new epoch begins
    Retract {
        /// The number of the agent
        agent: u64,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let config = federation::read(&args.config, true)?;
    let name = federation_name(args, &config)?;
    let access = access(&config)?;
    let agents = format!("/v1/federations/{name}/agents");
    let (method, path) = match &args.action {
        Action::List => ("GET", agents),
        Action::Show { agent } => ("GET", format!("{agents}/{agent}")),
        Action::Evict { agent } => ("POST", format!("{agents}/{agent}/evict")),
        Action::Pardon { agent } => ("POST", format!("{agents}/{agent}/pardon")),
        Action::Retract { agent } => ("POST", format!("{agents}/{agent}/retract")),
    };
    let document = call(&access, method, &path)?;
    if args.json {
        print_json(&document)?;
        return Ok(Ending::Done);
    }
    match &args.action {
        Action::List => print(&table(&serde_json::from_value::<Vec<AgentInfo>>(document)?))?,
        Action::Show { .. } => print(&details(&serde_json::from_value(document)?))?,
        Action::Evict { agent } => {
            print(&format!("agent {agent} is evicted; revoke its token to keep it out\n"))?;
        }
        Action::Pardon { agent } => print(&format!("agent {agent} is heard again\n"))?,
        Action::Retract { agent } => {
            let retraction = &document["retraction"];
            print(&format!(
                "agent {agent} is retracted: {} observations of {} are left, in epoch {}; revoke its token to keep it \
                 out\n",
                retraction["after"], retraction["before"], retraction["epoch"]
            ))?;
        }
    }
    Ok(Ending::Done)
}

fn federation_name<'a>(args: &'a Args, config: &'a ServeConfig) -> anyhow::Result<&'a str> {
    match (&args.federation, &config.federations[..]) {
        (Some(name), _) => Ok(name),
        (None, [only]) => Ok(&only.name),
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|own| own.name.as_str()).collect();
            bail!("there are several federations, {}: name one with --federation", names.join(", "))
        }
    }
}

fn access(config: &ServeConfig) -> anyhow::Result<AdminAccess> {
    if config.admin.is_none() {
        bail!(
            "the coordinator's file has no `admin`: set it to an address like \"127.0.0.1:9447\" and restart"
        );
    }
    let path = AdminAccess::file(&config.data);
    let text = std::fs::read(&path).with_context(|| {
        format!("cannot read {}: the coordinator writes it when it starts", path.display())
    })?;
    serde_json::from_slice(&text).with_context(|| format!("{}", path.display()))
}

/// Asks the coordinator, and returns its answer or why it refused.
fn call(access: &AdminAccess, method: &str, path: &str) -> anyhow::Result<Value> {
    let unreachable = || format!("cannot reach the coordinator at {}: does it run?", access.address);
    let mut stream =
        TcpStream::connect_timeout(&access.address, Duration::from_secs(5)).with_context(unreachable)?;
    // A retraction reads the whole log.
    stream.set_read_timeout(Some(Duration::from_secs(3600)))?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        access.address, access.token
    );
    stream.write_all(request.as_bytes()).with_context(unreachable)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(unreachable)?;
    let status: u16 = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let document: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    match status {
        200 => Ok(document),
        401 => bail!("the coordinator does not know this token: did another one start with the same data?"),
        _ => bail!("{}", document["error"].as_str().unwrap_or("the coordinator's answer cannot be read")),
    }
}

fn table(agents: &[AgentInfo]) -> String {
    let mut text =
        String::from("agent   life  state        last seen  uploads  observations  staleness  refused\n");
    for agent in agents {
        let refused: u64 = agent.refused.values().sum();
        let _ = writeln!(
            text,
            "{:>5} {:>6}  {:<11} {:>10} {:>8} {:>13} {:>10.3} {:>8}",
            agent.agent,
            agent.life,
            state(agent),
            ago(agent),
            agent.uploads,
            agent.observations,
            agent.staleness,
            refused,
        );
    }
    for kept in agents.iter().flat_map(|agent| &agent.kept) {
        if let Some(why) = not_believed(kept) {
            let _ = writeln!(text, "{why}");
        }
    }
    text
}

/// A line about an agent that is not believed, by the name that the root has for it.
fn not_believed(kept: &KeptInfo) -> Option<String> {
    let why = kept.set_aside?;
    Some(format!(
        "agent {} is not believed: in {} observations it deviates by {:.1} variances of the noise, and {:.1} are explained",
        kept.agent, why.observations, why.deviation, why.limit
    ))
}

fn details(agent: &AgentInfo) -> String {
    let mut text = String::new();
    let lines = [
        ("agent", agent.agent.to_string()),
        ("life", agent.life.to_string()),
        ("state", state(agent).to_owned()),
        ("last seen", ago(agent)),
        ("uploads", agent.uploads.to_string()),
        ("observations", agent.observations.to_string()),
        ("staleness", format!("{:.3}", agent.staleness)),
    ];
    for (name, value) in lines {
        let _ = writeln!(text, "{name}: {value}");
    }
    for kept in &agent.kept {
        let believed = not_believed(kept).unwrap_or_else(|| format!("agent {} is believed", kept.agent));
        let _ = writeln!(text, "{believed}; {} observations were taken in", kept.observations);
    }
    for (reason, count) in &agent.refused {
        let _ = writeln!(text, "refused as {reason}: {count}");
    }
    text
}

fn state(agent: &AgentInfo) -> &'static str {
    match agent {
        AgentInfo { quarantined_for: Some(_), .. } => "quarantined",
        AgentInfo { gone: true, .. } => "gone",
        AgentInfo { connected: true, .. } => "connected",
        AgentInfo { away: true, .. } => "away",
        _ => "silent",
    }
}

fn ago(agent: &AgentInfo) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    agent.last_seen.map_or_else(|| "not yet".into(), |seen| format!("{} s ago", now.saturating_sub(seen)))
}
