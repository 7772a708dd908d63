//! Skill retrieval: which active skills suit a state (paper section 4.1).
//!
//! Retrieval is arithmetic on bit sets and word hashes: a bank is prepared once a step ([`RetrievalSkill`]), and a call costs microseconds.
//! The retrieval adapter then picks among the candidates.

use crate::contract::{ClauseKind, Contract, Literal};
use crate::operator::OperatorError;
use cosplay_datasets::SkillId;
use cosplay_datasets::tables::Skill;
use cosplay_envs::{EnvInfo, PredicateSet, Tag};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Configuration of skill retrieval. Constants marked "published" are those of the published code of COS-PLAY.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetrievalConfig {
    /// Number of candidates (published: 3).
    #[schemars(range(min = 1, max = 64))]
    pub candidates: u32,
    /// Weight of the relevance to what the agent is after (published: 0.40).
    #[schemars(range(min = 0.0, max = 10.0))]
    pub relevance: f64,
    /// Weight of the applicability to the state (published: 0.30).
    #[schemars(range(min = 0.0, max = 10.0))]
    pub applicability: f64,
    /// Weight of the share of instances that fulfil the contract (published: 0.30).
    #[schemars(range(min = 0.0, max = 10.0))]
    pub pass_rate: f64,
    /// Weight of the exploration bonus sqrt(ln(N + 1) / (n + 1)) with n uses of the skill out of N of the whole bank (published: 0.15).
    #[schemars(range(min = 0.0, max = 10.0))]
    pub exploration: f64,
}

impl Default for RetrievalConfig {
    fn default() -> Self {
        Self { candidates: 3, relevance: 0.40, applicability: 0.30, pass_rate: 0.30, exploration: 0.15 }
    }
}

/// Shares of the relevance: Jaccard similarity with name and summary, equal tag, Jaccard similarity with the words of the contract.
/// Published: 0.35, 0.35, 0.30, the second for the words of a skill id that was made of phase and tag.
const RELEVANCE: [f64; 3] = [0.35, 0.35, 0.30];

/// An active skill, prepared for retrieval.
#[derive(Clone, Debug)]
pub struct RetrievalSkill {
    /// Its id.
    pub skill: SkillId,
    /// What it promises.
    pub contract: Contract,
    /// Predicates that held at the start of most instances.
    pub preconditions: PredicateSet,
    /// Predicates that mean giving up when true.
    pub abort_true: PredicateSet,
    /// Predicates that mean giving up when false.
    pub abort_false: PredicateSet,
    /// Dominant intention tag.
    pub tag: Option<Tag>,
    /// Share of held-out instances that fulfil the contract.
    pub pass_rate: f64,
    /// Segments that the agent played with it.
    pub uses: u32,
    text: Words,
    literals: Words,
}

/// The state for which a skill is sought.
#[derive(Clone, Debug)]
pub struct Query {
    /// Predicates that hold now. Events of the last step may be among them.
    pub state: PredicateSet,
    /// What the agent is after.
    pub tag: Option<Tag>,
    words: Words,
}

/// A skill that suits a state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Its index in the prepared skills.
    pub index: usize,
    /// Its id.
    pub skill: SkillId,
    /// Weighted sum of the parts below and of the exploration bonus.
    pub score: f64,
    /// Relevance, 0 to 1.
    pub relevance: f64,
    /// Applicability, −1 to 1.
    pub applicability: f64,
}

/// Words of a text: hashes of its alphanumeric runs of at least two characters in lower case, sorted, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Words(Vec<u64>);

impl Words {
    fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let words = texts.into_iter().flat_map(|text| text.split(|letter: char| !letter.is_alphanumeric()));
        let mut hashes: Vec<u64> = words.filter(|word| word.chars().nth(1).is_some()).map(hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        Self(hashes)
    }

    /// Jaccard similarity; 0 if both are empty.
    fn jaccard(&self, other: &Words) -> f64 {
        let (mut a, mut b, mut shared) = (self.0.iter().peekable(), other.0.iter().peekable(), 0);
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            match x.cmp(y) {
                std::cmp::Ordering::Less => _ = a.next(),
                std::cmp::Ordering::Greater => _ = b.next(),
                std::cmp::Ordering::Equal => {
                    shared += 1;
                    a.next();
                    b.next();
                }
            }
        }
        let union = self.0.len() + other.0.len() - shared;
        if union == 0 { 0.0 } else { shared as f64 / union as f64 }
    }
}

/// FNV-1a over the lower-case letters: the same on every machine and in every release.
fn hash(word: &str) -> u64 {
    let mut buffer = [0; 4];
    word.chars().flat_map(char::to_lowercase).fold(0xcbf2_9ce4_8422_2325, |hash, letter| {
        letter.encode_utf8(&mut buffer).bytes().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    })
}

impl RetrievalSkill {
    /// Prepares the active skills of a bank, sorted by id. Retired skills are left out.
    ///
    /// # Errors
    /// If a contract, precondition or abort literal names a predicate that the environment does not have.
    pub fn prepare(skills: &[Skill], env: &EnvInfo) -> Result<Vec<Self>, OperatorError> {
        let mut active: Vec<&Skill> = skills.iter().filter(|skill| skill.state == "active").collect();
        active.sort_by_key(|skill| skill.skill);
        active.into_iter().map(|skill| Self::new(skill, env)).collect()
    }

    /// Prepares one skill, whatever its state.
    ///
    /// # Errors
    /// As [`RetrievalSkill::prepare`].
    pub fn new(skill: &Skill, env: &EnvInfo) -> Result<Self, OperatorError> {
        let unknown = |name: &str| {
            OperatorError::Other(format!("skill {} (`{}`): environment `{}` has no predicate `{name}`", skill.skill, skill.name, env.name))
        };
        let (preconditions, missing) = env.set(skill.preconditions.iter().map(String::as_str));
        if let Some(name) = missing.first() {
            return Err(unknown(name));
        }
        let (mut abort_true, mut abort_false) = (PredicateSet::EMPTY, PredicateSet::EMPTY);
        for text in &skill.abort {
            let literal = Literal::parse(text, env).ok_or_else(|| unknown(text))?;
            match literal.kind {
                ClauseKind::Add | ClauseKind::Event => abort_true.insert(usize::from(literal.predicate)),
                ClauseKind::Delete => abort_false.insert(usize::from(literal.predicate)),
            }
        }
        let literals = skill.adds.iter().chain(&skill.deletes).chain(&skill.events).map(String::as_str);
        Ok(Self {
            skill: skill.skill,
            contract: Contract::from_skill(skill, env)?,
            preconditions,
            abort_true,
            abort_false,
            tag: Tag::parse(&skill.tag),
            pass_rate: skill.pass_rate,
            uses: skill.uses,
            text: Words::of([skill.name.as_str(), skill.summary.as_str()]),
            literals: Words::of(literals),
        })
    }

    /// Whether the skill may be offered in this state: no abort literal holds, and its contract is not fulfilled already.
    pub fn is_available(&self, state: PredicateSet) -> bool {
        let aborted = !self.abort_true.intersection(state).is_empty() || !self.abort_false.minus(state).is_empty();
        !aborted && !self.is_fulfilled(state)
    }

    /// Whether everything it promises is true already. Events lie in the future, so a contract with events never is; nor is an empty one.
    fn is_fulfilled(&self, state: PredicateSet) -> bool {
        let contract = &self.contract;
        !contract.is_empty()
            && contract.events.is_empty()
            && state.contains_all(contract.adds)
            && contract.deletes.intersection(state).is_empty()
    }

    /// How well it fits the state, in −1 to 1: the mean, over preconditions, adds and deletes, of 1 for a precondition that holds, an add
    /// that is not true yet, or a delete that is still true, and of −1 otherwise. 0 if there are none.
    pub fn applicability(&self, state: PredicateSet) -> f64 {
        let total = self.preconditions.len() + self.contract.adds.len() + self.contract.deletes.len();
        let fitting = self.preconditions.intersection(state).len()
            + self.contract.adds.minus(state).len()
            + self.contract.deletes.intersection(state).len();
        if total == 0 { 0.0 } else { 2.0 * fitting as f64 / total as f64 - 1.0 }
    }

    /// How relevant it is to what the agent is after, in 0 to 1.
    pub fn relevance(&self, query: &Query) -> f64 {
        let same_tag = self.tag.is_some() && self.tag == query.tag;
        RELEVANCE[0] * query.words.jaccard(&self.text)
            + RELEVANCE[1] * f64::from(u8::from(same_tag))
            + RELEVANCE[2] * query.words.jaccard(&self.literals)
    }
}

impl Query {
    /// A query from the predicates that hold and the agent's intention.
    pub fn new(state: PredicateSet, tag: Tag) -> Self {
        Self { state, tag: Some(tag), words: Words::of([tag.as_str()]) }
    }

    /// The query with more words for what the agent is after: an intention phrase, a summary of the state.
    #[must_use]
    pub fn with_text(mut self, text: &str) -> Self {
        let tag = self.tag.map_or("", Tag::as_str);
        self.words = Words::of([tag, text]);
        self
    }
}

/// The best candidates for a state, best first; of equally good ones the smaller id first. Skills that are not available in the state
/// ([`RetrievalSkill::is_available`]) are left out. The order of `skills` does not matter, except that `index` refers to it.
pub fn candidates(skills: &[RetrievalSkill], query: &Query, config: &RetrievalConfig) -> Vec<Candidate> {
    let total: f64 = skills.iter().map(|skill| f64::from(skill.uses)).sum();
    let mut found: Vec<Candidate> = skills
        .iter()
        .enumerate()
        .filter(|(_, skill)| skill.is_available(query.state))
        .map(|(index, skill)| {
            let relevance = skill.relevance(query);
            let applicability = skill.applicability(query.state);
            let exploration = (total.ln_1p() / (f64::from(skill.uses) + 1.0)).sqrt();
            let score = config.relevance * relevance
                + config.applicability * (applicability + 1.0) / 2.0
                + config.pass_rate * skill.pass_rate
                + config.exploration * exploration;
            Candidate { index, skill: skill.skill, score, relevance, applicability }
        })
        .collect();
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.skill.cmp(&b.skill)));
    found.truncate(config.candidates as usize);
    found
}

/// The words by which the embedded model knows a skill: its tag and the predicate of its most telling clause, `<none>` where there is none.
///
/// Thresholds reached (`max_ge_128`, `event.merged_ge_64`) say most, the highest first; then come other events, other predicates that become
/// true, and what becomes false. Of equals an add comes first, then the first by name.
pub fn skill_words(skill: &Skill) -> [String; 2] {
    const NONE: &str = "<none>";
    let adds = skill.adds.iter().map(|name| (0, name));
    let events = skill.events.iter().map(|name| (1, name));
    let deletes = skill.deletes.iter().map(|name| (2, name));
    let telling = adds.chain(events).chain(deletes).min_by_key(|&(kind, name)| match (kind, threshold(name)) {
        (0 | 1, Some(number)) => (0, u64::MAX - number, kind, name),
        (1, None) => (1, 0, kind, name),
        (0, None) => (2, 0, kind, name),
        _ => (3, 0, kind, name),
    });
    let tag = Tag::parse(&skill.tag).map_or(NONE, Tag::as_str);
    [tag.to_owned(), telling.map_or(NONE, |(_, name)| name).to_owned()]
}

/// The number in a name that says that something is at least so large.
fn threshold(name: &str) -> Option<u64> {
    name.rsplit_once("_ge_").and_then(|(_, number)| number.parse().ok())
}

#[cfg(test)]
mod tests;
