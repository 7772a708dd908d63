//! What can go wrong in this crate.

use std::path::PathBuf;

/// Short form used in this crate.
pub type Result<T, E = ModelError> = std::result::Result<T, E>;

/// Every way in which a model, an adapter, a vocabulary or a training step can be refused.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A configuration that no model can have.
    #[error("model configuration: {0}")]
    Config(String),
    /// An embedded model was asked for by a size that does not exist.
    #[error("no embedded model of size {0:?}; there are \"0.1M\" and \"0.3M\"")]
    UnknownSize(String),
    /// A tensor that the architecture needs is not there.
    #[error("tensor {name} is missing")]
    MissingTensor {
        /// Hugging Face name.
        name: String,
    },
    /// A tensor that the architecture does not know.
    #[error("tensor {name} does not belong to this model")]
    UnexpectedTensor {
        /// Hugging Face name.
        name: String,
    },
    /// A tensor of the wrong shape, or whose floats do not fill its shape.
    #[error("tensor {name} has shape {found:?}, expected {expected:?}")]
    Shape {
        /// Name of the tensor.
        name: String,
        /// What the configuration asks for.
        expected: Vec<usize>,
        /// What was given.
        found: Vec<usize>,
    },
    /// Two lengths that must agree do not.
    #[error("{what}: {found} given, {expected} expected")]
    Length {
        /// What was counted.
        what: &'static str,
        /// How many there must be.
        expected: usize,
        /// How many there were.
        found: usize,
    },
    /// No adapter of this name is in the model.
    #[error("no adapter named {name:?}; the model has {known:?}")]
    UnknownAdapter {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// An adapter's rank, scale or name that cannot be.
    #[error("adapter: {0}")]
    Adapter(String),
    /// A word that the vocabulary does not hold.
    #[error("the word {word:?} is not in the vocabulary")]
    UnknownWord {
        /// The word, cut to 80 characters.
        word: String,
    },
    /// A list of words that cannot become a vocabulary.
    #[error("vocabulary: {0}")]
    Vocabulary(String),
    /// A token id outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab_size}")]
    Token {
        /// The id.
        token: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// A prompt of no tokens, or of more than the model takes.
    #[error("a prompt has {found} tokens; the model takes 1 to {most}")]
    Prompt {
        /// Tokens of the prompt.
        found: usize,
        /// Most tokens.
        most: usize,
    },
    /// A query that asks for nothing, or a choice among no options.
    #[error("a choice needs at least one option")]
    NoOptions,
    /// More options than the joint form has markers for.
    #[error("{found} options; the joint form has markers for {most}")]
    TooManyOptions {
        /// Options given.
        found: usize,
        /// Markers there are.
        most: usize,
    },
    /// A number that must be finite is not.
    #[error("{what} is not finite")]
    NonFinite {
        /// Which number.
        what: String,
    },
    /// A setting outside its range.
    #[error("{name} is {value}, must be {expected}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        value: f64,
        /// Its range, in words.
        expected: &'static str,
    },
    /// A file or folder that cannot be read or written, or does not hold what it should.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Bytes that are not the safetensors file they should be.
    #[error("safetensors: {0}")]
    Safetensors(String),
    /// A fault of the tensor library, or of this crate.
    #[error("internal fault: {0}")]
    Internal(String),
    /// A fault reported by candle.
    #[error("tensor library: {0}")]
    Candle(#[from] candle_core::Error),
}

impl ModelError {
    /// A fault of `path`.
    pub(crate) fn file(path: &std::path::Path, reason: impl ToString) -> Self {
        Self::File { path: path.to_path_buf(), reason: reason.to_string() }
    }
}
