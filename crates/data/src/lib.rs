//! Data sets for posse: from the publishers' own files to worlds that experiments can name.
//!
//! Preparing reads raw files once or a few times as streams, checks every value, and writes a directory of
//! Parquet files with a manifest. The manifest carries a content hash: of the values, not of the files'
//! bytes, so that it stays the same when the encoding changes. Experiments name prepared data by path and
//! hash, and [`load()`] hands it to the simulator only if both fit. Nothing here speaks to a network: `posse data fetch`
//! does, and hands over files.
//!
//! | module | the question it answers |
//! |---|---|
//! | [`archive`] | how are the publishers' archives unpacked? |
//! | [`catalogue`] | which data sets are known, who publishes them, and under which terms? |
//! | [`records`] | how is a text file read, and where exactly is it wrong? |
//! | [`store`] | what is a prepared directory? |
//! | [`parquet_file`] | how are columns written to a Parquet file, and read from one? |
//! | [`labelled`] | how does a labelled table become a world? |
//! | [`recommender`] | how do ratings and tags become one? |
//! | [`decision_log`] | how does a log of decisions become one that can be evaluated on? |
//! | [`ope`] | what would another policy have earned? |
//! | [`health`] | can experiments on this data be believed? |
//! | [`kmeans`] | which rows belong together? |
//! | [`principal`] | in which directions do points differ most? |
//!
//! An error says the file, the line and the column, and leaves nothing half-written behind.
#![forbid(unsafe_code)]

pub mod archive;
pub mod catalogue;
pub mod decision_log;
mod error;
pub mod health;
pub mod kmeans;
pub mod labelled;
mod load;
pub mod ope;
pub mod parquet_file;
pub mod principal;
pub mod recommender;
pub mod records;
pub mod store;

pub use error::{DataError, Place, Problem};
pub use load::load;
