//! The two forms in which a choice among options becomes queries.

use crate::error::{ModelError, Result};
use crate::model::Query;
use crate::vocabulary::Vocabulary;

/// A choice as token ids: one prompt an option and one answer ([`per_option`]), or one prompt and one answer an option ([`joint`]).
/// Either way [`Choice::queries`] yields one logit an option, in the order of the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The prompts.
    pub prompts: Vec<Vec<u32>>,
    /// The answers asked of every prompt.
    pub answers: Vec<u32>,
}

impl Choice {
    /// The queries whose logits, one after the other, are the options' scores.
    pub fn queries(&self) -> impl Iterator<Item = Query<'_>> {
        self.prompts.iter().map(|prompt| Query { prompt, answers: &self.answers })
    }

    /// Number of options.
    pub fn options(&self) -> usize {
        self.prompts.len() * self.answers.len()
    }
}

/// Scores every option on a short prompt of its own: `shared`, the option's words, the cue; the score is the logit of `<yes>`.
///
/// # Errors
/// No options.
pub fn per_option<T: AsRef<[u32]>>(shared: &[u32], options: &[T]) -> Result<Choice> {
    if options.is_empty() {
        return Err(ModelError::NoOptions);
    }
    let prompt = |option: &T| [shared, option.as_ref(), &[Vocabulary::CUE]].concat();
    Ok(Choice { prompts: options.iter().map(prompt).collect(), answers: vec![Vocabulary::YES] })
}

/// Scores all options on one prompt: the static part (task, skill) first, so that it is the same from one move to the next, then
/// the state, the options each behind its marker, the cue; an option's score is the logit of its marker.
///
/// # Errors
/// No options, or more than [`Vocabulary::MAX_MARKED_OPTIONS`].
pub fn joint<T: AsRef<[u32]>>(unchanging: &[u32], state: &[u32], options: &[T]) -> Result<Choice> {
    if options.is_empty() {
        return Err(ModelError::NoOptions);
    }
    let mut prompt = [unchanging, state].concat();
    let mut answers = Vec::with_capacity(options.len());
    for (index, option) in options.iter().enumerate() {
        let (found, most) = (options.len(), Vocabulary::MAX_MARKED_OPTIONS);
        let marker = Vocabulary::marker(index).ok_or(ModelError::TooManyOptions { found, most })?;
        prompt.push(marker);
        prompt.extend_from_slice(option.as_ref());
        answers.push(marker);
    }
    prompt.push(Vocabulary::CUE);
    Ok(Choice { prompts: vec![prompt], answers })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn both_forms_have_one_logit_an_option() {
        let options = [vec![60, 61], vec![62]];
        let separate = per_option(&[50], &options).unwrap();
        assert_eq!(separate.prompts, [vec![50, 60, 61, Vocabulary::CUE], vec![50, 62, Vocabulary::CUE]]);
        let together = joint(&[50], &[51], &options).unwrap();
        let (first, second) = (Vocabulary::marker(0).unwrap(), Vocabulary::marker(1).unwrap());
        assert_eq!(together.prompts, [vec![50, 51, first, 60, 61, second, 62, Vocabulary::CUE]]);
        assert_eq!((separate.options(), together.options()), (2, 2));
        assert!(matches!(joint(&[], &[], &[[1u32]; 33]), Err(ModelError::TooManyOptions { .. })));
        assert!(matches!(per_option::<Vec<u32>>(&[], &[]), Err(ModelError::NoOptions)));
    }
}
