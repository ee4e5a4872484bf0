"""An MCP server for tests, on standard input and output, with the Python standard library only.

It follows the protocol, unless its first argument names a kind of misbehaviour.
"""

import json
import os
import socket
import subprocess
import sys

MODE = sys.argv[1] if len(sys.argv) > 1 else "well"


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def tool(name, description, /, **properties):
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool("add", "Adds two numbers", a="number", b="number"),
    tool("look", "Shows a file, and where it is", path="string"),
    tool("write", "Writes a file", path="string", text="string"),
    tool("variable", "Tells one of its variables", name="string"),
    tool("connect", "Connects to an address", host="string", port="number"),
    tool("leave", "Leaves a child behind and ends"),
    tool("flood", "Says a line of 50 MB"),
    tool("twice", "Answers twice"),
    tool("fail", "Fails"),
]


def text(words, failed=False):
    return {"content": [{"type": "text", "text": words}], "isError": failed}


def call(identity, name, given):
    if name == "add":
        return text(str(given["a"] + given["b"]))
    if name == "look":
        try:
            with open(given["path"]) as file:
                return text(os.getcwd() + ": " + file.read())
        except OSError as error:
            return text(os.getcwd() + ": " + error.strerror, failed=True)
    if name == "write":
        try:
            with open(given["path"], "w") as file:
                file.write(given["text"])
            return text("written")
        except OSError as error:
            return text(error.strerror, failed=True)
    if name == "variable":
        return text("it is " + os.environ.get(given["name"], "not set"))
    if name == "connect":
        try:
            socket.create_connection((given["host"], int(given["port"])), timeout=5).close()
            return text("connected")
        except OSError as error:
            return text(str(error), failed=True)
    if name == "leave":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *sys.argv[2:]])
        os._exit(7)
    if name == "flood":
        sys.stdout.write("x" * (50 << 20) + "\n")
        sys.stdout.flush()
    if name == "twice":
        send({"jsonrpc": "2.0", "id": identity, "result": text("first")})
        return text("second")
    return text("it cannot", failed=True)


def answer(message):
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        capabilities = {"tools": {"listChanged": False}}
        server = {"name": "probe", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": server}
    if method == "tools/list":
        if params.get("cursor") == "rest":
            return {"tools": TOOLS[4:]}
        return {"tools": TOOLS[:4], "nextCursor": "rest"}
    if method == "tools/call":
        return call(message["id"], params["name"], params.get("arguments") or {})
    return None


def main():
    if MODE == "exits":
        sys.exit("there is no licence for " + os.environ.get("PROBE_TOKEN", "nobody"))
    if MODE == "floods":
        sys.stdout.write("x" * (50 << 20))
    if MODE == "babbles":
        for _ in range(10_000):
            print("not a message")
    if MODE == "asks":
        send({"jsonrpc": "2.0", "id": "mine", "method": "sampling/createMessage", "params": {}})
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message or "id" not in message:
            continue
        if MODE == "silent":
            continue
        result = answer(message)
        if result is None:
            send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such method"}})
        else:
            send({"jsonrpc": "2.0", "id": message["id"], "result": result})


main()
