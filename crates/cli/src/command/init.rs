//! `posse init`: writes everything that a new federation needs, so that it can be started with the next command.

mod authority;
mod files;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::bail;
use posse_core::AgentId;
use posse_net::coordinator::Tokens;

use self::authority::Authority;
use self::files::Draft;
use super::{Ending, print};
use crate::federation;

/// Write a new federation: its file, certificates, tokens and systemd units
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse init shop --dimension 25 --agents 3 --host coordinator.example
  posse serve --config shop/federation.toml

Without --host the coordinator is for agents on the same machine. Everything is in the new directory: keep ca.key to
yourself, and give every agent the contents of its own directory in agents/ and nothing else.
docs/guides/run-a-federation.md goes through it step by step.")]
pub(crate) struct Args {
    /// The directory to make; its last part is the federation's name
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Features of an arm that mean the same to all agents
    #[arg(long, value_name = "NUMBER")]
    dimension: u64,
    /// How many agents get a token, numbered from 1
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    agents: u64,
    /// How agents choose and share; `posse algorithms` lists all
    #[arg(long, value_name = "NAME", default_value = "async-lin-ucb")]
    algorithm: String,
    /// A name or address by which agents on other machines reach the coordinator; repeat it for several
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Where the coordinator listens; beyond loopback only with --host
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where its metrics, health and administration are
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9447")]
    admin: SocketAddr,
    /// Ask agents for certificates too, each bound to one agent's number
    #[arg(long)]
    client_certificates: bool,
}

/// Agents that `posse init` makes tokens for at most. More are made by `posse token create`.
const MOST_AGENTS: u64 = 1000;

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    if args.agents == 0 || args.agents > MOST_AGENTS {
        bail!("--agents is {}: it must be between 1 and {MOST_AGENTS}", args.agents);
    }
    let name = name(&args.directory)?;
    let draft = Draft::begin(&args.directory)?;
    let authority = Authority::new(&name)?;
    draft.public("ca.pem", &authority.certificate())?;
    draft.private("ca.key", authority.key())?;
    let hosts = hosts(args);
    let (certificate, key) = authority.vouch(hosts.clone())?;
    draft.public("coordinator.pem", &certificate)?;
    draft.private("coordinator.key", &key)?;
    draft.public("federation.toml", &configuration(args, &name))?;
    // What was just written must be what `posse serve` takes: a wrong --algorithm is refused here, with its reason.
    let config = federation::read(&draft.path("federation.toml"), false)?;
    let tokens = Tokens::open(&config.token_file())?;
    for agent in 1..=args.agents {
        let (token, _) = tokens.create(AgentId(agent), vec![name.clone()])?;
        draft.private(&format!("agents/{agent}/token"), &format!("{token}\n"))?;
        draft.public(&format!("agents/{agent}/ca.pem"), &authority.certificate())?;
        if args.client_certificates {
            let (certificate, key) = authority.vouch(vec![format!("agent-{agent}")])?;
            draft.public(&format!("agents/{agent}/certificate.pem"), &certificate)?;
            draft.private(&format!("agents/{agent}/certificate.key"), &key)?;
        }
    }
    config.check_files()?;
    draft.public("posse.service", &files::unit(&args.directory)?)?;
    draft.finish()?;
    print(&next_steps(args, &name, &hosts[0]))?;
    Ok(Ending::Done)
}

fn name(directory: &Path) -> anyhow::Result<String> {
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_fine = !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if !is_fine {
        bail!(
            "{} does not end in a name for the federation: it must have 1 to 64 letters, digits, `-` or `_`",
            directory.display()
        );
    }
    Ok(name.to_owned())
}

/// The names in the coordinator's certificate, that for other machines first.
fn hosts(args: &Args) -> Vec<String> {
    let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    args.host.iter().cloned().chain(local).collect()
}

fn listen(args: &Args) -> SocketAddr {
    let place = if args.host.is_empty() { [127, 0, 0, 1] } else { [0, 0, 0, 0] };
    args.listen.unwrap_or_else(|| SocketAddr::from((place, 7447)))
}

fn configuration(args: &Args, name: &str) -> String {
    let client_ca = if args.client_certificates { "client_ca = \"ca.pem\"\n" } else { "" };
    let (listen, admin, dimension, algorithm) = (listen(args), args.admin, args.dimension, &args.algorithm);
    format!(
        "# Written by `posse init`. docs/guides/run-a-federation.md says what else can be set here.\n\
         listen = \"{listen}\"\n\
         admin = \"{admin}\"\n\
         data = \"data\"\n\n\
         [tls]\n\
         certificate = \"coordinator.pem\"\n\
         key = \"coordinator.key\"\n\
         {client_ca}\n\
         [[federation]]\n\
         name = \"{name}\"\n\
         dimension = {dimension}\n\
         [federation.algorithm]\n\
         name = \"{algorithm}\"\n"
    )
}

fn next_steps(args: &Args, name: &str, host: &str) -> String {
    let (directory, port) = (args.directory.display(), listen(args).port());
    let certificate = if args.client_certificates {
        format!(
            " \\\n              --certificate {directory}/agents/1/certificate.pem --key {directory}/agents/1/certificate.key"
        )
    } else {
        String::new()
    };
    format!(
        "{directory} holds the federation \"{name}\". Start its coordinator, and beside every service an agent:\n\n  \
         posse serve --config {directory}/federation.toml\n  \
         posse agent --coordinator https://{host}:{port} --ca {directory}/agents/1/ca.pem \\\n              \
         --token-file {directory}/agents/1/token --state {directory}/agents/1/state{certificate}\n\n\
         Give every agent its own directory in {directory}/agents. Keep {directory}/ca.key where agents and services\n\
         cannot read it: it makes certificates, and the coordinator does not need it to run.\n"
    )
}
