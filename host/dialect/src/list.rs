//! Lists the objects of a control plane, and builds for each object the request that would create it.

use std::str::FromStr;

use admittance_admission::{Operation, Pointer, Request};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, request::Parts, uri::PathAndQuery};
use serde_json::value::RawValue;

use crate::{
    BodyReading, Class, Dialect, Rejection,
    template::{PathTemplate, encode_segment, is_segment, wrap_at},
};

/// Describes how to list the objects of a control plane, and which request would create each item of the list.
#[derive(Clone, Debug)]
pub struct ListRoute {
    /// The path and query of each request that lists objects.
    pub paths: Vec<PathAndQuery>,
    /// The path of the array of items in the body of a reply.
    pub items: Pointer,
    /// The way to request the pages of the list; `None` if one reply has the whole list.
    pub pages: Option<ListPages>,
    /// The request that fetches the object of an item; `None` if each item of the list is the whole object.
    pub object: Option<ItemObjectRequest>,
    /// The request that would create the object of an item.
    pub request: ItemRequest,
}

/// Describes how to request the pages of a list.
#[derive(Clone, Debug)]
pub struct ListPages {
    /// The name of the query parameter that contains the token of the requested page.
    pub token_parameter: String,
    /// The part of a reply that has the token of the next page.
    pub next_token: NextToken,
    /// The name of the query parameter for the number of items on a page; `None` if there is no such parameter.
    pub size_parameter: Option<String>,
}

/// The part of a reply that has the token of the next page. On the last page, the token is missing or empty.
#[derive(Clone, Debug)]
pub enum NextToken {
    /// The header with this name has the token.
    Header(HeaderName),
    /// The string at this path in the body is the token.
    Pointer(Pointer),
}

/// The request that fetches the whole object of an item. It is needed if list items contain only part of their objects.
#[derive(Clone, Debug)]
pub struct ItemObjectRequest {
    /// The path and query of the request that fetches the object.
    pub path: ItemPath,
    /// The path of the object in the body of the reply.
    pub pointer: Pointer,
}

/// The request that would create the object of an item.
#[derive(Clone, Debug)]
pub struct ItemRequest {
    /// The method of the request.
    pub method: Method,
    /// The path and query of the request.
    pub path: ItemPath,
    /// The path of the object in the body of the request.
    pub pointer: Pointer,
}

/// A path and query with placeholders. Each placeholder is a pointer to a value in an item, such as
/// `/v1/job/{/ID}?namespace={/Namespace}`.
#[derive(Clone, Debug)]
pub struct ItemPath(PathTemplate<Pointer>);

/// The error for a string that is not an [`ItemPath`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a path with pointers into an item: write `/v1/job/{{/ID}}`")]
pub struct InvalidItemPath(String);

/// The reason why a list or one of its items could not be read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// The reply has no list at the configured path.
    #[error("there is no list at `{pointer}`: {reason}")]
    NoList {
        /// The path at which the list was expected.
        pointer: Pointer,
        /// The reason why there is no list at the path.
        reason: String,
    },
    /// The item has no usable value at the path in a placeholder.
    #[error("the item has no string or number at `{0}` that can be part of a path")]
    NoValue(Pointer),
    /// The reply has no object at the configured path.
    #[error("there is no object at `{0}`")]
    NoObject(Pointer),
    /// The path with the values of the item is too long or not valid.
    #[error("{0:?} is not a valid path")]
    Path(String),
    /// The dialect refuses the request that would create the object.
    #[error("{0}")]
    Refused(String),
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// The items of the page as JSON text, exactly as received.
    pub items: Vec<Box<RawValue>>,
    /// The token of the next page; `None` if this page is the last.
    pub next_token: Option<String>,
}

impl ItemPath {
    /// Returns the path with its placeholders replaced by values of this item.
    ///
    /// # Errors
    ///
    /// Returns an error if the item lacks a value for a placeholder.
    pub fn path_of_item(&self, item: &str) -> Result<PathAndQuery, ListError> {
        self.fill(|pointer| value_at(item, pointer).ok_or_else(|| ListError::NoValue(pointer.clone())))
    }

    fn sample_path(&self) -> Result<PathAndQuery, ListError> {
        self.fill(|_| Ok("x".to_owned()))
    }

    fn fill(&self, value: impl Fn(&Pointer) -> Result<String, ListError>) -> Result<PathAndQuery, ListError> {
        let path = self.0.fill(|pointer| Ok(encode_segment(&value(pointer)?)))?;
        path.parse().map_err(|_| ListError::Path(path))
    }
}

impl FromStr for ItemPath {
    type Err = InvalidItemPath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pointer = |placeholder: &str| {
            let pointer: Option<Pointer> = placeholder.parse().ok();
            pointer.filter(|pointer| !pointer.segments().is_empty())
        };
        PathTemplate::parse(text, pointer)
            .map(Self)
            .filter(|path| path.sample_path().is_ok())
            .ok_or_else(|| InvalidItemPath(text.to_owned()))
    }
}

/// Returns the string or number at this path in the item, as a segment of a URL path. Returns `None` if there is none,
/// or if it is empty, `.` or `..`: servers remove segments like these from a path.
fn value_at(item: &str, pointer: &Pointer) -> Option<String> {
    let text = item.get(pointer.locate(item)?)?;
    let value = match serde_json::from_str(text).ok()? {
        serde_json::Value::String(value) => value,
        serde_json::Value::Number(value) => value.to_string(),
        _ => return None,
    };
    Some(value).filter(|value| is_segment(value))
}

impl ListRoute {
    /// Checks the request to create the object of an item: the dialect must read the request as a creation or update.
    ///
    /// # Errors
    ///
    /// Returns the mistake in the configuration, as a sentence.
    pub fn check(&self, dialect: &dyn Dialect, headers: &HeaderMap) -> Result<(), String> {
        let path = self.request.path.sample_path().map_err(|error| error.to_string())?;
        let request = format!("{} {path}", self.request.method);
        match dialect.classify(&self.request_head(path, headers)) {
            Class::Inspect(inspection) if matches!(inspection.operation, Operation::Create | Operation::Update) => {
                Ok(())
            }
            Class::Inspect(inspection) => Err(format!(
                "{request} is a request for {}, and not one that creates an object",
                inspection.operation
            )),
            Class::Pass => Err(format!("{request} passes without the chains")),
            Class::Refuse(rejection) => Err(format!("{request} would be rejected: {rejection}")),
        }
    }

    /// Returns the path and query that request a page of the list at `path`. The first page is requested without a
    /// `token`. Without paging, `path` is returned unchanged.
    pub fn page_path(&self, path: &PathAndQuery, size: u32, token: Option<&str>) -> String {
        let Some(pages) = &self.pages else {
            return path.to_string();
        };
        let mut query = form_urlencoded::Serializer::new(path.query().unwrap_or_default().to_owned());
        if let Some(name) = &pages.size_parameter {
            query.append_pair(name, &size.to_string());
        }
        if let Some(token) = token {
            query.append_pair(&pages.token_parameter, token);
        }
        match query.finish().as_str() {
            "" => path.path().to_owned(),
            query => format!("{}?{query}", path.path()),
        }
    }

    /// Parses a reply with a page of the list.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply has no list at the configured path.
    pub fn read_page(&self, headers: &HeaderMap, body: &str) -> Result<ListPage, ListError> {
        let no_list = |reason: String| ListError::NoList {
            pointer: self.items.clone(),
            reason,
        };
        let list_text = self.items.locate(body).and_then(|range| body.get(range));
        let list = list_text.ok_or_else(|| no_list("the reply is something else".to_owned()))?;
        // Servers that are written in Go encode an empty list as null.
        let items: Option<Vec<Box<RawValue>>> =
            serde_json::from_str(list).map_err(|error| no_list(error.to_string()))?;
        let next = self.pages.as_ref().and_then(|pages| match &pages.next_token {
            NextToken::Header(name) => headers.get(name)?.to_str().ok().map(str::to_owned),
            NextToken::Pointer(pointer) => value_at(body, pointer),
        });
        Ok(ListPage {
            items: items.unwrap_or_default(),
            next_token: next.filter(|token| !token.is_empty()),
        })
    }

    /// Returns the object of an item from the reply that contains it.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply has no object at the configured path.
    pub fn object_text<'b>(&self, body: &'b str) -> Result<&'b str, ListError> {
        let Some(ItemObjectRequest { pointer, .. }) = &self.object else {
            return Ok(body);
        };
        let object = pointer.locate(body).and_then(|range| body.get(range));
        object
            .filter(|object| object.starts_with('{'))
            .ok_or_else(|| ListError::NoObject(pointer.clone()))
    }

    /// Returns the admission request that would create the object of an item; `None` if no chain applies to it.
    ///
    /// # Errors
    ///
    /// Returns an error if the dialect cannot read the request.
    pub fn admission_request(
        &self,
        dialect: &dyn Dialect,
        headers: &HeaderMap,
        item: &str,
        object: &str,
    ) -> Result<Option<Box<Request>>, ListError> {
        let refused = |rejection: Rejection| ListError::Refused(rejection.to_string());
        let head = self.request_head(self.request.path.path_of_item(item)?, headers);
        let inspection = match dialect.classify(&head) {
            Class::Inspect(inspection) => inspection,
            Class::Pass => return Ok(None),
            Class::Refuse(rejection) => return Err(refused(rejection)),
        };
        let body = wrap_at(object, &self.request.pointer);
        let reading = dialect.read_body(&head, &inspection, &Bytes::from(body));
        match reading.map_err(refused)? {
            BodyReading::Nothing => Ok(None),
            BodyReading::Admit { request, .. } | BodyReading::Fixed { request, .. } => Ok(Some(request)),
        }
    }

    fn request_head(&self, path: PathAndQuery, headers: &HeaderMap) -> Parts {
        let mut head = http::Request::new(()).into_parts().0;
        head.method = self.request.method.clone();
        head.uri = path.into();
        head.headers = headers.clone();
        head
    }
}

#[cfg(test)]
mod tests;
