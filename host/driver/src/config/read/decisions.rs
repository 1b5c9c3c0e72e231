use std::time::Duration;

use admittance::DecisionsConfig;
use admittance_admin::{HttpConfig, NdjsonPlace, SinksConfig, SqliteConfig};
use admittance_definitions::{
    Mistakes,
    document::{Fields, Node, readers},
};
use admittance_net::tls;
use admittance_watch::file;
use url::{Host, Url};

use super::{GIB, HOUR, KIB, MIB, Sections, ports::pem_file};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The most decisions that may be kept in memory.
const MAX_COUNT: usize = 10_000_000;

/// The longest file with a token, in bytes.
const MAX_TOKEN_BYTES: u64 = 16 * KIB;

pub(super) fn decisions(
    node: &Node<'_>,
    sections: Sections<'_>,
    mistakes: &mut Mistakes,
) -> Option<(DecisionsConfig, SinksConfig)> {
    let mut fields = node.object(mistakes)?;
    let mut memory = fields.get_or_default("memory", memory, mistakes);
    memory.redact = fields.get_or_default("redact", readers::list_of(Node::parse), mistakes);
    let default = SinksConfig::default();
    let sinks = SinksConfig {
        share: fields.get("share", default.share, share, mistakes),
        objects: fields.get("objects", default.objects, Node::boolean, mistakes),
        sqlite: fields.get_optional("sqlite", sqlite, mistakes),
        ndjson: fields.get_optional("ndjson", ndjson, mistakes),
        http: fields.get_optional("http", http, mistakes),
        events: fields.get(
            "events",
            default.events,
            |node, mistakes| events(node, sections, mistakes),
            mistakes,
        ),
    };
    fields.finish(mistakes);
    if memory.count == 0 && !sinks.is_empty() {
        node.wrong(
            "decisions are written from memory, but none are kept there",
            "remove `memory.count`, or `sqlite`, `ndjson`, `http` and `events`",
            mistakes,
        );
    }
    Some((memory, sinks))
}

fn memory(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<DecisionsConfig> {
    let mut fields = node.object(mistakes)?;
    let mut config = DecisionsConfig::default();
    config.count = fields.get("count", config.count, readers::integer(0..=MAX_COUNT), mistakes);
    config.bytes = fields.get("size", config.bytes, readers::size(MIB..=64 * GIB), mistakes);
    fields.finish(mistakes);
    Some(config)
}

fn share(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Option<admittance_definitions::Share>> {
    if node.json() == "0%" {
        return Some(None);
    }
    node.parse(mistakes).map(Some)
}

fn sqlite(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<SqliteConfig> {
    let mut fields = node.object(mistakes)?;
    let file = fields.get_required(
        "file",
        "write `file: /var/lib/admittance/decisions.db`",
        Node::file,
        mistakes,
    );
    let ages = readers::duration(HOUR..=10 * YEAR);
    let sizes = readers::size(MIB..=1024 * GIB);
    let keep = fields.get("keep", SqliteConfig::DEFAULT_KEEP, ages, mistakes);
    let size_limit = fields.get("sizeLimit", SqliteConfig::DEFAULT_SIZE_LIMIT, sizes, mistakes);
    fields.finish(mistakes);
    Some(SqliteConfig {
        file: file?,
        keep,
        size_limit,
    })
}

fn ndjson(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<NdjsonPlace> {
    let mut fields = node.object(mistakes)?;
    let file = fields.get_optional("file", Node::file, mistakes);
    let standard_output = fields.get("standardOutput", false, Node::boolean, mistakes);
    fields.finish(mistakes);
    match (file, standard_output) {
        (Some(file), false) => Some(NdjsonPlace::File(file)),
        (None, true) => Some(NdjsonPlace::StandardOutput),
        _ => {
            let fix = "write `file: /var/log/admittance/decisions.ndjson`, or `standardOutput: true`";
            node.wrong("exactly one place is expected", fix, mistakes);
            None
        }
    }
}

/// Reads `events`, which needs the cluster of the configuration.
fn events(node: &Node<'_>, sections: Sections<'_>, mistakes: &mut Mistakes) -> Option<bool> {
    let is_on = node.boolean(mistakes)?;
    if is_on {
        sections.need_kubernetes(node, mistakes);
    }
    Some(is_on)
}

fn http(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<HttpConfig> {
    let mut fields = node.object(mistakes)?;
    let fix = "write `url: https://logs.example.com/decisions`";
    let url = fields.get_required("url", fix, readers::parse_with(url), mistakes);
    let token_file = fields.get_optional("tokenFile", readers::file_with(token_file), mistakes);
    let ca = fields.get_optional("ca", pem_file(tls::certificates), mistakes);
    refuse_unencrypted_token(&mut fields, url.as_ref(), mistakes);
    fields.finish(mistakes);
    Some(HttpConfig {
        url: url?,
        token_file,
        ca,
    })
}

/// Refuses to send the token over the network without TLS.
fn refuse_unencrypted_token(fields: &mut Fields<'_>, url: Option<&Url>, mistakes: &mut Mistakes) {
    let Some((token, url)) = fields.optional("tokenFile").zip(url) else {
        return;
    };
    let is_local = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        host => host == Some(Host::Domain("localhost")),
    };
    if url.scheme() == "http" && !is_local {
        token.wrong(
            "the token would be sent over the network in the clear",
            "write https:// in place of http://",
            mistakes,
        );
    }
}

fn url(text: &str) -> Result<Url, String> {
    let url = text.parse::<Url>().ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host() && url.username().is_empty())
        .ok_or_else(|| {
            format!("{text:?} is not a valid URL; write http:// or https:// and a host, without a user")
        })
}

fn token_file(path: &std::path::Path) -> Result<std::path::PathBuf, String> {
    file::read_secret(path, MAX_TOKEN_BYTES)
        .map(|_| path.to_owned())
        .map_err(|error| error.describe(path, "the token file"))
}
