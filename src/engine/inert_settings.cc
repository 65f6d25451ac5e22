#include "engine/inert_settings.h"

#include <string>

#include "engine/held_form.h"

namespace firstlight {
namespace {

/// What a model has that settings are about.
struct Uses {
  bool weights_as_asked = false;  // of linear layers, experts or latent attention
  bool experts = false;
  bool experts_as_asked = false;
  bool wide_bytes = false;  // weights of 8 bits outside of experts
  bool dense_mla = false;
  bool key_search = false;
};

Uses uses_of(const Graph& graph, const RunSettings& settings, std::span<const HeldAs> held) {
  Uses uses;
  for (const Node& node : graph.nodes()) {
    uses.experts |= node.contract->name == "moe_experts";
    uses.key_search |= node.contract->name == "dsa_index";
    uses.dense_mla |= node.contract->name == "mla" && !graph.spec(node).has("chosen");
  }
  each_weight(graph, [&](std::size_t weight, const Node& node, std::string_view) {
    const bool experts = node.contract->name == "moe_experts";
    uses.weights_as_asked |= held[weight] == settings.weights;
    uses.experts_as_asked |= experts && held[weight] == settings.experts;
    uses.wide_bytes |= !experts && held[weight] == HeldAs::kInt8;
  });
  return uses;
}

Error inert(const std::string& flag, const std::string& why) {
  return Error{flag + " has no effect: " + why};
}

}  // namespace

Status check_together(const RunSettings& settings, bool f32) {
  const RunSettings defaults;
  if (f32 && (settings.weights != HeldAs::kStored || settings.experts != HeldAs::kStored)) {
    return Error{std::string(settings.weights != HeldAs::kStored ? "--quantize" : "--quantize-experts") +
                 " holds weights in few bits for bf16 runs; --dtype f32 computes with them as stored"};
  }
  if (f32 && settings.wide_activations != defaults.wide_activations) {
    return inert("--activations 8", "--dtype f32 computes with weights as they are stored");
  }
  if (settings.key_search == KeySearch::kTwoStage) return {};
  if (settings.candidates != defaults.candidates) {
    return inert("--candidates", "it is of --key-search two-stage");
  }
  if (settings.min_context != defaults.min_context) {
    return inert("--min-context", "it is of --key-search two-stage");
  }
  return {};
}

Status check_effect(const Graph& graph, const RunSettings& settings, std::span<const HeldAs> held) {
  const RunSettings defaults;
  const Uses uses = uses_of(graph, settings, held);
  const char* const in_few_bits = "the checkpoint has them in 4 bits, and they are held as they are stored";
  if (settings.experts != HeldAs::kStored && settings.experts != settings.weights && !uses.experts_as_asked) {
    return inert("--quantize-experts", uses.experts ? in_few_bits : "the model has no routed experts");
  }
  if (settings.weights != HeldAs::kStored && !uses.weights_as_asked) return inert("--quantize", in_few_bits);
  if (settings.wide_activations != defaults.wide_activations && !uses.wide_bytes) {
    return inert("--activations 8", "no weights outside of experts are held in 8 bits");
  }
  if (settings.expanded_prefill && !uses.dense_mla) {
    return inert("--mla-prefill expanded", "no layer has latent attention to all positions");
  }
  if (settings.key_search != defaults.key_search && !uses.key_search) {
    return inert("--key-search", "the model has no sparse attention that searches its keys");
  }
  return {};
}

}  // namespace firstlight
