//! Prepared directories: Parquet files, a manifest, and a content hash.
//!
//! A directory is made under another name and renamed at the end: it is there whole or not at all.

mod column;
mod draft;
mod manifest;
mod scan;

pub use column::{Column, ColumnKind};
pub use draft::{Draft, TableWriter};
pub use manifest::{MANIFEST, Manifest, StoredTable};
pub(crate) use scan::check_hash;
pub use scan::{scan, verify};

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
