#include "bench/statistics.h"

#include <gtest/gtest.h>

#include <bit>

namespace lily::bench {
namespace {

TEST(Statistics, TheMedianIsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({100, 1, 2, 4}), 3);
}

TEST(Statistics, TheSpreadKeepsTheExtremes) {
  const Spread s = spread({3, 1, 2, 50});
  EXPECT_EQ(s.median, 2.5);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.max, 50);
  EXPECT_EQ(spread({}).max, 0);
}

TEST(Statistics, TheHashSeesEveryBitOfEveryLogit) {
  std::vector<float> logits = {1.5f, -2, 0, 3.25f};
  const std::string hash = logits_hash(logits);
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_EQ(logits_hash(logits), hash);
  for (float& x : logits) {
    const float before = x;
    x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ 1u);
    EXPECT_NE(logits_hash(logits), hash);
    x = before;
  }
  logits[2] = -0.0f;
  EXPECT_NE(logits_hash(logits), hash);
}

}  // namespace
}  // namespace lily::bench
