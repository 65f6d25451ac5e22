#include "engine/packed_key.h"

#include <gtest/gtest.h>

namespace firstlight {
namespace {

TEST(PackedKey, AnyDifferenceIsOne) {
  EXPECT_FALSE(difference("form int8\ngraph 1\n", "form int8\ngraph 1\n"));
  EXPECT_EQ(difference("form int8\ngraph 2\n", "form int8\ngraph 1\n"), "\"graph 2\"");
  EXPECT_EQ(difference("form int8\n", "form int8\ngraph 1\n"), "fewer files");
  EXPECT_TRUE(difference("\nanother model\n", "form int8\n"));
  EXPECT_TRUE(difference("", "form int8\n"));
}

TEST(PackedKey, WhatIsShownCannotCommandATerminal) {
  const auto shown = difference("\x1b[31mred\n", "form int8\n");
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace firstlight
