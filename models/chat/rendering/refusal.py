"""What a chat format says of a conversation that it cannot render."""


class Refusal(Exception):
    """One sentence for the user."""
