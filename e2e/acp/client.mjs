// Runs the official SDK's client against Tribune, over a WebSocket or over HTTP with server-sent events:
// `client.mjs ws|http ADDRESS TOKEN FOLDER`. Prints its observations as one line of JSON.

import * as acp from "@agentclientprotocol/sdk";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { validate } from "./valid.mjs";

const [transport, address, token, cwd] = process.argv.slice(2);
// Node's WebSocket expects headers in another argument than the SDK passes them.
class WithHeaders extends WebSocket {
  constructor(url, protocols, { headers }) {
    super(url, { protocols, headers });
  }
}
const headers = { Authorization: `Bearer ${token}` };
const stream =
  transport === "ws"
    ? createWebSocketStream(`ws://${address}/acp`, { headers, WebSocket: WithHeaders })
    : createHttpStream(`http://${address}/acp`, { headers });

const messages = [];
const tap = (from) => new TransformStream({
  transform(message, controller) {
    messages.push([from, message]);
    controller.enqueue(message);
  },
});
const outgoing = tap("client");
outgoing.readable.pipeTo(stream.writable).catch(() => {});
const tapped = { readable: stream.readable.pipeThrough(tap("agent")), writable: outgoing.writable };

const updates = [];
const asked = [];
const seen = {};
await acp
  .client({ name: "tribune-e2e" })
  .onRequest(acp.methods.client.session.requestPermission, async ({ params }) => {
    asked.push({ title: params.toolCall.title, kinds: params.options.map((option) => option.kind) });
    const option = params.options.find((option) => option.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  })
  .onNotification(acp.methods.client.session.update, async ({ params }) => {
    updates.push(params.update);
  })
  .connectWith(tapped, async (agent) => {
    const m = acp.methods.agent;
    const hello = await agent.request(m.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
    seen.version = hello.protocolVersion;
    const { sessionId } = await agent.request(m.session.new, { cwd, mcpServers: [] });
    const text = '!say I write.\n!call write {"path":"from-sdk.txt","content":"by the SDK"}\n!say It said: $result';
    const prompted = await agent.request(m.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
    seen.stopReason = prompted.stopReason;
    const live = updates.splice(0);
    seen.said = live.filter((u) => u.sessionUpdate === "agent_message_chunk").map((u) => u.content.text).join("");
    seen.statuses = live.filter((u) => u.status).map((u) => u.status);
    await agent.request(m.session.load, { sessionId, cwd, mcpServers: [] });
    const again = updates.splice(0);
    seen.replayed = again.filter((u) => u.sessionUpdate.endsWith("_chunk")).map((u) => [u.sessionUpdate, u.content.text]);
    const { sessions } = await agent.request(m.session.list, { cwd });
    seen.listed = sessions.filter((session) => session.sessionId === sessionId).map(({ cwd, title }) => ({ cwd, title }));
    await agent.request(m.session.close, { sessionId });
    seen.closed = true;
  });
console.log(JSON.stringify({ ...seen, asked, valid: validate(messages) }));
process.exit(0);
