//! Tokens: who may speak for which agent in which federations. Only hashes of them are kept.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use posse_core::AgentId;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use thiserror::Error;

use super::files::{FileId, file_id, give_to_owner_of_directory};
use crate::audit::Audit;
use crate::log::LogError;

const PREFIX: &str = "posse";

/// The tokens in a file or a database, as they were when they were last read.
#[derive(Debug)]
pub struct Tokens {
    place: TokenStore,
    known: RwLock<Known>,
}

/// Where tokens are kept.
#[derive(Debug)]
enum TokenStore {
    File(PathBuf),
    #[cfg(feature = "postgres")]
    Database(crate::log::postgres::Database, tokio::runtime::Handle),
}

/// Tells one state of a place from another, without reading all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    File(Option<FileId>),
    #[cfg(feature = "postgres")]
    Changes(i64),
}

#[derive(Debug, Default)]
struct Known {
    tokens: BTreeMap<String, Token>,
    mark: Option<Mark>,
    /// When it was last looked for secrets whose time is over, in seconds since 1970.
    looked: u64,
}

/// A token as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    agent: u64,
    federations: Vec<String>,
    /// SHA-256 of the secret, in hexadecimal digits.
    hash: String,
    created: u64,
    #[serde(default)]
    revoked: bool,
    /// The secret before the last rotation, as long as it is still valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<Previous>,
}

/// A secret that was rotated and is valid for a while longer, so that its agent can be given the new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Previous {
    hash: String,
    /// Seconds since 1970 from which it is void.
    until: u64,
}

impl Token {
    /// Returns whether an agent that proved itself with the secret of `before` may still speak at `now`.
    fn still_admits(&self, before: &Self, now: u64) -> bool {
        let keeps = self.hash == before.hash
            || self.previous.as_ref().is_some_and(|old| old.hash == before.hash && now < old.until);
        keeps && !self.revoked && self.agent == before.agent && self.federations == before.federations
    }
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenInfo {
    /// The public part of the token, which commands and logs name it by.
    pub id: String,
    /// The number of the agent that the token belongs to.
    pub agent: u64,
    /// The names of the federations in which the token is valid.
    pub federations: Vec<String>,
    /// When its secret was made, in seconds since 1970.
    pub created: u64,
    /// Whether the token was revoked and is void.
    pub revoked: bool,
    /// Until when the secret before the last rotation is valid too, in seconds since 1970.
    pub previous_until: Option<u64>,
}

/// What a valid token allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The agent that the token speaks for.
    pub agent: AgentId,
    /// The names of the federations in which it may speak.
    pub federations: Vec<String>,
}

/// Why tokens could not be read or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The path of the file with the tokens.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The file is not one of ours.
    #[error("{} is not a file of tokens: {why}", path.display())]
    Malformed {
        /// The path of the file with the tokens.
        path: PathBuf,
        /// What is wrong with its contents.
        why: String,
    },
    /// A database cannot be read or changed.
    #[error(transparent)]
    Database(#[from] LogError),
    /// The file has no token of this name.
    #[error("there is no token {0}: `posse token list` shows all")]
    Unknown(String),
}

impl Tokens {
    /// The tokens in the file at `path`; none if there is no such file yet.
    pub fn open(path: &Path) -> Result<Self, TokenError> {
        Self::at(TokenStore::File(path.into()))
    }

    /// The tokens in a database, whose connections run on the current runtime. Methods that read or change them wait, and
    /// must not be called inside of an async task.
    #[cfg(feature = "postgres")]
    pub fn in_database(database: &crate::log::postgres::Database) -> Result<Self, TokenError> {
        Self::at(TokenStore::Database(database.clone(), database.runtime()))
    }

    fn at(place: TokenStore) -> Result<Self, TokenError> {
        let tokens = Self { place, known: RwLock::default() };
        tokens.reload()?;
        Ok(tokens)
    }

    /// Makes a token and returns its text: the only time it is seen.
    pub fn create(
        &self,
        agent: AgentId,
        federations: Vec<String>,
    ) -> Result<(String, TokenInfo), TokenError> {
        let mut name = [0; 4];
        fill(&mut name);
        let id = hex(&name);
        let (text, token) = make(&id, agent.0, federations);
        let info = info(&id, &token);
        self.change(|tokens| drop(tokens.insert(id, token)))?;
        self.note("token created", &info.id, json!({ "agent": agent.0, "federations": info.federations }));
        Ok((text, info))
    }

    /// Gives a token a new secret and returns its text. The old secret stays valid for `grace`, so that the agent
    /// can be given the new one without losing its link; with no grace it is void at once. A token that was revoked
    /// is valid again, by its new secret only.
    pub fn rotate(&self, id: &str, grace: Duration) -> Result<String, TokenError> {
        let mut made = None;
        self.change(|tokens| {
            let Some(before) = tokens.get(id) else { return };
            let (text, mut token) = make(id, before.agent, before.federations.clone());
            if !before.revoked && !grace.is_zero() {
                let until = now().saturating_add(grace.as_secs().max(1));
                token.previous = Some(Previous { hash: before.hash.clone(), until });
            }
            tokens.insert(id.into(), token);
            made = Some(text);
        })?;
        let text = made.ok_or_else(|| TokenError::Unknown(id.into()))?;
        self.note("token rotated", id, json!({ "grace": grace.as_secs() }));
        Ok(text)
    }

    /// Makes a token void for ever. Fails if there is no such token or the file cannot be written.
    pub fn revoke(&self, id: &str) -> Result<(), TokenError> {
        let mut found = false;
        self.change(|tokens| {
            if let Some(token) = tokens.get_mut(id) {
                (found, token.revoked) = (true, true);
            }
        })?;
        if !found {
            return Err(TokenError::Unknown(id.into()));
        }
        self.note("token revoked", id, json!({}));
        Ok(())
    }

    /// Writes to the audit log beside the tokens.
    fn note(&self, event: &str, id: &str, mut details: Value) {
        details["token"] = id.into();
        match &self.place {
            TokenStore::File(path) => {
                if let Some(directory) = path.parent() {
                    Audit::open(directory).note(event, details);
                }
            }
            #[cfg(feature = "postgres")]
            TokenStore::Database(database, runtime) => {
                let line = crate::audit::line(event, details).to_string();
                if let Err(error) = runtime.block_on(database.note("", &line)) {
                    tracing::warn!(%error, "the audit log cannot be written");
                }
            }
        }
    }

    /// Returns every token, revoked ones included, without secrets.
    #[must_use]
    pub fn list(&self) -> Vec<TokenInfo> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.tokens.iter().map(|(id, token)| info(id, token)).collect()
    }

    /// What the token `text` allows, or why nothing.
    pub fn verify(&self, text: &str) -> Result<Grant, &'static str> {
        let mut parts = text.split('_');
        let (Some(PREFIX), Some(id), Some(secret), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err("this is not a token");
        };
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let claimed = hash(secret);
        // An unknown name takes as long as a wrong secret, and a token with two secrets as long as one with one.
        let nothing = "0".repeat(64);
        let token = known.tokens.get(id);
        let newest = token.map_or(nothing.as_str(), |token| &token.hash);
        let previous = token.and_then(|token| token.previous.as_ref()).filter(|old| now() < old.until);
        let previous = previous.map_or(nothing.as_str(), |old| &old.hash);
        let is_newest = newest.as_bytes().ct_eq(claimed.as_bytes());
        let same = bool::from(is_newest | previous.as_bytes().ct_eq(claimed.as_bytes()));
        match known.tokens.get(id) {
            Some(token) if same && !token.revoked => {
                Ok(Grant { agent: AgentId(token.agent), federations: token.federations.clone() })
            }
            Some(_) if same => Err("this token was revoked"),
            _ => Err("this token is not known"),
        }
    }

    /// Reads the file again if it has changed. Returns the agents whose links must be cut: their token was revoked,
    /// or the secret that they may have used is not valid any more.
    pub fn reload(&self) -> Result<Vec<AgentId>, TokenError> {
        let (mark, now) = (self.place.mark()?, now());
        let unchanged = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            known.mark == Some(mark) && (mark != Mark::File(None) || known.tokens.is_empty())
        };
        let fresh = if unchanged { None } else { Some(self.place.read()?) };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let looked = std::mem::replace(&mut known.looked, now);
        let over = known.tokens.values().filter(|token| {
            token.previous.as_ref().is_some_and(|old| looked < old.until && old.until <= now)
        });
        let mut agents: Vec<AgentId> = over.map(|token| AgentId(token.agent)).collect();
        if let Some(tokens) = fresh {
            let is_stale = |(id, before): &(&String, &Token)| {
                !tokens.get(*id).is_some_and(|token| token.still_admits(before, now))
            };
            let stale = known.tokens.iter().filter(|(_, token)| !token.revoked).filter(is_stale);
            agents.extend(stale.map(|(_, token)| AgentId(token.agent)));
            (known.tokens, known.mark) = (tokens, Some(mark));
        }
        Ok(agents)
    }

    fn change(&self, edit: impl FnOnce(&mut BTreeMap<String, Token>)) -> Result<(), TokenError> {
        let tokens = self.place.change(edit)?;
        let mark = self.place.mark()?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        (known.tokens, known.mark) = (tokens, Some(mark));
        Ok(())
    }
}

impl TokenStore {
    fn mark(&self) -> Result<Mark, TokenError> {
        match self {
            Self::File(path) => Ok(Mark::File(file_id(path))),
            #[cfg(feature = "postgres")]
            Self::Database(database, runtime) => {
                Ok(Mark::Changes(runtime.block_on(database.token_changes())?))
            }
        }
    }

    fn read(&self) -> Result<BTreeMap<String, Token>, TokenError> {
        match self {
            Self::File(path) => read(path),
            #[cfg(feature = "postgres")]
            Self::Database(database, runtime) => parse(&runtime.block_on(database.tokens())?)
                .map_err(|why| TokenError::Malformed { path: "posse_token".into(), why }),
        }
    }

    /// Changes all tokens at once, while no other process does. Returns those that are there then.
    fn change(
        &self,
        edit: impl FnOnce(&mut BTreeMap<String, Token>),
    ) -> Result<BTreeMap<String, Token>, TokenError> {
        match self {
            Self::File(path) => change_file(path, edit),
            #[cfg(feature = "postgres")]
            Self::Database(database, runtime) => {
                let mut after = BTreeMap::new();
                let changing = database.change_tokens(|documents| {
                    let before = parse(documents)?;
                    after = before.clone();
                    edit(&mut after);
                    let changed = after.iter().filter(|(id, token)| before.get(*id) != Some(token));
                    let text = |token| serde_json::to_string(token).expect("tokens have string keys");
                    Ok(changed.map(|(id, token)| (id.clone(), text(token))).collect())
                });
                runtime.block_on(changing)?;
                Ok(after)
            }
        }
    }
}

/// Tokens from their documents in a database.
#[cfg(feature = "postgres")]
fn parse(documents: &BTreeMap<String, String>) -> Result<BTreeMap<String, Token>, String> {
    let token = |(id, document): (&String, &String)| {
        let read = serde_json::from_str(document);
        read.map(|token| (id.clone(), token)).map_err(|error| format!("{id}: {error}"))
    };
    documents.iter().map(token).collect()
}

fn change_file(
    path: &Path,
    edit: impl FnOnce(&mut BTreeMap<String, Token>),
) -> Result<BTreeMap<String, Token>, TokenError> {
    let io = |error| TokenError::Io { path: path.into(), error };
    if let Some(parent) = path.parent() {
        crate::log::private_directory(parent).map_err(|error| io(std::io::Error::other(error)))?;
    }
    // One change at a time, whichever process makes it.
    let lock_path = path.with_extension("lock");
    let lock = File::create(&lock_path).map_err(io)?;
    give_to_owner_of_directory(&lock_path);
    lock.lock().map_err(io)?;
    let mut tokens = read(path)?;
    edit(&mut tokens);
    let draft = path.with_extension("draft");
    let text = serde_json::to_string_pretty(&tokens).expect("tokens have string keys");
    let mut file = File::create(&draft).map_err(io)?;
    restrict(&file).map_err(io)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
    give_to_owner_of_directory(&draft);
    fs::rename(&draft, path).map_err(io)?;
    Ok(tokens)
}

fn read(path: &Path) -> Result<BTreeMap<String, Token>, TokenError> {
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|error| TokenError::Malformed { path: path.into(), why: error.to_string() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(TokenError::Io { path: path.into(), error }),
    }
}

/// Only the owner may read hashes.
fn restrict(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o600))
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn make(id: &str, agent: u64, federations: Vec<String>) -> (String, Token) {
    let secret = secret();
    let hash = hash(&secret);
    let token = Token { agent, federations, hash, created: now(), revoked: false, previous: None };
    (format!("{PREFIX}_{id}_{secret}"), token)
}

fn info(id: &str, token: &Token) -> TokenInfo {
    let Token { agent, federations, created, revoked, previous, .. } = token.clone();
    let previous_until = previous.map(|old| old.until);
    TokenInfo { id: id.into(), agent, federations, created, revoked, previous_until }
}

/// 256 random bits as text.
pub(crate) fn secret() -> String {
    let mut secret = [0; 32];
    fill(&mut secret);
    hex(&secret)
}

fn fill(bytes: &mut [u8]) {
    SystemRandom::new().fill(bytes).expect("the operating system has random numbers");
}

fn hash(secret: &str) -> String {
    hex(digest(&SHA256, secret.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_until_it_is_revoked_or_rotated_and_is_not_kept_in_clear() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.json");
        let tokens = Tokens::open(&path).unwrap();
        let (text, info) = tokens.create(AgentId(7), vec!["shop".into()]).unwrap();
        assert_eq!(tokens.verify(&text), Ok(Grant { agent: AgentId(7), federations: vec!["shop".into()] }));
        let secret = text.rsplit('_').next().unwrap();
        assert!(!fs::read_to_string(&path).unwrap().contains(secret));

        let elsewhere = Tokens::open(&path).unwrap();
        let renewed = elsewhere.rotate(&info.id, Duration::ZERO).unwrap();
        assert_eq!(tokens.reload().unwrap(), [AgentId(7)]);
        assert!(tokens.verify(&text).is_err());
        assert!(tokens.verify(&renewed).is_ok());
        tokens.revoke(&info.id).unwrap();
        assert_eq!(tokens.verify(&renewed), Err("this token was revoked"));
        assert!(tokens.list()[0].revoked);
    }

    #[test]
    fn what_root_writes_belongs_to_the_owner_of_the_directory() {
        use std::os::unix::fs::{MetadataExt, chown};
        let directory = tempfile::tempdir().unwrap();
        // Only root can do this. For others the directory stays theirs, and so does every file in it.
        let _ = chown(directory.path(), Some(12_345), Some(12_345));
        let tokens = Tokens::open(&directory.path().join("tokens.json")).unwrap();
        tokens.create(AgentId(7), vec!["shop".into()]).unwrap();
        let owner = |path: &Path| {
            let found = fs::metadata(path).unwrap();
            (found.uid(), found.gid())
        };
        let mut files = 0;
        for entry in fs::read_dir(directory.path()).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(owner(&path), owner(directory.path()), "{}", path.display());
            files += 1;
        }
        assert_eq!(files, 3, "tokens, their lock and the audit log");
    }

    #[test]
    fn both_secrets_of_a_rotated_token_are_valid_while_its_agent_is_given_the_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.json");
        let tokens = Tokens::open(&path).unwrap();
        let (old, info) = tokens.create(AgentId(7), vec!["shop".into()]).unwrap();
        let elsewhere = Tokens::open(&path).unwrap();
        let renewed = elsewhere.rotate(&info.id, Duration::from_secs(3600)).unwrap();
        assert_eq!(tokens.reload().unwrap(), [], "the link of an agent with the old secret is not cut");
        assert!(tokens.verify(&old).is_ok() && tokens.verify(&renewed).is_ok());
        assert!(tokens.list()[0].previous_until > Some(info.created));
        // When the time of the old one is over, its links are cut.
        let mut over: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        over[&info.id]["previous"]["until"] = 1.into();
        fs::remove_file(&path).unwrap();
        fs::write(&path, over.to_string()).unwrap();
        tokens.reload().unwrap();
        assert!(tokens.verify(&old).is_err() && tokens.verify(&renewed).is_ok());
        // A token is void by both secrets.
        let newest = tokens.rotate(&info.id, Duration::from_secs(3600)).unwrap();
        assert!(tokens.verify(&newest).is_ok() && tokens.verify(&renewed).is_ok());
        tokens.revoke(&info.id).unwrap();
        assert!(tokens.verify(&newest).is_err() && tokens.verify(&renewed).is_err());
    }

    #[test]
    fn tokens_that_are_made_at_the_same_time_are_all_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.json");
        std::thread::scope(|scope| {
            for maker in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    let tokens = Tokens::open(path).unwrap();
                    for number in 0..10 {
                        tokens.create(AgentId(10 * maker + number), vec!["shop".into()]).unwrap();
                    }
                });
            }
        });
        let mut agents: Vec<u64> =
            Tokens::open(&path).unwrap().list().iter().map(|token| token.agent).collect();
        agents.sort_unstable();
        assert_eq!(agents, (0..40).collect::<Vec<_>>());
    }

    #[test]
    fn whatever_is_not_exactly_a_token_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(&directory.path().join("tokens.json")).unwrap();
        let (text, _) = tokens.create(AgentId(1), vec![]).unwrap();
        let swapped = text.replace(char::is_numeric, "0");
        for wrong in ["", "posse", "posse__", &text[..text.len() - 1], &format!("{text}_"), &swapped] {
            assert!(tokens.verify(wrong).is_err(), "{wrong}");
        }
        assert!(matches!(tokens.revoke("nobody"), Err(TokenError::Unknown(_))));
    }
}
