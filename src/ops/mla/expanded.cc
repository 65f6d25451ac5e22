#include "ops/mla/expanded.h"

#include <array>
#include <cstring>
#include <numeric>

#include "device/cpu/gemm.h"
#include "ops/scratch.h"

namespace firstlight {

MlaExpanded::MlaExpanded(const MlaSetup& setup)
    : setup_(setup),
      key_(setup.nope + setup.rope),
      key_padded_(round_up(key_, 16)),
      value_padded_(round_up(setup.v, 16)),
      stride_(round_up(setup.v, kMlaColumnBlock)),
      group_floats_(partial_floats(kMlaMaxQueries, stride_)) {}

MlaExpanded::Scratch::Scratch(const MlaExpanded& op, std::uint8_t* base) {
  ScratchCarver carve(base);
  const std::int64_t bytes_of_element = op.setup_.operands.element_bytes;
  rows = carve.take<float>(kMlaPartitionRows * op.setup_.padded);
  gemm = carve.take<std::uint8_t>(
      static_cast<std::int64_t>(gemm_scratch_bytes(kMlaPartitionRows, op.setup_.latent)));
  expanded = carve.take<float>(kMlaPartitionRows * std::max(op.key_, op.setup_.v));
  keys = carve.take<std::byte>(kMlaPartitionRows * op.key_padded_ * bytes_of_element);
  values = carve.take<std::byte>(kMlaPartitionRows * op.value_padded_ * bytes_of_element);
  const std::int64_t groups = (op.setup_.step_rows + kMlaMaxQueries - 1) / kMlaMaxQueries;
  queries = carve.take<std::byte>(groups * kMlaMaxQueries * op.key_padded_ * bytes_of_element);
  totals = carve.take<float>(groups * op.group_floats_);
  part = carve.take<float>(op.group_floats_);
  bytes = carve.used();
}

void MlaExpanded::run(const Step& step, const SequenceRows& sequence, const PackedMatrix& up_k,
                      const PackedMatrix& up_v, const float* q, float* o, std::uint8_t* scratch,
                      ThreadPool& pool) const {
  const Job job{step, sequence, up_k, up_v, q, o};
  const std::int64_t bytes = Scratch(*this, nullptr).bytes;
  // Whole heads, unless they do not go round: a head's rows are split then, and its context expanded again.
  const std::int64_t splits = pool.threads() / std::gcd<std::int64_t>(setup_.heads, pool.threads());
  pool.run([&](int thread) {
    const Scratch s(*this, scratch == nullptr ? nullptr : scratch + thread * bytes);
    const Range units = static_range(setup_.heads * splits, thread, pool.threads());
    for (std::int64_t unit = units.begin; unit < units.end;) {
      const std::int64_t head = unit / splits;
      const std::int64_t end = std::min(units.end, (head + 1) * splits);
      const Range rows{sequence.rows * (unit - head * splits) / splits,
                       sequence.rows * (end - head * splits) / splits};
      if (rows.begin < rows.end) run_head(job, head, rows, s);
      unit = end;
    }
  });
}

/// Some rows of one head: a partition of the context after the other is expanded and attended by all of them.
void MlaExpanded::run_head(const Job& job, std::int64_t head, Range rows, const Scratch& s) const {
  const std::int64_t position = job.sequence.position;
  const auto group_total = [&](std::int64_t group) {
    return partial_at(s.totals + group * group_floats_, kMlaMaxQueries);
  };
  const std::int64_t groups = (rows.end - rows.begin + kMlaMaxQueries - 1) / kMlaMaxQueries;
  const auto group_rows = [&](std::int64_t group) {
    const std::int64_t begin = rows.begin + group * kMlaMaxQueries;
    return Range{begin, std::min(rows.end, begin + kMlaMaxQueries)};
  };
  const std::int64_t query_bytes = kMlaMaxQueries * key_padded_ * setup_.operands.element_bytes;
  const auto group_queries = [&](std::int64_t group) { return s.queries + group * query_bytes; };
  for (std::int64_t g = 0; g < groups; ++g) {
    const Range group = group_rows(g);
    std::array<const float*, kMlaMaxQueries> queries;
    for (std::int64_t r = group.begin; r < group.end; ++r) {
      queries[static_cast<std::size_t>(r - group.begin)] = job.q + (r * setup_.heads + head) * key_;
    }
    setup_.operands.pack(queries.data(), group.end - group.begin, key_, key_padded_, group_queries(g));
  }
  for (std::int64_t first = 0; first < position + rows.end; first += kMlaPartitionRows) {
    const std::int64_t count = std::min(kMlaPartitionRows, position + rows.end - first);
    expand(job, head, first, count, s);
    for (std::int64_t g = 0; g < groups; ++g) {
      const Range group = group_rows(g);
      if (position + group.end <= first) continue;
      if (first == 0) {
        attend(job, group, first, count, group_queries(g), group_total(g), s);
      } else {
        const MlaPartial part = partial_at(s.part, kMlaMaxQueries);
        attend(job, group, first, count, group_queries(g), part, s);
        setup_.kernels.merge(part, group_total(g), 0, group.end - group.begin, stride_, false);
      }
    }
  }
  for (std::int64_t g = 0; g < groups; ++g) {
    const Range group = group_rows(g);
    std::array<float*, kMlaMaxQueries> out;
    for (std::int64_t r = group.begin; r < group.end; ++r) {
      out[static_cast<std::size_t>(r - group.begin)] = job.o + (r * setup_.heads + head) * setup_.v;
    }
    setup_.operands.finish(group_total(g), group.end - group.begin, setup_.v, stride_, out.data());
  }
}

/// Keys and values of `count` positions from `first` on.
void MlaExpanded::expand(const Job& job, std::int64_t head, std::int64_t first, std::int64_t count,
                         const Scratch& s) const {
  const std::int64_t padded = setup_.padded;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* row = setup_.cached_row(job.step, job.sequence.pages, first + i);
    float* to = s.rows + i * padded;
    if (setup_.place.dtype == DType::kF32) {
      std::memcpy(to, row, static_cast<std::size_t>(padded) * sizeof(float));
    } else {
      setup_.kernels.load_bf16_row(reinterpret_cast<const std::uint16_t*>(row), padded, to);
    }
  }
  const std::int64_t bytes = setup_.operands.element_bytes;
  GemmArgs args;
  args.x = s.rows;
  args.ldx = padded;
  args.m = count;
  args.w = &job.up_k;
  args.arithmetic = setup_.arithmetic;
  args.wide_x = setup_.wide;
  args.scratch = s.gemm;
  prepare_x(setup_.gemm, args, 0, gemm_tiles(count));
  multiply(job.up_k, head, count, key_, s);
  for (std::int64_t i = 0; i < count; ++i) {
    float* key = s.expanded + i * key_;
    std::copy_n(s.rows + i * padded + setup_.latent, setup_.rope, key + setup_.nope);
    setup_.operands.round(key, key_, key_padded_, s.keys + i * key_padded_ * bytes);
  }
  multiply(job.up_v, head, count, setup_.v, s);
  for (std::int64_t i = 0; i < count; ++i) {
    setup_.operands.round(s.expanded + i * setup_.v, setup_.v, value_padded_,
                          s.values + i * value_padded_ * bytes);
  }
}

/// The prepared rows times the head's part of `w`, rows `stride` apart.
void MlaExpanded::multiply(const PackedMatrix& w, std::int64_t head, std::int64_t count, std::int64_t stride,
                           const Scratch& s) const {
  const PackedPart& part = w.parts()[static_cast<std::size_t>(head)];
  GemmArgs args;
  args.m = count;
  args.w = &w;
  args.y = s.expanded;
  args.ldy = stride;
  args.first_column = part.columns.begin;
  args.arithmetic = setup_.arithmetic;
  args.wide_x = setup_.wide;
  args.scratch = s.gemm;
  gemm_panels(setup_.gemm, args, part.panels.begin, part.panels.end);
}

/// Up to kMlaMaxQueries rows against a partition.
void MlaExpanded::attend(const Job& job, Range rows, std::int64_t first, std::int64_t count,
                         const std::byte* queries, const MlaPartial& out, const Scratch& s) const {
  const MlaOperands& operands = setup_.operands;
  const std::int64_t lanes = rows.end - rows.begin;
  const std::int64_t seen = std::min(count, job.sequence.position + rows.end - first);
  alignas(64) std::array<float, kMlaMaxQueries> visible;
  for (std::int64_t i = 0; i < round_up(lanes, 16); ++i) {
    const std::int64_t length = job.sequence.position + rows.begin + std::min(i, lanes - 1) + 1;
    visible[static_cast<std::size_t>(i)] =
        static_cast<float>(std::clamp<std::int64_t>(length - first, 0, seen));
  }
  MlaRowTable<kMlaPartitionRows> keys;
  MlaRowTable<kMlaPartitionRows> values;
  for (std::int64_t i = 0; i < seen; ++i) {
    keys[static_cast<std::size_t>(i)] = s.keys + i * key_padded_ * operands.element_bytes;
    values[static_cast<std::size_t>(i)] = s.values + i * value_padded_ * operands.element_bytes;
  }
  repeat_last(keys, seen);
  repeat_last(values, seen);
  operands.attend({.keys = keys.data(),
                   .values = values.data(),
                   .count = seen,
                   .key_width = key_padded_,
                   .value_width = value_padded_,
                   .columns = setup_.v,
                   .queries = queries,
                   .lanes = lanes,
                   .visible = visible.data(),
                   .scale = setup_.scale,
                   .first = true,
                   .running = out,
                   .value_stride = stride_,
                   .next = values.data(),
                   .next_bytes = value_padded_ * operands.element_bytes});
}

}  // namespace firstlight
