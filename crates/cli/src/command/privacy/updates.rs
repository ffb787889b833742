//! The plan of a federation whose agents share updates of a network.

use anyhow::anyhow;
use posse_core::privacy::{UpdatePlan, UpdatePlanRequest};
use posse_core::{AgentId, FnUcb, Seed};
use serde_json::{Value, json};

use crate::experiment::Group;
use crate::table::compact;

/// The plan of a setting as a document and in words, if it is private.
pub(super) fn planned(group: &Group, network: &FnUcb) -> anyhow::Result<Option<(Value, String)>> {
    let Some(privacy) = network.privacy.clone() else { return Ok(None) };
    let config = &group.config;
    let world = config.world.build(config.agents, Seed(0)).map_err(|error| anyhow!("{error}"))?;
    let request = UpdatePlanRequest {
        privacy,
        update_bound: network.update_bound,
        parameters: network.neural.parameters(world.shape(AgentId(0)).dimension()),
        agents: config.agents,
        interactions: config.horizon,
    };
    let plan = request.plan().map_err(|error| anyhow!("{error}"))?;
    Ok(Some((json!({ "request": request, "plan": plan }), words(&request, &plan))))
}

fn words(request: &UpdatePlanRequest, plan: &UpdatePlan) -> String {
    let UpdatePlanRequest { privacy, update_bound, parameters, agents, interactions } = request;
    let (made, noise) = (&plan.calibration, plan.noise_in_mean);
    let verdict = if noise >= 1.0 {
        "the mean update is noise: agents learn alone, and sharing costs only messages"
    } else if noise >= 0.3 {
        "the mean update is part noise, part data; whether sharing pays depends on the world"
    } else {
        "the mean update is mostly data, if agents' updates are near their bound and agree"
    };
    let needed = plan.releases_needed;
    let lines = [
        format!(
            "promise     ε = {}, δ = {:e} for everything that one agent saw: μ = {:.5}",
            privacy.epsilon, privacy.delta, made.mu
        ),
        "who adds    every agent adds all its noise; the coordinator sees what each of them releases"
            .to_owned(),
        format!(
            "updates     {} of each agent, {parameters} numbers, at most {update_bound} long: noise of σ = {:.2} in every number",
            privacy.max_releases, made.cluster_noise
        ),
        format!(
            "mean        over {agents} agents noise is {noise:.2} times as long as the longest update; {} agents make it as long",
            compact(plan.agents_to_match.ceil())
        ),
        format!("verdict     {verdict}"),
        format!(
            "schedule    {needed} releases are due in {} interactions of an agent; silent after {}",
            compact((*interactions as f64 / *agents as f64).floor()),
            compact(plan.released_until.floor())
        ),
    ];
    lines.join("\n") + "\n"
}
