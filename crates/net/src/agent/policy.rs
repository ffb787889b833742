//! What an agent insists on about privacy, pinned on its own side.
//!
//! A coordinator is who the promise is meant to hold against, and the rules of a federation are what a coordinator says.
//! So an agent compares them with a policy of its own before it joins, and keeps the policy in its state: a restart
//! without the flag does not make it careless.

use posse_core::PrivacyReport;
use posse_core::privacy::PrivacyPolicy;

use super::rules::Rules;
use super::{AgentConfig, AgentError, NoiseOrigin};

/// The policy that holds: the configured one, or else the one in the state.
pub(super) fn in_force(config: &AgentConfig, kept: &[u8]) -> Result<Option<PrivacyPolicy>, AgentError> {
    if config.policy.is_some() || kept.is_empty() {
        return Ok(config.policy);
    }
    let kept = serde_json::from_slice(kept);
    kept.map(Some).map_err(|error| AgentError::Foreign(format!("its privacy policy cannot be read: {error}")))
}

/// A policy as it is kept in a state; empty where there is none.
pub(super) fn to_bytes(policy: Option<&PrivacyPolicy>) -> Vec<u8> {
    policy.map_or_else(Vec::new, |policy| serde_json::to_vec(policy).expect("settings have string keys"))
}

/// `Ok` if an agent with this policy may live by these rules and draw noise from there.
pub(super) fn admit(
    policy: Option<&PrivacyPolicy>,
    rules: &Rules,
    noise: NoiseOrigin,
) -> Result<(), AgentError> {
    let Some(policy) = policy else { return Ok(()) };
    policy.admits(&rules.algorithm).map_err(|breach| AgentError::Policy(breach.to_string()))?;
    if rules.algorithm.privacy().is_some() && noise == NoiseOrigin::Seed {
        let why = "noise from the federation's seed hides nothing from the coordinator, which knows the seed";
        return Err(AgentError::Policy(why.to_owned()));
    }
    Ok(())
}

/// The report of a deployed agent: what the machine cannot know about where it runs is added, and what was computed from
/// raw observations is left out, because every client that reaches the agent may read this.
pub(super) fn statement(report: &PrivacyReport, config: &AgentConfig) -> PrivacyReport {
    let report = report.public();
    if report.seeded {
        return report.void("noise follows from the seed of the federation, which the coordinator knows");
    }
    if config.expire_after.is_none() {
        // A choice that waits for ever is never counted, so that counts tell who gave no reward.
        return PrivacyReport { uncounted: true, ..report };
    }
    report
}
