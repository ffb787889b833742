//! What publishers pack their files in: zip archives, and the older `compress`.

mod compress;
mod zip;

pub use compress::decompress;
pub use zip::{Archive, Member};
