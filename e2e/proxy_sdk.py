"""Runs the official SDKs of Anthropic and OpenAI against Tribune's model proxy, with their default settings otherwise.

    proxy_sdk.py BASE_URL OPERATOR_TOKEN AGENT_PASS FORBIDDEN

BASE_URL is the daemon's. The fake provider behind it sends the answers of `crates/cli/tests/it/proxy.rs` in order. FORBIDDEN is the
provider's key, which no SDK may receive. Prints one line per conversation; a failed assertion ends the program.
"""

import sys

import anthropic
import openai

BASE, TOKEN, PASS, FORBIDDEN = sys.argv[1:]

CLAUDE = "claude-haiku-4-5"
GPT = "gpt-4.1"

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def raises(kind, call):
    """Return the error that a call must raise."""
    try:
        call()
    except kind as error:
        assert FORBIDDEN not in f"{error!r} {error} {getattr(error, 'body', '')}"
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def claude():
    client = anthropic.Anthropic(base_url=f"{BASE}/v1/proxy/anthropic", api_key=TOKEN)
    tools = [{"name": "weather", "description": "The weather in a city", "input_schema": WEATHER}]
    messages = [{"role": "user", "content": "How is the weather in Zürich?"}]
    asked = {"model": CLAUDE, "max_tokens": 200, "tools": tools}

    # The call is streamed.
    kinds = []
    with client.messages.stream(messages=messages, **asked) as stream:
        for event in stream:
            kinds.append(event.type)
        answer = stream.get_final_message()
    assert "input_json" in kinds and "text" in kinds, kinds
    assert answer.stop_reason == "tool_use"
    text, call = answer.content
    assert text.text == "Let me look that up."
    assert (call.name, call.input) == ("weather", {"city": "Zürich"})
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (30, 7)

    # Send the result back and read the final text.
    messages.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees, föhn"}
    messages.append({"role": "user", "content": [result]})
    with client.messages.stream(messages=messages, **asked) as stream:
        words = "".join(stream.text_stream)
        answer = stream.get_final_message()
    assert words == "It is 18 degrees in Zürich." and answer.stop_reason == "end_turn"

    # Without a stream.
    raw = client.messages.with_raw_response.create(messages=messages[:1], model=CLAUDE, max_tokens=200)
    assert FORBIDDEN not in str(dict(raw.headers)) and raw.headers["tribune-entry"].startswith("b3:")
    assert raw.parse().content[0].text == "Hello."
    assert client.messages.count_tokens(messages=messages[:1], model=CLAUDE).input_tokens == 12

    # Errors of the provider, and errors of the proxy.
    missing = raises(anthropic.NotFoundError, lambda: client.messages.create(messages=messages[:1], model="no", max_tokens=1))
    assert "model: no" in str(missing)
    refused = raises(anthropic.AuthenticationError, lambda: client.messages.create(messages=messages[:1], model=CLAUDE, max_tokens=1))
    assert "ANTHROPIC_API_KEY" in str(refused)
    raises(anthropic.PermissionDeniedError, lambda: client.messages.batches.list().data)
    wrong = client.with_options(api_key="trb_wrong")
    raises(anthropic.AuthenticationError, lambda: wrong.messages.create(messages=messages[:1], model=CLAUDE, max_tokens=1))

    # An agent with a proxy token, and a model that it may not use.
    agent = client.with_options(api_key=PASS)
    denied = raises(anthropic.PermissionDeniedError, lambda: agent.messages.create(messages=messages[:1], model="claude-opus-5-5", max_tokens=1))
    assert "may use only `anthropic:claude-haiku-4-5`" in str(denied)
    assert agent.messages.create(messages=messages[:1], model=CLAUDE, max_tokens=200).content[0].text == "Hello, agent."
    print("anthropic", anthropic.__version__, "ok")


def gpt():
    client = openai.OpenAI(base_url=f"{BASE}/v1/proxy/openai/v1", api_key=TOKEN)
    tools = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
    messages = [{"role": "user", "content": "How is the weather in Zürich?"}]

    # The call is streamed, and the stream has only what was requested.
    name, arguments, identity, text, reason = "", "", "", "", None
    for chunk in client.chat.completions.create(model=GPT, messages=messages, tools=tools, stream=True):
        assert chunk.choices and chunk.usage is None, chunk
        choice = chunk.choices[0]
        text += choice.delta.content or ""
        reason = choice.finish_reason or reason
        for call in choice.delta.tool_calls or []:
            identity = call.id or identity
            name += call.function.name or ""
            arguments += call.function.arguments or ""
    assert (text, name, arguments) == ("Let me look that up.", "weather", '{"city":"Zürich"}')
    assert reason == "tool_calls"

    # Send the result back and read the final text, this time with the token usage, which is requested.
    function = {"name": name, "arguments": arguments}
    messages.append({"role": "assistant", "tool_calls": [{"id": identity, "type": "function", "function": function}]})
    messages.append({"role": "tool", "tool_call_id": identity, "content": "18 degrees, föhn"})
    with client.chat.completions.stream(model=GPT, messages=messages, stream_options={"include_usage": True}) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    assert answer.choices[0].message.content == "It is 18 degrees in Zürich."
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (30, 7)

    # Without a stream, and with a base that does not end with /v1.
    plain = openai.OpenAI(base_url=f"{BASE}/v1/proxy/openai", api_key=TOKEN)
    assert plain.chat.completions.create(model=GPT, messages=messages[:1]).choices[0].message.content == "Hello."

    # Errors of the provider, and errors of the proxy.
    missing = raises(openai.NotFoundError, lambda: client.chat.completions.create(model="no", messages=messages[:1]))
    assert "does not exist" in str(missing)
    raises(openai.PermissionDeniedError, lambda: client.responses.retrieve("resp_1"))
    raises(openai.PermissionDeniedError, lambda: client.files.list().data)
    wrong = client.with_options(api_key="trb_wrong")
    raises(openai.AuthenticationError, lambda: wrong.chat.completions.create(model=GPT, messages=messages[:1]))
    print("openai", openai.__version__, "ok")


claude()
gpt()
