//! How the program ends.

use std::fmt;

/// Exit code of a run that failed.
pub const FAILED: u8 = 1;
/// Exit code of a request that was wrong: spec, arguments, a path that is not there.
pub const WRONG_REQUEST: u8 = 2;
/// Exit code after Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// An ending that is not success: what to print, and the exit code.
#[derive(Clone, Debug)]
pub struct Ending {
    /// Exit code.
    pub code: u8,
    /// One clear message; may have several lines.
    pub message: String,
    /// What the user can do.
    pub hint: Option<String>,
}

impl Ending {
    /// The run failed.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self { code: FAILED, message: message.to_string(), hint: None }
    }

    /// The request was wrong.
    pub fn wrong(message: impl fmt::Display) -> Self {
        Self { code: WRONG_REQUEST, message: message.to_string(), hint: None }
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  help: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Ending {}

impl From<cosplay_datasets::Error> for Ending {
    fn from(error: cosplay_datasets::Error) -> Self {
        use cosplay_datasets::Error;
        match error {
            // The user named a path that cannot be what it should be.
            Error::NotARun { .. } | Error::RunExists { .. } | Error::NotEmpty { .. } | Error::NoMatch { .. } | Error::Sql { .. } => {
                Self::wrong(error)
            }
            _ => Self::failed(error),
        }
    }
}

impl From<cosplay_operators::operator::OperatorError> for Ending {
    fn from(error: cosplay_operators::operator::OperatorError) -> Self {
        Self::failed(error)
    }
}
