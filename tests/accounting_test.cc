// Nothing in a checkpoint is silently ignored: every tensor and every config key, one by one.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/memory_limit.h"
#include "checkpoint/config.h"
#include "checkpoint/test_folder.h"
#include "golden_cases.h"
#include "golden_support.h"

namespace firstlight::testing {
namespace {

using Json = nlohmann::ordered_json;

/// A bundled golden, and the keys and tensors that its family knows to be without effect or lets checkpoints
/// omit.
struct Case {
  std::string name;
  std::set<std::string> deletable = {};
  std::string not_computed = {};      // tensors under this prefix may be there or not
  std::set<std::string> unused = {};  // sizes of layers that this golden has none of
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

/// The paths of keys that every plain decoder ignores (models/layers/decoder.py), and `more`.
std::set<std::string> decoder_keys(const std::set<std::string>& more) {
  std::set<std::string> keys = {"architectures",        "auto_map",    "torch_dtype",       "dtype",
                                "initializer_range",    "use_cache",   "attention_dropout", "bos_token_id",
                                "transformers_version", "pad_token_id"};
  keys.insert(more.begin(), more.end());
  return keys;
}

/// Training, or stated elsewhere too.
const std::set<std::string> kDeepseek = decoder_keys({"ep_size", "pretraining_tp"});

/// Goldens whose families know such keys; all others have none.
const Case kExceptions[] = {
    {"deepseek_v32_b", kDeepseek},
    {"deepseek_v32_fp8_f32scale", kDeepseek},
    {"glm_moe_dsa_shared", decoder_keys({"ep_size", "pretraining_tp", "head_dim",
                                         "index_share_for_mtp_iteration", "moe_router_dtype"})},
    {"gpt_oss", decoder_keys({"output_router_logits", "router_aux_loss_coef"})},
    {"gemma3_text", decoder_keys({"cache_implementation"})},
    // Configs of Llama and Mistral omit keys; the defaults stand in the model file.
    {"llama3_scaled",
     decoder_keys({"pretraining_tp", "rope_scaling", "attention_bias", "mlp_bias", "tie_word_embeddings"})},
    {"minimax_m2", decoder_keys({"use_mtp", "mtp_transformer_layers", "num_mtp_modules"})},
    {"mistral_window", decoder_keys({"tie_word_embeddings"})},
    {"mixtral", decoder_keys({"output_router_logits", "router_aux_loss_coef"})},
    {"qwen3_moe", decoder_keys({"output_router_logits", "router_aux_loss_coef"}), "", {"intermediate_size"}},
    {"qwen3_next", decoder_keys({"output_router_logits", "router_aux_loss_coef"}), "", {"intermediate_size"}},
    {"qwen3_5_moe",
     decoder_keys({"output_router_logits", "router_aux_loss_coef", "vision_config", "full_attention_interval",
                   "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mrope_section",
                   "mrope_interleaved"}),
     "model.visual."},
};

/// Every bundled golden.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Family& family : families()) {
    for (const std::string& name : family.bundled) {
      const auto* known = std::ranges::find(kExceptions, name, &Case::name);
      all.push_back(known != std::end(kExceptions) ? *known : Case{name});
    }
  }
  return all;
}

/// Loads the folder as far as the weights are bound; the error, or "" when all is accounted for.
std::string load_error(const std::string& folder) {
  auto traced = trace_model(folder, models_folder());
  if (!traced.ok()) return traced.error().message;
  const auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint.ok()) return checkpoint.error().message;
  LoadOptions load;
  load.threads = 1;
  load.max_context = traced->max_context;
  load.context = 64;
  const auto model = Model::load(std::move(traced->graph), *checkpoint, std::move(load));
  return model.ok() ? "" : model.error().message;
}

/// A safetensors file of the given tensors.
void write_file(const std::string& path, const std::vector<NamedTensor>& tensors) {
  Json header = Json::object();
  std::int64_t offset = 0;
  for (const NamedTensor& t : tensors) {
    header[t.name] = {{"dtype", dtype_name(t.view.dtype)},
                      {"shape", t.view.shape},
                      {"data_offsets", {offset, offset + t.view.bytes()}}};
    offset += t.view.bytes();
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), 8);
  file << text;
  for (const NamedTensor& t : tensors) file.write(reinterpret_cast<const char*>(t.view.data), t.view.bytes());
}

/// Keys that the files of the Kimi families list as known and without effect (spec kimi 1.1, 1.3, 1.4).
const std::set<std::string> kIgnored = {"architectures",
                                        "auto_map",
                                        "dtype",
                                        "initializer_range",
                                        "transformers_version",
                                        "use_cache",
                                        "head_dim",
                                        "rope_theta",
                                        "rope_scaling",
                                        "ignore_index",
                                        "image_placeholder",
                                        "vision_config",
                                        "observer",
                                        "observer_kwargs",
                                        "_name_or_path",
                                        "add_cross_attention",
                                        "bad_words_ids",
                                        "begin_suppress_tokens",
                                        "chunk_size_feed_forward",
                                        "cross_attention_hidden_size",
                                        "decoder_start_token_id",
                                        "diversity_penalty",
                                        "do_sample",
                                        "early_stopping",
                                        "encoder_no_repeat_ngram_size",
                                        "exponential_decay_length_penalty",
                                        "finetuning_task",
                                        "forced_bos_token_id",
                                        "forced_eos_token_id",
                                        "id2label",
                                        "is_decoder",
                                        "is_encoder_decoder",
                                        "label2id",
                                        "length_penalty",
                                        "max_length",
                                        "min_length",
                                        "no_repeat_ngram_size",
                                        "num_beam_groups",
                                        "num_beams",
                                        "num_return_sequences",
                                        "output_attentions",
                                        "output_hidden_states",
                                        "output_scores",
                                        "prefix",
                                        "problem_type",
                                        "pruned_heads",
                                        "remove_invalid_values",
                                        "repetition_penalty",
                                        "return_dict",
                                        "return_dict_in_generate",
                                        "sep_token_id",
                                        "suppress_tokens",
                                        "task_specific_params",
                                        "temperature",
                                        "tf_legacy_loss",
                                        "tie_encoder_decoder",
                                        "tokenizer_class",
                                        "top_k",
                                        "top_p",
                                        "torchscript",
                                        "typical_p",
                                        "use_bfloat16"};

class Accounting : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] static std::filesystem::path source() { return bundled_goldens() / GetParam().name; }
  [[nodiscard]] static Json config() { return std::move(*read_config((source() / "config.json").string())); }
  [[nodiscard]] static bool without_effect(const std::string& key) {
    return GetParam().deletable.empty() ? kIgnored.contains(key) : GetParam().deletable.contains(key);
  }
  void write_config(const Json& config) const { folder_.write("config.json", config.dump()); }
  void link_weights() const {
    std::filesystem::create_symlink(source() / "model.safetensors", folder_ / "model.safetensors");
  }
  TestFolder folder_;
};

TEST_P(Accounting, EveryTensorIsNeededByName) {
  const auto file = open_safetensors((source() / "model.safetensors").string());
  ASSERT_TRUE(file.ok());
  const std::vector<NamedTensor>& all = file->content.tensors;
  write_config(config());
  const std::string path = folder_ / "model.safetensors";
  write_file(path, all);
  ASSERT_EQ(load_error(folder_.path()), "");
  std::set<std::string> kinds;  // names without their numbers
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (const std::string& prefix = GetParam().not_computed;
        !prefix.empty() && all[i].name.starts_with(prefix)) {
      continue;
    }
    std::string kind = all[i].name;
    std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
    if (!kinds.insert(kind).second && i % 5 != 0) continue;
    std::vector<NamedTensor> changed = all;
    changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(i));
    write_file(path, changed);
    EXPECT_TRUE(contains(load_error(folder_.path()), all[i].name)) << "removed " << all[i].name;

    changed = all;
    changed[i].name += "x";
    write_file(path, changed);
    const std::string renamed = load_error(folder_.path());
    EXPECT_TRUE(contains(renamed, all[i].name + "x")) << renamed;

    if (i % 7 != 0 || all[i].view.shape.empty() || all[i].view.shape[0] < 2) continue;
    changed = all;
    --changed[i].view.shape[0];  // one row less
    write_file(path, changed);
    EXPECT_TRUE(contains(load_error(folder_.path()), all[i].name)) << "cut " << all[i].name;
  }
  std::vector<NamedTensor> more = all;
  more.push_back(all[0]);
  more.back().name = "language_model.model.layers.1.self_attn.extra.weight";
  more.push_back(all[0]);
  more.back().name = "another";
  write_file(path, more);
  const std::string both = load_error(folder_.path());
  EXPECT_TRUE(contains(both, "self_attn.extra.weight") && contains(both, "another")) << both;
}

/// Where an object's content is not looked into.
const std::set<std::string> kOpaque = {"auto_map",
                                       "id2label",
                                       "label2id",
                                       "vision_config",
                                       "observer_kwargs",
                                       "pruned_heads",
                                       "task_specific_params"};

/// Calls visit(object, path) for the config and every object in it that is read strictly.
void each_object(Json& object, const std::string& path,
                 const std::function<void(Json&, const std::string&)>& visit) {
  visit(object, path);
  for (auto& [key, value] : object.items()) {
    if (value.is_object() && !kOpaque.contains(key)) each_object(value, path + key + ".", visit);
  }
}

TEST_P(Accounting, EveryConfigKeyIsReadOrKnown) {
  link_weights();
  const Json original = config();
  std::vector<std::pair<Json::json_pointer, std::string>> keys;
  std::vector<Json::json_pointer> objects;
  Json walk = original;
  each_object(walk, "", [&](Json& object, const std::string& path) {
    Json::json_pointer pointer;
    std::string part;
    for (const char c : path) {
      if (c == '.') {
        pointer /= part;
        part.clear();
      } else {
        part += c;
      }
    }
    objects.push_back(pointer);
    for (const auto& [key, value] : object.items()) keys.emplace_back(pointer, key);
  });
  ASSERT_GE(keys.size(), 20U);
  int read = 0;
  for (const auto& [pointer, key] : keys) {
    Json changed = original;
    changed[pointer].erase(key);
    write_config(changed);
    const std::string error = load_error(folder_.path());
    // Kimi-Linear's own head_dim is unused, that of its linear attention is not.
    const bool ignored = without_effect(key) && !(key == "head_dim" && !pointer.empty());
    if (ignored) {
      EXPECT_EQ(error, "") << "without " << (pointer / key).to_string();
    } else {
      ++read;
      EXPECT_TRUE(contains(error, key))
          << "without " << (pointer / key).to_string() << ": \"" << error << "\"";
    }
  }
  EXPECT_GT(read, 12);
  for (const auto& pointer : objects) {
    Json changed = original;
    changed[pointer]["a_new_switch"] = true;
    changed[pointer]["another_switch"] = nullptr;
    write_config(changed);
    const std::string error = load_error(folder_.path());
    EXPECT_TRUE(contains(error, "a_new_switch") && contains(error, "another_switch"))
        << pointer.to_string() << error;
  }
}

TEST_P(Accounting, ConfigValuesOfTheWrongKindAreNamed) {
  link_weights();
  const Json original = config();
  Json::json_pointer text;
  if (original.contains("text_config")) text /= "text_config";
  for (const char* key :
       {"hidden_size", "num_experts", "n_routed_experts", "num_local_experts", "rms_norm_eps", "kv_lora_rank",
        "head_dim", "mla_use_nope", "hidden_act", "hidden_activation", "num_key_value_heads",
        "tie_word_embeddings", "rope_theta", "layer_types"}) {
    if (!original[text].contains(key) || without_effect(key)) continue;
    for (const Json& bad :
         {Json("many"), Json(-3), Json::array({1}), Json(1e300), Json(1000000000000), Json()}) {
      Json changed = original;
      changed[text][key] = bad;
      write_config(changed);
      const std::string error = load_error(folder_.path());
      EXPECT_TRUE(contains(error, key)) << key << " = " << bad.dump() << ": " << error;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Accounting, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.name; });

TEST_P(Accounting, SizesOfAConfigAreNotTrusted) {
  link_weights();
  const Json original = config();
  Json::json_pointer text;
  if (original.contains("text_config")) text /= "text_config";
  for (const char* key : {"num_hidden_layers", "num_experts", "num_experts_per_token", "num_experts_per_tok",
                          "n_routed_experts", "num_local_experts", "vocab_size", "hidden_size",
                          "num_attention_heads", "num_key_value_heads", "head_dim", "rotary_dim",
                          "qk_nope_head_dim", "intermediate_size", "moe_intermediate_size"}) {
    if (!original[text].contains(key) || without_effect(key)) continue;
    if (GetParam().unused.contains(key)) continue;
    for (const std::int64_t size : {std::int64_t{4000}, std::int64_t{65536}, std::int64_t{16000000},
                                    std::int64_t{1000000000}, std::int64_t{1} << 62}) {
      // Graphs that large are traced in seconds before their tensors are missed: one family shows it.
      const bool counts = std::string_view(key) == "num_hidden_layers" || contains(key, "experts");
      if (counts && size < 100000 && GetParam().name != "kimi_linear_b") continue;
      Json changed = original;
      changed[text][key] = size;
      write_config(changed);
      EXPECT_NE(load_error(folder_.path()), "") << key << " = " << size;
    }
  }
}

TEST(Loading, ContextBeyondTheModelsMaximumIsRefused) {
  const auto folder = bundled_goldens() / "kimi_k31_c";
  auto traced = trace_model(folder, models_folder());
  ASSERT_TRUE(traced.ok());
  const auto checkpoint = Checkpoint::open(folder.string());
  LoadOptions load;
  load.max_context = traced->max_context;
  load.context = traced->max_context + 1;
  const auto model = Model::load(std::move(traced->graph), *checkpoint, std::move(load));
  ASSERT_FALSE(model.ok());
  EXPECT_TRUE(contains(model.error().message, std::to_string(traced->max_context))) << model.error().message;
}

TEST(Loading, MemoryForManySequencesIsThatOfAllTheirCaches) {
  const std::string golden = "llama3_scaled";
  const auto error = [&](std::int64_t sequences, std::int64_t context) -> std::string {
    const auto model = dummy_model(golden, [&](LoadOptions& load, const TracedModel&) {
      load.context = context;
      load.sequences = sequences;
      load.sampled_rows = 1;
    });
    return model.ok() ? "" : model.error().message;
  };
  const auto traced = trace_model(bundled_goldens() / golden, models_folder());
  ASSERT_TRUE(traced.ok());
  const CacheLayout layout = cache_layout_of(traced->graph, false);
  const std::int64_t context = traced->max_context / kPageTokens * kPageTokens;
  ASSERT_GE(context, 4 * kPageTokens);
  // A page each takes half of the memory.
  const std::int64_t some = available_memory() / (2 * layout.page_bytes + layout.state_bytes);
  const std::string caches =
      bytes_text(some * (layout.state_bytes + context / kPageTokens * layout.page_bytes));
  const std::string long_contexts = error(some, context);
  EXPECT_TRUE(contains(long_contexts, "a context of " + std::to_string(context) + " tokens for each of " +
                                          std::to_string(some) + " sequences at once needs"))
      << long_contexts;
  EXPECT_TRUE(contains(long_contexts, "(" + caches + " of them caches)")) << long_contexts;
  EXPECT_TRUE(contains(long_contexts, "the largest context that fits is")) << long_contexts;
  const std::string many = error(4 * some, kPageTokens);
  EXPECT_TRUE(contains(many, bytes_text(4 * some * (layout.state_bytes + layout.page_bytes)) + " caches of " +
                                 std::to_string(4 * some) + " sequences at once"))
      << many;
}

TEST(Loading, VisionTensorsAreAnnouncedAndImagesRefused) {
  const auto folder = shared_goldens() / "kimi_k3_vl_a";
  if (!std::filesystem::is_directory(folder))
    GTEST_SKIP() << "the larger golden sets are not here (" << folder << ")";
  auto traced = trace_model(folder, models_folder());
  ASSERT_TRUE(traced.ok()) << traced.error().message;
  const auto checkpoint = Checkpoint::open(folder.string());
  LoadOptions load;
  load.max_context = traced->max_context;
  load.image_token_id = traced->image_token_id;
  const auto model = Model::load(std::move(traced->graph), *checkpoint, std::move(load));
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_FALSE((*model)->notices().empty());
  EXPECT_TRUE(contains((*model)->notices()[0], "vision"));
  const std::int32_t image[] = {traced->image_token_id};
  EXPECT_FALSE((*model)->check_tokens(image).ok());
}

}  // namespace
}  // namespace firstlight::testing
