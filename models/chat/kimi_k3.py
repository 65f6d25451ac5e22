"""Kimi-K3's chat format, "XTML": elements opened and closed by control tokens. Spec: kimi 6.3.

Every piece is tokenised on its own, each attribute as four, so that pieces never merge and text never becomes control.
"""
import json

from conversation import Refusal, list_of, messages_of

SEPARATE = True
EFFORTS = ("low", "high", "max")
EFFORT_BODY = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort=%s`.")
TOOLS_BODY = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n%s\n```"
NEW_TOOLS_BODY = (
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\nYou have access to all existing "
    "and extended tools.\nHere are the specs for the extended tools.\n\n```json\n%s\n```")
CHOICE_BODIES = {
    "required": "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.",
    "none": "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.",
}
FORMAT_BODY = (
    "The system is invoked with `response_format=%s`.\nYour response must be raw JSON data without markdown code blocks "
    "(```json) or any additional formatting.")
SCHEMA_BODY = "\nThe JSON data must match the following schema:\n```json\n%s\n```"
IMAGE = "<|kimi_image_placeholder|>"


def serves(config):
    return config.get("model_type") == "kimi_k3"


def compact(value):
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def kind_of(value):
    """The type attribute of an argument."""
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", dict: "object", list: "array"}
    return kinds.get(type(value), "null")


def function_of(call):
    """The function that a call names; a call may also be one."""
    function = call["function"] if isinstance(call.get("function"), dict) else call
    if function.get("name") is None:
        raise Refusal("a tool call needs a function name")
    return function


class Prompt:
    """The parts so far."""

    def __init__(self, thinking, images):
        self.parts = []
        self.thinking = thinking
        self.images = images  # texts that stand for the image parts, in order; None: a placeholder each
        self.image_count = 0
        self.calls, self.results = [], 0  # of the assistant's last turn

    def control(self, text):
        self.parts.append((text, False))

    def text(self, text):
        if text:
            self.parts.append((text, True))

    def open(self, tag, **attributes):
        self.control("<|open|>")
        self.text(tag)
        for key, value in attributes.items():
            self.text(" " + key)
            self.text('="')
            self.text(str(value).replace("&", "&amp;").replace('"', "&quot;"))
            self.text('"')
        self.control("<|sep|>")

    def close(self, tag):
        self.control("<|close|>")
        self.text(tag)
        self.control("<|sep|>")

    def end_message(self):
        self.close("message")
        self.control("<|end_of_msg|>")

    def system(self, kind, body):
        self.open("message", role="system", type=kind)
        self.text(body)
        self.end_message()

    def image(self):
        if self.images is None:
            self.text(IMAGE)
        elif self.image_count < len(self.images):
            self.control(self.images[self.image_count])
        self.image_count += 1

    def content(self, content):
        if content is None:
            return
        if not isinstance(content, list):
            self.text(str(content))
            return
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind in ("image", "image_url"):
                self.image()
            elif isinstance(part, dict) and "text" in part:
                self.text(str(part["text"]))
            else:
                raise Refusal(f"a part of a message's content is neither text nor an image: {part!r:.100}")

    def speaker(self, message):
        name = {"name": message["name"]} if message.get("name") else {}
        self.open("message", role=message["role"], **name)

    def assistant(self, message):
        self.speaker(message)
        if self.thinking:
            reasoning = message.get("reasoning_content") or message.get("reasoning")
            self.open("think")
            if reasoning is not None and str(reasoning).strip():
                self.text(str(reasoning))
            self.close("think")
        self.open("response")
        self.content(message.get("content"))
        self.close("response")
        self.calls, self.results = list_of(message, "tool_calls"), 0
        if self.calls:
            self.open("tools")
            for index, call in enumerate(self.calls, 1):
                self.call(function_of(call), index)
            self.close("tools")
        self.end_message()

    def call(self, function, index):
        self.open("call", tool=function["name"], index=index)
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            raw = arguments
            try:
                arguments = json.loads(raw) if raw.strip() else None
            except ValueError:
                self.open("json", type="object")
                self.text(raw)
                self.close("json")
                arguments = None
        if not isinstance(arguments, (dict, type(None))):
            raise Refusal(f"the arguments of the call of {function['name']} are no JSON object")
        for key, value in (arguments or {}).items():
            self.open("argument", key=key, type=kind_of(value))
            self.text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
            self.close("argument")
        self.close("call")

    def results_of(self, messages):
        """Tool results that follow each other, in the order of the calls if each names one."""
        by_id = {str(c["id"]): function_of(c)["name"] for c in reversed(self.calls)
                 if c.get("id") is not None}
        ids = [str(m.get("tool_call_id", m.get("id"))) for m in messages]
        if all(i in by_id for i in ids):
            order = {i: n for n, i in enumerate(reversed(by_id))}
            for i, message in sorted(zip(ids, messages), key=lambda pair: order[pair[0]]):
                self.result(message, by_id[i])
        else:
            for message in messages:
                self.result(message, message.get("tool", message.get("name")))

    def result(self, message, tool):
        self.results += 1
        if tool is None and self.results <= len(self.calls):
            tool = function_of(self.calls[self.results - 1])["name"]
        if tool is None:
            raise Refusal("a tool message needs `tool`, `name`, or a call that it answers")
        self.open("message", role="tool", tool=tool, index=self.results)
        self.content(message.get("content"))
        self.end_message()

    def conversation(self, messages):
        at = 0
        while at < len(messages):
            message, role = messages[at], messages[at]["role"]
            at += 1
            if role == "tool":
                run = [message]
                while at < len(messages) and messages[at]["role"] == "tool":
                    run.append(messages[at])
                    at += 1
                self.results_of(run)
            elif role == "assistant":
                self.assistant(message)
            elif role == "system" and message.get("tools"):  # the release drops the content of such a message
                self.system("tool-declare", NEW_TOOLS_BODY % compact(message["tools"]))
            elif role in ("system", "user"):
                self.speaker(message)
                self.content(message.get("content"))
                self.end_message()
            else:
                raise Refusal(f"messages[{at - 1}]: there is no role {role!r:.60}")


def thinking_of(options, by_default):
    """(whether to think, how much: an effort or None). The format's own names win over those of the API."""
    effort = options.get("reasoning_effort")
    thinking = options.get("thinking", options.get("enable_thinking"))
    if thinking is None:
        thinking = effort != "none"
    if not thinking:
        return False, None
    effort = options.get("thinking_effort", None if effort == "none" else effort)
    if effort is None and by_default:
        effort = "max"
    if effort is not None and effort not in EFFORTS:
        raise Refusal(f"the thinking effort {effort!r:.60} is not supported; there are {', '.join(EFFORTS)}")
    return True, effort


def schema_of(options):
    if "response_schema" in options:
        return options["response_schema"]
    wanted = options["response_format"]
    wrapper = wanted.get("json_schema") if isinstance(wanted, dict) else None
    if isinstance(wrapper, dict):
        return wrapper.get("schema", wrapper.get("json_schema", wrapper))
    return wrapper


def response_format(prompt, options):
    wanted = options.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, dict) else wanted
    if kind in (None, "text"):
        return
    if kind not in ("json_object", "json_schema"):
        raise Refusal(f"the response format {kind!r:.60} is not supported")
    body = FORMAT_BODY % kind
    if kind == "json_schema":
        body += SCHEMA_BODY % compact(schema_of(options))
    prompt.system("response-format", body)


def encode(row):
    options = row["kwargs"]
    # The bare encoder, which is spoken to by its own name for it, adds no effort of itself; the release's tokenizer does.
    thinking, effort = thinking_of(options, by_default="thinking" not in options)
    images = options.get("image_prompts")
    if images is not None and not (isinstance(images, list) and all(isinstance(i, str) and i for i in images)):
        raise Refusal("`image_prompts` must be a list of texts")
    prompt = Prompt(thinking, images)
    tools = list_of(row, "tools") or list_of(options, "tools")
    if tools:
        prompt.system("tool-declare", TOOLS_BODY % compact(tools))
    if effort:
        prompt.system("thinking-effort", EFFORT_BODY % effort)
    prompt.conversation(messages_of(row))
    choice = options.get("tool_choice")
    if isinstance(choice, str) and choice in CHOICE_BODIES:
        prompt.system("tool-choice", CHOICE_BODIES[choice])
    elif choice is not None and choice != "auto":
        raise Refusal(f"the tool choice {choice!r:.100} is not supported")
    response_format(prompt, options)
    if options.get("add_generation_prompt", True):
        prompt.open("message", role="assistant")
        prompt.open("think" if thinking else "response")
    if images is not None and len(images) != prompt.image_count:
        raise Refusal(f"{len(images)} image prompts are given for {prompt.image_count} images")
    return prompt.parts
