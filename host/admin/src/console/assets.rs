//! Serves the style sheet, scripts and icon of the console. They are compiled into the program, and browsers cache them
//! until the program changes.

use std::sync::LazyLock;

use admittance_admission::Digest;
use admittance_definitions::CHAIN_SCHEMA;
use axum::{
    Router,
    extract::Path,
    response::{IntoResponse, Response},
    routing::get,
};
use http::{
    StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};

use crate::Api;

struct Asset {
    name: &'static str,
    media_type: &'static str,
    text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

const ASSETS: [Asset; 12] = [
    asset("console.css", STYLE, include_str!("assets/console.css")),
    asset("console.js", SCRIPT, include_str!("assets/console.js")),
    asset("colours.js", SCRIPT, include_str!("assets/colours.js")),
    asset("completion.js", SCRIPT, include_str!("assets/completion.js")),
    asset("copy.js", SCRIPT, include_str!("assets/copy.js")),
    asset("editor.js", SCRIPT, include_str!("assets/editor.js")),
    asset("keys.js", SCRIPT, include_str!("assets/keys.js")),
    asset("live.js", SCRIPT, include_str!("assets/live.js")),
    asset("playground.js", SCRIPT, include_str!("assets/playground.js")),
    asset("time.js", SCRIPT, include_str!("assets/time.js")),
    asset("chain.schema.json", "application/schema+json", CHAIN_SCHEMA),
    asset("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

const fn asset(name: &'static str, media_type: &'static str, text: &'static str) -> Asset {
    Asset { name, media_type, text }
}

/// A hash of the assets names the directory, so that scripts import only scripts of their own version.
static DIRECTORY: LazyLock<String> = LazyLock::new(|| {
    let digest = Digest::of_parts(ASSETS.iter().map(|asset| asset.text.as_bytes()));
    digest.to_hex().chars().take(12).collect()
});

pub(super) fn address(name: &str) -> String {
    format!("/assets/{}/{name}", *DIRECTORY)
}

pub(super) fn router() -> Router<Api> {
    Router::new().route("/assets/{directory}/{name}", get(serve_asset))
}

async fn serve_asset(Path((directory, name)): Path<(String, String)>) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // The name of the directory contains a hash of the assets. If the browser asks for another directory than
    // `DIRECTORY`, the page comes from an older or newer version of this program. The browser gets the asset of this
    // version, but must not cache it, because the asset may not fit the page.
    let cache = if directory == *DIRECTORY {
        "public, max-age=31536000, immutable"
    } else {
        "no-store"
    };
    let headers = [(CONTENT_TYPE, asset.media_type), (CACHE_CONTROL, cache)];
    (headers, asset.text).into_response()
}
