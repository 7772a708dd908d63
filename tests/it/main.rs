//! End-to-end tests: they run the program as a user does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cluster;
mod determinism;
mod failure;
mod invariants;
mod looking;
mod program;
mod python;
mod rebuild;
mod refused;
mod resume;
mod spec;
