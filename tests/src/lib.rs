//! Tests that stand outside the crates: tidy, golden vectors
