//! `posse relay`: runs a coordinator that passes what its agents share on to a parent.

use anyhow::bail;
use posse_net::coordinator::ServeConfig;

use super::serve::{Common, serve_until_asked};
use super::{Ending, print};
use crate::federation;

/// Run a relay: a coordinator for the agents below it, an agent of the coordinator above it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  posse relay --config relay.toml --check
  posse relay --config relay.toml

The file is that of `posse serve`, and each [[federation]] in it has a table [federation.parent] with the address of the
coordinator, or relay, above it. A relay that was never there waits until its parent answers; the first line on stdout is
then the address for its own agents. SIGTERM and SIGHUP do what they do to `posse serve`.
docs/scale.md says when relays help, and how to set them up.")]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Ending> {
    let file = args.common.config.display();
    let config = federation::read(&args.common.config, args.common.insecure)?;
    if let Some(root) = config.federations.iter().find(|own| own.parent.is_none()) {
        bail!(
            "federation \"{}\" in {file} is no relay: add [federation.parent] with `coordinator`, or run it by `posse serve`",
            root.name
        );
    }
    if args.common.check {
        config.check_files()?;
        print(&format!("{file} is in order: {}\n", described(&config)))?;
        return Ok(Ending::Done);
    }
    serve_until_asked(&args.common, config, false)
}

/// Each federation with its parent.
fn described(config: &ServeConfig) -> String {
    let parents = config.federations.iter().filter_map(|own| Some((&own.name, own.parent.as_ref()?)));
    let texts: Vec<String> =
        parents.map(|(name, parent)| format!("{name}, a relay of {}", parent.coordinator)).collect();
    texts.join("; ")
}
