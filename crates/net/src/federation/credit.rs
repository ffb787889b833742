//! How many observations an agent may have made: what it uploads is held to a rate, with room for a long absence.
//!
//! Without it, one agent could claim 2⁵³ observations in a single upload. The sum of all counts would then be full,
//! and every honest upload after it impossible, for ever. See decision 0051.

use std::collections::BTreeMap;
use std::time::Instant;

use posse_core::{AgentId, ProtocolError, Uplink};

use super::{FederationConfig, Reason, Refusal};

/// Seconds of observations that an agent may hand in at once: it may have been offline for a month.
const MONTH: u64 = 30 * 86_400;
/// The most observations that one cluster of users may name. Its uploads are absolute, so that there is no rate to
/// hold them to; all clusters of one agent together stay far below 2⁵³.
const CLUSTER: u64 = 1 << 40;

/// What agents may still upload.
#[derive(Debug, Default)]
pub(super) struct Credit(BTreeMap<AgentId, (f64, Instant)>);

impl Credit {
    /// Takes the observations of a message from what the agent may upload, and returns how many. Refuses for good
    /// what no agent can have observed, and for now what comes too fast; then nothing is taken.
    pub(super) fn spend(
        &mut self,
        config: &FederationConfig,
        agent: AgentId,
        message: &Uplink,
        now: Instant,
    ) -> Result<u64, Refusal> {
        let Some(count) = observations(message)? else { return Ok(0) };
        let rate = config.observations_per_second as f64;
        let most = rate * MONTH as f64;
        let claimed = count as f64;
        if claimed > most {
            let why = ProtocolError::Evidence("more observations than an agent makes in a month");
            return Err(why.into());
        }
        let (left, since) = self.0.entry(agent).or_insert((most, now));
        *left = (*left + now.duration_since(*since).as_secs_f64() * rate).min(most);
        *since = now;
        if claimed > *left {
            let why = format!(
                "more than {rate} observations a second in the last month: raise observations_per_second"
            );
            return Err(Refusal::new(Reason::Rate, why));
        }
        *left -= claimed;
        Ok(count)
    }

    /// Gives back what a message was charged that then did not count: it was refused, or said before.
    pub(super) fn refund(&mut self, agent: AgentId, count: u64) {
        if let Some((left, _)) = self.0.get_mut(&agent) {
            *left += count as f64;
        }
    }
}

/// The observations that a message adds to what the coordinator holds, if it says how many.
fn observations(message: &Uplink) -> Result<Option<u64>, Refusal> {
    let cluster = |count: u64| {
        let too_many = ProtocolError::Evidence("more observations than a cluster of users can have");
        if count > CLUSTER { Err(Refusal::from(too_many)) } else { Ok(None) }
    };
    match message {
        Uplink::Evidence(upload) => Ok(Some(upload.evidence.count())),
        Uplink::Pull(pull) => Ok(pull.upload.as_ref().map(|upload| upload.evidence.count())),
        Uplink::RoundEvidence { evidence, .. } => Ok(Some(evidence.count())),
        Uplink::RoundParts { parts, .. } => {
            Ok(Some(parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.evidence.count()))))
        }
        Uplink::NetworkPart(part) => Ok(Some(part.evidence.count())),
        Uplink::Cluster(upload) => cluster(upload.evidence.count()),
        Uplink::Clusters(list) => {
            list.uploads.iter().try_fold(None, |_, upload| cluster(upload.evidence.count()))
        }
        Uplink::RoundRequest { .. }
        | Uplink::RoundLoss { .. }
        | Uplink::Gradient(_)
        | Uplink::NetworkRequest { .. }
        | Uplink::Weights(_)
        | Uplink::Secure(_)
        | Uplink::Extension(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use posse_core::{Algorithm, AsyncLinUcb, Evidence, Parcel, RoundId};

    use super::*;

    fn message(count: u64) -> Uplink {
        let evidence = Evidence::from_parts(vec![1.0], vec![0.0], count).unwrap();
        Uplink::RoundEvidence { round: RoundId(1), evidence: Parcel::Dense(evidence) }
    }

    #[test]
    fn a_month_may_come_at_once_and_then_what_the_rate_allows() {
        let algorithm = Algorithm::AsyncLinUcb(AsyncLinUcb::default());
        let config =
            FederationConfig { observations_per_second: 10, ..FederationConfig::new("x", algorithm, 1) };
        let (mut credit, start) = (Credit::default(), Instant::now());
        let mut reason = |count, seconds| {
            let spent =
                credit.spend(&config, AgentId(1), &message(count), start + Duration::from_secs(seconds));
            spent.err().map(|refusal| refusal.reason)
        };
        assert_eq!(reason((1 << 53) - 9, 0), Some(Reason::Impossible));
        assert_eq!(reason(10 * MONTH, 0), None);
        assert_eq!(reason(1, 0), Some(Reason::Rate));
        assert_eq!(reason(1000, 100), None);
        assert_eq!(reason(11, 101), Some(Reason::Rate));
        assert_eq!(reason(10, 101), None, "what was refused has cost nothing");
    }
}
