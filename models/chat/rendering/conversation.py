"""What the formats in Python share: taking a conversation apart, and saying what of it cannot be rendered."""


class Refusal(Exception):
    """One sentence for the user."""


def messages_of(row):
    messages = row.get("messages")
    if not isinstance(messages, list):
        raise Refusal("`messages` is missing, or no list")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Refusal(f"messages[{index}] must be an object with a role")
        list_of(message, "tools")
        list_of(message, "tool_calls")
    return messages


def list_of(holder, key):
    """A list of objects; an empty one where there is none."""
    found = holder.get(key)
    if not isinstance(found, (list, type(None))) or not all(isinstance(item, dict) for item in found or []):
        raise Refusal(f"`{key}` must be a list of objects")
    return found or []


def function_of(thing, what):
    """The `function` of a tool or a call."""
    function = thing.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Refusal(f"{what} needs a `function` with a name: {thing!r:.100}")
    return function
