/** The type of an object, from its `apiVersion` and `kind`. */
export interface GroupVersionKind {
  group: string;
  version: string;
  kind: string;
}

/** The resource type, as in the path of a request. */
export interface GroupVersionResource {
  group: string;
  version: string;
  resource: string;
}

/** The user who sent the request. All fields are empty if the control plane does not provide them. */
export interface UserInfo {
  username: string;
  uid: string;
  groups: string[];
  extra: [string, string[]][];
}

/** An object of the control plane. */
export interface KubernetesObject {
  apiVersion: string;
  kind: string;
  metadata: {
    name?: string;
    namespace?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    [field: string]: unknown;
  };
  // biome-ignore lint: objects have any fields
  [field: string]: any;
}

/** One admission request. The objects are parsed when they are first read. */
export interface Request {
  /** Identifies the request in logs and traces. */
  readonly uid: string;
  readonly operation: "create" | "update" | "delete" | "connect";
  readonly kind: GroupVersionKind;
  readonly resource: GroupVersionResource;
  /** The subresource, such as `status` or `scale`; undefined for the resource itself. */
  readonly subresource: string | undefined;
  /** The name; empty if the control plane has not generated it yet. */
  readonly name: string;
  /** The namespace; undefined for a cluster-scoped resource. */
  readonly namespace: string | undefined;
  readonly user: UserInfo;
  /** Whether this is a dry run, whose result is not stored: a plugin must not cause side effects. */
  readonly dryRun: boolean;
  /** The object, as changed by the previous stages; undefined for a deletion. */
  readonly object: KubernetesObject | undefined;
  /** The object as it is stored now. */
  readonly oldObject: KubernetesObject | undefined;
  /** The options of the operation. */
  readonly options: Record<string, unknown> | undefined;
  /** The JSON text of the object. */
  readonly objectText: string | undefined;
}

/** A JSON Pointer, or a list of keys. Keys are escaped. */
export type Path = string | (string | number)[];

/** Escapes the keys of a path and joins them. */
export function pointer(...keys: (string | number)[]): string;

/** An operation of a JSON Patch (RFC 6902). */
export type Operation =
  | { op: "add" | "replace" | "test"; path: string; value: unknown }
  | { op: "remove"; path: string }
  | { op: "move" | "copy"; from: string; path: string };

/** A JSON Patch. */
export class Patch {
  readonly operations: Operation[];
  add(path: Path, value: unknown): this;
  replace(path: Path, value: unknown): this;
  test(path: Path, value: unknown): this;
  remove(path: Path): this;
  move(from: Path, path: Path): this;
  copy(from: Path, path: Path): this;
}

/** A verdict with warnings and audit annotations. */
export interface Response {
  /** Adds a warning for the client, who also gets it if the request is allowed. */
  warn(message: string): this;
  /** Adds an audit annotation. */
  audit(key: string, value: unknown): this;
}

/** Allows the request unchanged. */
export function allow(): Response;

/** Denies the request. A good message says where in the object, what is wrong, and how to fix it. */
export function deny(message: string, options?: { code?: number; reason?: string }): Response;

/** Allows the request with these changes. An empty patch changes nothing. */
export function patch(changes: Patch | Operation[]): Response;

/** Allows the request with this complete object instead of the object of the request. */
export function replace(object: unknown): Response;

/** Allows the request with the object as `change` leaves it. The response is a patch of the differences. */
export function mutate(request: Request, change: (object: KubernetesObject) => void): Response;

/** A mistake in the settings. */
export interface SettingsError {
  /** The path of the mistake, as a JSON Pointer into the settings. */
  pointer: string;
  /** A message that says what is wrong and how to fix it. */
  message: string;
}

/** Mistakes in the settings: `configure` throws all of them at once. */
export class SettingsErrors extends Error {
  constructor(errors: SettingsError[]);
  readonly errors: SettingsError[];
}

interface Described<T> {
  title?: string;
  description?: string;
  default?: T;
  enum?: readonly T[];
}

/** The JSON Schema of a setting. Unknown properties of objects with `properties` are mistakes. */
export type Schema =
  | (Described<object> & {
      type: "object";
      properties?: Record<string, Schema>;
      required?: readonly string[];
      additionalProperties?: boolean | Schema;
    })
  | (Described<readonly unknown[]> & { type: "array"; items?: Schema; minItems?: number; maxItems?: number })
  | (Described<string> & { type: "string"; minLength?: number; maxLength?: number; pattern?: string })
  | (Described<number> & { type: "number" | "integer"; minimum?: number; maximum?: number })
  | (Described<boolean> & { type: "boolean" });

/** The type of the settings that a schema describes. */
export type Settings<S> = S extends { enum: readonly (infer E)[] }
  ? E
  : S extends { type: "string" }
    ? string
    : S extends { type: "number" | "integer" }
      ? number
      : S extends { type: "boolean" }
        ? boolean
        : S extends { type: "array" }
          ? (S extends { items: infer I } ? Settings<I> : unknown)[]
          : S extends { type: "object"; properties: infer P }
            ? { [K in Present<S, P>]: Settings<P[K]> } & { [K in Exclude<keyof P, Present<S, P>>]?: Settings<P[K]> }
            : S extends { additionalProperties: infer A extends Schema }
              ? Record<string, Settings<A>>
              : Record<string, unknown>;

/** The properties that are required or have a default. */
type Present<S, P> =
  | { [K in keyof P]: P[K] extends { default: unknown } ? K : never }[keyof P]
  | (S extends { required: readonly (infer R)[] } ? Extract<R, keyof P> : never);

/** The definition of a plugin. `Configured` is the type that `configure` returns, or else the type of the settings. */
export interface Definition<S extends Schema, Configured> {
  /** The name: short, in lower case, with hyphens. */
  name: string;
  /** The plugin's version, as semver. */
  version: string;
  /** A summary: one or two sentences for operators who choose a plugin. */
  summary: string;
  /** Whether the plugin may return a patch or a replacement. */
  mutates?: boolean;
  /** The supported resources: `v1/pods`, `apps/v1/deployments`. */
  resources?: string[];
  /** The requested capabilities: kinds such as `v1/Node`, origins such as `https://policy.example.com`. */
  capabilities?: { cluster?: string[]; http?: string[]; environment?: string[] };
  /** The schema of the settings. Default: the plugin has no settings. */
  settings?: S;
  /** Checks the settings beyond their schema, and returns the value that `admit` gets. Throws SettingsErrors. */
  configure?: (settings: Settings<S>) => Configured;
  /** Returns the verdict on one request. If it throws an error, the plugin has failed. */
  admit: (request: Request, configured: Configured) => Response;
  /** An object that is admitted once after `configure`. Every call starts with the caches that this has filled. */
  warmUp?: object;
}

/** The functions that the host calls. */
export interface Component {
  describe(): unknown;
  configure(settings: string): void;
  admit(request: unknown): unknown;
}

/** The exports of a plugin: `export const { describe, configure, admit } = plugin({ ... })`. */
export function plugin<const S extends Schema, Configured = Settings<S>>(definition: Definition<S, Configured>): Component;
