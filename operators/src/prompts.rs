//! The prompts of the embedded model: short sequences of whole words, token in, token out.
//!
//! `per_option` (the default) puts every option on a prompt of its own: game, the skill's two words, the intention, a few words of the
//! state, the option's bucketed one-step effects, and a cue. The score of an option is the logit of `<yes>` at the cue. `joint` lists all
//! options in one prompt, the part that changes least first; the answer is an option's marker.

use crate::operator::OperatorError;
use crate::settings::ChoiceForm;
use cosplay_datasets::Decision;
use cosplay_envs::{EnvInfo, Tag, View};
use cosplay_models::{Query, Vocabulary};

/// Words by which the model knows a skill: its tag and its most telling literal.
pub type SkillWords = [String; 2];

/// Builds and reads prompts for one environment.
#[derive(Clone, Debug)]
pub struct PromptBook {
    vocabulary: Vocabulary,
    form: ChoiceForm,
    game: u32,
    none: u32,
    yes: u32,
    action_cue: u32,
    skill_cue: u32,
    markers: Vec<u32>,
}

/// The prompts of one decision, with the tokens whose logits are the options' scores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Form of the choice, as recorded: `per_option` or `joint`.
    pub form: &'static str,
    /// Tokens of all prompts, one after the other.
    pub ids: Vec<u32>,
    /// Length of each prompt.
    pub lengths: Vec<u32>,
    /// Answer tokens: one for all prompts (`per_option`), or one an option (`joint`).
    pub answers: Vec<u32>,
}

/// What an action prompt is made of besides the view.
#[derive(Clone, Copy, Debug)]
pub struct ActionContext<'a> {
    /// Words of the active skill, if any.
    pub skill: Option<&'a SkillWords>,
    /// Intention of this step.
    pub intention: Tag,
    /// Effect words of the last two actions, latest first.
    pub recent: &'a [String],
}

impl PromptBook {
    /// The book of an environment.
    ///
    /// # Errors
    /// If the environment's words do not fit into the vocabulary.
    pub fn new(info: &EnvInfo, form: ChoiceForm) -> Result<Self, OperatorError> {
        let game = format!("game:{}", info.name);
        let mut words = vec![game.clone()];
        words.extend(Tag::all().iter().map(|tag| tag.as_str().to_owned()));
        words.extend(info.predicates.iter().map(|predicate| predicate.name.to_owned()));
        words.extend(info.words.iter().map(|word| word.to_string()));
        let vocabulary = Vocabulary::new(words)?;
        Ok(Self {
            game: vocabulary.encode(&game)?,
            none: Vocabulary::NONE,
            yes: Vocabulary::YES,
            action_cue: Vocabulary::ACTION,
            skill_cue: Vocabulary::SKILL,
            markers: (0..Vocabulary::MAX_MARKED_OPTIONS).map_while(Vocabulary::marker).collect(),
            form,
            vocabulary,
        })
    }

    /// The vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    fn token(&self, word: &str) -> Result<u32, OperatorError> {
        Ok(self.vocabulary.encode(word)?)
    }

    fn push_words<'a>(&self, ids: &mut Vec<u32>, words: impl IntoIterator<Item = &'a str>) -> Result<(), OperatorError> {
        for word in words {
            ids.push(self.token(word)?);
        }
        Ok(())
    }

    fn push_skill(&self, ids: &mut Vec<u32>, skill: Option<&SkillWords>) -> Result<(), OperatorError> {
        match skill {
            Some(words) => self.push_words(ids, words.iter().map(String::as_str)),
            None => {
                ids.extend([self.none, self.none]);
                Ok(())
            }
        }
    }

    /// The prompt of an action choice.
    ///
    /// # Errors
    /// If the view has words that its environment does not list.
    pub fn action(&self, view: &View, context: ActionContext<'_>) -> Result<Prompt, OperatorError> {
        let mut head = vec![self.game];
        self.push_skill(&mut head, context.skill)?;
        head.push(self.token(context.intention.as_str())?);
        match self.form {
            ChoiceForm::PerOption => {
                self.push_words(&mut head, view.prompt_words.iter().map(AsRef::as_ref))?;
                let options = view.choices.iter().map(|choice| choice.words.iter().map(AsRef::as_ref));
                self.per_option(&head, options, self.action_cue)
            }
            ChoiceForm::Joint => {
                self.push_words(&mut head, view.state_words.iter().map(AsRef::as_ref))?;
                for index in 0..2 {
                    head.push(context.recent.get(index).map_or(Ok(self.none), |word| self.token(word))?);
                }
                let options = view.choices.iter().map(|choice| choice.words.iter().map(AsRef::as_ref));
                self.joint(head, options, self.action_cue)
            }
        }
    }

    /// The prompt of a skill choice among `candidates`.
    ///
    /// # Errors
    /// If a word is not in the vocabulary.
    pub fn skill(&self, view: &View, intention: Tag, candidates: &[SkillWords]) -> Result<Prompt, OperatorError> {
        let mut head = vec![self.game, self.token(intention.as_str())?];
        self.push_words(&mut head, view.prompt_words.iter().map(AsRef::as_ref))?;
        let options = candidates.iter().map(|words| words.iter().map(String::as_str));
        match self.form {
            ChoiceForm::PerOption => self.per_option(&head, options, self.skill_cue),
            ChoiceForm::Joint => self.joint(head, options, self.skill_cue),
        }
    }

    fn per_option<'a, I: Iterator<Item = &'a str>>(
        &self,
        head: &[u32],
        options: impl Iterator<Item = I>,
        cue: u32,
    ) -> Result<Prompt, OperatorError> {
        let (mut ids, mut lengths) = (Vec::new(), Vec::new());
        for words in options {
            let start = ids.len();
            ids.extend_from_slice(head);
            self.push_words(&mut ids, words)?;
            ids.push(cue);
            lengths.push((ids.len() - start) as u32);
        }
        Ok(Prompt { form: "per_option", ids, lengths, answers: vec![self.yes] })
    }

    fn joint<'a, I: Iterator<Item = &'a str>>(
        &self,
        head: Vec<u32>,
        options: impl Iterator<Item = I>,
        cue: u32,
    ) -> Result<Prompt, OperatorError> {
        let mut ids = head;
        let mut answers = Vec::new();
        for (index, words) in options.enumerate() {
            let marker = *self.markers.get(index).ok_or_else(|| {
                OperatorError::Other(format!(
                    "a joint prompt can list {} options and there are more; write `choices: per_option`",
                    self.markers.len()
                ))
            })?;
            ids.push(marker);
            answers.push(marker);
            self.push_words(&mut ids, words)?;
        }
        ids.push(cue);
        let lengths = vec![ids.len() as u32];
        Ok(Prompt { form: "joint", ids, lengths, answers })
    }

    /// The prompt that a recorded decision was made on; none if the record is of another form or does not fit together.
    pub fn recorded(&self, decision: &Decision) -> Option<Prompt> {
        let total: u64 = decision.prompt_lengths.iter().map(|&length| u64::from(length)).sum();
        if total != decision.prompt_ids.len() as u64 || decision.prompt_lengths.contains(&0) {
            return None;
        }
        let options = decision.choices.len();
        let (form, answers) = match decision.form.as_str() {
            "per_option" if decision.prompt_lengths.len() == options => ("per_option", vec![self.yes]),
            "joint" if decision.prompt_lengths.len() == 1 => ("joint", self.markers.get(..options)?.to_vec()),
            _ => return None,
        };
        let fits = decision.logprobs.len() == options && (decision.chosen as usize) < options;
        let known = decision.prompt_ids.iter().all(|&id| (id as usize) < self.vocabulary.len());
        (fits && known).then(|| Prompt { form, ids: decision.prompt_ids.clone(), lengths: decision.prompt_lengths.clone(), answers })
    }
}

impl Prompt {
    /// The queries whose logits, flattened, are the scores of the options in order.
    pub fn queries(&self) -> impl Iterator<Item = Query<'_>> {
        let mut rest = self.ids.as_slice();
        self.lengths.iter().map(move |&length| {
            let (prompt, tail) = rest.split_at(length as usize);
            rest = tail;
            Query { prompt, answers: &self.answers }
        })
    }

    /// Number of options.
    pub fn options(&self) -> usize {
        self.lengths.len() * self.answers.len()
    }

    /// The token that answers with option `index`.
    pub fn answer(&self, index: usize) -> u32 {
        self.answers[if self.answers.len() == 1 { 0 } else { index }]
    }
}
