//! Kyverno's `http.Get` and `http.Post`, which send HTTP requests that the host grants to Kyverno policies.

use admittance_admission::{Deadline, HttpGrant, HttpRequest, PolicyHttp, ResponseRecorder, move_if_long};
use serde_json::{Value as Json, json};

use super::{
    Library,
    kyverno::with_doubles,
    lookup::Lookup,
    typed::{Dyn, MapOf, Str},
};
use crate::{
    apply::JsonWriter,
    machine::{Fault, Machine, Outcome},
    value::{Map, Value},
};

/// The maximum size of the body of a policy's HTTP request, in bytes.
const MAX_BODY_SIZE: usize = 1 << 20;
/// Two texts for error messages: the sender of the requests, and the configuration key whose list grants the requests.
const POLICY: (&str, &str) = ("a policy", "`pluginHttp.kyverno` of the configuration");

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HttpLookup {
    method: &'static str,
    url: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

pub(crate) fn is_request(name: &str) -> bool {
    matches!(name, "http.Get" | "http.get" | "http.Post" | "http.post")
}

pub(super) fn register(library: &mut Library) {
    for name in ["http.Get", "http.get"] {
        library.add_global::<(Str,), Dyn>(name, |machine, (url,)| look_up(machine, "GET", &url, None, None));
        library.add_global::<(Str, MapOf<Str, Str>), Dyn>(name, |machine, (url, headers)| {
            look_up(machine, "GET", &url, None, Some(&headers))
        });
    }
    for name in ["http.Post", "http.post"] {
        library.add_global::<(Str, Dyn), Dyn>(name, |machine, (url, body)| {
            look_up(machine, "POST", &url, Some(&body), None)
        });
        library.add_global::<(Str, Dyn, MapOf<Str, Str>), Dyn>(name, |machine, (url, body, headers)| {
            look_up(machine, "POST", &url, Some(&body), Some(&headers))
        });
    }
}

fn look_up<'a>(
    machine: &mut Machine<'a>,
    method: &'static str,
    url: &str,
    body: Option<&Value<'a>>,
    headers: Option<&Map<'a>>,
) -> Outcome<'a> {
    let entries = headers.into_iter().flat_map(|headers| headers.entries());
    let header_results = entries.map(|(name, value)| match (name, value) {
        (Value::String(name), Value::String(value)) => Ok((name.to_string(), value.to_string())),
        _ => Err(Fault::no_overload()),
    });
    let headers = header_results.collect::<Result<_, _>>()?;
    let body = match body {
        Some(body) => {
            let json_text = JsonWriter::new(MAX_BODY_SIZE, machine.deadline).write_json(body);
            let mut text = json_text.map_err(|failure| Fault::error(failure.message))?;
            machine.charge_bytes(text.len())?;
            // Kyverno writes a line feed at the end of the body.
            text.push('\n');
            text.into_bytes()
        }
        None => Vec::new(),
    };
    let lookup = HttpLookup {
        method,
        url: url.to_owned(),
        headers,
        body,
    };
    Lookup::Http(lookup).evaluate(machine)
}

impl HttpLookup {
    /// Sends the request, and returns the response as Kyverno does: as an object with the field `statusCode`.
    pub(super) async fn send_request(
        &self,
        http: Option<&PolicyHttp>,
        recorder: Option<&ResponseRecorder>,
        deadline: Deadline,
    ) -> Result<Value<'static>, String> {
        let failure_message = |why: String| format!("request failed: {why}");
        let http = http.ok_or_else(|| failure_message("this host sends no requests for policies".to_owned()))?;
        let parsed = HttpRequest::parse(self.method, &self.url);
        let (mut request, origin) = parsed.map_err(|error| failure_message(error.to_string()))?;
        request.headers.clone_from(&self.headers);
        request.body.clone_from(&self.body);
        let grant = HttpGrant::find_grant(&http.grants, &origin, &request, POLICY).map_err(failure_message)?;
        let response = request.send(grant, &*http.sender, recorder, deadline).await;
        let reply = response.map_err(|error| failure_message(error.to_string()))?;
        move_if_long(reply.body.len()).await;
        // The first JSON value in the body counts. What follows it is ignored, as by Go's decoder.
        let mut values = serde_json::Deserializer::from_slice(&reply.body).into_iter::<Json>();
        let body = with_doubles(values.next().and_then(Result::ok).unwrap_or_default());
        let result = match body {
            Json::Object(mut fields) => {
                fields.insert("statusCode".to_owned(), reply.status.into());
                Json::Object(fields)
            }
            body => json!({"body": body, "statusCode": reply.status}),
        };
        Ok(Value::owned_from_tree(&result))
    }
}
