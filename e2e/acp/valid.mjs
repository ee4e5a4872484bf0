// Validates the messages of an ACP agent against the schema of version 1 in the official SDK.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const Ajv = require("ajv/dist/2020").default;
const schema = JSON.parse(readFileSync(require.resolve("@agentclientprotocol/sdk/schema/v1/schema.json"), "utf8"));

const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: false });
ajv.addSchema(schema, "acp");
const compiled = new Map();
const definition = (name) => {
  if (!compiled.has(name)) compiled.set(name, ajv.compile({ $ref: `acp#/$defs/${name}` }));
  return compiled.get(name);
};

// The schema definition of the response to each request.
const ANSWERS = {
  initialize: "InitializeResponse",
  authenticate: "AuthenticateResponse",
  "session/new": "NewSessionResponse",
  "session/load": "LoadSessionResponse",
  "session/resume": "ResumeSessionResponse",
  "session/list": "ListSessionsResponse",
  "session/close": "CloseSessionResponse",
  "session/delete": "DeleteSessionResponse",
  "session/set_mode": "SetSessionModeResponse",
  "session/set_config_option": "SetSessionConfigOptionResponse",
  "session/prompt": "PromptResponse",
};
const NOTIFICATIONS = { "session/update": "SessionNotification", "$/cancel_request": "CancelRequestNotification" };
const REQUESTS = { "session/request_permission": "RequestPermissionRequest" };

function check(name, value, faults, message) {
  const valid = definition(name);
  if (!valid(value)) faults.push(`${name}: ${ajv.errorsText(valid.errors)}: ${JSON.stringify(message).slice(0, 400)}`);
}

// Takes pairs of [sender, message], where the sender is `agent` or `client`. Returns the faults and the number of
// checked messages.
export function validate(messages) {
  const asked = new Map();
  const faults = [];
  let checked = 0;
  for (const [from, message] of messages) {
    if (from === "client") {
      if (message.method && message.id !== undefined) asked.set(JSON.stringify(message.id), message.method);
      continue;
    }
    checked += 1;
    if (message.jsonrpc !== "2.0") faults.push(`not JSON-RPC 2.0: ${JSON.stringify(message)}`);
    if (message.method !== undefined) {
      const name = message.id === undefined ? NOTIFICATIONS[message.method] : REQUESTS[message.method];
      if (name) check(name, message.params, faults, message);
      else if (!message.method.startsWith("_")) faults.push(`unknown method ${message.method}`);
      continue;
    }
    const method = asked.get(JSON.stringify(message.id));
    if (message.error !== undefined) check("Error", message.error, faults, message);
    else if (ANSWERS[method]) check(ANSWERS[method], message.result, faults, message);
    else if (!method?.startsWith("_")) faults.push(`a response without a request: ${JSON.stringify(message)}`);
  }
  return { checked, faults };
}

// As a program: `valid.mjs FILE`, where each line is a message of either side. A message belongs to the client if only
// clients send that request or response.
if (process.argv[1] === new URL(import.meta.url).pathname) {
  const lines = readFileSync(process.argv[2], "utf8").split("\n").filter((line) => line.startsWith("{"));
  const ours = new Set();
  const messages = lines.map((line) => JSON.parse(line)).map((message) => {
    const isRequest = message.method !== undefined && message.id !== undefined;
    if (isRequest && REQUESTS[message.method]) {
      ours.add(JSON.stringify(message.id));
      return ["agent", message];
    }
    if (isRequest || message.method === "session/cancel") return ["client", message];
    const isChoice = message.result?.outcome?.outcome !== undefined;
    if (message.method === undefined && isChoice && ours.has(JSON.stringify(message.id))) return ["client", message];
    return ["agent", message];
  });
  const found = validate(messages.filter(([, message]) => message.jsonrpc !== undefined));
  console.log(JSON.stringify(found));
  process.exit(found.faults.length === 0 && found.checked > 0 ? 0 : 1);
}
