// The plan's own machinery: what validation, scheduling, memory and fusion must notice and preserve.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "plan/emit.h"
#include "plan/fusion_table.h"
#include "plan/hazards.h"
#include "plan/liveness.h"
#include "plan/validate.h"
#include "support/shapes.h"

namespace lily::plan {
namespace {

Plan scheduled(const std::string& backend = "reference") {
  Plan p = fuse(emit(test::small_shape(8), Phase::decode), backend, {});
  schedule(p);
  return p;
}

Op& find(Plan& p, const std::string& name) {
  for (Op& op : p.ops)
    if (op.name == name) return op;
  throw std::runtime_error("no op " + name);
}

TEST(Plan, EveryLayerEndsOnceAndHasItsKind) {
  const Plan p = emit(test::small_shape(8), Phase::prefill);
  validate(p);
  std::multiset<int> ends, scans, attentions;
  for (const Op& op : p.ops) {
    if (op.ends_layer) ends.insert(op.layer);
    if (op.kind == OpKind::gdn_scan) scans.insert(op.layer);
    if (op.kind == OpKind::attention) attentions.insert(op.layer);
  }
  EXPECT_EQ(ends, (std::multiset<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(scans, (std::multiset<int>{0, 1, 2, 4, 5, 6}));
  EXPECT_EQ(attentions, (std::multiset<int>{3, 7}));
}

TEST(Validate, NoticesAMissingWriteADoubleNameAndAForeignState) {
  const Plan good = emit(test::small_shape(), Phase::decode);
  Plan p = good;
  std::erase_if(p.ops, [](const Op& op) { return op.name == "L1.gdn_gates"; });
  EXPECT_THROW(validate(p), Error);
  p = good;
  find(p, "L1.gdn_gates").name = "L0.gdn_gates";
  EXPECT_THROW(validate(p), Error);
  p = good;
  find(p, "L1.gdn_scan").writes[1] = p.buffer("L0.recurrent");
  EXPECT_THROW(validate(p), Error);
  p = good;
  p.ops.pop_back();
  EXPECT_THROW(validate(p), Error);
  EXPECT_NO_THROW(validate(good));
}

TEST(Hazards, IndependentOpsShareAStageAndDependentOnesDoNot) {
  Plan p = scheduled();
  check_stages(p);
  EXPECT_EQ(find(p, "L0.in_proj_qkv").stage, find(p, "L0.in_proj_z").stage);
  EXPECT_EQ(find(p, "L0.router").stage, find(p, "L0.shared_up_proj").stage);
  EXPECT_LT(find(p, "L0.in_proj_qkv").stage, find(p, "L0.conv1d_silu").stage);
  EXPECT_LT(find(p, "L0.conv1d_silu").stage, find(p, "L0.gdn_scan").stage);
  EXPECT_LT(find(p, "L0.mixer_add").stage, find(p, "L0.moe_combine").stage);  // both write the residual
  EXPECT_LT(p.stages, int(p.ops.size()));
  // A barrier too few is noticed.
  find(p, "L0.conv1d_silu").stage = find(p, "L0.in_proj_qkv").stage;
  EXPECT_THROW(check_stages(p), Error);
}

TEST(Hazards, AWriteWaitsForWhoStillReads) {
  Plan p;
  for (const char* name : {"a", "b"}) p.buffers.push_back({.name = name, .width = 1});
  p.ops = {{.kind = OpKind::add, .name = "first", .writes = {0}},
           {.kind = OpKind::add, .name = "reader", .reads = {0}, .writes = {1}},
           {.kind = OpKind::add, .name = "overwrites", .writes = {0}}};
  schedule(p);
  check_stages(p);
  EXPECT_EQ(find(p, "reader").stage, 1);
  EXPECT_EQ(find(p, "overwrites").stage, 2);
}

TEST(Liveness, BuffersShareMemoryOnlyWhenTheirLivesDoNotOverlap) {
  const Plan p = scheduled("cpu");
  for (int rows : {1, 3, 64}) {
    MemoryPlan m = assign_memory(p, rows, 1);
    check_memory(p, m, rows, 1);
    std::int64_t sum = 0;
    for (std::size_t b = 0; b < p.buffers.size(); ++b)
      if (m.offset[b] >= 0) sum += p.buffers[b].bytes(rows, 1);
    EXPECT_LT(m.bytes, sum / 4);  // 8 layers alike: at most a layer's worth lives at once
    // The check notices an overlap.
    m.offset[std::size_t(p.buffer("L0.z"))] = m.offset[std::size_t(p.buffer("L0.qkv"))];
    EXPECT_THROW(check_memory(p, m, rows, 1), Error);
  }
}

TEST(Fusion, ReplacesWhatTheTableSaysAndKeepsTheMeaning) {
  const Plan plain = emit(test::small_shape(8), Phase::decode);
  const Plan fused = fuse(plain, "cpu", {});
  validate(fused);
  std::size_t parts = 0, in = 0, out = 0, add = 0;
  for (const Op& op : fused.ops) {
    parts += op.parts.empty() ? 1 : op.parts.size();
    in += op.kind == OpKind::expert_in;
    out += op.kind == OpKind::expert_out;
    add += op.kind == OpKind::linear_add;
  }
  EXPECT_EQ(parts, plain.ops.size());  // every op is there, alone or as a part
  EXPECT_EQ(in, 8u);
  EXPECT_EQ(out, 8u);
  EXPECT_EQ(add, 8u);
  const Plan off = fuse(plain, "cpu", std::vector<std::string>{"fused-expert-in"});
  for (const Op& op : off.ops) EXPECT_NE(op.kind, OpKind::expert_in);
  EXPECT_EQ(fuse(plain, "reference", {}).ops.size(), plain.ops.size());
  EXPECT_THROW(fuse(plain, "cpu", std::vector<std::string>{"fused-nothing"}), Error);
}

TEST(Fusion, LeavesAnIntermediateThatSomebodyElseReads) {
  Plan p = emit(test::small_shape(), Phase::decode);
  // Somebody else reads the gate projection of layer 2's experts.
  Op spy{.kind = OpKind::add, .name = "L2.spy", .layer = 2, .reads = {p.buffer("L2.expert_gate"), p.buffer("x")}, .writes = {p.buffer("x")}};
  for (std::size_t i = 0; i < p.ops.size(); ++i)
    if (p.ops[i].name == "L2.expert_silu_mul") {
      p.ops.insert(p.ops.begin() + std::ptrdiff_t(i), spy);
      break;
    }
  int in = 0;
  for (const Op& op : fuse(p, "cpu", {}).ops) in += op.kind == OpKind::expert_in;
  EXPECT_EQ(in, 3);  // layers 0, 1, 3
}

}  // namespace
}  // namespace lily::plan
