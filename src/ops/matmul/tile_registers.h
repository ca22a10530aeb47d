// The tile registers of AMX while they are in use. Same rules as ops/simd.h.
#pragma once

#include "ops/matmul/dot.h"

#if defined(LILY_AMX)
namespace lily::ops::LILY_ISA::amx {

// The compiler is not told what the tile instructions read.
LILY_SIMD void order_memory() { __asm__ volatile("" : : : "memory"); }

/// Rows and bytes a row of each register; 0 rows: not used.
struct TileShapes {
  struct {
    int rows, row_bytes;
  } tile[8] = {};
};

/// Sets the registers up, which takes as long as a tile's product, and gives them back; used false: does neither.
class TileRegisters {
 public:
  LILY_SIMD_MEMBER TileRegisters(const TileShapes& shapes, bool used) : used_(used) {
    if (!used_) return;
    struct alignas(64) {
      std::uint8_t palette, start_row, reserved[14];
      std::uint16_t row_bytes[16];
      std::uint8_t rows[16];
    } config = {};
    config.palette = 1;
    for (int i = 0; i < 8; ++i) {
      config.row_bytes[i] = std::uint16_t(shapes.tile[i].row_bytes);
      config.rows[i] = std::uint8_t(shapes.tile[i].rows);
    }
    order_memory();
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  LILY_SIMD_MEMBER ~TileRegisters() {
    if (used_) _tile_release();
  }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

 private:
  const bool used_;
};

}  // namespace lily::ops::LILY_ISA::amx
#endif
