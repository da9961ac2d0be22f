//! Tests of the studio.
