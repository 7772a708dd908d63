//! The word-level vocabulary of the embedded models.

use crate::error::{ModelError, Result};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Words of one model, in the order of their token ids: fixed special words, then the caller's. Serialises as the list of all words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Vocabulary {
    words: Vec<String>,
    ids: FxHashMap<String, u32>,
}

const SPECIALS: [&str; 16] = [
    "<pad>",
    "<none>",
    "<cue>",
    "<yes>",
    "<no>",
    "<eos>",
    "<option>",
    "<action>",
    "<skill>",
    "<intention>",
    "<segment>",
    "<contract>",
    "<curator>",
    "<state>",
    "<history>",
    "<text>",
];
const MARKERS: u32 = 32;

impl Vocabulary {
    /// Most words, special ones included.
    pub const MAX_WORDS: usize = 512;
    /// Longest word, in bytes.
    pub const MAX_WORD_LEN: usize = 64;
    /// Filler; never sampled.
    pub const PAD: u32 = 0;
    /// "Nothing here": no skill, no previous intention.
    pub const NONE: u32 = 1;
    /// Last token of every prompt; the answer follows.
    pub const CUE: u32 = 2;
    /// Its logit is an option's score in the per-option form.
    pub const YES: u32 = 3;
    /// The opposite of [`Self::YES`].
    pub const NO: u32 = 4;
    /// End of generated text.
    pub const EOS: u32 = 5;
    /// Stands before a listed option.
    pub const OPTION: u32 = 6;
    /// Begins an action prompt.
    pub const ACTION: u32 = 7;
    /// Begins a retrieval prompt.
    pub const SKILL: u32 = 8;
    /// Begins an intention prompt.
    pub const INTENTION: u32 = 9;
    /// Begins a segmentation prompt.
    pub const SEGMENT: u32 = 10;
    /// Begins a contract prompt.
    pub const CONTRACT: u32 = 11;
    /// Begins a curator prompt.
    pub const CURATOR: u32 = 12;
    /// Begins the state words of a prompt.
    pub const STATE: u32 = 13;
    /// Begins the history words of a prompt.
    pub const HISTORY: u32 = 14;
    /// Begins generated text.
    pub const TEXT: u32 = 15;
    /// Options that the joint form can mark.
    pub const MAX_MARKED_OPTIONS: usize = MARKERS as usize;

    /// A vocabulary of the special words followed by `words` in the given order.
    ///
    /// # Errors
    /// More than [`Self::MAX_WORDS`] in all; a word that is empty, too long, holds white space or a control character, is repeated,
    /// or is one of the special ones.
    pub fn new<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> Result<Self> {
        let mut vocabulary = Self { words: Vec::new(), ids: FxHashMap::default() };
        for word in special_words() {
            vocabulary.push(&word)?;
        }
        for word in words {
            vocabulary.push(word.as_ref())?;
        }
        Ok(vocabulary)
    }

    fn push(&mut self, word: &str) -> Result<()> {
        let shown = || word.chars().take(80).collect::<String>();
        if word.is_empty() || word.len() > Self::MAX_WORD_LEN {
            let (most, word) = (Self::MAX_WORD_LEN, shown());
            return Err(ModelError::Vocabulary(format!("the word {word:?} must have 1 to {most} bytes")));
        }
        if word.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(ModelError::Vocabulary(format!("the word {word:?} holds white space or a control character")));
        }
        if self.words.len() == Self::MAX_WORDS {
            let most = Self::MAX_WORDS;
            return Err(ModelError::Vocabulary(format!("the word {word:?} is one more than the {most} there may be")));
        }
        if self.ids.insert(word.to_owned(), self.words.len() as u32).is_some() {
            return Err(ModelError::Vocabulary(format!("the word {word:?} is there twice")));
        }
        self.words.push(word.to_owned());
        Ok(())
    }

    /// Number of words, special ones included.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are no words, which never holds.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Token id of a word.
    pub fn id(&self, word: &str) -> Option<u32> {
        self.ids.get(word).copied()
    }

    /// Token id of a word.
    ///
    /// # Errors
    /// [`ModelError::UnknownWord`] naming the word.
    pub fn encode(&self, word: &str) -> Result<u32> {
        self.id(word).ok_or_else(|| ModelError::UnknownWord { word: word.chars().take(80).collect() })
    }

    /// Token ids of several words.
    ///
    /// # Errors
    /// [`ModelError::UnknownWord`] naming the first unknown word.
    pub fn encode_all<S: AsRef<str>>(&self, words: impl IntoIterator<Item = S>) -> Result<Vec<u32>> {
        words.into_iter().map(|word| self.encode(word.as_ref())).collect()
    }

    /// The word of a token id.
    pub fn decode(&self, token: u32) -> Option<&str> {
        self.words.get(token as usize).map(String::as_str)
    }

    /// The words of token ids, separated by spaces; an unknown id shows as its number.
    pub fn decode_all(&self, tokens: &[u32]) -> String {
        let word = |token: &u32| self.decode(*token).map_or_else(|| format!("<{token}?>"), str::to_owned);
        tokens.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// Marker of the option at `index` in the joint form.
    pub fn marker(index: usize) -> Option<u32> {
        (index < Self::MAX_MARKED_OPTIONS).then(|| SPECIALS.len() as u32 + index as u32)
    }

    /// Words in the order of their ids.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// SHA-256 of the words in order, in hexadecimal: equal exactly when all token ids mean the same.
    pub fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        for word in &self.words {
            hasher.update(word.as_bytes());
            hasher.update(b"\n");
        }
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The special words: tasks and answers, then the option markers.
fn special_words() -> Vec<String> {
    let markers = (1..=MARKERS).map(|index| format!("<option_{index}>"));
    SPECIALS.iter().map(|word| (*word).to_owned()).chain(markers).collect()
}

impl TryFrom<Vec<String>> for Vocabulary {
    type Error = ModelError;

    fn try_from(words: Vec<String>) -> Result<Self> {
        let specials = special_words();
        match words.strip_prefix(specials.as_slice()) {
            Some(own) => Self::new(own),
            None => Err(ModelError::Vocabulary("the list does not begin with this program's special words".into())),
        }
    }
}

impl From<Vocabulary> for Vec<String> {
    fn from(vocabulary: Vocabulary) -> Self {
        vocabulary.words
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn words_keep_their_ids_through_serialisation() {
        let vocabulary = Vocabulary::new(["up", "down", "gain_3"]).unwrap();
        assert_eq!(vocabulary.decode(Vocabulary::CUE), Some("<cue>"));
        assert_eq!(vocabulary.decode(Vocabulary::TEXT), Some("<text>"));
        assert_eq!(vocabulary.decode(Vocabulary::marker(0).unwrap()), Some("<option_1>"));
        let ids = vocabulary.encode_all(["down", "<yes>", "up"]).unwrap();
        assert_eq!(vocabulary.decode_all(&ids), "down <yes> up");
        let json = serde_json::to_string(&vocabulary).unwrap();
        let read: Vocabulary = serde_json::from_str(&json).unwrap();
        assert_eq!(read, vocabulary);
        assert_eq!(read.hash(), vocabulary.hash());
        assert_ne!(Vocabulary::new(["down", "up", "gain_3"]).unwrap().hash(), vocabulary.hash());
    }

    #[test]
    fn bad_words_are_refused_by_name() {
        for bad in [vec!["a b"], vec![""], vec!["<cue>"], vec!["x", "x"]] {
            assert!(matches!(Vocabulary::new(&bad), Err(ModelError::Vocabulary(_))), "{bad:?}");
        }
        assert!(Vocabulary::new((0..512).map(|i| format!("w{i}"))).is_err());
        let vocabulary = Vocabulary::new(["up"]).unwrap();
        assert!(vocabulary.encode("sideways").unwrap_err().to_string().contains("sideways"));
        assert!(serde_json::from_str::<Vocabulary>(r#"["up"]"#).is_err());
    }
}
