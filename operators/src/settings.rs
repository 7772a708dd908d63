//! Settings of a run that every operator sees: the part of a spec outside of its graph.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which environment is played, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvSettings {
    /// Name of the environment; `cosplay envs` lists them.
    pub game: String,
    /// Cap on the steps of an episode. Default: the environment's own.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_steps: Option<u32>,
}

/// How a choice is scored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChoiceForm {
    /// Each option on a short prompt of its own, softmax over the scores.
    #[default]
    PerOption,
    /// One prompt that lists the options; the answer is an option's token.
    Joint,
}

/// Where the base model comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BaseModel {
    /// A small Qwen3 model that the cold start trains from nothing; runs on a laptop with nothing to download.
    #[default]
    Embedded,
}

/// Size of the embedded model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EmbeddedSize {
    /// 2 layers, hidden size 64: 0.1 million parameters.
    #[default]
    #[serde(rename = "0.1M")]
    Tiny,
    /// 3 layers, hidden size 96: 0.3 million parameters.
    #[serde(rename = "0.3M")]
    Small,
}

impl EmbeddedSize {
    /// Name as written in specs.
    pub fn name(self) -> &'static str {
        match self {
            EmbeddedSize::Tiny => "0.1M",
            EmbeddedSize::Small => "0.3M",
        }
    }
}

/// Shape of the LoRA adapters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdapterSettings {
    /// Rank r of the two factors.
    #[schemars(range(min = 1, max = 256))]
    pub rank: u32,
    /// Scale: the adapter's output is multiplied by alpha / rank.
    #[schemars(range(max = 1024.0), extend("exclusiveMinimum" = 0.0))]
    pub alpha: f64,
}

impl Default for AdapterSettings {
    fn default() -> Self {
        Self { rank: 16, alpha: 32.0 }
    }
}

/// The language model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSettings {
    /// Base model.
    pub base: BaseModel,
    /// Size of the embedded model.
    pub size: EmbeddedSize,
    /// Form of the choices.
    pub choices: ChoiceForm,
    /// Shape of the adapters.
    pub adapters: AdapterSettings,
}

/// What every operator sees of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// Name of the run.
    pub name: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Number of co-evolution steps.
    pub steps: u64,
    /// Environment.
    pub env: EnvSettings,
    /// Model.
    pub model: ModelSettings,
}
