//! Which kind of log a coordinator keeps, as its file says.

use std::path::PathBuf;

use posse_core::settings::Described;
use posse_core::{ConfigError, TimeSpan};
use serde::{Deserialize, Serialize};

const HOUR: TimeSpan = TimeSpan::from_secs(3600);

/// Where a coordinator keeps logs and tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(deny_unknown_fields, default)]
pub struct StorageConfig {
    /// One of `"files"`, `"postgres"`: files in `data`, for one coordinator, or a PostgreSQL database that several share. Default files.
    pub kind: StorageKind,
    /// How PostgreSQL is reached, in the words of its own clients, with every server: `"host=db1,db2 user=posse dbname=posse"`.
    pub connection: Option<String>,
    /// A file with the password of the user in `connection`. Not set: none is sent, or the one in `connection`.
    pub password_file: Option<PathBuf>,
    /// A file with the certificate authority that vouches for the servers, in PEM form. Not set: connections are not encrypted.
    pub authority: Option<PathBuf>,
    /// How long a coordinator leads without being heard before another takes over; 100ms to 1h. Default 3 s.
    pub lease: TimeSpan,
    /// Where agents reach this coordinator, for those that come to one that does not lead. Not set: the address that it listens on.
    pub advertise: Option<String>,
}

/// Kinds of storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Described)]
#[serde(rename_all = "kebab-case")]
pub enum StorageKind {
    /// Files in the data directory.
    #[default]
    Files,
    /// Tables of a PostgreSQL database.
    Postgres,
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            kind: StorageKind::Files,
            connection: None,
            password_file: None,
            authority: None,
            lease: TimeSpan::from_secs(3),
            advertise: None,
        }
    }
}

impl StorageConfig {
    /// `Ok` if every setting is in its range and the kind of storage has what it needs.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.kind == StorageKind::Postgres && self.connection.is_none() {
            let allowed = "it is needed for PostgreSQL, for example \"host=db1,db2 user=posse dbname=posse\"";
            return Err(ConfigError::new("connection", "missing", allowed));
        }
        if self.lease < TimeSpan::from_millis(100) || self.lease > HOUR {
            return Err(ConfigError::new("lease", self.lease, "it must be between 100ms and 1h"));
        }
        Ok(())
    }
}
