// A directory of shards: which files are read, what the index is worth, what is said when something is missing.
#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "temp_dir.h"

namespace lily {
namespace {

void shard(const std::filesystem::path& path, const std::vector<std::string>& names) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const std::string& name : names) entries.push_back({name, DType::f32, {2}});
  SafetensorsWriter writer(path, entries);
  for (std::size_t i = 0; i < names.size(); ++i) writer.write("12345678", 8);
  writer.finish();
}
std::string error_of(const std::filesystem::path& dir) {
  try {
    Checkpoint checkpoint(dir);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
bool any_contains(const std::vector<std::string>& lines, const std::string& part) {
  for (const std::string& line : lines)
    if (contains(line, part)) return true;
  return false;
}

class CheckpointDir : public testing::Test {
 protected:
  void SetUp() override { write_bytes(dir / "config.json", "{}"); }
  void index(const std::string& map, const std::string& total = "100") {
    write_bytes(dir / "model.safetensors.index.json",
                R"({"metadata":{"total_size":)" + total + R"(},"weight_map":{)" + map + "}}");
  }
  TempDir dir;
};

TEST_F(CheckpointDir, NoIndexNeeded) {
  shard(dir / "model-00001-of-00002.safetensors", {"a"});
  shard(dir / "model-00002-of-00002.safetensors", {"b"});
  const Checkpoint checkpoint(dir.path());
  EXPECT_EQ(checkpoint.files().size(), 2u);
  ASSERT_NE(checkpoint.find("b"), nullptr);
  EXPECT_EQ(checkpoint.find("b")->file_name(), "model-00002-of-00002.safetensors");
  EXPECT_TRUE(checkpoint.warnings().empty());
  EXPECT_EQ(checkpoint.absence_hint("c"), "");
}

TEST_F(CheckpointDir, StaleIndexIsReportedAndNotBelieved) {
  shard(dir / "model-00001-of-00002.safetensors", {"x.a", "x.c"});
  shard(dir / "model-00002-of-00002.safetensors", {"x.b"});
  index(R"("x.a":"old-1.safetensors","x.b":"model-00001-of-00002.safetensors","x.gone":"old-1.safetensors")");
  const Checkpoint checkpoint(dir.path());
  EXPECT_NE(checkpoint.find("x.a"), nullptr);
  EXPECT_TRUE(any_contains(checkpoint.warnings(), "old-1.safetensors"));
  EXPECT_TRUE(any_contains(checkpoint.warnings(), "x.gone"));
  EXPECT_TRUE(any_contains(checkpoint.warnings(), "another shard than they are in: x.b"));
  EXPECT_TRUE(any_contains(checkpoint.warnings(), "does not list tensors that are there: x.c"));
  const std::string hint = checkpoint.absence_hint("gone");
  EXPECT_TRUE(contains(hint, "shard old-1.safetensors is missing")) << hint;
  EXPECT_TRUE(contains(hint, "76 of 100 bytes")) << hint;  // 3 tensors of 8 bytes are there
}

TEST_F(CheckpointDir, BrokenIndexIsAWarning) {
  shard(dir / "model.safetensors", {"a"});
  for (const char* text :
       {"{", "[]", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})", R"({"weight_map":7})", "", "null"}) {
    write_bytes(dir / "model.safetensors.index.json", text);
    EXPECT_EQ(error_of(dir.path()), "") << text;
  }
}

TEST_F(CheckpointDir, IndexMayNotLeadOutOfTheDirectory) {
  TempDir elsewhere;
  shard(elsewhere / "secret.safetensors", {"b"});
  shard(dir / "model.safetensors", {"a"});
  index(R"("b":")" + (elsewhere / "secret.safetensors").string() + R"(")");
  const Checkpoint checkpoint(dir.path());
  EXPECT_EQ(checkpoint.find("b"), nullptr);
}

TEST_F(CheckpointDir, MissingShardIsKnownFromTheNumbering) {
  shard(dir / "model-00001-of-00003.safetensors", {"a"});
  shard(dir / "model-00003-of-00003.safetensors", {"b"});
  const std::string hint = Checkpoint(dir.path()).absence_hint("c");
  EXPECT_TRUE(contains(hint, "model-00002-of-00003.safetensors is missing")) << hint;
}

TEST_F(CheckpointDir, SameTensorInTwoShards) {
  shard(dir / "model-00001-of-00002.safetensors", {"a"});
  shard(dir / "model-00002-of-00002.safetensors", {"a"});
  const std::string message = error_of(dir.path());
  EXPECT_TRUE(contains(message, "tensor a ") && contains(message, "model-00001-of-00002") &&
              contains(message, "model-00002-of-00002"))
      << message;
}

TEST_F(CheckpointDir, OtherFilesAreNotShards) {
  shard(dir / "model.safetensors", {"a"});
  shard(dir / "golden.safetensors", {"a"});
  write_bytes(dir / "._model.safetensors", "junk of another file system");
  const Checkpoint checkpoint(dir.path());
  EXPECT_EQ(checkpoint.files().size(), 1u);
  EXPECT_TRUE(any_contains(checkpoint.warnings(), "golden.safetensors"));
}

TEST_F(CheckpointDir, AnyNameWhenNoneIsModel) {
  shard(dir / "weights.00.safetensors", {"a"});
  EXPECT_NE(Checkpoint(dir.path()).find("a"), nullptr);
}

TEST_F(CheckpointDir, NothingThere) {
  EXPECT_TRUE(contains(error_of(dir.path()), "no *.safetensors"));
  index(R"("a":"model-00001-of-00002.safetensors")");
  EXPECT_TRUE(contains(error_of(dir.path()), "model-00001-of-00002.safetensors"));
  std::filesystem::remove(dir / "config.json");
  EXPECT_TRUE(contains(error_of(dir.path()), "config.json"));
  EXPECT_TRUE(contains(error_of(dir / "absent"), "absent"));
}

}  // namespace
}  // namespace lily
