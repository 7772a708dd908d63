//! The thirteen intention tags of COS-PLAY and the words that stand for them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a player is after, as one of thirteen canonical tags (COS-PLAY).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Tag {
    /// Arrange things for a later gain.
    Setup,
    /// Remove what is in the way.
    Clear,
    /// Join pieces.
    Merge,
    /// Act against an opponent.
    Attack,
    /// Protect what one has.
    Defend,
    /// Move through the world.
    Navigate,
    /// Bring a piece to a chosen place.
    Position,
    /// Take things that are lying about.
    Collect,
    /// Grow a structure.
    Build,
    /// Avoid the end of the episode.
    Survive,
    /// Improve an order that already stands.
    Optimize,
    /// Find out something new.
    Explore,
    /// Carry out what was prepared.
    Execute,
}

/// Other words for the tags; those of the published intention extractor.
const ALIASES: [(&str, Tag); 24] = [
    ("PLACE", Tag::Setup),
    ("PLAN", Tag::Setup),
    ("ARRANGE", Tag::Setup),
    ("ROTATE", Tag::Setup),
    ("DROP", Tag::Execute),
    ("SWAP", Tag::Execute),
    ("SCORE", Tag::Execute),
    ("MOVE", Tag::Navigate),
    ("PUSH", Tag::Navigate),
    ("JUMP", Tag::Navigate),
    ("RUN", Tag::Navigate),
    ("MATCH", Tag::Clear),
    ("ORGANIZE", Tag::Optimize),
    ("FIX", Tag::Optimize),
    ("PROTECT", Tag::Defend),
    ("SECURE", Tag::Defend),
    ("RETREAT", Tag::Defend),
    ("GRAB", Tag::Collect),
    ("FLEE", Tag::Survive),
    ("CREATE", Tag::Build),
    ("FIND", Tag::Explore),
    ("ALIGN", Tag::Position),
    ("TARGET", Tag::Attack),
    ("EXPAND", Tag::Attack),
];

impl Tag {
    /// All tags in canonical order.
    pub fn all() -> [Tag; 13] {
        use Tag::{Attack, Build, Clear, Collect, Defend, Execute, Explore, Merge, Navigate, Optimize, Position, Setup, Survive};
        [Setup, Clear, Merge, Attack, Defend, Navigate, Position, Collect, Build, Survive, Optimize, Explore, Execute]
    }

    /// Upper-case name, such as `MERGE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Tag::Setup => "SETUP",
            Tag::Clear => "CLEAR",
            Tag::Merge => "MERGE",
            Tag::Attack => "ATTACK",
            Tag::Defend => "DEFEND",
            Tag::Navigate => "NAVIGATE",
            Tag::Position => "POSITION",
            Tag::Collect => "COLLECT",
            Tag::Build => "BUILD",
            Tag::Survive => "SURVIVE",
            Tag::Optimize => "OPTIMIZE",
            Tag::Explore => "EXPLORE",
            Tag::Execute => "EXECUTE",
        }
    }

    /// Reads a tag or one of its 24 aliases, in any case, with or without square brackets; `None` for any other word.
    pub fn parse(text: &str) -> Option<Tag> {
        let word = text.trim().trim_start_matches('[').trim_end_matches(']').trim();
        Tag::all()
            .into_iter()
            .map(|tag| (tag.as_str(), tag))
            .chain(ALIASES)
            .find(|(name, _)| name.eq_ignore_ascii_case(word))
            .map(|(_, tag)| tag)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_aliases_are_read_in_any_case() {
        for tag in Tag::all() {
            assert_eq!(Tag::parse(tag.as_str()), Some(tag));
            assert_eq!(Tag::parse(&format!(" [{}] ", tag.as_str().to_lowercase())), Some(tag));
        }
        assert_eq!(Tag::parse("score"), Some(Tag::Execute));
        assert_eq!(Tag::parse("Expand"), Some(Tag::Attack));
        assert_eq!(Tag::parse("ALIGN"), Some(Tag::Position));
        assert_eq!(Tag::parse("consolidate"), None);
        assert_eq!(Tag::parse(""), None);
    }

    #[test]
    fn no_alias_is_a_tag_or_comes_twice() {
        let mut names: Vec<&str> = Tag::all().iter().map(|tag| tag.as_str()).chain(ALIASES.iter().map(|alias| alias.0)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 13 + 24);
    }
}
