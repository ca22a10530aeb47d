#include "server/stop_finder.h"

#include <gtest/gtest.h>

namespace lily::server {
namespace {

std::string whole(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t first = std::string::npos;
  for (const std::string& s : stops) first = std::min(first, text.find(s));
  return text.substr(0, first);
}

/// All ways to cut `text` into pieces (2^(n-1) of them).
void every_chunking(const std::string& text, const std::vector<std::string>& stops) {
  for (unsigned cuts = 0; cuts < (1u << (text.size() - 1)); ++cuts) {
    StopFinder f(stops);
    std::string out, piece;
    for (std::size_t i = 0; i < text.size(); ++i) {
      piece += text[i];
      if (i + 1 == text.size() || (cuts >> i & 1)) {
        out += f.push(piece);
        piece.clear();
      }
    }
    out += f.finish();
    ASSERT_EQ(out, whole(text, stops)) << text << " cuts " << cuts;
    ASSERT_EQ(f.found(), whole(text, stops) != text);
  }
}

TEST(StopFinder, EveryChunkingGivesTheTextBeforeTheFirstMatch) {
  every_chunking("alphabetab", {"beta"});
  every_chunking("alphabetab", {"bet", "phabx"});
  every_chunking("aabaabaac", {"aabaac"});
  every_chunking("xabcabd", {"abcabx", "b"});     // the shorter one is inside a longer one that does not come
  every_chunking("xabcabxyz", {"abcabx", "b"});   // … that does
  every_chunking("aaaaaaaa", {"aaaaa"});
  every_chunking("nothing", {"zz", "gg"});
  every_chunking("ab\xC3\xA9" "cd\xC3\xA9", {"\xC3\xA9" "c"});
  every_chunking("endsinbe", {"beta"});
  every_chunking("abcdefg", {"abcdefg", "cdx", "efg"});
}

TEST(StopFinder, HoldsBackNoMoreThanABeginning) {
  StopFinder f({"stop"});
  EXPECT_EQ(f.push("go on st"), "go on ");
  EXPECT_EQ(f.push("ay sto"), "stay ");
  EXPECT_EQ(f.push("p it"), "");
  EXPECT_TRUE(f.found());
  EXPECT_EQ(f.push("more"), "");
  EXPECT_EQ(f.finish(), "");
}

TEST(StopFinder, WithoutStopsNothingIsHeld) {
  StopFinder f({});
  EXPECT_EQ(f.push("all of it"), "all of it");
  EXPECT_EQ(f.finish(), "");
  EXPECT_FALSE(f.found());
}

}  // namespace
}  // namespace lily::server
