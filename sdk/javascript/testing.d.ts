import type { Component, Operation } from "admittance";

/** A request as the host sends it. */
export type ContractRequest = object;

/** Builds the request that creates an object, with the kind, name and namespace of the object. */
export function create(object: object): ContractRequest;
export function update(oldObject: object, object: object): ContractRequest;
/** Builds the request that deletes an object. */
export function remove(oldObject: object): ContractRequest;
export function connect(options: object): ContractRequest;

/** The response of a plugin. */
export interface Outcome {
  readonly allowed: boolean;
  readonly denial: { code: number; reason: string; message: string } | undefined;
  /** The operations of the patch; empty if nothing changes. */
  readonly patch: Operation[];
  readonly replacement: object | undefined;
  readonly warnings: string[];
  readonly auditAnnotations: Record<string, string>;
}

/** Configures a plugin: `import * as component from "../src/plugin.js"`. Throws SettingsErrors. */
export function configure(component: Component, settings?: object): { admit(request: ContractRequest): Outcome };
