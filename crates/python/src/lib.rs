//! The Rust part of the Python package: classes and functions over `posse-core` and `posse-cli`.
//!
//! Nothing is computed here. The module turns arrays into arms, keyword arguments into settings, errors into exceptions
//! and results into columns; `python/posse` puts types, documentation and optional packages around it.

mod agent;
mod array;
mod coordinator;
mod error;
mod experiment;
mod federation;
mod machine;
mod settings;
mod table;

use pyo3::prelude::*;

/// The compiled part of posse.
#[pymodule]
mod _posse {
    #[pymodule_export]
    use crate::agent::Agent;
    #[pymodule_export]
    use crate::coordinator::Coordinator;
    #[pymodule_export]
    use crate::experiment::{Running, algorithms, figures, load, plan};
    #[pymodule_export]
    use crate::federation::Federation;
    #[pymodule_export]
    use crate::table::RawTable;
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
