//! Worlds from outside of posse.

use std::fmt;
use std::sync::Arc;

use posse_core::settings::{Described, Setting};
use posse_core::{ConfigError, Seed};
use serde::{Serialize, Serializer};

use super::World;

/// A kind of world with its settings, made in another crate.
///
/// It builds the world for a seed. The world must be a pure function of that seed, as posse's own are: what it offers at a
/// step may not depend on what was asked for before.
pub trait OutsideWorldRecipe: fmt::Debug + Send + Sync {
    /// The name in configuration files and results: lower case, words joined by hyphens.
    fn name(&self) -> &'static str;

    /// Builds the world for agents `0..agents`, of which there is at least one, or says which setting is impossible.
    fn build(&self, agents: u64, seed: Seed) -> Result<Box<dyn World>, ConfigError>;

    /// The settings as text, which results keep and by which two worlds of one name are told apart.
    fn settings(&self) -> String {
        String::new()
    }
}

/// A world whose recipe is in another crate.
///
/// Two of them are equal if they have the same name and the same settings.
#[derive(Clone, Debug)]
pub struct OutsideWorld(Arc<dyn OutsideWorldRecipe>);

impl OutsideWorld {
    /// A world with this recipe.
    pub fn new(recipe: impl OutsideWorldRecipe + 'static) -> Self {
        Self(Arc::new(recipe))
    }

    /// Returns the recipe that this was made with.
    #[must_use]
    pub fn recipe(&self) -> &dyn OutsideWorldRecipe {
        &*self.0
    }
}

impl PartialEq for OutsideWorld {
    fn eq(&self, other: &Self) -> bool {
        (self.0.name(), self.0.settings()) == (other.0.name(), other.0.settings())
    }
}

/// The program that makes the world knows what its settings mean.
impl Described for OutsideWorld {
    fn describe(_all: &mut Vec<Setting>) {}
}

/// The name, and the settings as the recipe writes them.
impl Serialize for OutsideWorld {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Named {
            name: &'static str,
            settings: String,
        }
        Named { name: self.0.name(), settings: self.0.settings() }.serialize(serializer)
    }
}
