// The tokenizer of a folder that may hold nothing else.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "text/tokenizer.h"

namespace firstlight {

/// Where there is a config.json its vocab_size is used, as when the model is loaded.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& folder);

}  // namespace firstlight
