//! What a request brings, and what an answer has.

use schemars::SchemaGenerator;
use serde_json::{Value, json};

use super::SchemaOf;

/// The body of a request.
pub(super) enum Takes {
    /// There is none.
    Nothing,
    /// JSON.
    Json(SchemaOf),
    /// A file.
    File,
}

/// The body of an answer.
pub(super) enum Gives {
    /// There is none; where a socket begins, frames of it come in its place.
    Nothing,
    /// JSON.
    Json(SchemaOf),
    /// A list of such, as JSON.
    List(SchemaOf),
    /// A text of this kind.
    Text(&'static str),
    /// A file of this kind.
    File(&'static str),
}

const BYTES: &str = "application/octet-stream";

impl Takes {
    pub(super) fn content(&self, schemas: &mut SchemaGenerator) -> Option<Value> {
        match self {
            Self::Nothing => None,
            Self::Json(of) => Some(json!({ "application/json": { "schema": of(schemas) } })),
            Self::File => {
                Some(json!({ BYTES: { "schema": { "type": "string", "format": "binary" } } }))
            }
        }
    }
}

impl Gives {
    pub(super) fn content(&self, schemas: &mut SchemaGenerator) -> Option<Value> {
        match self {
            Self::Nothing => None,
            Self::Json(of) => Some(json!({ "application/json": { "schema": of(schemas) } })),
            Self::List(of) => {
                let schema = json!({ "type": "array", "items": of(schemas) });
                Some(json!({ "application/json": { "schema": schema } }))
            }
            Self::Text(kind) => Some(json!({ *kind: { "schema": { "type": "string" } } })),
            Self::File(kind) => {
                Some(json!({ *kind: { "schema": { "type": "string", "format": "binary" } } }))
            }
        }
    }
}
