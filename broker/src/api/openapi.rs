//! `/v1/openapi.json`: all requests and answers, for programs.
//!
//! # Invariants
//! - Every row of [`ACCESS`] and every path of [`super::OPEN`] has one description in [`ROUTES`], and no other
//!   has one: a test counts them.
//! - Schemas are those of the types that are read and written.

mod answers;
mod routes;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use gleaner_protocol::api::ApiError;
use gleaner_serve::Role;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;
use warp::{Filter, Reply};

use super::{ACCESS, Api};
use routes::{ROUTES, Route};

/// How a type tells its schema.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Where the document keeps schemas that have names.
const SCHEMAS: &str = "/components/schemas";

/// Any request that is not open to all may be answered so: who asks is not known, may not, asks too fast,
/// or nothing can be done now.
const OF_ALL: [u16; 4] = [401, 403, 429, 503];

static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string());

impl Api {
    pub(super) fn openapi_routes() -> BoxedFilter<(Response,)> {
        let asked = warp::path!("v1" / "openapi.json").and(warp::get());
        asked
            .map(|| {
                let text: &'static str = &DOCUMENT;
                warp::reply::with_header(text, "content-type", "application/json").into_response()
            })
            .boxed()
    }
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The schemas of what is asked and of what is answered: a field that may be left out is always there in
/// an answer.
struct Schemas {
    asked: SchemaGenerator,
    given: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = || {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = SCHEMAS.into();
            settings.meta_schema = None;
            settings
        };
        Self {
            asked: settings().for_deserialize().into_generator(),
            given: settings().for_serialize().into_generator(),
        }
    }

    /// All that have names. Where the same type is asked otherwise than it is given, `paths` speaks of the
    /// one that is asked by another name from now on.
    fn named(&mut self, paths: &mut Map<String, Value>) -> Map<String, Value> {
        let mut given = self.given.take_definitions(true);
        let asked = self.asked.take_definitions(true);
        let differs = |(name, of): &(&String, &Value)| given.get(*name).is_some_and(|g| g != *of);
        let mut other: BTreeSet<String> =
            asked.iter().filter(differs).map(|(name, _)| name.clone()).collect();
        // What speaks of one of these differs as well.
        loop {
            let speaks = |of: &Value| names_in(of).iter().any(|name| other.contains(name));
            let more = asked.iter().filter(|(name, of)| !other.contains(*name) && speaks(of));
            let more: Vec<String> = more.map(|(name, _)| name.clone()).collect();
            if more.is_empty() {
                break;
            }
            other.extend(more);
        }
        other.retain(|name| given.contains_key(name));
        for body in bodies(paths) {
            rename(body, &other);
        }
        for (name, mut of) in asked {
            rename(&mut of, &other);
            given.insert(if other.contains(&name) { asked_name(&name) } else { name }, of);
        }
        given
    }
}

fn asked_name(name: &str) -> String {
    format!("{name}Asked")
}

/// What is sent in all operations.
fn bodies(paths: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    let operations = paths.values_mut().filter_map(Value::as_object_mut);
    operations.flat_map(|path| path.values_mut()).filter_map(|of| of.get_mut("requestBody"))
}

/// The names of schemas that a schema speaks of.
fn names_in(of: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = vec![of];
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(fields) => {
                let name = fields.get("$ref").and_then(Value::as_str);
                names.extend(name.and_then(|of| of.rsplit('/').next()).map(str::to_owned));
                rest.extend(fields.values());
            }
            Value::Array(values) => rest.extend(values),
            _ => {}
        }
    }
    names
}

/// Speaks of some schemas by their other names.
fn rename(of: &mut Value, names: &BTreeSet<String>) {
    match of {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = value.as_str().and_then(|of| of.rsplit('/').next());
                match name.filter(|name| field == "$ref" && names.contains(*name)) {
                    Some(name) => *value = format!("#{SCHEMAS}/{}", asked_name(name)).into(),
                    None => rename(value, names),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, names)),
        _ => {}
    }
}

/// The whole document.
fn document() -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for route in ROUTES {
        let row = ACCESS
            .iter()
            .find(|row| row.method.as_str() == route.method && row.path == route.row());
        let roles = row.map(|row| row.roles.iter().chain(&[Role::Admin]).map(word).collect());
        let operation = operation(route, roles, &mut schemas);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_lowercase()] = operation;
    }
    schemas.given.subschema_for::<ApiError>();
    let named = schemas.named(&mut paths);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Gleaner's broker",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Jobs, results, the farm and people of one broker. Each answer with a status \
                            of 400 or above is an ApiError.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": named,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The session of a key, or a key that is shown as a token. A broker on \
                                    loopback wants neither, unless require_keys is set.",
                },
            },
        },
        "security": [{ "bearer": [] }, {}],
    })
}

/// A request, with what may be answered. `roles` are those who may ask it; none where it is open to all.
fn operation(route: &Route, roles: Option<Vec<String>>, schemas: &mut Schemas) -> Value {
    let mut answers = Map::new();
    for (status, gives) in route.gives {
        let mut answer = json!({ "description": reason(*status) });
        if let Some(content) = gives.content(&mut schemas.given) {
            answer["content"] = content;
        }
        answers.insert(status.to_string(), answer);
    }
    let of_all = OF_ALL.iter().filter(|_| roles.is_some());
    for status in route.refuses.iter().chain(of_all) {
        let schema = schemas.given.subschema_for::<ApiError>();
        let answer = json!({
            "description": reason(*status),
            "content": { "application/json": { "schema": schema } },
        });
        answers.insert(status.to_string(), answer);
    }
    let mut parameters = path_parameters(route.path);
    parameters.extend(route.query.into_iter().flat_map(query_parameters));
    let mut operation = json!({
        "operationId": format!("{}{}", route.method.to_lowercase(), route.row()),
        "summary": route.says,
        "parameters": parameters,
        "responses": answers,
    });
    if let Some(content) = route.takes.content(&mut schemas.asked) {
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    match roles {
        Some(roles) => operation["x-roles"] = roles.into(),
        None => operation["security"] = json!([]),
    }
    operation
}

/// A role in a word.
fn word(role: &Role) -> String {
    role.name().to_owned()
}

fn reason(status: u16) -> &'static str {
    let status = StatusCode::from_u16(status).ok();
    status.and_then(|status| status.canonical_reason()).unwrap_or("Answered")
}

/// The parameters of a path, each by its name.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let parameter = |name| {
        let schema = match name {
            "job" => json!({ "type": "string", "pattern": "^(job-)?[0-9]{1,19}$" }),
            "index" => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
            "digest" => json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" }),
            "token" => json!({ "type": "string", "pattern": "^(lease-)?[0-9]{1,19}$" }),
            "id" => json!({ "type": "string", "pattern": "^[0-9a-f]{16}$" }),
            _ => json!({ "type": "string", "minLength": 1 }),
        };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    };
    names.map(parameter).collect()
}

/// What may stand after `?`, by the type that reads it.
fn query_parameters(query: SchemaOf) -> Vec<Value> {
    let mut settings = SchemaSettings::draft2020_12().for_deserialize();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let read = query(&mut settings.into_generator()).to_value();
    let required = &read["required"];
    let is_required =
        |name: &str| required.as_array().is_some_and(|all| all.iter().any(|of| of == name));
    let fields = read["properties"].as_object().into_iter().flatten();
    let parameter = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let says = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let mut parameter = json!({
            "name": name, "in": "query", "required": is_required(name), "schema": not_null(schema),
        });
        if let Some(says) = says {
            parameter["description"] = says;
        }
        parameter
    };
    fields.map(parameter).collect()
}

/// A query cannot say `null`: what is not wanted is left out.
fn not_null(mut schema: Value) -> Value {
    if let Some(types) = schema.get_mut("type").filter(|types| types.is_array()) {
        let kept = types.as_array().into_iter().flatten().find(|of| *of != "null").cloned();
        *types = kept.unwrap_or(Value::Null);
    }
    if let Some(of) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        of.retain(|of| of["type"] != "null");
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::super::OPEN;
    use super::*;

    fn operations(document: &Value) -> Vec<(String, &str, &Value)> {
        let paths = document["paths"].as_object().expect("paths");
        paths
            .iter()
            .flat_map(|(path, of)| {
                let of = of.as_object().expect("operations").iter();
                of.map(|(method, of)| (method.to_uppercase(), path.as_str(), of))
            })
            .collect()
    }

    #[test]
    fn every_request_is_described_and_nothing_else() {
        let document = document();
        let described: Vec<String> =
            ROUTES.iter().map(|route| format!("{} {}", route.method, route.row())).collect();
        let mut rows: Vec<String> =
            ACCESS.iter().map(|row| format!("{} {}", row.method, row.path)).collect();
        rows.extend(OPEN.iter().map(|path| format!("POST {path}")));
        rows.push("GET /healthz".into());
        let all = |of: &[String]| of.iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(
            all(&described),
            all(&rows),
            "a row of ACCESS has no description, or the reverse"
        );
        assert_eq!(described.len(), rows.len(), "one is described twice");
        assert_eq!(operations(&document).len(), rows.len(), "one is missing in the document");
    }

    #[test]
    fn what_the_document_speaks_of_is_in_it() {
        let document = document();
        let named = document["components"]["schemas"].as_object().expect("schemas");
        for name in names_in(&document) {
            assert!(named.contains_key(&name), "there is no schema {name}");
        }
        let mut ids = BTreeSet::new();
        for (method, path, of) in operations(&document) {
            assert!(ids.insert(of["operationId"].to_string()), "{method} {path}");
            let parameters = of["parameters"].as_array().expect("a list");
            let in_path = parameters.iter().filter(|of| of["in"] == "path");
            for parameter in in_path {
                let name = parameter["name"].as_str().expect("a name");
                assert!(path.contains(&format!("{{{name}}}")), "{method} {path}: {name}");
            }
            let answers = of["responses"].as_object().expect("answers");
            let works = |status: &String| status.as_str() < "300";
            assert!(answers.keys().any(works), "{method} {path} is never answered");
            assert_eq!(of["security"].is_array(), OPEN.contains(&path) || path == "/healthz");
        }
        assert!(document["paths"]["/v1/jobs"]["post"]["requestBody"].is_object());
        assert_eq!(
            document["paths"]["/v1/states/{digest}"]["get"]["x-roles"],
            json!(["agent", "admin"])
        );
        let by = &document["paths"]["/v1/usage"]["get"]["parameters"];
        assert!(by.as_array().expect("a list").iter().any(|of| of["name"] == "by"), "{by}");
    }
}
