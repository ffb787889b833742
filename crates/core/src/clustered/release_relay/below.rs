//! What a relay of private sums does with its children's releases.

use super::{Awaits, ReleaseRelay, Releases};
use crate::clustered::fclub::FIRST;
use crate::clustered::groups::check_upload;
use crate::clustered::message::{ClusterList, ClusterUpload};
use crate::error::ProtocolError;
use crate::ids::{AgentId, PhaseId, Version};
use crate::message::Uplink;
use crate::relay::Passed;

impl ReleaseRelay {
    /// The last releases of all children, of this life and of those before.
    fn sum(&self) -> Releases {
        Releases::sum(self.dimension, self.releases())
    }

    fn releases(&self) -> impl Iterator<Item = &Releases> {
        std::iter::once(&self.departed).chain(self.children.values().map(|child| &child.release))
    }

    /// How many observations all of them are of.
    pub(super) fn known(&self) -> u64 {
        self.releases().map(|release| release.evidence.count()).sum()
    }

    /// `Ok` if the sum of all would still be one that a parent takes, with this instead of what the child said before.
    fn check_fits(&self, from: AgentId, release: &Releases) -> Result<(), ProtocolError> {
        let others =
            self.children.iter().filter(|(child, _)| **child != from).map(|(_, child)| &child.release);
        Releases::check_sum(self.dimension, others.chain([&self.departed, release]))
    }

    /// The sum of all releases as the next upload of this relay.
    fn upload(&mut self) -> ClusterUpload {
        self.number += 1;
        let Releases { evidence, variance, members } = self.sum();
        (self.news, self.sent) = (false, evidence.count());
        self.in_flight = Some(self.children.iter().map(|(child, seat)| (*child, seat.number)).collect());
        ClusterUpload {
            cluster: FIRST,
            number: self.number,
            based_on: self.parent_version,
            information: 0.0,
            evidence,
            released: true,
            variance,
            members,
        }
    }

    /// The next upload, if there is news, none is on its way and no round collects more.
    pub(super) fn upload_if_due(&mut self) -> Vec<Uplink> {
        if !self.news || self.in_flight.is_some() || self.open.is_some() {
            return Vec::new();
        }
        vec![Uplink::Cluster(self.upload())]
    }

    /// Takes in what a child released.
    fn take_in(&mut self, from: AgentId, number: u64, release: Releases) {
        if let Some(child) = self.children.get_mut(&from) {
            (child.number, child.release) = (number, release);
            self.news = true;
        }
    }

    pub(super) fn receive_upload(
        &mut self,
        from: AgentId,
        upload: ClusterUpload,
    ) -> Result<Vec<Uplink>, ProtocolError> {
        let child = self.children.get(&from).ok_or(ProtocolError::UnknownAgent(from))?;
        if upload.cluster != FIRST {
            return Err(ProtocolError::Cluster(upload.cluster));
        }
        let (expected, got) = (child.number.saturating_add(1), upload.number);
        if expected != got {
            return Err(ProtocolError::Sequence { expected, got });
        }
        if upload.evidence.count() < child.release.evidence.count() {
            return Err(ProtocolError::Evidence("fewer observations than before"));
        }
        let (number, release) = self.checked(from, upload)?;
        self.take_in(from, number, release);
        Ok(self.upload_if_due())
    }

    /// A child's answer to a round, or everything that it has to say to a relay that lost part of its history.
    pub(super) fn receive_list(&mut self, from: AgentId, list: ClusterList) -> Result<Passed, ProtocolError> {
        let ClusterList { phase, kept, mut uploads } = list;
        let upload = uploads.pop();
        let named = kept.iter().chain(upload.as_ref().map(|upload| &upload.cluster));
        if kept.len() + usize::from(upload.is_some()) != 1
            || !uploads.is_empty()
            || named.copied().any(|c| c != FIRST)
        {
            return Err(ProtocolError::Evidence("an agent has one cluster here"));
        }
        if phase > self.asked_phase() {
            return Err(ProtocolError::Evidence("a phase that has not begun"));
        }
        let upload = upload.map(|upload| self.checked(from, upload)).transpose()?;
        let child = self.children.get_mut(&from).ok_or(ProtocolError::UnknownAgent(from))?;
        if std::mem::replace(&mut child.away, false) {
            // It counts its uploads from 1 again.
            (child.number, child.contained) = (0, 0);
            self.roster.set(from, 0.0, self.patience, Version(0), 0);
        }
        if let Some((number, release)) = upload {
            self.take_in(from, number, release);
        }
        if let Some(open) = self.open.as_mut().filter(|_| phase == self.phase) {
            open.waiting.remove(&from);
        }
        let answered = self.answer_if_complete();
        let up = if answered.is_empty() { self.upload_if_due() } else { answered };
        Ok(Passed { up, down: self.push() })
    }

    fn checked(&self, from: AgentId, upload: ClusterUpload) -> Result<(u64, Releases), ProtocolError> {
        check_upload(self.dimension, true, &upload)?;
        let number = upload.number;
        let release = Releases::of(upload);
        self.check_fits(from, &release)?;
        Ok((number, release))
    }

    /// The relay's answer to the parent's round, as soon as every child has answered. Empty before that.
    pub(super) fn answer_if_complete(&mut self) -> Vec<Uplink> {
        if self.open.take_if(|open| open.waiting.is_empty()).is_none() {
            return Vec::new();
        }
        let list = self.list(self.parent_phase, false);
        self.awaits = Some(if self.in_flight.is_some() { Awaits::Receipt } else { Awaits::End });
        vec![Uplink::Clusters(list)]
    }

    /// What there is to say in one list: the sum of all releases if it has changed, or has to be said `anew`.
    pub(super) fn list(&mut self, phase: PhaseId, anew: bool) -> ClusterList {
        let says = if anew { self.known() > 0 } else { self.news && self.in_flight.is_none() };
        let (kept, uploads) =
            if says { (Vec::new(), vec![self.upload()]) } else { (vec![FIRST], Vec::new()) };
        ClusterList { phase, kept, uploads }
    }

    /// The upload on its way says nothing about this child any more: its numbers begin again.
    pub(super) fn no_longer_carries(&mut self, child: AgentId) {
        if let Some(carried) = &mut self.in_flight {
            carried.remove(&child);
        }
    }

    /// A child's life is over. What it released last stays in the sums.
    pub(super) fn bereave(&mut self, child: AgentId) -> Vec<Uplink> {
        if let Some(seat) = self.children.remove(&child) {
            self.departed.add(&seat.release);
        }
        self.roster.remove(child);
        self.no_longer_carries(child);
        if let Some(open) = &mut self.open {
            open.waiting.remove(&child);
        }
        self.answer_if_complete()
    }
}
