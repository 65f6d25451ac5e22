"""Tensors of the checkpoint under a common prefix."""


class Weights:
    """`w("q_proj.weight", rows, columns)` declares a tensor; `w.at("mlp")` goes one level down."""

    def __init__(self, g, prefix):
        self.g, self.prefix = g, prefix

    def __call__(self, name, *shape, **how):
        return self.g.weight(self.prefix + name, list(shape), **how)

    def at(self, name):
        return Weights(self.g, self.prefix + name + ".")
