// dsa_index on CPU, the full-exact policy: every visible key is scored.
//   1. write the rows' keys (or the pools they complete) to the pages
//   2. rows that see no more than they may choose take everything
//   3. the others score page after page and keep the best in a bounded buffer; the score matrix is never
//      written. Many rows: a thread takes four neighbours at a time. Few rows: a row's pages are shared out.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ops/dsa_index/kernels.h"
#include "ops/dsa_index/op.h"
#include "ops/scratch.h"
#include "ops/top_k.h"

namespace firstlight {
namespace {

// Rows that meet a page's keys while they are in the second-level cache (128 channels x 64 tokens: 32 KiB).
constexpr std::int64_t kItemRows = 4;

/// Rows [first, first + rows) of the step, neighbours in one sequence, from `position` on.
struct Item {
  const SequenceRows* sequence;
  std::int64_t first, rows, position;
};

class DsaIndexCpu final : public Kernel {
 public:
  explicit DsaIndexCpu(const KernelContext& context)
      : kernels_(FL_PICK(context.isa, kDsaIndexKernels)),
        node_index_(static_cast<std::size_t>(context.node_index)),
        heads_(context.node.integer("heads")),
        dim_(context.node.integer("dim")),
        kpool_(context.node.integer("kpool")),
        pools_(context.node.integer("topk") / kpool_),
        select_tail_(context.node.flag("select_tail")),
        width_(pools_ * kpool_ + (kpool_ > 1 && select_tail_ ? kpool_ - 1 : 0)),
        lanes_(dsa_index_lanes(kpool_)),
        page_keys_(kPageTokens / kpool_),
        factor_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads_ * dim_)))),
        places_(context.caches),
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
    const int threads = pool.threads();
    pool.run(step.rows() * dim_, [&](int thread) {
      const Range rows = static_range(step.rows(), thread, threads);
      for (const SequenceRows& s : step.sequences) {
        const std::int64_t begin = std::max(rows.begin, s.first_row);
        const std::int64_t end = std::min(rows.end, s.first_row + s.rows);
        for (std::int64_t r = begin; r < end; ++r) write_key(step, io, s, r, scratch.page_of(thread));
      }
    });
    // After all pools are made: they read what this overwrites.
    if (kpool_ > 1) {
      for (const SequenceRows& s : step.sequences) keep_recent(io, s);
    }
    if (node_index_ < step.forced.size() && step.forced[node_index_] != nullptr) {
      std::copy_n(step.forced[node_index_], step.rows() * width_, io.out_i32());
      return;
    }

    std::int64_t scored = 0;
    const std::int64_t items = list_items(step, io, scratch.items, scored);
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
  struct Scratch {
    Scratch(const DsaIndexCpu& op, std::uint8_t* base) {
      ScratchCarver carve(base);
      items = carve.take<Item>(op.limits_.tokens);
      page_floats = op.dim_ * op.lanes_;
      page = carve.take<float>(page_floats * op.threads_);
      weight_floats = kItemRows * op.heads_;
      weights = carve.take<float>(weight_floats * op.threads_);
      capacity = TopK::capacity(op.pools_);
      // kItemRows a thread, or all parts of few rows: below 8 threads, see choose_together.
      keys = carve.take<std::uint64_t>(capacity * 8 * op.threads_);
      best = carve.take<TopK>(8 * op.threads_);
      bytes = carve.used();
    }
    [[nodiscard]] float* page_of(int thread) const { return page + thread * page_floats; }
    [[nodiscard]] float* weights_of(int thread) const { return weights + thread * weight_floats; }

    Item* items;          // [tokens]
    float* page;          // a thread: keys as f32 [dim, lanes]
    float* weights;       // a thread: head weights with the constant factor [kItemRows, heads]
    std::uint64_t* keys;  // [8 threads, capacity] memory of `best`
    TopK* best;           // [8 threads]
    std::int64_t page_floats, weight_floats, capacity, bytes;
  };

  [[nodiscard]] std::uint8_t* keys_of_page(const Step& step, const SequenceRows& s, std::int64_t page) const {
    return step.page(s.pages[page]) + places_[0].offset;
  }
  [[nodiscard]] float* recent(const SequenceRows& s, std::int64_t position) const {
    return reinterpret_cast<float*>(s.state + places_[1].offset) + position % kpool_ * 2 * dim_;
  }
  [[nodiscard]] std::int64_t visible_keys(std::int64_t position) const { return (position + 1) / kpool_; }

  /// Puts the key of row r, or of the pool that row r completes, into its lane of its page.
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
    std::uint8_t* page = keys_of_page(step, s, position / kPageTokens);
    const std::int64_t lane = position % kPageTokens / kpool_;
    if (places_[0].dtype == DType::kF32) {
      auto* to = reinterpret_cast<float*>(page) + lane;
      for (std::int64_t c = 0; c < dim_; ++c) to[c * lanes_] = key[c];
    } else {
      auto* to = reinterpret_cast<std::uint16_t*>(page) + lane;
      for (std::int64_t c = 0; c < dim_; ++c) to[c * lanes_] = f32_to_bf16(key[c]);
    }
  }

  /// Keeps raw (key, gate) of the last kpool tokens, the state of an open pool.
  void keep_recent(const NodeIo& io, const SequenceRows& s) const {
    for (std::int64_t r = std::max<std::int64_t>(0, s.rows - kpool_); r < s.rows; ++r) {
      float* slot = recent(s, s.position + r);
      std::copy_n(io.in(1) + (s.first_row + r) * dim_, dim_, slot);
      std::copy_n(io.in(3) + (s.first_row + r) * dim_, dim_, slot + dim_);
    }
  }

  /// Answers the rows that see no more keys than they may choose, and lists the others.
  std::int64_t list_items(const Step& step, const NodeIo& io, Item* items, std::int64_t& scored) const {
    std::int64_t count = 0;
    for (const SequenceRows& s : step.sequences) {
      // Row i sees visible_keys(position + i) keys; the first that must choose sees pools_ + 1.
      const std::int64_t trivial =
          std::clamp<std::int64_t>((pools_ + 1) * kpool_ - 1 - s.position, 0, s.rows);
      for (std::int64_t r = 0; r < trivial; ++r) {
        const std::int64_t position = s.position + r;
        std::int32_t* out = io.out_i32() + (s.first_row + r) * width_;
        for (std::int64_t p = 0; p < visible_keys(position); ++p) out[p] = static_cast<std::int32_t>(p);
        write_choice(position, visible_keys(position), out);
      }
      for (std::int64_t r = trivial; r < s.rows; r += kItemRows) {
        const std::int64_t rows = std::min(kItemRows, s.rows - r);
        items[count++] = {&s, s.first_row + r, rows, s.position + r};
        scored += rows;
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

  void finish_row(const NodeIo& io, std::int64_t row, std::int64_t position, TopK& best) const {
    best.shrink();
    std::int32_t* out = io.out_i32() + row * width_;
    std::transform(best.begin(), best.end(), out,
                   [](std::uint64_t key) { return static_cast<std::int32_t>(candidate_position(key)); });
    std::sort(out, out + best.size());
    write_choice(position, best.size(), out);
  }

  /// Scores an item's rows against pages [pages.begin, pages.end) and offers each row's visible keys.
  void score(const Step& step, const NodeIo& io, const Item& item, Range pages, float* memory, float* weights,
             TopK* best) const {
    for (std::int64_t i = 0; i < item.rows * heads_; ++i) {
      weights[i] = io.in(2)[item.first * heads_ + i] * factor_;
    }
    std::array<float, kPageTokens> scores;
    for (std::int64_t page = pages.begin; page < pages.end; ++page) {
      const std::uint8_t* stored = keys_of_page(step, *item.sequence, page);
      const auto* keys = reinterpret_cast<const float*>(stored);
      if (places_[0].dtype == DType::kBF16) {
        kernels_.widen(reinterpret_cast<const std::uint16_t*>(stored), dim_ * lanes_, memory);
        keys = memory;
      }
      const std::int64_t first_key = page * page_keys_;
      for (std::int64_t r = 0; r < item.rows; ++r) {
        const std::int64_t count = std::min(page_keys_, visible_keys(item.position + r) - first_key);
        if (count <= 0) continue;
        kernels_.score_page(io.in(0) + (item.first + r) * heads_ * dim_, weights + r * heads_, keys, heads_,
                            dim_, lanes_, scores.data());
        for (std::int64_t i = 0; i < count; ++i) {
          best[r].offer(
              candidate_key(scores[static_cast<std::size_t>(i)], static_cast<std::uint32_t>(first_key + i)));
        }
      }
    }
  }

  [[nodiscard]] std::int64_t pages_of(std::int64_t last_position) const {
    return (visible_keys(last_position) + page_keys_ - 1) / page_keys_;
  }

  void choose_rows(const Step& step, const NodeIo& io, const Scratch& scratch, const Item& item,
                   int thread) const {
    TopK* best = scratch.best + thread * kItemRows;
    for (std::int64_t r = 0; r < item.rows; ++r) {
      best[r] = TopK(scratch.keys + (thread * kItemRows + r) * scratch.capacity, pools_);
    }
    score(step, io, item, {0, pages_of(item.position + item.rows - 1)}, scratch.page_of(thread),
          scratch.weights_of(thread), best);
    for (std::int64_t r = 0; r < item.rows; ++r) finish_row(io, item.first + r, item.position + r, best[r]);
  }

  /// Fewer than 4 threads' worth of rows: each row's pages are cut into parts, whose best are merged.
  void choose_together(const Step& step, const NodeIo& io, const Scratch& scratch, std::int64_t items,
                       std::int64_t rows, std::int64_t work, ThreadPool& pool) const {
    const int threads = pool.threads();
    // rows < 4 threads, so rows x parts < 4 threads + rows < 8 threads.
    const int parts = static_cast<int>(std::min<std::int64_t>(threads, (4 * threads + rows - 1) / rows));
    const auto each_row = [&](const auto& body) {
      std::int64_t n = 0;
      for (std::int64_t i = 0; i < items; ++i) {
        const Item& item = scratch.items[i];
        for (std::int64_t r = 0; r < item.rows; ++r, ++n) {
          body(n, Item{item.sequence, item.first + r, 1, item.position + r});
        }
      }
    };
    pool.run(work, [&](int thread) {
      each_row([&](std::int64_t n, const Item& row) {
        for (int part = 0; part < parts; ++part) {
          const std::int64_t slot = n * parts + part;
          if (slot % threads != thread) continue;
          TopK& best = scratch.best[slot];
          best = TopK(scratch.keys + slot * scratch.capacity, pools_);
          score(step, io, row, static_range(pages_of(row.position), part, parts), scratch.page_of(thread),
                scratch.weights_of(thread), &best);
        }
      });
    });
    pool.run(work, [&](int thread) {
      each_row([&](std::int64_t n, const Item& row) {
        if (n % threads != thread) return;
        TopK& best = scratch.best[n * parts];
        for (int part = 1; part < parts; ++part) {
          for (const std::uint64_t key : scratch.best[n * parts + part]) best.offer(key);
        }
        finish_row(io, row.first, row.position, best);
      });
    });
  }

  const DsaIndexKernels& kernels_;
  std::size_t node_index_;
  std::int64_t heads_, dim_, kpool_;
  std::int64_t pools_;  // keys chosen by score
  bool select_tail_;
  std::int64_t width_;      // of a row of the choice
  std::int64_t lanes_;      // of a page's keys
  std::int64_t page_keys_;  // keys of a page
  float factor_;            // (Hi Di)^-1/2
  std::vector<CachePlace> places_;
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
