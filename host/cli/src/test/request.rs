//! Reads the requests of test cases.

use admittance::admission::{Object, Operation, Request, UserInfo, read_review};
use admittance_definitions::document::{Fields, Node, readers};
use admittance_dialect::Dialect;

use super::case::value_of;
use crate::{
    files, replay,
    request_file::{self, NO_KIND},
    simulation::RequestSurroundings,
};

pub(super) fn read(node: &Node<'_>, dialect: Option<&dyn Dialect>) -> Option<(Request, RequestSurroundings)> {
    let mut fields = node.object()?;
    let forms = fields.present(&["review", "http", "recording"]);
    let object = fields.get_optional("object", object);
    let old_object = fields.get_optional("oldObject", object_of);
    let is_object = fields.has("object") || fields.has("oldObject");
    match forms.as_slice() {
        [] if is_object => {
            let details = Details::read(&mut fields);
            let request = details.and_then(|details| details.request(object, old_object));
            request.map(alone)
        }
        [(form, value)] if !is_object => match *form {
            "review" => review(value).map(alone),
            "http" => http(value, dialect).map(alone),
            _ => recording(value, &mut fields),
        },
        _ => {
            let fix = "write one of `object` (or `oldObject`), `review`, `http` and `recording`";
            node.reject("a case has one request", fix)
        }
    }
}

fn alone(request: Request) -> (Request, RequestSurroundings) {
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
            user: fields.get_or_default("user", user),
            options: fields.get_optional("options", object_of),
            dry_run: fields.get_or_default("dryRun", Node::boolean),
        };
        (fields.node().mistake_count() == before).then_some(details)
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

fn user(node: &Node<'_>) -> Option<UserInfo> {
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

fn object(node: &Node<'_>) -> Option<Object> {
    let object = object_of(node)?;
    if object.head().kind.as_deref().unwrap_or_default().is_empty() {
        return node.reject(NO_KIND, "");
    }
    Some(object)
}

fn object_of(node: &Node<'_>) -> Option<Object> {
    let object = Object::from_value(value_of(node)?);
    if object.is_none() {
        node.wrong("not an object", "write its fields, or the path of its file");
    }
    object
}

fn review(node: &Node<'_>) -> Option<Request> {
    let review = read_review(value_of(node)?.to_string());
    Some(node.accept(review)?.request)
}

fn http(node: &Node<'_>, dialect: Option<&dyn Dialect>) -> Option<Request> {
    let text = node.text()?;
    let bytes = if request_file::is_http(text.as_bytes()) {
        text.as_bytes().to_vec()
    } else {
        let path = node.file()?;
        node.accept(files::read_bytes(&path).map_err(files::at(&path)))?
    };
    node.accept(request_file::from_http(&bytes, dialect))
}

fn recording(node: &Node<'_>, fields: &mut Fields<'_>) -> Option<(Request, RequestSurroundings)> {
    let number = fields.get("number", 1, readers::integer(1..=u32::MAX));
    let path = node.file()?;
    let mut requests = node.accept(replay::recorded::open(&path))?;
    match requests.nth(number as usize - 1) {
        Some(recorded) => {
            let recorded = node.accept(recorded)?;
            Some((recorded.request, recorded.surroundings))
        }
        None => node.reject(format!("it has no request {number}"), "give a smaller `number`"),
    }
}
