//! Unifies features during development.
