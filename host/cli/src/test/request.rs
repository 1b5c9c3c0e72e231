//! Reads the requests of cases.

use admittance::admission::{Object, Operation, Request, UserInfo, read_review};
use admittance_definitions::{
    Mistakes,
    document::{Fields, Node, readers},
};
use admittance_dialect::Dialect;

use super::case::value_of;
use crate::{
    files, replay,
    request_file::{self, NO_KIND},
    surroundings::RequestSurroundings,
};

pub(super) fn read(
    node: &Node<'_>,
    dialect: Option<&dyn Dialect>,
    mistakes: &mut Mistakes,
) -> Option<(Request, RequestSurroundings)> {
    let mut fields = node.object(mistakes)?;
    let forms = fields.present(&["review", "http", "recording"]);
    let object = fields.get_optional("object", object, mistakes);
    let old_object = fields.get_optional("oldObject", object_of, mistakes);
    let is_object = fields.has("object") || fields.has("oldObject");
    let request = match forms.as_slice() {
        [] if is_object => {
            let details = Details::read(&mut fields, mistakes);
            let request = details.and_then(|details| details.request(object, old_object));
            request.map(alone)
        }
        [(form, value)] if !is_object => match *form {
            "review" => review(value, mistakes).map(alone),
            "http" => http(value, dialect, mistakes).map(alone),
            _ => recording(value, &mut fields, mistakes),
        },
        _ => {
            let fix = "write one of `object` (or `oldObject`), `review`, `http` and `recording`";
            node.wrong("a case has one request", fix, mistakes);
            None
        }
    };
    fields.finish(mistakes);
    request
}

/// Returns a request without recorded surroundings.
fn alone(request: Request) -> (Request, RequestSurroundings) {
    (request, RequestSurroundings::default())
}

/// The properties of a request that an object does not contain.
struct Details {
    operation: Option<Operation>,
    resource: Option<String>,
    namespace: Option<String>,
    user: UserInfo,
    options: Option<Object>,
    dry_run: bool,
}

impl Details {
    fn read(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        let before = mistakes.len();
        let read = |node: &Node<'_>, mistakes: &mut Mistakes| {
            let words = Operation::ALL.map(|operation| (operation.as_str(), operation));
            node.one_of("operation", &words, mistakes)
        };
        let details = Self {
            operation: fields.get_optional("operation", read, mistakes),
            resource: fields.get_optional("resource", readers::text, mistakes),
            namespace: fields.get_optional("namespace", readers::text, mistakes),
            user: fields.get_or_default("user", user, mistakes),
            options: fields.get_optional("options", object_of, mistakes),
            dry_run: fields.get_or_default("dryRun", Node::boolean, mistakes),
        };
        (mistakes.len() == before).then_some(details)
    }

    fn request(self, object: Option<Object>, old_object: Option<Object>) -> Option<Request> {
        let (resource, namespace) = (self.resource.as_deref(), self.namespace.as_deref());
        let mut request = Request::described(object, old_object, self.operation, resource, namespace)?;
        request.user = self.user;
        request.options = self.options;
        request.dry_run = self.dry_run;
        Some(request)
    }
}

fn user(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<UserInfo> {
    let mut fields = node.object(mistakes)?;
    let mut user = UserInfo {
        username: fields.get_or_default("username", readers::text, mistakes),
        uid: fields.get_or_default("uid", readers::text, mistakes),
        groups: fields.get_or_default("groups", Node::strings, mistakes),
        ..UserInfo::default()
    };
    for (key, values) in fields.get_or_default("extra", Node::map, mistakes) {
        user.extra
            .extend(values.strings(mistakes).map(|values| (key.to_owned(), values)));
    }
    fields.finish(mistakes);
    Some(user)
}

/// Reads an object with its kind, or the file that it names.
fn object(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Object> {
    let object = object_of(node, mistakes)?;
    if object.head().kind.as_deref().unwrap_or_default().is_empty() {
        node.wrong(NO_KIND, "", mistakes);
        return None;
    }
    Some(object)
}

/// Reads an object, or the file that it names.
fn object_of(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Object> {
    let value = value_of(node, mistakes)?;
    let object = Object::from_value(value);
    if object.is_none() {
        node.wrong(
            "not an object",
            "write its fields, or the path of its file",
            mistakes,
        );
    }
    object
}

fn review(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Request> {
    let review = read_review(value_of(node, mistakes)?.to_string());
    Some(node.accept(review, mistakes)?.request)
}

/// Reads the text of an HTTP request, or the file that it names.
fn http(node: &Node<'_>, dialect: Option<&dyn Dialect>, mistakes: &mut Mistakes) -> Option<Request> {
    let text = node.text(mistakes)?;
    let bytes = if request_file::is_http(text.as_bytes()) {
        text.as_bytes().to_vec()
    } else {
        let path = node.file(mistakes)?;
        node.accept(files::read_bytes(&path).map_err(files::at(&path)), mistakes)?
    };
    node.accept(request_file::from_http(&bytes, dialect), mistakes)
}

/// Reads a request from a file of `record`.
fn recording(
    node: &Node<'_>,
    fields: &mut Fields<'_>,
    mistakes: &mut Mistakes,
) -> Option<(Request, RequestSurroundings)> {
    let number = fields.get("number", 1, readers::integer(1..=u32::MAX), mistakes);
    let path = node.file(mistakes)?;
    let mut requests = node.accept(replay::recorded::open(&path), mistakes)?;
    match requests.nth(number as usize - 1) {
        Some(recorded) => {
            let recorded = node.accept(recorded, mistakes)?;
            Some((recorded.request, recorded.surroundings))
        }
        None => {
            node.wrong(
                format!("it has no request {number}"),
                "give a smaller `number`",
                mistakes,
            );
            None
        }
    }
}
