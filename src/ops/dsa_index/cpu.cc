// dsa_index on CPU; README.md says how keys are searched.
//   1. write the rows' keys (or the pools they complete) to the pages, exactly and as bytes
//   2. rows that see no more than they may choose take everything
//   3. the others bound or score page after page and keep what may be chosen in bounded buffers; the score
//      matrix is never written. Many rows: a thread takes some neighbours at a time. Few rows: a row's pages
//      are shared out.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "ops/dsa_index/kept_keys.h"
#include "ops/dsa_index/kernels.h"
#include "ops/dsa_index/op.h"
#include "ops/scratch.h"

namespace firstlight {
namespace {

// Rows that meet a page's keys while they are near (bytes of 128 channels x 64 tokens: 8 KiB).
constexpr std::int64_t kItemRows = 8;
// Pages of which open keys are scored for all rows of an item before the next pages': they stay in the
// second-level cache.
constexpr std::int64_t kGroupPages = 4;
// Above this many channels a dot product of bytes might leave 32 bits.
constexpr std::int64_t kMostByteChannels = 32768;

/// Rows [first, first + rows) of the step, neighbours in one sequence, from `position` on.
struct Item {
  const SequenceRows* sequence;
  std::int64_t first, rows, position;
};

/// A row while it is searched; when its pages are shared out, one of these for each part.
struct Search {
  const SequenceRows* sequence;
  std::int64_t row, position;
  IndexQuery query;
  std::int32_t* estimates;   // [pages] scores of their means; only with means
  std::int32_t* candidates;  // [candidate_count] pages to search, ascending; only with means
  std::int64_t candidate_count;
  bool all_pages;       // no candidates: all pages are searched
  std::int64_t next;    // candidate
  ChoiceLimits limits;  // of the row, once all its pages were searched
};

/// Kept keys of a row whose scores are wanted.
struct OpenKeys {
  const IndexQuery* query;
  const std::int32_t* position;  // of the kept keys, ascending
  const std::int32_t* open;      // [count] which of them
  std::int64_t count;
  std::int32_t* score;  // of the kept keys
  std::int64_t next;    // of `open`
};

class DsaIndexCpu final : public Kernel {
 public:
  explicit DsaIndexCpu(const KernelContext& context)
      : kernels_(FL_PICK(context.isa, kDsaIndexKernels)),
        operands_(context.f32 ? kernels_.f32 : kernels_.bf16),
        node_index_(static_cast<std::size_t>(context.node_index)),
        heads_(context.node.integer("heads")),
        dim_(context.node.integer("dim")),
        kpool_(context.node.integer("kpool")),
        pools_(context.node.integer("topk") / kpool_),
        select_tail_(context.node.flag("select_tail")),
        width_(pools_ * kpool_ + (kpool_ > 1 && select_tail_ ? kpool_ - 1 : 0)),
        lanes_(dsa_index_lanes(kpool_)),
        key_bytes_(dsa_index_key_bytes(dim_)),
        page_keys_(kPageTokens / kpool_),
        page_shift_(std::countr_zero(static_cast<std::uint64_t>(page_keys_))),
        bytes_(context.settings.key_search != KeySearch::kFull && dim_ <= kMostByteChannels),
        means_(bytes_ && context.settings.key_search == KeySearch::kTwoStage),
        min_context_(context.settings.min_context),
        candidate_pages_(std::max((context.settings.candidates + kPageTokens - 1) / kPageTokens,
                                  (pools_ + page_keys_ - 1) / page_keys_)),
        factor_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads_ * dim_)))),
        places_(context.caches),
        row_bytes_(dsa_index_key_elements(dim_) * static_cast<std::int64_t>(dtype_size(places_[0].dtype))),
        limits_(context.limits),
        threads_(context.threads) {}

  Status read_weights(const KernelContext& context) {
    if (kpool_ == 1) return {};
    FL_ASSIGN(ape_, read_all(context.weight("ape")));
    return {};
  }

  [[nodiscard]] std::int64_t weight_bytes() const override {
    return static_cast<std::int64_t>(ape_.size() * sizeof(float));
  }
  [[nodiscard]] std::int64_t scratch_bytes() const override { return Scratch(*this, nullptr).bytes; }

  void run(const Step& step, const NodeIo& io, ThreadPool& pool) override {
    check(pool.threads() <= threads_, "dsa_index runs on more threads than its scratch was made for");
    const Scratch scratch(*this, io.scratch);
    write_keys(step, io, scratch, pool);
    if (node_index_ < step.forced.size() && step.forced[node_index_] != nullptr) {
      std::copy_n(step.forced[node_index_], step.rows() * width_, io.out_i32());
      return;
    }

    const int threads = pool.threads();
    std::int64_t scored = 0;
    const std::int64_t items = list_items(step, io, threads, scratch.items, scored);
    if (scored == 0) return;
    std::int64_t work = 0;
    for (std::int64_t i = 0; i < items; ++i) {
      work += scratch.items[i].rows * visible_keys(scratch.items[i].position) * heads_ * dim_;
    }
    if (scored >= 4 * threads) {
      pool.run(work, [&](int thread) {
        // Dealt in turn: later rows of a prompt see more and cost more.
        for (std::int64_t i = thread; i < items; i += threads) {
          choose_rows(step, io, scratch, scratch.items[i], thread);
        }
      });
    } else {
      choose_together(step, io, scratch, items, scored, work, pool);
    }
  }

 private:
  /// Memory of a run. A slot is a row of a thread's item, or a part of one of few rows: below 8 a thread, see
  /// choose_together.
  struct Scratch {
    Scratch(const DsaIndexCpu& op, std::uint8_t* base) {
      ScratchCarver carve(base);
      const std::int64_t slots = kItemRows * op.threads_;
      const std::int64_t wide = (op.heads_ + 15) / 16 * 16;
      const std::int64_t blocks = (op.heads_ + 3) / 4 * 4;
      const std::int64_t pages = (op.limits_.context + kPageTokens - 1) / kPageTokens;
      items = carve.take<Item>(op.limits_.tokens);
      searches = carve.take<Search>(slots);
      kept = carve.take<KeptKeys>(slots);
      capacity = KeptKeys::capacity(op.pools_, op.limits_.context / op.kpool_);
      kept_memory = carve.take<std::int32_t>(KeptKeys::kArrays * capacity * slots);
      estimate_count = op.means_ ? (pages + kPageTokens - 1) / kPageTokens * kPageTokens : 0;
      estimates = carve.take<std::int32_t>(estimate_count * slots);
      candidate_count = op.means_ ? std::min(op.candidate_pages_ + 3, pages) : 0;
      candidates = carve.take<std::int32_t>(candidate_count * slots);
      cell_floats = dsa_index_key_elements(op.dim_) * wide;
      cells = carve.take<float>(cell_floats * slots);
      weights = carve.take<float>(wide * slots);
      head_bytes = op.bytes_ ? blocks * op.key_bytes_ : 0;
      bytes_of_heads = carve.take<std::int8_t>(head_bytes * slots);
      start = carve.take<std::int32_t>(wide * slots);
      byte_weights = carve.take<float>(wide * slots);
      linear_bytes = op.bytes_ ? op.key_bytes_ : 0;
      linear = carve.take<std::int8_t>(linear_bytes * slots);
      head_stride = wide;
      // Of a thread.
      staging_floats = kPageTokens * op.dim_;
      staging = carve.take<float>(staging_floats * op.threads_);
      tile_bytes = op.means_ ? kPageTokens * op.key_bytes_ : 0;
      tiles = carve.take<std::uint8_t>(tile_bytes * op.threads_);
      const std::int64_t row_floats = op.bytes_ ? op.heads_ * op.dim_ : 0;
      const std::int64_t products = op.bytes_ && op.heads_ <= kMostGramHeads ? 2 * wide * wide : 0;
      query_floats = 2 * row_floats + (op.bytes_ ? op.dim_ : 0) + (products > 0 ? cell_floats + products : 0);
      query_memory = carve.take<float>(query_floats * op.threads_);
      query_rows = row_floats;
      half_floats = op.bytes_ ? op.dim_ : 0;
      bytes = carve.used();
    }
    [[nodiscard]] float* staging_of(int thread) const { return staging + thread * staging_floats; }
    [[nodiscard]] QueryScratch query_scratch(int thread) const {
      if (query_floats == 0) return {};
      float* memory = query_memory + thread * query_floats;
      return {.scaled = memory,
              .residuals = memory + query_rows,
              .columns = memory + 2 * query_rows + half_floats,
              .products = memory + 2 * query_rows + half_floats + cell_floats,
              .half = memory + 2 * query_rows};
    }
    /// An empty search in the memory of a slot.
    Search& open(std::int64_t slot, const Item& item, std::int64_t r, std::int64_t k) const {
      Search& s = searches[slot];
      s = {.sequence = item.sequence,
           .row = item.first + r,
           .position = item.position + r,
           .query = {.cells = cells + slot * cell_floats,
                     .weights = weights + slot * head_stride,
                     .bytes = bytes_of_heads + slot * head_bytes,
                     .start = start + slot * head_stride,
                     .byte_weights = byte_weights + slot * head_stride,
                     .linear = linear + slot * linear_bytes,
                     .linear_start = 0,
                     .linear_weight = 0,
                     .error = {},
                     .certified = false},
           .estimates = estimates + slot * estimate_count,
           .candidates = candidates + slot * candidate_count,
           .candidate_count = 0,
           .all_pages = true,
           .next = 0,
           .limits = {}};
      kept[slot] = KeptKeys(kept_memory + slot * KeptKeys::kArrays * capacity, k, capacity);
      return s;
    }

    Item* items;  // [tokens]
    Search* searches;
    KeptKeys* kept;
    std::int32_t *kept_memory, *estimates, *candidates, *start;
    float *cells, *weights, *byte_weights, *staging, *query_memory;
    std::int8_t *bytes_of_heads, *linear;
    std::uint8_t* tiles;
    std::int64_t capacity, estimate_count, candidate_count, cell_floats, head_bytes, head_stride,
        linear_bytes, staging_floats, tile_bytes, query_floats, query_rows, half_floats, bytes;
  };

  [[nodiscard]] std::uint8_t* page_of(const Step& step, const SequenceRows& s, std::int64_t page,
                                      std::size_t cache) const {
    return step.page(s.pages[page]) + places_[cache].offset;
  }
  [[nodiscard]] float* recent(const SequenceRows& s, std::int64_t position) const {
    return reinterpret_cast<float*>(s.state + places_[3].offset) + position % kpool_ * 2 * dim_;
  }
  [[nodiscard]] std::int64_t visible_keys(std::int64_t position) const { return (position + 1) / kpool_; }
  [[nodiscard]] std::int64_t pages_of(std::int64_t last_position) const {
    return (visible_keys(last_position) + page_keys_ - 1) / page_keys_;
  }

  // ---- keys -------------------------------------------------------------------------------------------

  [[nodiscard]] ByteTile byte_tile(const std::uint8_t* page) const {
    const auto* floats = reinterpret_cast<const float*>(page + lanes_ * key_bytes_);
    return {.bytes = page, .scale = floats, .residual = floats + lanes_, .norm = floats + 2 * lanes_};
  }

  void write_keys(const Step& step, const NodeIo& io, const Scratch& scratch, ThreadPool& pool) const {
    const int threads = pool.threads();
    pool.run(step.rows() * dim_ * 4, [&](int thread) {
      const Range rows = static_range(step.rows(), thread, threads);
      for (const SequenceRows& s : step.sequences) {
        const std::int64_t begin = std::max(rows.begin, s.first_row);
        const std::int64_t end = std::min(rows.end, s.first_row + s.rows);
        for (std::int64_t r = begin; r < end; ++r) write_key(step, io, s, r, scratch.staging_of(thread));
      }
    });
    // After all pools are made: they read what this overwrites.
    if (kpool_ > 1) {
      for (const SequenceRows& s : step.sequences) keep_recent(io, s);
    }
    if (!means_) return;
    pool.run(step.rows() * dim_ * 2, [&](int thread) {
      for (const SequenceRows& s : step.sequences) {
        const std::int64_t first = s.position / kPageTokens;
        const std::int64_t filled = (s.position + s.rows) / kPageTokens;
        for (std::int64_t page = first; page < filled; ++page) {
          if (page % threads == thread) write_mean(step, s, page, scratch.staging_of(thread));
        }
      }
    });
  }

  /// Puts the key of row r, or of the pool that row r completes, into its page.
  void write_key(const Step& step, const NodeIo& io, const SequenceRows& s, std::int64_t r,
                 float* memory) const {
    const std::int64_t position = s.position + r - s.first_row;
    if ((position + 1) % kpool_ != 0) return;
    const float* key = io.in(1) + r * dim_;
    if (kpool_ > 1) {
      std::array<const float*, kPageTokens> rows;
      std::array<const float*, kPageTokens> gates;
      for (std::int64_t j = 0; j < kpool_; ++j) {
        const std::int64_t row = r - kpool_ + 1 + j;
        const bool here = row >= s.first_row;  // else an earlier step's token
        const float* kept = here ? nullptr : recent(s, position - kpool_ + 1 + j);
        rows[static_cast<std::size_t>(j)] = here ? io.in(1) + row * dim_ : kept;
        gates[static_cast<std::size_t>(j)] = here ? io.in(3) + row * dim_ : kept + dim_;
      }
      kernels_.pool(rows.data(), gates.data(), ape_.data(), kpool_, dim_, memory);
      key = memory;
    }
    const std::int64_t page = position / kPageTokens;
    const std::int64_t lane = position % kPageTokens / kpool_;
    std::uint8_t* stored = page_of(step, s, page, 0) + lane * row_bytes_;
    std::memset(stored, 0, static_cast<std::size_t>(row_bytes_));
    if (places_[0].dtype == DType::kF32) {
      std::copy_n(key, dim_, reinterpret_cast<float*>(stored));
    } else {
      std::transform(key, key + dim_, reinterpret_cast<std::uint16_t*>(stored), f32_to_bf16);
    }
    if (!bytes_) return;
    // Bytes and bounds are those of the key as stored.
    std::uint8_t* tile = page_of(step, s, page, 1);
    operands_.values(stored, dim_, memory);
    const KeyScale scale = kernels_.quantise_key(memory, dim_, tile + lane * 4, lanes_ * 4);
    auto* floats = reinterpret_cast<float*>(tile + lanes_ * key_bytes_) + lane;
    floats[0] = scale.scale;
    floats[lanes_] = scale.residual;
    floats[2 * lanes_] = scale.norm;
  }

  /// The mean of a full page's keys, as bytes.
  void write_mean(const Step& step, const SequenceRows& s, std::int64_t page, float* memory) const {
    const std::uint8_t* keys = page_of(step, s, page, 0);
    for (std::int64_t i = 0; i < page_keys_; ++i)
      operands_.values(keys + i * row_bytes_, dim_, memory + i * dim_);
    std::uint8_t* out = page_of(step, s, page, 2);
    // The mean takes the place of the first key: each channel is read before it is written.
    kernels_.mean(memory, page_keys_, dim_, memory);
    const KeyScale scale = kernels_.quantise_key(memory, dim_, out, 4);
    // A mean that is not finite scores above all others.
    const float floats[2] = {scale.scale,
                             std::isfinite(scale.residual) ? 0.0F : std::numeric_limits<float>::infinity()};
    std::memcpy(out + key_bytes_, floats, sizeof(floats));
  }

  /// Keeps raw (key, gate) of the last kpool tokens, the state of an open pool.
  void keep_recent(const NodeIo& io, const SequenceRows& s) const {
    for (std::int64_t r = std::max<std::int64_t>(0, s.rows - kpool_); r < s.rows; ++r) {
      float* slot = recent(s, s.position + r);
      std::copy_n(io.in(1) + (s.first_row + r) * dim_, dim_, slot);
      std::copy_n(io.in(3) + (s.first_row + r) * dim_, dim_, slot + dim_);
    }
  }

  // ---- rows -------------------------------------------------------------------------------------------

  /// Answers the rows that see no more keys than they may choose, and lists the others.
  std::int64_t list_items(const Step& step, const NodeIo& io, int threads, Item* items,
                          std::int64_t& scored) const {
    const auto trivial_rows = [&](const SequenceRows& s) {
      // Row i sees visible_keys(position + i) keys; the first that must choose sees pools_ + 1.
      return std::clamp<std::int64_t>((pools_ + 1) * kpool_ - 1 - s.position, 0, s.rows);
    };
    for (const SequenceRows& s : step.sequences) scored += s.rows - trivial_rows(s);
    // Every thread gets an item, of rows that need no more scratch than there is.
    const std::int64_t item_rows = std::clamp<std::int64_t>(scored / threads, 1, kItemRows);
    std::int64_t count = 0;
    for (const SequenceRows& s : step.sequences) {
      const std::int64_t trivial = trivial_rows(s);
      for (std::int64_t r = 0; r < trivial; ++r) {
        const std::int64_t position = s.position + r;
        std::int32_t* out = io.out_i32() + (s.first_row + r) * width_;
        for (std::int64_t p = 0; p < visible_keys(position); ++p) out[p] = static_cast<std::int32_t>(p);
        write_choice(position, visible_keys(position), out);
      }
      for (std::int64_t r = trivial; r < s.rows; r += item_rows) {
        items[count++] = {&s, s.first_row + r, std::min(item_rows, s.rows - r), s.position + r};
      }
    }
    return count;
  }

  /// out[0, count) holds the chosen keys ascending; makes them positions, adds the open pool, pads with -1.
  void write_choice(std::int64_t position, std::int64_t count, std::int32_t* out) const {
    // Backwards, because key i becomes entries i * kpool .. and i is read before it is overwritten.
    for (std::int64_t i = count - 1; i >= 0 && kpool_ > 1; --i) {
      const std::int64_t first = out[i] * kpool_;
      for (std::int64_t j = 0; j < kpool_; ++j) out[i * kpool_ + j] = static_cast<std::int32_t>(first + j);
    }
    count *= kpool_;
    if (kpool_ > 1 && select_tail_) {
      for (std::int64_t p = visible_keys(position) * kpool_; p <= position; ++p) {
        out[count++] = static_cast<std::int32_t>(p);
      }
    }
    std::fill(out + count, out + width_, -1);
  }

  void prepare(const NodeIo& io, const Scratch& scratch, int thread, Search& search) const {
    // Where so many may be chosen that bounds decide little, all are scored: the choice is the same.
    const bool few = visible_keys(search.position) < kernels_.certified_from * pools_ &&
                     !(means_ && search.position + 1 > min_context_);
    operands_.prepare_query(io.in(0) + search.row * heads_ * dim_, io.in(2) + search.row * heads_, factor_,
                            heads_, dim_, few ? QueryScratch{} : scratch.query_scratch(thread), search.query);
  }

  // ---- pages ------------------------------------------------------------------------------------------

  /// Pages whose means are scored: all but the first and the newest two, which are always searched.
  [[nodiscard]] std::int64_t estimated_pages(const Search& search) const {
    return std::max<std::int64_t>(search.position / kPageTokens - 2, 0);
  }
  /// Whether a row searches only some of its pages. Decided by the row alone.
  [[nodiscard]] bool two_stages(const Search& search) const {
    return means_ && search.query.certified && search.position + 1 > min_context_ &&
           estimated_pages(search) > candidate_pages_;
  }

  /// Scores the means of pages [1 + 64 block, 1 + 64 block + 64) for the searches that need them.
  void estimate(const Step& step, const Scratch& scratch, std::int64_t block, std::span<Search> searches,
                int thread) const {
    const std::int64_t first = 1 + block * kPageTokens;
    std::int64_t last = 0;  // of the pages that any of the searches estimates
    for (const Search& s : searches) last = std::max(last, two_stages(s) ? estimated_pages(s) : 0);
    const std::int64_t count = std::min(kPageTokens, last + 1 - first);
    if (count <= 0) return;
    std::uint8_t* bytes = scratch.tiles + thread * scratch.tile_bytes;
    std::array<float, kPageTokens> scale{};
    std::array<float, kPageTokens> residual{};
    constexpr std::array<float, kPageTokens> kNorm{};
    // They lie a page apart: all are asked for before the first is needed.
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint8_t* mean = page_of(step, *searches[0].sequence, first + i, 2);
      for (std::int64_t line = 0; line < key_bytes_ + 8; line += 64) __builtin_prefetch(mean + line);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint8_t* mean = page_of(step, *searches[0].sequence, first + i, 2);
      for (std::int64_t g = 0; g < key_bytes_; g += 4) {
        std::memcpy(bytes + g * kPageTokens + i * 4, mean + g, 4);
      }
      std::memcpy(&scale[static_cast<std::size_t>(i)], mean + key_bytes_, sizeof(float));
      std::memcpy(&residual[static_cast<std::size_t>(i)], mean + key_bytes_ + sizeof(float), sizeof(float));
    }
    std::array<std::int32_t, kPageTokens> lower;
    for (Search& s : searches) {
      if (!two_stages(s)) continue;
      IndexQuery query = s.query;
      query.error = {};
      kernels_.scan(query, heads_, dim_, {bytes, scale.data(), residual.data(), kNorm.data()}, kPageTokens,
                    {}, lower.data(), s.estimates + block * kPageTokens);
    }
  }

  /// Lists page 0, the pages of the best means (of equal ones the lower page) and the newest two.
  void choose_pages(Search& search, const std::int32_t* estimates) const {
    const std::int64_t n = estimated_pages(search);
    const auto reached = [&](std::int32_t t) { return kernels_.count_from(estimates, n, t); };
    const std::int32_t worst = best_limit(candidate_pages_, 0, reached);
    std::int64_t ties = candidate_pages_ - (worst == INT32_MAX ? 0 : reached(worst + 1));
    std::int64_t count = 0;
    search.candidates[count++] = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      if (estimates[i] < worst || (estimates[i] == worst && ties-- <= 0)) continue;
      search.candidates[count++] = static_cast<std::int32_t>(1 + i);
    }
    search.candidates[count++] = static_cast<std::int32_t>(n + 1);
    search.candidates[count++] = static_cast<std::int32_t>(n + 2);
    search.candidate_count = count;
    search.all_pages = false;
  }

  /// The next page behind `page` that any of the searches wants, or one that is not there.
  static std::int64_t page_behind(std::int64_t page, std::span<Search> searches) {
    std::int64_t nearest = std::numeric_limits<std::int64_t>::max();
    for (Search& s : searches) {
      if (s.all_pages) nearest = std::min(nearest, page + 1);
      while (s.next < s.candidate_count && s.candidates[s.next] <= page) ++s.next;
      if (s.next < s.candidate_count) nearest = std::min<std::int64_t>(nearest, s.candidates[s.next]);
    }
    return nearest;
  }
  [[nodiscard]] static bool wants(const Search& search, std::int64_t page) {
    return search.all_pages ||
           (search.next < search.candidate_count && search.candidates[search.next] == page);
  }

  /// The byte keys of a page, with their scales.
  [[nodiscard]] Ahead tile_memory(const std::uint8_t* tile) const {
    return {tile, tile + lanes_ * (key_bytes_ + 3 * static_cast<std::int64_t>(sizeof(float)))};
  }

  /// Offers the keys of some pages to the searches of neighbouring rows that want them and see them. A page's
  /// keys lie apart from those of the next, and the machine's own prefetching would start anew on each.
  void search_pages(const Step& step, const Scratch& scratch, Range pages, std::int64_t slot,
                    std::int64_t count) const {
    std::array<std::int32_t, kPageTokens + kScoreSlack> lower;
    std::array<std::int32_t, kPageTokens + kScoreSlack> upper;
    std::array<std::int32_t, kPageTokens> position;
    const SequenceRows& sequence = *scratch.searches[slot].sequence;
    std::array<std::int64_t, kItemRows> wanting;  // searches that want the page
    const std::span<Search> searches(scratch.searches + slot, static_cast<std::size_t>(count));
    for (std::int64_t page = page_behind(pages.begin - 1, searches); page < pages.end;) {
      std::size_t rows = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        if (wants(searches[static_cast<std::size_t>(i)], page)) wanting[rows++] = slot + i;
      }
      const std::int64_t behind = page_behind(page, searches);
      const std::int64_t first_key = page * page_keys_;
      const ByteTile tile = byte_tile(page_of(step, sequence, page, 1));
      std::array<const std::uint8_t*, kPageTokens + kScoresAhead> keys;
      const std::uint8_t* page_keys = page_of(step, sequence, page, 0);
      for (std::int64_t i = 0; i < page_keys_; ++i) {
        position[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(first_key + i);
        keys[static_cast<std::size_t>(i)] = page_keys + i * row_bytes_;
      }
      Ahead ahead;
      std::int64_t known = page_keys_;
      if (behind < pages.end) {
        ahead = tile_memory(page_of(step, sequence, behind, 1));
        const std::uint8_t* next_keys = page_of(step, sequence, behind, 0);
        for (; known < std::min(2 * page_keys_, page_keys_ + kScoresAhead); ++known) {
          keys[static_cast<std::size_t>(known)] = next_keys + (known - page_keys_) * row_bytes_;
        }
      }
      for (std::size_t w = 0; w < rows; ++w) {
        const std::int64_t i = wanting[w];
        const Search& search = scratch.searches[i];
        const std::int64_t visible = std::min(page_keys_, visible_keys(search.position) - first_key);
        if (visible <= 0) continue;
        if (search.query.certified) {
          kernels_.scan(search.query, heads_, dim_, tile, lanes_, std::exchange(ahead, {}), lower.data(),
                        upper.data());
        } else {
          // Only the first row finds the keys far away.
          operands_.score(search.query, heads_, dim_, keys.data(), visible, w == 0 ? known : visible,
                          lower.data());
          upper = lower;
        }
        scratch.kept[i].offer(kernels_, lower.data(), upper.data(), position.data(), visible,
                              [&](KeptKeys& kept) {
                                OpenKeys open = open_keys(search, kept, {INT32_MIN, INT32_MAX}, kept.lower());
                                score_open(step, sequence, {&open, 1});
                              });
      }
      page = behind;
    }
  }

  /// Finds cached keys; neighbours lie in one page.
  class CachedKeys {
   public:
    CachedKeys(const DsaIndexCpu& op, const Step& step, const SequenceRows& sequence)
        : op_(op), step_(step), sequence_(sequence) {}
    const std::uint8_t* operator[](std::int64_t key) {
      if (key >> op_.page_shift_ != page_) {
        page_ = key >> op_.page_shift_;
        keys_ = op_.page_of(step_, sequence_, page_, 0);
      }
      return keys_ + (key & (op_.page_keys_ - 1)) * op_.row_bytes_;
    }

   private:
    const DsaIndexCpu& op_;
    const Step& step_;
    const SequenceRows& sequence_;
    std::int64_t page_ = -1;
    const std::uint8_t* keys_ = nullptr;
  };

  /// Writes to `score` what the limits decide (see DsaIndexKernels::open_keys), and lists the others.
  [[nodiscard]] OpenKeys open_keys(const Search& search, const KeptKeys& kept, ChoiceLimits limits,
                                   std::int32_t* score) const {
    const std::int64_t count = kernels_.open_keys(kept.lower(), kept.upper(), kept.count(), limits.out,
                                                  limits.in, score, kept.open());
    return {&search.query, kept.position(), kept.open(), count, score, 0};
  }

  /// Scores the open keys of neighbouring rows, a group of pages for all rows before the next.
  void score_open(const Step& step, const SequenceRows& sequence, std::span<OpenKeys> rows) const {
    constexpr std::int64_t kMost = kGroupPages * kPageTokens;
    std::array<const std::uint8_t*, kMost + kScoresAhead> keys;
    std::array<std::int32_t, kMost + kScoreSlack> order;
    const std::int64_t group = kGroupPages * page_keys_;
    while (true) {
      std::int64_t first = std::numeric_limits<std::int64_t>::max();
      for (const OpenKeys& row : rows) {
        if (row.next < row.count) first = std::min<std::int64_t>(first, row.position[row.open[row.next]]);
      }
      if (first == std::numeric_limits<std::int64_t>::max()) return;
      first &= -group;
      for (OpenKeys& row : rows) {
        const std::int32_t* open = row.open + row.next;
        const std::int64_t left = row.count - row.next;
        std::int64_t n = 0;
        CachedKeys here(*this, step, sequence);
        for (; n < left && row.position[open[n]] < first + group; ++n) {
          keys[static_cast<std::size_t>(n)] = here[row.position[open[n]]];
        }
        std::int64_t known = n;
        for (; known < std::min(left, n + kScoresAhead); ++known) {
          keys[static_cast<std::size_t>(known)] = here[row.position[open[known]]];
        }
        operands_.score(*row.query, heads_, dim_, keys.data(), n, known, order.data());
        for (std::int64_t i = 0; i < n; ++i) row.score[open[i]] = order[static_cast<std::size_t>(i)];
        row.next += n;
      }
    }
  }

  void finish(const NodeIo& io, const Search& search, std::span<const KeptKeys> parts) const {
    std::int32_t* out = io.out_i32() + search.row * width_;
    write_choice(search.position, choose(kernels_, parts, pools_, search.limits, out), out);
  }

  void choose_rows(const Step& step, const NodeIo& io, const Scratch& scratch, const Item& item,
                   int thread) const {
    const std::int64_t slot = thread * kItemRows;
    const std::span<Search> searches(scratch.searches + slot, static_cast<std::size_t>(item.rows));
    bool estimates = false;
    for (std::int64_t r = 0; r < item.rows; ++r) {
      Search& search = scratch.open(slot + r, item, r, pools_);
      prepare(io, scratch, thread, search);
      estimates = estimates || two_stages(search);
    }
    const std::int64_t pages = pages_of(item.position + item.rows - 1);
    if (estimates) {
      for (std::int64_t b = 0; b * kPageTokens < pages; ++b) estimate(step, scratch, b, searches, thread);
      for (Search& search : searches) {
        if (two_stages(search)) choose_pages(search, search.estimates);
      }
    }
    search_pages(step, scratch, {0, pages}, slot, item.rows);
    std::array<OpenKeys, kItemRows> open;
    for (std::int64_t r = 0; r < item.rows; ++r) {
      Search& search = searches[static_cast<std::size_t>(r)];
      const KeptKeys& kept = scratch.kept[slot + r];
      search.limits = choice_limits(kernels_, {&kept, 1}, pools_);
      open[static_cast<std::size_t>(r)] = open_keys(search, kept, search.limits, kept.score());
    }
    score_open(step, *item.sequence, {open.data(), searches.size()});
    for (std::int64_t r = 0; r < item.rows; ++r) {
      finish(io, searches[static_cast<std::size_t>(r)], {scratch.kept + slot + r, 1});
    }
  }

  /// Fewer than 4 threads' worth of rows: each row's pages are cut into parts, whose kept keys are one list.
  void choose_together(const Step& step, const NodeIo& io, const Scratch& scratch, std::int64_t items,
                       std::int64_t rows, std::int64_t work, ThreadPool& pool) const {
    const int threads = pool.threads();
    // rows < 4 threads, so rows x parts < 4 threads + rows < 8 threads.
    const int parts = static_cast<int>(std::min<std::int64_t>(threads, (4 * threads + rows - 1) / rows));
    const auto each_row = [&](const auto& body) {
      std::int64_t n = 0;
      for (std::int64_t i = 0; i < items; ++i) {
        const Item& item = scratch.items[i];
        for (std::int64_t r = 0; r < item.rows; ++r, ++n) body(n * parts, item, r);
      }
    };
    const auto each_slot = [&](int thread, const auto& body) {
      each_row([&](std::int64_t first, const Item& item, std::int64_t r) {
        for (int part = 0; part < parts; ++part) {
          if ((first + part) % threads == thread) body(first, part, item, r);
        }
      });
    };
    const auto parts_of = [&](std::int64_t first) {
      return std::span<const KeptKeys>(scratch.kept + first, static_cast<std::size_t>(parts));
    };
    const bool estimates = means_ && any_two_stages(scratch.items, items);
    pool.run(work, [&](int thread) {
      each_slot(thread, [&](std::int64_t first, int part, const Item& item, std::int64_t r) {
        Search& search = scratch.open(first + part, item, r, pools_);
        prepare(io, scratch, thread, search);
        if (estimates && two_stages(search)) {
          const Range blocks =
              static_range((estimated_pages(search) + kPageTokens - 1) / kPageTokens, part, parts);
          // Each part's block of estimates goes to the first part's array.
          search.estimates = scratch.estimates + first * scratch.estimate_count;
          for (std::int64_t b = blocks.begin; b < blocks.end; ++b) {
            estimate(step, scratch, b, {&search, 1}, thread);
          }
        } else {
          const Range pages = static_range(pages_of(search.position), part, parts);
          search_pages(step, scratch, pages, first + part, 1);
        }
      });
    });
    if (estimates) {
      pool.run(work, [&](int thread) {
        each_slot(thread, [&](std::int64_t first, int part, const Item&, std::int64_t) {
          Search& search = scratch.searches[first + part];
          if (!two_stages(search)) return;
          choose_pages(search, search.estimates);
          const Range share = static_range(search.candidate_count, part, parts);
          search.next = share.begin;
          search.candidate_count = share.end;
          if (share.begin == share.end) return;
          search_pages(step, scratch, {search.candidates[share.begin], search.candidates[share.end - 1] + 1},
                       first + part, 1);
        });
      });
    }
    pool.run(work, [&](int thread) {
      each_slot(thread, [&](std::int64_t first, int part, const Item&, std::int64_t) {
        Search& search = scratch.searches[first + part];
        const KeptKeys& kept = scratch.kept[first + part];
        search.limits = choice_limits(kernels_, parts_of(first), pools_);
        OpenKeys open = open_keys(search, kept, search.limits, kept.score());
        score_open(step, *search.sequence, {&open, 1});
      });
    });
    pool.run(work, [&](int thread) {
      each_row([&](std::int64_t first, const Item&, std::int64_t) {
        if (first / parts % threads != thread) return;
        finish(io, scratch.searches[first], parts_of(first));
      });
    });
  }

  /// Whether any row may be searched in two stages, by its position.
  [[nodiscard]] bool any_two_stages(const Item* items, std::int64_t count) const {
    return std::any_of(items, items + count,
                       [&](const Item& item) { return item.position + item.rows > min_context_; });
  }

  const DsaIndexKernels& kernels_;
  const IndexOperands& operands_;
  std::size_t node_index_;
  std::int64_t heads_, dim_, kpool_;
  std::int64_t pools_;  // keys chosen by score
  bool select_tail_;
  std::int64_t width_;      // of a row of the choice
  std::int64_t lanes_;      // of a page's byte keys
  std::int64_t key_bytes_;  // of a byte key
  std::int64_t page_keys_;  // keys of a page: 2^page_shift_
  int page_shift_;
  bool bytes_;                    // byte keys are used
  bool means_;                    // and means of pages
  std::int64_t min_context_;      // rows that see more tokens may search only some pages:
  std::int64_t candidate_pages_;  // this many by their means
  float factor_;                  // (Hi Di)^-1/2
  std::vector<CachePlace> places_;
  std::int64_t row_bytes_;  // of a key as cached
  StepLimits limits_;
  int threads_;
  std::vector<float> ape_;  // [kpool, dim]
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_dsa_index_cpu(const KernelContext& context) {
  auto kernel = std::make_unique<DsaIndexCpu>(context);
  FL_TRY(kernel->read_weights(context));
  return std::unique_ptr<Kernel>(std::move(kernel));
}

}  // namespace firstlight
