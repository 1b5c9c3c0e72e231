//! Reads the requests of test cases.

use admittance::admission::{Object, Operation, Request, UserInfo, read_review};
use admittance_definitions::document::{Fields, Node, readers};
use admittance_dialect::Dialect;

use super::case::read_value;
use crate::{
    files, replay,
    request_file::{self, NO_KIND},
    simulation::RequestSurroundings,
};

pub(super) fn read_request(node: &Node<'_>, dialect: Option<&dyn Dialect>) -> Option<(Request, RequestSurroundings)> {
    let mut fields = node.object()?;
    let forms = fields.present_fields(&["review", "http", "recording"]);
    let object = fields.get_optional("object", read_object_with_kind);
    let old_object = fields.get_optional("oldObject", read_object);
    let is_object = fields.has("object") || fields.has("oldObject");
    match forms.as_slice() {
        [] if is_object => {
            let details = Details::read(&mut fields);
            let request = details.and_then(|details| details.into_request(object, old_object));
            request.map(without_surroundings)
        }
        [(form, value)] if !is_object => match *form {
            "review" => read_review_request(value).map(without_surroundings),
            "http" => read_http_request(value, dialect).map(without_surroundings),
            _ => read_recorded_request(value, &mut fields),
        },
        _ => {
            let fix = "write one of `object` (or `oldObject`), `review`, `http` and `recording`";
            node.reject("a case has one request", fix)
        }
    }
}

fn without_surroundings(request: Request) -> (Request, RequestSurroundings) {
    (request, RequestSurroundings::default())
}

struct Details {
    operation: Option<Operation>,
    resource: Option<String>,
    namespace: Option<String>,
    user: UserInfo,
    options: Option<Object>,
    dry_run: bool,
}

impl Details {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let before = fields.node().mistake_count();
        let read_operation = |node: &Node<'_>| {
            let words = Operation::ALL.map(|operation| (operation.as_str(), operation));
            node.one_of("operation", &words)
        };
        let details = Self {
            operation: fields.get_optional("operation", read_operation),
            resource: fields.get_optional("resource", readers::text),
            namespace: fields.get_optional("namespace", readers::text),
            user: fields.get_or_default("user", read_user),
            options: fields.get_optional("options", read_object),
            dry_run: fields.get_or_default("dryRun", Node::boolean),
        };
        (fields.node().mistake_count() == before).then_some(details)
    }

    fn into_request(self, object: Option<Object>, old_object: Option<Object>) -> Option<Request> {
        let (resource, namespace) = (self.resource.as_deref(), self.namespace.as_deref());
        let mut request = Request::from_objects(object, old_object, self.operation, resource, namespace)?;
        request.user = self.user;
        request.options = self.options;
        request.dry_run = self.dry_run;
        Some(request)
    }
}

fn read_user(node: &Node<'_>) -> Option<UserInfo> {
    let mut fields = node.object()?;
    let mut user = UserInfo {
        username: fields.get_or_default("username", readers::text),
        uid: fields.get_or_default("uid", readers::text),
        groups: fields.get_or_default("groups", Node::strings),
        ..UserInfo::default()
    };
    for (key, values) in fields.get_or_default("extra", Node::map) {
        user.extra
            .extend(values.strings().map(|values| (key.to_owned(), values)));
    }
    Some(user)
}

fn read_object_with_kind(node: &Node<'_>) -> Option<Object> {
    let object = read_object(node)?;
    if object.head().kind.as_deref().unwrap_or_default().is_empty() {
        return node.reject(NO_KIND, "");
    }
    Some(object)
}

fn read_object(node: &Node<'_>) -> Option<Object> {
    let object = Object::from_value(read_value(node)?);
    if object.is_none() {
        node.add_mistake("not an object", "write its fields, or the path of its file");
    }
    object
}

fn read_review_request(node: &Node<'_>) -> Option<Request> {
    let review = read_review(read_value(node)?.to_string());
    Some(node.accept(review)?.request)
}

fn read_http_request(node: &Node<'_>, dialect: Option<&dyn Dialect>) -> Option<Request> {
    let text = node.text()?;
    let bytes = if request_file::is_http(text.as_bytes()) {
        text.as_bytes().to_vec()
    } else {
        let path = node.file_path()?;
        node.accept(files::read_bytes(&path).map_err(files::error_at(&path)))?
    };
    node.accept(request_file::request_from_http(&bytes, dialect))
}

fn read_recorded_request(node: &Node<'_>, fields: &mut Fields<'_>) -> Option<(Request, RequestSurroundings)> {
    let number = fields.get("number", 1, readers::integer(1..=u32::MAX));
    let path = node.file_path()?;
    let mut requests = node.accept(replay::recorded::open_recording(&path))?;
    match requests.nth(number as usize - 1) {
        Some(recorded) => {
            let recorded = node.accept(recorded)?;
            Some((recorded.request, recorded.surroundings))
        }
        None => node.reject(format!("it has no request {number}"), "give a smaller `number`"),
    }
}
