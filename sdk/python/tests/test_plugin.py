import unittest
from dataclasses import dataclass
from typing import Any, Callable

from admittance import (
    Patch,
    Plugin,
    Request,
    Response,
    SettingsError,
    SettingsErrors,
    allow,
    deny,
    mutate,
    patch,
    pointer,
    replace,
    setting,
)
from admittance.cluster import ClusterError, get
from admittance.http import HttpError, HttpResponse, send
from admittance.testing import configure, connect, create, delete, update


def pod(**labels: str) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "shop", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def plugin(admit: Callable[[Request, Any], Response], **more: Any) -> Plugin:
    return Plugin(name="only", version="0.1.0", summary="For a test.", mutates=True, admit=admit, **more)


def answer(admit: Callable[[Request, Any], Response], request: Any = None) -> Response:
    return configure(plugin(admit)).admit(request or create(pod()))


@dataclass
class Words:
    words: list[str] = setting("The allowed names.")


def prepare(settings: Words) -> frozenset[str]:
    errors = [
        SettingsError(pointer("words", index), "empty; remove it")
        for index, word in enumerate(settings.words)
        if not word
    ]
    if errors:
        raise SettingsErrors(errors)
    return frozenset(settings.words)


class Plugins(unittest.TestCase):
    def test_settings_are_checked_and_prepared_by_configure(self) -> None:
        def admit(request: Request, words: frozenset[str]) -> Response:
            return allow() if request.name in words else deny(f"{request.name} is not allowed")

        words = plugin(admit, settings=Words, configure=prepare)
        for settings, pointers in [({}, ["/words"]), ({"words": ["a", "", ""]}, ["/words/1", "/words/2"])]:
            with self.assertRaises(SettingsErrors) as raised:
                configure(words, settings)
            self.assertEqual([error.pointer for error in raised.exception.errors], pointers)
        self.assertTrue(configure(words, {"words": ["web"]}).admit(create(pod())).allowed)
        denial = configure(words, {"words": []}).admit(create(pod())).denial
        assert denial
        self.assertEqual((denial.code, denial.reason, denial.message), (403, "Forbidden", "web is not allowed"))

    def test_resources_become_rules(self) -> None:
        rules = plugin(lambda *_: allow(), resources=["v1/pods", "apps/v1/deployments"]).rules
        self.assertEqual(rules, [("", "v1", "pods"), ("apps", "v1", "deployments")])
        with self.assertRaisesRegex(TypeError, "`pods` is not a resource; write `v1/pods`"):
            plugin(lambda *_: allow(), resources=["pods"])

    def test_an_unknown_capability_is_refused(self) -> None:
        with self.assertRaisesRegex(TypeError, "`clusters` is not a capability; use cluster, http, environment"):
            plugin(lambda *_: allow(), capabilities={"clusters": []})
        with self.assertRaisesRegex(TypeError, "`http` is not a list"):
            plugin(lambda *_: allow(), capabilities={"http": "https://a.example.com"})

    def test_the_module_of_a_plugin_can_be_imported_natively(self) -> None:
        self.assertIs(plugin(lambda *_: allow()).component(), object)

    def test_each_kind_of_response_is_returned(self) -> None:
        response = answer(lambda *_: allow().warn("old").audit("seen", 1))
        self.assertEqual((response.warnings, response.audit_annotations), (["old"], {"seen": "1"}))
        denial = answer(lambda *_: deny("no", code=422, reason="Bad")).denial
        assert denial
        self.assertEqual((denial.code, denial.reason), (422, "Bad"))
        self.assertEqual(answer(lambda *_: patch([{"op": "remove", "path": "/a"}])).patch[0]["op"], "remove")
        self.assertEqual(answer(lambda *_: replace({"a": 1})).replacement, {"a": 1})
        with self.assertRaisesRegex(TypeError, "returned no response"):
            answer(lambda *_: None)  # type: ignore[arg-type]

    def test_a_patch_escapes_keys(self) -> None:
        changes = Patch().add(["metadata", "labels", "example.com/a~b"], "x").replace("/a", None)
        changes.test(["a"], 1).move(["a"], ["b"]).copy("/a", "/b")
        expected = [
            {"op": "add", "path": "/metadata/labels/example.com~1a~0b", "value": "x"},
            {"op": "replace", "path": "/a", "value": None},
            {"op": "test", "path": "/a", "value": 1},
            {"op": "move", "from": "/a", "path": "/b"},
            {"op": "copy", "from": "/a", "path": "/b"},
        ]
        self.assertEqual(changes.operations, expected)

    def test_mutate_returns_a_patch_of_the_differences(self) -> None:
        before = {**pod(a="1", b="2"), "spec": {"list": [1, {"x": 1}, 3, 4], "same": [], "flag": 1}}

        def change(object: Any) -> None:
            del object["metadata"]["labels"]["a"]
            object["metadata"]["labels"]["c/d"] = "3"
            object["spec"].update(list=[1, {"x": 2}], flag=True, more=[1])

        expected = [
            {"op": "remove", "path": "/metadata/labels/a"},
            {"op": "add", "path": "/metadata/labels/c~1d", "value": "3"},
            {"op": "replace", "path": "/spec/list/1/x", "value": 2},
            {"op": "remove", "path": "/spec/list/3"},
            {"op": "remove", "path": "/spec/list/2"},
            {"op": "replace", "path": "/spec/flag", "value": True},
            {"op": "add", "path": "/spec/more", "value": [1]},
        ]
        self.assertEqual(answer(lambda request, _: mutate(request, change), create(before)).patch, expected)
        longer = answer(lambda request, _: mutate(request, lambda o: o["spec"]["list"].append(5)), create(before))
        self.assertEqual(longer.patch, [{"op": "add", "path": "/spec/list/-", "value": 5}])
        self.assertEqual(answer(lambda request, _: mutate(request, change), delete(before)).patch, [])

    def test_a_request_has_the_operation_the_objects_and_the_kind(self) -> None:
        def admit(request: Request, _: Any) -> Response:
            names = [one and one["metadata"]["name"] for one in (request.object, request.old_object)]
            return allow().audit("seen", [request.operation, *names, request.kind.kind, request.namespace])

        for request, expected in [
            (create(pod()), ["create", "web", None, "Pod", "shop"]),
            (update(pod(), pod()), ["update", "web", "web", "Pod", "shop"]),
            (delete(pod()), ["delete", None, "web", "Pod", "shop"]),
            (connect(pod()), ["connect", "web", None, "Pod", "shop"]),
        ]:
            self.assertEqual(answer(admit, request).audit_annotations["seen"], str(expected))

    def test_calls_of_the_host_are_unavailable_outside_of_the_sandbox(self) -> None:
        with self.assertRaises(ClusterError) as lookup:
            get("v1", "Node", "a")
        with self.assertRaises(HttpError) as request:
            send("https://a.example.com")
        self.assertEqual((lookup.exception.kind, request.exception.kind), ("unavailable", "unavailable"))

    def test_the_body_and_the_headers_of_a_response_can_be_read(self) -> None:
        response = HttpResponse(200, [("Content-Type", "a")], '{"a": "é"}'.encode())
        self.assertEqual((response.json(), response.header("content-type")), ({"a": "é"}, "a"))
