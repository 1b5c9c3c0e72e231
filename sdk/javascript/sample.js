// Builds requests in the form of the contract, for tests and warming up.

/** Builds a request for an operation on an object. */
export function requestFor(operation, object, oldObject) {
  const { apiVersion = "v1", kind = "", metadata } = object ?? oldObject;
  const [version, group = ""] = apiVersion.split("/").reverse();
  const text = (value) => (value === undefined ? null : JSON.stringify(value));
  return {
    uid: "00000000-0000-0000-0000-000000000000",
    operation,
    kind: { group, version, kind },
    resource: { group, version, resource: `${kind.toLowerCase()}s` },
    subresource: null,
    name: metadata?.name ?? "",
    namespace: metadata?.namespace ?? null,
    user: { username: "", uid: "", groups: [], extra: [] },
    object: text(object),
    oldObject: text(oldObject),
    options: null,
    dryRun: false,
  };
}
