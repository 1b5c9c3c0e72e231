//! Reads lists of objects from the upstream page by page.

use std::{path::PathBuf, sync::Arc, time::Duration};

use admittance_admission::{Request, shortened};
use admittance_bcs::{
    ConnectedUpstream,
    zookeeper::{Ensembles, NoEnsemble},
};
use admittance_dialect::{Dialect, ListError, ListRoute};
use admittance_net::{causes, upstream::UpstreamError};
use admittance_watch::file::{SecretError, read_secret_to_string};
use axum::body::Body;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, StatusCode, uri::PathAndQuery};
use http_body_util::{BodyExt, Limited};
use tokio::{
    sync::Mutex,
    time::{Interval, MissedTickBehavior, timeout},
};

use crate::config::{Config, ListConfig};

/// The maximum size of the upstream's reply to a request for a list or an object, in bytes.
const BODY_LIMIT: usize = 64 << 20;
const HEADER_LIMIT: u64 = 64 << 10;
/// The number of listed objects that are fetched concurrently.
const CONCURRENT_REQUESTS: usize = 16;
/// The maximum number of requests that [`UpstreamLists::read`] passes to its callback at once.
const BATCH_SIZE: usize = 64;
/// The number of bytes of an error reply that are quoted in messages.
const EXCERPT_LENGTH: usize = 300;

#[derive(Debug, thiserror::Error)]
pub enum ListsError {
    #[error(transparent)]
    NoEnsemble(#[from] NoEnsemble),
    #[error("{}", .error.describe(.path, "the value of a header of `upstream.lists`"))]
    Header { path: PathBuf, error: SecretError },
    #[error("{}: not a valid value of a header of `upstream.lists`; write one line of text", .0.display())]
    HeaderValue(PathBuf),
}

#[derive(Debug, thiserror::Error)]
enum ListReadError {
    #[error("{0}")]
    NotSent(#[from] UpstreamError),
    #[error("the upstream answered {status}: {text}")]
    Status { status: StatusCode, text: String },
    #[error("the reply broke off, or is larger than {} MiB; `pages.size` makes it smaller: {reason}", BODY_LIMIT >> 20)]
    Incomplete { reason: String },
    #[error("the reply did not arrive in time")]
    Late,
    #[error("the reply is not UTF-8")]
    NotText,
    #[error(transparent)]
    Content(#[from] ListError),
    #[error("the token of the next page is that of the page itself")]
    Repeated,
}

/// A list at the upstream that could be read only in part, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteList {
    pub path: String,
    pub reason: String,
}

#[derive(Debug)]
pub struct UpstreamLists {
    /// The connection to the upstream. Dropping it stops the discovery of the upstream's servers.
    upstream: ConnectedUpstream,
    dialect: Arc<dyn Dialect>,
    timeout: Duration,
    lists: Vec<OpenedList>,
    page: u32,
    pace: Mutex<Interval>,
}

#[derive(Debug)]
struct OpenedList {
    route: ListRoute,
    headers: HeaderMap,
}

/// The number of a list's items that could not be read, and the reason for one of them.
#[derive(Debug, Default)]
struct UnreadableItems {
    count: usize,
    reason: String,
}

impl UpstreamLists {
    /// Opens the lists of objects that are configured under `lists`; returns `None` if there are none. Each request
    /// asks for `page` items, and at most `requests_per_second` requests are sent in a second.
    pub fn open(
        config: &Config,
        ensembles: &Ensembles,
        page: u32,
        requests_per_second: u32,
    ) -> Result<Option<Self>, ListsError> {
        let (Some(dialect), Some(settings)) = (config.front.dialect(), config.front.upstream()) else {
            return Ok(None);
        };
        if config.lists.is_empty() {
            return Ok(None);
        }
        let Some(upstream) = config.front.connect(ensembles)? else {
            return Ok(None);
        };
        let list = |list: &ListConfig| {
            let mut headers = config.front.headers();
            for (name, path) in &list.headers {
                let value = read_secret_to_string(path, HEADER_LIMIT).map_err(|error| ListsError::Header {
                    path: path.clone(),
                    error,
                })?;
                let mut value =
                    HeaderValue::from_str(value.trim()).map_err(|_| ListsError::HeaderValue(path.clone()))?;
                value.set_sensitive(true);
                headers.insert(name, value);
            }
            let route = list.route.clone();
            Ok::<_, ListsError>(OpenedList { route, headers })
        };
        let mut pace = tokio::time::interval(Duration::from_secs(1) / requests_per_second.max(1));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Some(Self {
            upstream,
            dialect,
            timeout: settings.response_timeout,
            lists: config.lists.iter().map(list).collect::<Result<_, _>>()?,
            page,
            pace: Mutex::new(pace),
        }))
    }

    /// Reads all lists. The requests that would create the listed objects are passed to `handle_batch` in groups.
    /// Returns the lists that could not be read completely.
    pub async fn read(&self, mut take: impl AsyncFnMut(Vec<Request>)) -> Vec<IncompleteList> {
        let mut unread = Vec::new();
        for list in &self.lists {
            for path in &list.route.paths {
                let mut unreadable = UnreadableItems::default();
                let outcome = self.read_list(list, path, &mut unreadable, &mut take).await;
                let items = (unreadable.count > 0).then(|| {
                    let UnreadableItems { count, reason } = unreadable;
                    format!("objects that could not be read: {count}, one of them because {reason}")
                });
                let reasons = outcome.err().map(|error| error.to_string()).into_iter().chain(items);
                unread.extend(reasons.map(|reason| IncompleteList {
                    path: path.to_string(),
                    reason,
                }));
            }
        }
        unread
    }

    async fn read_list(
        &self,
        list: &OpenedList,
        path: &PathAndQuery,
        unreadable_items: &mut UnreadableItems,
        handle_batch: &mut impl AsyncFnMut(Vec<Request>),
    ) -> Result<(), ListReadError> {
        let mut token: Option<String> = None;
        loop {
            let target = list.route.page_path(path, self.page, token.as_deref());
            let (headers, body) = self.fetch(list, &target).await?;
            let page = list.route.read_page(&headers, &body)?;
            // The items of the page are copies, so the body's memory can be freed.
            drop(body);
            let reading = stream::iter(&page.items).map(|item| self.request(list, item.get()));
            let mut requests = reading.buffer_unordered(CONCURRENT_REQUESTS).chunks(BATCH_SIZE);
            while let Some(chunk) = requests.next().await {
                let mut batch = Vec::new();
                for request in chunk {
                    match request {
                        Ok(request) => batch.extend(request.map(|request| *request)),
                        Err(error) => {
                            unreadable_items.count += 1;
                            unreadable_items.reason = error.to_string();
                        }
                    }
                }
                handle_batch(batch).await;
            }
            match page.next_token {
                None => return Ok(()),
                next if next == token => return Err(ListReadError::Repeated),
                next => token = next,
            }
        }
    }

    async fn request(&self, list: &OpenedList, item: &str) -> Result<Option<Box<Request>>, ListReadError> {
        let OpenedList { route, headers } = list;
        let Some(object) = &route.object else {
            return Ok(route.admission_request(&*self.dialect, headers, item, item)?);
        };
        let body = match self.fetch(list, object.path.path_of_item(item)?.as_str()).await {
            Err(ListReadError::Status {
                status: StatusCode::NOT_FOUND,
                ..
            }) => return Ok(None),
            got => got?.1,
        };
        Ok(route.admission_request(&*self.dialect, headers, item, route.object_text(&body)?)?)
    }

    async fn fetch(&self, list: &OpenedList, target: &str) -> Result<(HeaderMap, String), ListReadError> {
        self.pace.lock().await.tick().await;
        let target: PathAndQuery = target.parse().map_err(|_| ListError::Path(target.to_owned()))?;
        let mut request = http::Request::new(Body::empty());
        *request.uri_mut() = target.into();
        *request.headers_mut() = list.headers.clone();
        let (head, body) = self.upstream.upstream.send(request).await?.into_parts();
        let body = timeout(self.timeout, Limited::new(body, BODY_LIMIT).collect())
            .await
            .map_err(|_| ListReadError::Late)?
            .map_err(|error| ListReadError::Incomplete {
                reason: causes::root_cause(&*error),
            })?;
        let text = String::from_utf8(body.to_bytes().into()).map_err(|_| ListReadError::NotText)?;
        if !head.status.is_success() {
            return Err(ListReadError::Status {
                status: head.status,
                text: shortened(&text, EXCERPT_LENGTH).into_owned(),
            });
        }
        Ok((head.headers, text))
    }
}
