// The linear kernel over tiles: the same bits as the kernel it stands on, for each number of rows in a tile, and on a
// processor with AMX against the VNNI kernel. That it equals the reference is in linear_test.cpp.
#include <cstdio>
#include <cstring>

#include "linear/kernels.h"
#include "linear/kernels/amx_kernel.h"
#include "linear/kernels/portable.h"
#include "linear/scene.h"
#include "linear/scratch.h"
#include "support/check.h"
#include "support/emulated_tiles.h"

using namespace pocket;
using scene::Layer;

namespace pocket {
#ifdef __x86_64__
LinearKernel emulatedTilesAvx512();
#endif
}  // namespace pocket

namespace {

// The kernel over emulated tiles and the one that it took the rest from.
struct Pair {
  LinearKernel tiles;
  const LinearKernel* rest;
};

const std::vector<Pair>& pairs() {
  static const std::vector<Pair> all = [] {
    std::vector<Pair> found;
    found.push_back(
        {AmxLinearTable<PortableMath, EmulatedTiles>::basedOn(kLinearPortable, "portable with emulated tiles"),
         &kLinearPortable});
#ifdef __x86_64__
    if (supportedIsas().back() >= Isa::kAvx512 && &linearKernelFor(Isa::kAvx512) == &kLinearAvx512Vnni)
      found.push_back({emulatedTilesAvx512(), &kLinearAvx512Vnni});
#endif
    return found;
  }();
  return all;
}

// x of one tile quantized, with memory behind it that holds no zeros.
struct QuantizedTile {
  QuantizedTile(const LinearKernel& kernel, const std::vector<float>& x, int rows, int columns, BlockFormat format)
      : codes((rows * columns) + kMaxTileRows * kGroupColumns, 77),
        scales(rows * columns / kGroupColumns),
        extra(2 * scales.size()) {
    RowTileBuffers to{codes.data(), scales.data(), {}};
    to.extras[static_cast<int>(extraOf(format))] = extra.data();
    kernel.quantize(x.data(), columns, rows, columns, to);
    tile = {codes.data(), scales.data(), extra.data(), rows};
  }
  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<int32_t> extra;
  RowTile tile;
};

// Sums that start at one; by tiles, or streamed row by row.
std::vector<float> byTiles(const LinearKernel& kernel, const Layer& layer, const std::vector<float>& x, int rows) {
  const QuantizedTile quantized(kernel, x, rows, layer.columns, layer.format);
  std::vector<float> sums(rows * kPanelRows, 1.0f);
  LinearScratch scratch;
  kernel.enter();
  kernel.unpack(layer.format, layer.bytes.data(), layer.columns, scratch.panel());
  kernel.multiply(layer.format, scratch.panel(), layer.columns, quantized.tile, sums.data());
  kernel.leave();
  return sums;
}

std::vector<float> byRows(const LinearKernel& kernel, const Layer& layer, const std::vector<float>& x, int rows) {
  std::vector<float> sums(rows * kPanelRows, 1.0f);
  for (int r = 0; r < rows; r++) {
    const std::vector<float> row(x.begin() + r * layer.columns, x.begin() + (r + 1) * layer.columns);
    const QuantizedTile quantized(kernel, row, 1, layer.columns, layer.format);
    kernel.stream(layer.format, layer.bytes.data(), layer.columns, quantized.tile, sums.data() + r * kPanelRows);
  }
  return sums;
}

}  // namespace

const std::vector<scene::Kernel>& scene::linearKernels() {
  static const std::vector<Kernel> all = [] {
    std::vector<Kernel> found;
    for (Isa isa : supportedIsas()) found.push_back({name(isa), isa, nullptr});
    for (const Pair& pair : pairs()) found.push_back({pair.tiles.name, Isa::kPortable, &pair.tiles});
    return found;
  }();
  return all;
}

TEST("tiles of 1 to 16 rows give a row the bits that it has alone, over 1, 2, 15 and 16 groups") {
  for (const Pair& pair : pairs())
    for (BlockFormat format : kBlockFormats)
      for (int groups : {1, 2, 15, 16}) {
        if (groups * kGroupColumns % layoutOf(format).recordColumns() != 0) continue;
        const Layer layer(format, kPanelRows, groups * kGroupColumns, 20);
        std::mt19937 random(21);
        const std::vector<float> x = scene::randomRows(kMaxTileRows, layer.columns, random);
        for (int rows = 1; rows <= kMaxTileRows; rows++) {
          const std::vector<float> got = byTiles(pair.tiles, layer, x, rows),
                                   wanted = byRows(*pair.rest, layer, x, rows);
          if (std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)) != 0)
            check::fail(__FILE__, __LINE__,
                        std::string(pair.tiles.name) + " " + name(format) + " " + std::to_string(groups) + " groups, " +
                            std::to_string(rows) + " rows");
        }
      }
}

TEST("a thread has no tiles left when a linear layer returns, also when it was refused") {
  const Layer layer(BlockFormat::kQ4_0, 20, 64, 22);
  std::mt19937 random(23);
  const std::vector<float> x = scene::randomRows(40, 64, random);
  std::vector<float> out(40 * 20);
  for (const Pair& pair : pairs()) {
    const auto linear = makeLinear(pair.tiles, 1);
    LinearOutput output{layer.weight(), nullptr, out.data()};
    linear->run(x.data(), 40, &output, 1, Combine::kNone, Activations::kInt8, scene::oneThread());
    CHECK(!emulated::isEntered());
    output.out = nullptr;
    CHECK_THROWS_CODE(linear->run(x.data(), 40, &output, 1, Combine::kNone, Activations::kInt8, scene::oneThread()),
                      "BAD_ARGUMENT");
    CHECK(!emulated::isEntered());
  }
}

TEST("AMX gives many rows the bits of the VNNI kernel") {
  const std::vector<Isa> isas = supportedIsas();
  if (isas.back() != Isa::kAmx) {
    std::printf("skipped: AMX against VNNI, because this processor, system or build has no AMX\n");
    return;
  }
  CHECK_EQ(std::string(makeLinear(Isa::kAmx, 1)->kernel()), "amx");
  for (BlockFormat format : kBlockFormats) {
    const Layer layer(format, 150, 1024, 24);
    std::mt19937 random(25);
    const std::vector<float> x = scene::randomRows(200, layer.columns, random);
    for (int rows : {1, 25, 29, 200}) {
      std::vector<float> got(rows * layer.rows), wanted(rows * layer.rows);
      LinearOutput output{layer.weight(), layer.bias.data(), got.data()};
      makeLinear(Isa::kAmx, 2)->run(x.data(), rows, &output, 1, Combine::kNone, Activations::kInt8, scene::oneThread());
      output.out = wanted.data();
      makeLinear(Isa::kAvx512, 2)
          ->run(x.data(), rows, &output, 1, Combine::kNone, Activations::kInt8, scene::oneThread());
      CHECK(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)) == 0);
    }
  }
}
