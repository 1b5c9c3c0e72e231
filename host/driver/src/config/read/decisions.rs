use std::time::Duration;

use admittance::DecisionsConfig;
use admittance_admin::{HttpConfig, NdjsonTarget, SinksConfig, SqliteConfig};
use admittance_definitions::document::{Fields, Node, readers};
use admittance_net::tls;
use admittance_watch::file;
use url::{Host, Url};

use super::{GIB, HOUR, KIB, MIB, SectionContext, ports::pem_file_reader};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

const MAX_COUNT: usize = 10_000_000;

const MAX_TOKEN_SIZE: u64 = 16 * KIB;

pub(super) fn decisions(node: &Node<'_>, sections: SectionContext<'_>) -> Option<(DecisionsConfig, SinksConfig)> {
    let mut fields = node.object()?;
    let mut memory = fields.get_or_default("memory", read_memory);
    memory.redact = fields.get_or_default("redact", readers::list_of(Node::parse));
    let default = SinksConfig::default();
    let sinks = SinksConfig {
        share: fields.get("share", default.share, read_share),
        objects: fields.get("objects", default.objects, Node::boolean),
        sqlite: fields.get_optional("sqlite", read_sqlite),
        ndjson: fields.get_optional("ndjson", read_ndjson),
        http: fields.get_optional("http", read_http),
        events: fields.get("events", default.events, |node| read_events(node, sections)),
    };
    if memory.count == 0 && !sinks.is_empty() {
        node.add_mistake(
            "decisions are written from memory, but none are kept there",
            "remove `memory.count`, or `sqlite`, `ndjson`, `http` and `events`",
        );
    }
    Some((memory, sinks))
}

fn read_memory(node: &Node<'_>) -> Option<DecisionsConfig> {
    let mut fields = node.object()?;
    let mut config = DecisionsConfig::default();
    config.count = fields.get("count", config.count, readers::integer(0..=MAX_COUNT));
    config.bytes = fields.get("size", config.bytes, readers::size(MIB..=64 * GIB));
    Some(config)
}

fn read_share(node: &Node<'_>) -> Option<Option<admittance_definitions::Share>> {
    if node.json() == "0%" {
        return Some(None);
    }
    node.parse().map(Some)
}

fn read_sqlite(node: &Node<'_>) -> Option<SqliteConfig> {
    let mut fields = node.object()?;
    let file = fields.get_required(
        "file",
        "write `file: /var/lib/admittance/decisions.db`",
        Node::file_path,
    );
    let ages = readers::duration(HOUR..=10 * YEAR);
    let sizes = readers::size(MIB..=1024 * GIB);
    let keep = fields.get("keep", SqliteConfig::DEFAULT_KEEP, ages);
    let size_limit = fields.get("sizeLimit", SqliteConfig::DEFAULT_SIZE_LIMIT, sizes);
    Some(SqliteConfig {
        file: file?,
        keep,
        size_limit,
    })
}

fn read_ndjson(node: &Node<'_>) -> Option<NdjsonTarget> {
    let mut fields = node.object()?;
    let file = fields.get_optional("file", Node::file_path);
    let standard_output = fields.get("standardOutput", false, Node::boolean);
    match (file, standard_output) {
        (Some(file), false) => Some(NdjsonTarget::File(file)),
        (None, true) => Some(NdjsonTarget::StandardOutput),
        _ => {
            let fix = "write `file: /var/log/admittance/decisions.ndjson`, or `standardOutput: true`";
            node.reject("exactly one place is expected", fix)
        }
    }
}

fn read_events(node: &Node<'_>, sections: SectionContext<'_>) -> Option<bool> {
    let is_on = node.boolean()?;
    if is_on {
        sections.require_kubernetes(node);
    }
    Some(is_on)
}

fn read_http(node: &Node<'_>) -> Option<HttpConfig> {
    let mut fields = node.object()?;
    let fix = "write `url: https://logs.example.com/decisions`";
    let url = fields.get_required("url", fix, readers::parse_with(parse_url));
    let token_file = fields.get_optional("tokenFile", readers::file_with(check_token_file));
    let ca = fields.get_optional("ca", pem_file_reader(tls::certificates));
    refuse_unencrypted_token(&mut fields, url.as_ref());
    Some(HttpConfig {
        url: url?,
        token_file,
        ca,
    })
}

fn refuse_unencrypted_token(fields: &mut Fields<'_>, url: Option<&Url>) {
    let Some((token, url)) = fields.optional("tokenFile").zip(url) else {
        return;
    };
    let is_local = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        host => host == Some(Host::Domain("localhost")),
    };
    if url.scheme() == "http" && !is_local {
        token.add_mistake(
            "the token would be sent over the network in the clear",
            "write https:// in place of http://",
        );
    }
}

fn parse_url(text: &str) -> Result<Url, String> {
    let url = text.parse::<Url>().ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host() && url.username().is_empty())
        .ok_or_else(|| format!("{text:?} is not a valid URL; write http:// or https:// and a host, without a user"))
}

fn check_token_file(path: &std::path::Path) -> Result<std::path::PathBuf, String> {
    file::read_secret(path, MAX_TOKEN_SIZE)
        .map(|_| path.to_owned())
        .map_err(|error| error.describe(path, "the token file"))
}
