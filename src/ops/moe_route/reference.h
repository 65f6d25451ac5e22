// The executable specification of moe_route. Independent of choose.h: whole lists are sorted in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

namespace firstlight::reference {

struct RouteRules {
  std::size_t topk = 1;
  std::size_t groups = 1;
  std::size_t topk_groups = 1;
  bool renormalize = false;
  double scale = 1.0;
  bool softmax = false;
};

struct Route {
  std::vector<std::int32_t> experts;  // [topk] ascending
  std::vector<double> weights;        // [topk]
};

/// The `count` first of 0.. by value descending; equal values: the lower index.
inline std::vector<std::size_t> best(const std::vector<double>& values, std::size_t count) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  order.resize(count);
  return order;
}

/// spec kimi 3.5, one row: logits [experts], bias [experts] or empty.
inline Route moe_route(std::span<const float> logits, std::span<const float> bias, const RouteRules& rules) {
  std::vector<double> s;  // scores
  if (rules.softmax) {
    const double largest = std::ranges::max(logits);
    double sum = 0;
    for (const float l : logits) sum += std::exp(l - largest);
    for (const float l : logits) s.push_back(std::exp(l - largest) / sum);
  } else {
    for (const float l : logits) s.push_back(1.0 / (1.0 + std::exp(-static_cast<double>(l))));
  }
  std::vector<double> sel = s;  // for the selection only
  for (std::size_t e = 0; e < bias.size(); ++e) sel[e] += bias[e];

  if (rules.groups > 1) {
    const std::size_t size = s.size() / rules.groups;
    std::vector<double> group_score;
    for (std::size_t g = 0; g < rules.groups; ++g) {
      std::vector<double> members(sel.begin() + static_cast<std::ptrdiff_t>(g * size),
                                  sel.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
      std::ranges::sort(members, std::greater<>{});
      group_score.push_back(members[0] + members[1]);
    }
    std::vector<bool> keep(rules.groups, false);
    for (const std::size_t g : best(group_score, rules.topk_groups)) keep[g] = true;
    for (std::size_t e = 0; e < sel.size(); ++e) {
      if (!keep[e / size]) sel[e] = -HUGE_VAL;
    }
  }

  Route route;
  for (const std::size_t e : best(sel, rules.topk)) route.experts.push_back(static_cast<std::int32_t>(e));
  std::ranges::sort(route.experts);
  double sum = 1e-20;
  for (const std::int32_t e : route.experts) sum += s[static_cast<std::size_t>(e)];
  for (const std::int32_t e : route.experts) {
    route.weights.push_back(s[static_cast<std::size_t>(e)] / (rules.renormalize ? sum : 1.0) * rules.scale);
  }
  return route;
}

}  // namespace firstlight::reference
