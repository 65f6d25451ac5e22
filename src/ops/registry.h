// The table of operators. Written out by the build from the folders of src/ops; nothing registers itself.
#pragma once

#include <span>
#include <string_view>

#include "ops/contract.h"

namespace firstlight {

/// All contracts, by name ascending.
std::span<const OpContract* const> all_contracts();

/// The contract of that name, or an Error that lists the known ones.
Result<const OpContract*> find_contract(std::string_view name);

}  // namespace firstlight
