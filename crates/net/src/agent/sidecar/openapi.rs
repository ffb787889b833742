//! The description of the sidecar's endpoints, as `/openapi.json` shows it.

use serde_json::{Value, json};

/// What the endpoints take and give.
pub(super) fn openapi() -> Value {
    let body =
        |schema: Value| json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    let answer = |text: &str, schema: Value| json!({ "description": text, "content": { "application/json": { "schema": schema } } });
    let error =
        || answer("why not", json!({ "type": "object", "properties": { "error": { "type": "string" } } }));
    json!({
        "openapi": "3.1.0",
        "info": { "title": "posse agent", "version": env!("CARGO_PKG_VERSION") },
        "paths": {
            "/choose": { "post": {
                "summary": "Choose one of several arms",
                "requestBody": body(json!({
                    "type": "object", "required": ["arms"], "additionalProperties": false,
                    "properties": {
                        "user": { "type": "integer", "minimum": 0, "default": 0 },
                        "arms": { "type": "array", "minItems": 1,
                                  "items": { "type": "array", "items": { "type": "number" } } },
                    },
                })),
                "responses": {
                    "200": answer("the choice", json!({
                        "type": "object", "required": ["id", "arm", "propensity"],
                        "properties": {
                            "id": { "type": "string", "description": "name it when the reward comes" },
                            "arm": { "type": "integer", "minimum": 0 },
                            "propensity": { "type": ["number", "null"] },
                        },
                    })),
                    "422": error(),
                },
            } },
            "/reward": { "post": {
                "summary": "Tell what a choice brought, at any time",
                "requestBody": body(json!({
                    "type": "object", "required": ["id", "reward"], "additionalProperties": false,
                    "properties": { "id": { "type": "string" }, "reward": { "type": "number" } },
                })),
                "responses": { "200": answer("learned", json!({ "type": "object" })), "404": error(), "422": error(), "503": error() },
            } },
            "/healthz": { "get": { "summary": "How the agent is doing", "responses": {
                "200": answer("it chooses", json!({ "type": "object" })),
                "503": answer("another process speaks for it", json!({ "type": "object" })),
            } } },
            "/new-life": { "post": {
                "summary": "Give an agent that was superseded a new life",
                "responses": { "200": answer("it will ask for one", json!({ "type": "object" })) },
            } },
            "/privacy": { "get": {
                "summary": "What privacy was spent and may be claimed",
                "responses": { "200": answer("the accountant's statement", json!({ "type": "object" })), "404": error() },
            } },
            "/metrics": { "get": { "summary": "Counters for Prometheus", "responses": { "200": { "description": "OpenMetrics text" } } } },
        },
    })
}
