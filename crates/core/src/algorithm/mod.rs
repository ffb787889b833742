//! The one list of algorithms: a line for each, with its settings, its name and its recipe.

mod clustered;
mod exchange;
mod glm;
mod kernel;
mod levels;
mod linear;
mod neural;
mod outside;

use serde::{Deserialize, Serialize, Serializer};

use crate::agent::{Agent, Shape};
use crate::clustered::{CdpFclubDc, Club, Fclub, FclubDc, Homo, HomoDc, Sclub, UserLinUcb};
use crate::coordinator::Coordinator;
use crate::error::ConfigError;
use crate::exchange::JoinPolicy;
use crate::federation::{Federation, Placement};
use crate::glm::{FedGlbUcb, FedGlbUcb3, LinkFunction, OnsGlm, PrivateGlmUcb, ScheduledGlbUcb, UcbGlm};
use crate::ids::AgentId;
use crate::kernel::KernelConfig;
use crate::linear::{
    AsyncLinPhe, AsyncLinTs, AsyncLinUcb, AsyncLinUcbAm, ExchangeLinIgw, ExchangeLinTs, ExchangeLinUcb,
    FedLinUcb, FedUcb, LinTs, LinUcb, SyncLinUcb,
};
use crate::neural::{FnUcb, NeuralUcb};
use crate::privacy::{PrivacyConfig, SecureAggregation};
use crate::recipe::{Recipe, Sharing};
use crate::settings::{Described, Setting};

pub use levels::Levels;
pub use outside::{Outside, OutsideFactory, Registry};

/// Makes the list: the enum, its names and summaries, and the way to each recipe.
macro_rules! algorithms {
    ($($name:literal, $variant:ident($settings:ty), $summary:literal, |$config:ident| $recipe:expr;)*) => {
        /// An algorithm with its settings. In configuration files, `name` says which.
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[serde(tag = "name")]
        #[non_exhaustive]
        pub enum Algorithm {
            $(
                #[doc = concat!("`", $name, "`: ", $summary, ".")]
                #[serde(rename = $name)]
                $variant($settings),
            )*
            /// An algorithm from outside of posse. It is not read from files: a [`Registry`] makes it.
            #[serde(skip_deserializing)]
            Outside(Outside),
        }

        impl Algorithm {
            /// Every algorithm of posse, with default settings.
            #[must_use]
            pub fn all() -> Vec<Self> {
                vec![$(Self::$variant(<$settings>::default())),*]
            }

            /// The name in configuration files and results.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    Self::Outside(outside) => outside.recipe().name(),
                }
            }

            /// Returns one line that says what the algorithm does, for lists of algorithms.
            #[must_use]
            pub const fn summary(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $summary,)*
                    Self::Outside(_) => "an algorithm from outside of posse",
                }
            }

            /// The settings of the algorithm, as the fields of its types document them.
            #[must_use]
            pub fn settings(&self) -> Vec<Setting> {
                match self {
                    $(Self::$variant(_) => <$settings as Described>::settings(),)*
                    Self::Outside(outside) => outside.recipe().described(),
                }
            }

            /// Shows the recipe to `look`, and returns what that returns.
            pub fn with_recipe<T>(&self, look: impl FnOnce(&dyn Recipe) -> T) -> T {
                match self {
                    $(Self::$variant($config) => look(&$recipe),)*
                    Self::Outside(outside) => look(outside.recipe()),
                }
            }
        }

        impl Serialize for Algorithm {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(settings) => Tagged { name: $name, settings }.serialize(serializer),)*
                    Self::Outside(outside) => outside.serialize(serializer),
                }
            }
        }
    };
}

/// Settings after the name of the algorithm.
#[derive(Serialize)]
struct Tagged<'s, T> {
    name: &'static str,
    #[serde(flatten)]
    settings: &'s T,
}

algorithms! {
    "lin-ucb", LinUcb(LinUcb), "every agent learns alone, upper confidence bounds", |config| *config;
    "central-lin-ucb", CentralLinUcb(LinUcb), "one learner sees all raw data: the reference",
        |config| linear::CentralLinUcb(config);
    "async-lin-ucb", AsyncLinUcb(AsyncLinUcb),
        "agents share evidence when it grew enough, upper confidence bounds", |config| *config;
    "async-lin-ts", AsyncLinTs(AsyncLinTs), "the same exchange, Thompson sampling", |config| *config;
    "async-lin-phe", AsyncLinPhe(AsyncLinPhe), "the same exchange, perturbed history", |config| *config;
    "sync-lin-ucb", SyncLinUcb(SyncLinUcb), "all agents share when one has learned enough (DisLinUCB)",
        |config| *config;
    "fed-lin-ucb", FedLinUcb(FedLinUcb), "an agent pushes and pulls in one exchange when due", |config| *config;
    "fed-ucb", FedUcb(FedUcb), "private rounds with noise of a binary tree: the published baseline",
        |config| linear::PrivateRounds::new(config);
    "exchange-lin-ucb", ExchangeLinUcb(ExchangeLinUcb),
        "agents speak when silence costs more than a message, upper confidence bounds", |config| *config;
    "exchange-lin-ts", ExchangeLinTs(ExchangeLinTs),
        "agents speak when silence costs more than a message, Thompson sampling", |config| *config;
    "exchange-lin-igw", ExchangeLinIgw(ExchangeLinIgw),
        "agents speak when silence costs more than a message, inverse-gap weighting", |config| *config;
    "async-lin-ucb-am", AsyncLinUcbAm(AsyncLinUcbAm), "shared and private features, alternating minimisation",
        |config| *config;
    "fed-glb-ucb", FedGlbUcb(FedGlbUcb), "rounds of minimisation when due, online Newton steps between",
        |config| *config;
    "fed-glb-ucb-1", FedGlbUcb1(ScheduledGlbUcb), "scheduled rounds of minimisation, nothing between",
        |config| glm::Scheduled1(config);
    "fed-glb-ucb-2", FedGlbUcb2(ScheduledGlbUcb), "scheduled rounds of minimisation, online Newton steps between",
        |config| glm::Scheduled2(config);
    "fed-glb-ucb-3", FedGlbUcb3(FedGlbUcb3), "scheduled rounds of one online step, and steps between",
        |config| *config;
    "private-glm-ucb", PrivateGlmUcb(PrivateGlmUcb),
        "sums with noise of a line around the released model, generalized linear", |config| glm::PrivateGlm::new(config);
    "one-ucb-glm", OneUcbGlm(UcbGlm), "one learner sees all raw data, generalized linear: the reference",
        |config| glm::OneUcbGlm(config);
    "n-ucb-glm", NUcbGlm(UcbGlm), "every agent learns alone, maximum likelihood", |config| glm::NUcbGlm(config);
    "n-ons-glm", NOnsGlm(OnsGlm), "every agent learns alone, online Newton steps", |config| *config;
    "fclub", Fclub(Fclub), "users in clusters, clusters in groups, every interaction shared", |config| *config;
    "fclub-dc", FclubDc(FclubDc), "users in clusters, clusters in groups, evidence shared when it grew enough",
        |config| *config;
    "cdp-fclub-dc", CdpFclubDc(CdpFclubDc), "the same, with differential privacy of what leaves an agent",
        |config| *config;
    "homo", Homo(Homo), "all users taken to be alike, every interaction shared", |config| *config;
    "homo-dc", HomoDc(HomoDc), "all users taken to be alike, evidence shared when it grew enough",
        |config| *config;
    "club", Club(Club), "users in clusters, each agent for itself", |config| *config;
    "sclub", Sclub(Sclub), "users in clusters that split and merge, each agent for itself", |config| *config;
    "user-lin-ucb", UserLinUcb(UserLinUcb), "a learner for each user", |config| *config;
    "lin-ts", LinTs(LinTs), "every agent learns alone, Thompson sampling", |config| *config;
    "kernel-ucb", KernelUcb(KernelConfig), "every agent learns alone by likeness of arms, upper confidence bounds",
        |config| kernel::KernelUcb(config);
    "kernel-ts", KernelTs(KernelConfig), "every agent learns alone by likeness of arms, Thompson sampling",
        |config| kernel::KernelTs(config);
    "neural-ucb", NeuralUcb(NeuralUcb), "every agent trains a network alone, upper confidence bounds",
        |config| *config;
    "neural-ts", NeuralTs(NeuralUcb), "every agent trains a network alone, Thompson sampling",
        |config| neural::NeuralTs(config);
    "fn-ucb", FnUcb(FnUcb), "rounds that share gradients' statistics and average networks", |config| *config;
}

impl Algorithm {
    /// `Ok` if the settings make sense for arms of this `shape`.
    pub fn check(&self, shape: Shape) -> Result<(), ConfigError> {
        if shape.dimension() == 0 {
            return Err(ConfigError::new("dimension", 0, "an arm needs at least one feature"));
        }
        self.with_recipe(|recipe| recipe.check(shape))
    }

    /// A new agent for arms of this `shape`.
    pub fn agent(
        &self,
        id: AgentId,
        shape: Shape,
        federation: &Federation,
    ) -> Result<Box<dyn Agent>, ConfigError> {
        self.check(shape)?;
        Ok(self.with_recipe(|recipe| recipe.agent(id, shape, federation)))
    }

    /// A new coordinator for agents whose arms have this `shape`; only the shared part need be the same for all of
    /// them.
    pub fn coordinator(&self, shape: Shape) -> Result<Box<dyn Coordinator>, ConfigError> {
        self.check(shape)?;
        Ok(self.with_recipe(|recipe| recipe.coordinator(shape)))
    }

    /// When agents become known to the coordinator.
    #[must_use]
    pub fn join_policy(&self) -> JoinPolicy {
        self.with_recipe(|recipe| recipe.join_policy())
    }

    /// Returns where the algorithm's learners live: one with each agent, or one for all.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.with_recipe(|recipe| recipe.placement())
    }

    /// How the observations of agents travel.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        self.with_recipe(|recipe| recipe.sharing())
    }

    /// The link between features and rewards, for algorithms that have one: it says which rewards they take.
    #[must_use]
    pub fn link_function(&self) -> Option<LinkFunction> {
        self.with_recipe(|recipe| recipe.link_function())
    }

    /// Whether agents may have private features of different number.
    #[must_use]
    pub fn takes_local_features(&self) -> bool {
        self.with_recipe(|recipe| recipe.takes_local_features())
    }

    /// The privacy that is promised, if any is.
    #[must_use]
    pub fn privacy(&self) -> Option<PrivacyConfig> {
        self.with_recipe(|recipe| recipe.privacy().cloned())
    }

    /// How agents keep that promise together, if no agent keeps it alone.
    #[must_use]
    pub fn secure_aggregation(&self) -> Option<SecureAggregation> {
        self.with_recipe(|recipe| recipe.secure_aggregation().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_list_is_that_of_its_recipe() {
        for algorithm in Algorithm::all() {
            assert_eq!(algorithm.with_recipe(|recipe| recipe.name()), algorithm.name());
        }
    }
}
