//! From the log to a hub: at the start, after a failure, and for as long as another process leads.
//!
//! A process reads the whole log before it tries to lead, and goes on reading while another process leads. So when its
//! turn comes, only the last few entries are missing, and it answers within a moment.

use std::time::{Duration, Instant};

use posse_core::session::{Hub, LogEntry, LogEvent};
use posse_core::{AgentId, Epoch};
use ring::rand::{SecureRandom, SystemRandom};
use tracing::{error, info, warn};

use super::{Outcome, Owner, State};
use crate::federation::last_words::LastWords;
use crate::federation::lives::Lives;
use crate::federation::{FederationError, RETRY, config};
use crate::log::{HISTORY_FILE, Leadership, Log, LogError};

/// The longest pause before a log that several processes share is looked at again: a database that is failed over comes
/// back within seconds, and agents wait for it.
const SHARED_RETRY: Duration = Duration::from_millis(500);

/// A hub that knows the log so far and answers nobody.
pub(super) struct Standby {
    hub: Hub,
    last_words: LastWords,
    log: Box<dyn Log>,
    /// Entries that were durable once and are gone, and the newest epoch that was used.
    lost: u64,
    epoch: u64,
    /// Where the process is that leads; empty if that is not known.
    pub(super) leader: String,
    again: Instant,
}

impl Owner {
    /// How long it is until the log is looked at again, for an owner that does not lead.
    pub(super) fn until_next_look(&self) -> Duration {
        let failed = self.failed.map(|(_, again)| again);
        let again = failed.or_else(|| self.standby.as_ref().map(|standby| standby.again));
        again.map_or(Duration::ZERO, |again| again.saturating_duration_since(Instant::now()))
    }

    /// Opens a log that failed again, later and later; or looks whether the process that leads still does.
    pub(super) fn try_again(&mut self) {
        match self.bring_back() {
            Ok(()) => self.retry = RETRY.0,
            Err(error) => {
                if self.failed.is_none() {
                    warn!(federation = self.config.name, %error, "the log cannot be used");
                }
                self.trouble(Some(error.to_string()));
                let bytes = self.failed.map_or(0, |(bytes, _)| bytes);
                self.failed = Some((bytes, Instant::now() + self.retry));
                let longest = if self.shared { SHARED_RETRY } else { RETRY.1 };
                self.retry = (2 * self.retry).min(longest);
            }
        }
    }

    /// Reads the log and goes on where it ends, or follows the process that leads. After a failure the log must first
    /// take as much as it could not keep: a full disk can be read, and saying that all is well until the next upload
    /// would be a lie.
    pub(super) fn bring_back(&mut self) -> Result<(), FederationError> {
        let mut standby = match self.standby.take() {
            Some(standby) => standby,
            None => {
                let mut log = (self.open)()?;
                if let Some((bytes, _)) = self.failed.filter(|(bytes, _)| *bytes > 0) {
                    log.probe(bytes)?;
                }
                self.read(log)?
            }
        };
        let leadership = match standby.log.lead() {
            Ok(leadership) => leadership,
            Err(error) => {
                // What was read is still what was kept; another server of the database may say more.
                self.standby = Some(standby);
                return Err(error.into());
            }
        };
        match standby.catch_up(&self.config.name) {
            Ok(true) => {}
            Ok(false) => {
                standby = self.read(standby.log)?;
                // Reading everything may have taken longer than the lease.
                if leadership == Leadership::Ours {
                    standby.log.tend()?;
                }
            }
            Err(error @ FederationError::Log(_)) => {
                self.standby = Some(standby);
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        match leadership {
            Leadership::Ours => self.begin_to_lead(standby),
            Leadership::Other(leader) => {
                self.stand_by(standby, leader);
                Ok(())
            }
        }
    }

    /// The hub that the whole log leads to.
    fn read(&self, mut log: Box<dyn Log>) -> Result<Standby, FederationError> {
        let mut replay = log.replay()?;
        if replay.state.is_some() && config::retractions(&replay.entries)?.is_some() {
            // It was stopped between the retraction and the saved state without the agent: what it had shared before
            // the older saved state can only be left out from the beginning.
            replay.state = None;
            replay.entries = log.history()?.ok_or(FederationError::HistoryGone)?;
        }
        let mut last_words = LastWords::read(&mut *log);
        let hub = self.config.replay_with(&replay, |entry, bytes| last_words.note_kept(entry, bytes))?;
        let name = &self.config.name;
        if replay.torn_bytes > 0 {
            warn!(
                federation = name,
                bytes = replay.torn_bytes,
                "a write at the end of the log was cut short and is dropped"
            );
        }
        let (lost, epoch) = (replay.lost_entries, replay.epoch);
        info!(
            federation = name,
            entries = replay.entries.len(),
            observations = hub.coordinator().inspect().observations,
            "the log is open"
        );
        Ok(Standby { hub, last_words, log, lost, epoch, leader: String::new(), again: Instant::now() })
    }

    /// Nobody else may append: goes on where the log ends.
    fn begin_to_lead(&mut self, standby: Standby) -> Result<(), FederationError> {
        let Standby { mut hub, last_words, mut log, lost, epoch, .. } = standby;
        if let Some(lives) = log.lives()? {
            self.lives = Lives::from_kept(&lives);
        }
        self.history = history(&mut *log)?;
        self.is_lost = false;
        self.last_words = last_words;
        self.time.go_on_from(hub.latest());
        if lost > 0 {
            let epoch = Epoch(epoch.max(hub.epoch().0) + 1);
            error!(
                federation = self.config.name,
                entries = lost,
                epoch = epoch.0,
                "the end of the log is lost: a new epoch begins"
            );
            let now = self.time.now();
            let step = hub.begin_epoch(now, epoch);
            let entries: Vec<Vec<u8>> = step.log.iter().map(|entry| entry.encode()).collect();
            log.append(&entries)?;
            log.sync(epoch.0)?;
        }
        if self.shared {
            info!(federation = self.config.name, "this coordinator leads");
        }
        self.metrics.log_bytes(&self.config.name, log.bytes());
        let living: Vec<AgentId> = hub.agents().filter(|agent| hub.incarnation(*agent).is_some()).collect();
        self.state = Some(State { hub, log });
        self.lease_to_all(living);
        self.failed = None;
        self.trouble(None);
        Ok(())
    }

    /// Another process leads: agents that are linked here are sent to it.
    fn stand_by(&mut self, mut standby: Standby, leader: String) {
        if standby.leader != leader || self.failed.is_some() {
            info!(federation = self.config.name, leader, "another coordinator leads: this one follows");
        }
        standby.again = Instant::now() + standby.log.patience();
        standby.leader = leader;
        self.standby = Some(standby);
        self.failed = None;
        self.trouble(None);
        let linked: Vec<AgentId> = self.links.keys().copied().collect();
        for agent in linked {
            self.let_go(agent, self.unavailable().into_status());
        }
        self.mailboxes.clear();
    }

    /// Renews the lease of an owner that leads, if it is time.
    pub(super) fn renew_lease(&mut self) {
        if self.tend.is_some_and(|tend| tend > Instant::now()) {
            return;
        }
        let Some(state) = &mut self.state else { return };
        match state.log.tend() {
            Ok(again) => self.tend = again.map(|again| Instant::now() + again),
            Err(error) => self.lose(&error, Outcome::default()),
        }
    }

    /// `Ok` if the batch may be answered: the lives that it gives out are kept, and this process leads for certain. What
    /// passed through the log is certain already; a repeated acknowledgement or an old snapshot is not.
    pub(super) fn may_answer(&mut self, outcome: &Outcome) -> Result<(), LogError> {
        let Some(state) = &mut self.state else { return Ok(()) };
        if !outcome.lives.is_empty() {
            let lives: Vec<_> = outcome.lives.values().copied().collect();
            return state.log.keep_lives(&lives);
        }
        if outcome.entries.is_empty() && !state.log.leads() {
            return Err(LogError::Deposed { leader: String::new() });
        }
        Ok(())
    }
}

impl Standby {
    /// Takes in what was appended since the log was last looked at. `false` if the whole log must be read again.
    fn catch_up(&mut self, federation: &str) -> Result<bool, FederationError> {
        let Some(entries) = self.log.follow()? else {
            warn!(federation, "the end of the log is not what was read before: all of it is read again");
            return Ok(false);
        };
        for bytes in &entries {
            let broken = |why: String| FederationError::Replay { entry: 0, why };
            let entry = LogEntry::decode(bytes).map_err(|error| broken(error.to_string()))?;
            if matches!(entry.event, LogEvent::Retracted(_)) {
                return Ok(false);
            }
            self.last_words.note_kept(&entry, bytes);
            self.hub.replay(entry).map_err(|error| broken(error.to_string()))?;
        }
        Ok(true)
    }
}

/// The number of a log's history, drawn when it begins and kept beside it.
fn history(log: &mut dyn Log) -> Result<u64, LogError> {
    let kept = log.beside(HISTORY_FILE)?.and_then(|text| String::from_utf8(text).ok()?.trim().parse().ok());
    if let Some(history) = kept {
        return Ok(history);
    }
    let mut bytes = [0; 8];
    let silent =
        |_| LogError::io("the system's random generator")(std::io::Error::other("it does not answer"));
    SystemRandom::new().fill(&mut bytes).map_err(silent)?;
    let history = u64::from_le_bytes(bytes).max(1);
    log.keep_beside(HISTORY_FILE, history.to_string().as_bytes())?;
    Ok(history)
}
