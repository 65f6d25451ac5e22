"""Kimi-K2.5's chat format: tools are declared as TypeScript, which the family's template takes as `tools_ts_str`.

Without a template the whole prompt is made here, as the published template makes it.
"""
import json

import typescript
from conversation import Refusal, function_of, list_of, messages_of

SEPARATE = False
IMAGE = "<|media_begin|>image<|media_content|><|media_pad|><|media_end|>\n"
VIDEO = "<|kimi_k25_video_placeholder|>\n"


def serves(config):
    return config.get("model_type") == "kimi_k25"


def sorted_keys(value):
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(v) for v in value] if isinstance(value, list) else value


def prepare(row):
    """The tools with sorted keys, and their declaration if they have one; the template falls back to JSON."""
    tools = sorted_keys(list_of(row, "tools"))
    try:
        declaration = typescript.declare(tools) if tools else None
    except typescript.Undeclarable:
        declaration = None
    kwargs = row["kwargs"] if declaration is None else {**row["kwargs"], "tools_ts_str": declaration}
    return {**row, "tools": tools or None, "kwargs": kwargs}


def structure(text):
    return text, False


def said(value):
    """What the conversation holds, as a literal part."""
    return str(value), True


def content(message):
    value = message.get("content")
    if isinstance(value, str):
        yield said(value)
    elif isinstance(value, list):
        for part in value:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind in ("image", "image_url"):
                yield structure(IMAGE)
            elif kind in ("video", "video_url"):
                yield structure(VIDEO)
            elif isinstance(part, dict) and "text" in part:
                yield said(part["text"])
            else:
                raise Refusal(f"a part of a message's content is neither text, image nor video: {part!r:.100}")
    elif value is not None:
        raise Refusal(f"a message's content must be a text or a list of parts, not {value!r:.100}")


def calls(message):
    yield structure("<|tool_calls_section_begin|>")
    for call in list_of(message, "tool_calls"):
        arguments = function_of(call, "a tool call").get("arguments", "")
        yield structure("<|tool_call_begin|>")
        yield said(call.get("id", ""))
        yield structure("<|tool_call_argument_begin|>")
        yield said(arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))
        yield structure("<|tool_call_end|>")
    yield structure("<|tool_calls_section_end|>")


def message_parts(message, keeps_thoughts):
    role = message["role"]
    yield structure({"user": "<|im_user|>", "assistant": "<|im_assistant|>"}.get(role, "<|im_system|>"))
    yield said(message.get("name") or role)
    yield structure("<|im_middle|>")
    if role == "assistant":
        yield structure("<think>")
        if keeps_thoughts:
            yield said(message.get("reasoning_content", ""))
        yield structure("</think>")
    elif role == "tool":
        yield structure("## Return of ")
        yield said(message.get("tool_call_id", ""))
        yield structure("\n")
    yield from content(message)
    if role == "assistant" and message.get("tool_calls"):
        yield from calls(message)
    yield structure("<|im_end|>")


def encode(row):
    row = prepare(row)
    tools, options = row["tools"], row["kwargs"]
    if "messages" not in row and tools:
        return [said(options["tools_ts_str"])] if options.get("tools_ts_str") else []  # the declaration alone
    messages = messages_of(row)
    parts = []
    if tools:
        parts.append(structure("<|im_system|>tool_declare<|im_middle|>"))
        parts.append(said(options.get("tools_ts_str") or json.dumps(tools, ensure_ascii=False, separators=(",", ":"))))
        parts.append(structure("<|im_end|>"))
    thinking = options.get("thinking") is not False
    # Thoughts are kept from the turns after the last finished answer only.
    answered = max((i for i, m in enumerate(messages) if m["role"] == "assistant" and not m.get("tool_calls")), default=-1)
    for index, message in enumerate(messages):
        parts += message_parts(message, keeps_thoughts=thinking and index > answered)
    if options.get("add_generation_prompt", True):
        parts.append(structure("<|im_assistant|>assistant<|im_middle|>" + ("<think>" if thinking else "<think></think>")))
    return [part for part in parts if part[0]]
