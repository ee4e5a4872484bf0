// A minimal agent of the official SDK, which sends two pieces of text and nothing else. It is the baseline of `bench
// acp`.

import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

let sessions = 0;
acp
  .agent({ name: "minimal" })
  .onRequest(acp.methods.agent.initialize, async () => ({ protocolVersion: acp.PROTOCOL_VERSION, agentCapabilities: {} }))
  .onRequest(acp.methods.agent.session.new, async () => ({ sessionId: `s${(sessions += 1)}` }))
  .onRequest(acp.methods.agent.session.prompt, async ({ params, client }) => {
    for (const text of ["The quick brown fox", "\njumps over the lazy dog."]) {
      await client.notify(acp.methods.client.session.update, {
        sessionId: params.sessionId,
        update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } },
      });
    }
    return { stopReason: "end_turn" };
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
