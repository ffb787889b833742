//! Clustered users.
pub(crate) mod message;
