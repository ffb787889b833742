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
mod live;
mod machine;
mod own;
mod settings;
mod table;
mod world;

use pyo3::prelude::*;

/// The compiled part of posse.
#[pymodule]
mod _posse {
    #[pymodule_export]
    use crate::agent::Agent;
    #[pymodule_export]
    use crate::coordinator::Coordinator;
    #[pymodule_export]
    use crate::experiment::{Running, algorithms, command, figures, load, plan};
    #[pymodule_export]
    use crate::federation::Federation;
    #[pymodule_export]
    use crate::live::{Connection, open_connection};
    #[pymodule_export]
    use crate::own::{check, register};
    #[pymodule_export]
    use crate::table::RawTable;
    #[pymodule_export]
    use crate::world::SimulatedWorld;
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
