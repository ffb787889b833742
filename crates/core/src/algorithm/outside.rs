//! Algorithms from outside of posse.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::Algorithm;
use crate::error::ConfigError;
use crate::recipe::Recipe;

/// An algorithm whose recipe is in another crate.
///
/// Two of them are equal if they have the same name and the same settings.
#[derive(Clone, Debug)]
pub struct Outside(Arc<dyn Recipe>);

impl Outside {
    /// An algorithm with this recipe.
    pub fn new(recipe: impl Recipe + 'static) -> Self {
        Self(Arc::new(recipe))
    }

    /// Returns the recipe that this was made with.
    #[must_use]
    pub fn recipe(&self) -> &dyn Recipe {
        &*self.0
    }
}

impl PartialEq for Outside {
    fn eq(&self, other: &Self) -> bool {
        (self.0.name(), self.0.settings()) == (other.0.name(), other.0.settings())
    }
}

/// The name, and the settings as the recipe writes them.
impl Serialize for Outside {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Named {
            name: &'static str,
            settings: String,
        }
        Named { name: self.0.name(), settings: self.0.settings() }.serialize(serializer)
    }
}

/// Makes an algorithm from the settings that [`Recipe::settings`] wrote.
pub type OutsideFactory = fn(&str) -> Result<Outside, ConfigError>;

/// The algorithms from outside of posse that a program knows, by name.
///
/// An agent that joins over a network is told a name and settings, and looks here for what is not posse's own.
#[derive(Clone, Debug, Default)]
pub struct Registry(BTreeMap<&'static str, OutsideFactory>);

impl Registry {
    /// Adds an algorithm. A name of posse's own is refused, and so is one that is taken.
    pub fn register(&mut self, name: &'static str, factory: OutsideFactory) -> Result<(), ConfigError> {
        let own = Algorithm::all().iter().any(|algorithm| algorithm.name() == name);
        if own || self.0.contains_key(name) {
            return Err(ConfigError::new("name", name, "an algorithm of this name is known already"));
        }
        self.0.insert(name, factory);
        Ok(())
    }

    /// The algorithm of this name with these settings, if it was registered.
    #[must_use]
    pub fn make(&self, name: &str, settings: &str) -> Option<Result<Algorithm, ConfigError>> {
        self.0.get(name).map(|factory| factory(settings).map(Algorithm::Outside))
    }
}
