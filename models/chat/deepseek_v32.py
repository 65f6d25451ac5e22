"""DeepSeek-V3.2's chat format. Source: the encoder that the release ships beside the model (no template).

The prompt is tokenised as one text; what stands in the conversation never becomes a control token.
"""
import json

from conversation import Refusal, function_of, list_of, messages_of

SEPARATE = False
BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
THINK, END_THINK = "<think>", "</think>"
DSML = "｜DSML｜"
TOOLS_HEAD = """

## Tools
You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply to the user:
<｜DSML｜function_calls>
<｜DSML｜invoke name="$FUNCTION_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$FUNCTION_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜function_calls>
String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON \
format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, \
booleans, arrays, objects).
If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is \
an example:
<｜DSML｜function_calls>
...
</｜DSML｜function_calls>
<function_results>
...
</function_results>
<think>...thinking about results</think>
Here are the functions available in JSONSchema format:
<functions>
"""


def serves(config):
    return config.get("model_type") == "deepseek_v32"


def to_json(value):
    return json.dumps(value, ensure_ascii=False)


def structure(text):
    return text, False


def said(value):
    """What the conversation holds, as a literal part. The release writes what is no text as Python prints it."""
    return str(value), True


def additions(message):
    """Tools and response format, as a system or developer message declares them."""
    if tools := list_of(message, "tools"):
        yield structure(TOOLS_HEAD)
        yield said("\n".join(to_json(function_of(t, "a tool")) for t in tools))
        yield structure("\n</functions>\n")
    if schema := message.get("response_format"):
        yield structure("\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n")
        yield said(to_json(schema))


def call_parts(call):
    function = function_of(call, "a tool call")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise Refusal(f"the arguments of a call of {function.get('name')} are no JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise Refusal(f"the arguments of a call of {function.get('name')} are no JSON object")
    yield structure(f'<{DSML}invoke name="')
    yield said(function.get("name"))
    yield structure('">\n')
    for index, (key, value) in enumerate(arguments.items()):
        is_text = isinstance(value, str)
        yield structure(f'{chr(10) if index else ""}<{DSML}parameter name="')
        yield said(key)
        yield structure(f'" string="{"true" if is_text else "false"}">')
        yield said(value if is_text else to_json(value))
        yield structure(f"</{DSML}parameter>")
    yield structure(f"\n</{DSML}invoke>")


def assistant_parts(message, thinks, index):
    calls = list_of(message, "tool_calls")
    if thinks:
        reasoning = message.get("reasoning_content")
        if not reasoning and not calls:
            raise Refusal(f"messages[{index}]: while thinking, an answer after the last user message needs "
                          "reasoning_content or tool_calls")
        yield said(reasoning or "")
        yield structure(END_THINK)
    yield said(message.get("content") or "")
    if calls:
        yield structure(f"\n\n<{DSML}function_calls>\n")
        for n, call in enumerate(calls):
            if n:
                yield structure("\n")
            yield from call_parts(call)
        yield structure(f"\n</{DSML}function_calls>")
    yield structure(EOS)


def result_parts(messages, index, opener):
    """One tool result; `opener` begins the assistant's next turn after the last."""
    first = index
    while first > 0 and messages[first - 1].get("role") == "tool":
        first -= 1
    calls = messages[first - 1].get("tool_calls") if first > 0 else None
    if first == 0 or messages[first - 1].get("role") != "assistant" or not calls or index - first >= len(calls):
        raise Refusal(f"messages[{index}]: a tool result answers no call of the assistant's turn before it")
    if index == first:
        yield structure("\n\n<function_results>")
    yield structure("\n<result>")
    yield said(messages[index].get("content"))
    yield structure("</result>")
    if index - first == len(calls) - 1:
        yield structure("\n</function_results>\n\n" + opener)


def message_parts(messages, index, last_user, thinking):
    message = messages[index]
    role = message.get("role")
    if role == "system":
        yield said(message.get("content") or "")
        yield from additions(message)
    elif role in ("user", "developer"):
        yield structure(USER)
        if role == "developer":
            if not message.get("content"):
                raise Refusal(f"messages[{index}]: a developer message needs content")
            yield from additions(message)
            yield structure("\n\n# The user's message is: ")
        yield said(message.get("content"))
        yield structure(ASSISTANT + (THINK if thinking and index == last_user else END_THINK))
    elif role == "tool":
        yield from result_parts(messages, index, THINK if thinking and index >= last_user else END_THINK)
    elif role == "assistant":
        yield from assistant_parts(message, thinking and index > last_user, index)
    else:
        raise Refusal(f"messages[{index}]: there is no role {role!r:.60}")


def encode(row):
    messages, options = list(messages_of(row)), row["kwargs"]
    mode = row.get("thinking_mode", options.get("thinking_mode"))
    if mode is None:
        mode = "thinking" if options.get("thinking", options.get("enable_thinking")) else "chat"
    if mode not in ("chat", "thinking"):
        raise Refusal(f"the thinking mode {mode!r:.60} is not supported; there are chat and thinking")
    if tools := list_of(row, "tools"):  # the format declares tools in the system message
        system = messages.pop(0) if messages and messages[0].get("role") == "system" else {"role": "system"}
        messages.insert(0, {**system, "tools": tools})
    thinking = mode == "thinking"
    last_user = max((i for i, m in enumerate(messages) if m.get("role") in ("user", "developer")), default=-1)
    # Thoughts before the last user message are left out either way: the release renders them nowhere.
    parts = [structure(BOS)]
    for index in range(len(messages)):
        parts += message_parts(messages, index, last_user, thinking)
    return [part for part in parts if part[0]]
