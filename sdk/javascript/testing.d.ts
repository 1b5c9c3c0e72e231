import type { Component, Operation } from "admittance";

/** A request as the host sends it. */
export type ContractRequest = object;

/** The request that creates an object. Kind, name and namespace are taken from it. */
export function create(object: object): ContractRequest;
export function update(oldObject: object, object: object): ContractRequest;
/** The request that deletes an object. */
export function remove(oldObject: object): ContractRequest;
export function connect(options: object): ContractRequest;

/** The answer of a plugin. */
export interface Outcome {
  readonly allowed: boolean;
  readonly denial: { code: number; reason: string; message: string } | undefined;
  /** The operations; none if nothing changes. */
  readonly patch: Operation[];
  readonly replacement: object | undefined;
  readonly warnings: string[];
  readonly auditAnnotations: Record<string, string>;
}

/** Configures a plugin: `import * as component from "../src/plugin.js"`. Throws SettingsErrors. */
export function configure(component: Component, settings?: object): { admit(request: ContractRequest): Outcome };
