//! What is found.

use serde::{Deserialize, Serialize};

/// Whether something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is there, and works.
    Ok,
    /// It is not there.
    Missing,
    /// It is there, and does not work.
    Broken,
}

/// One thing that a machine has, or that works there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is, one of [`NAMES`](super::NAMES).
    pub name: String,
    /// Whether it is there.
    pub state: State,
    /// What was found: a version, a size, why it does not work, or what to type where it does.
    pub value: String,
    /// What to do; none if all is well.
    pub remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), state: State::Ok, value: value.into(), remedy: None }
    }

    pub(super) fn missing(name: &str, value: impl Into<String>, remedy: &str) -> Self {
        let remedy = Some(remedy.to_owned());
        Self { name: name.to_owned(), state: State::Missing, value: value.into(), remedy }
    }

    /// Missing because `what` is missing, which has the remedy.
    pub(super) fn needs(name: &str, what: &str) -> Self {
        Self { remedy: None, ..Self::missing(name, format!("needs {what}"), "") }
    }

    pub(super) fn broken(name: &str, value: impl Into<String>, remedy: &str) -> Self {
        Self { state: State::Broken, ..Self::missing(name, value, remedy) }
    }
}
