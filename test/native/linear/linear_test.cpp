// The linear kernels against plain loops in double over the same packed weights: every format, every instruction set
// that this machine has, few rows and many, and the same bits for a row in any company.
#include <algorithm>
#include <atomic>
#include <thread>

#include "linear/job.h"
#include "linear/kernels.h"
#include "linear/scene.h"
#include "support/check.h"

using namespace pocket;
using scene::Kernel;
using scene::Layer;

namespace {

constexpr int kRowCounts[] = {1, 2, 3, 7, 12, 13, 64};
constexpr int kMaxRows = 64;
constexpr int kOutputs = 37;  // neither a multiple of 16 nor of a piece

// More than a chunk of either kind, and an odd number of groups where the format allows.
int columnsOf(BlockFormat format) { return layoutOf(format).groups == 1 ? 544 : 768; }

std::string label(const Kernel& kernel, BlockFormat format, int rows) {
  return kernel.name + " " + name(format) + " " + std::to_string(rows) + " rows";
}

std::vector<float> run(const Kernel& kernel, const Layer& layer, const std::vector<float>& x, int rows,
                       Activations activations, bool bias = true, int threads = 1) {
  std::vector<float> out(static_cast<size_t>(rows) * layer.rows, NAN);
  const LinearOutput output{layer.weight(), bias ? layer.bias.data() : nullptr, out.data()};
  kernel.make(threads)->run(x.data(), rows, &output, 1, Combine::kNone, activations, scene::oneThread());
  return out;
}

std::vector<float> reference(const Layer& layer, const std::vector<float>& x, int rows, Activations activations,
                             bool bias = true) {
  std::vector<float> out(static_cast<size_t>(rows) * layer.rows);
  const LinearOutput output{layer.weight(), bias ? layer.bias.data() : nullptr, out.data()};
  referenceLinear(x.data(), rows, &output, 1, Combine::kNone, activations);
  return out;
}

// Per row of x, the tolerance of sums in f32: some roundings of the largest that they could become.
void checkClose(const std::vector<float>& got, const std::vector<float>& wanted, const Layer& layer,
                const std::vector<float>& x, double relative, const std::string& what) {
  const double largest = layer.largest();
  for (size_t i = 0; i < got.size(); i++) {
    const size_t row = i / layer.rows;
    double sum = 1;
    for (int k = 0; k < layer.columns; k++) sum += std::fabs(x[row * layer.columns + k]) * largest;
    check::checkNear(got[i], wanted[i], relative * sum, what.c_str(), __FILE__, __LINE__);
  }
}

bool sameBits(const std::vector<float>& a, const float* b, size_t count) {
  return std::memcmp(a.data(), b, count * sizeof(float)) == 0;
}

// Scales of one and codes of all ones or all zeros, alternating by row of W.
Layer extremeLayer(BlockFormat format) {
  Layer layer(format, kOutputs, columnsOf(format), 5);
  const BlockLayout layout = layoutOf(format);
  for (size_t record = 0; record < layer.bytes.size(); record += layout.recordBytes) {
    uint8_t* bytes = layer.bytes.data() + record;
    for (int i = 0; i < layout.scalesAt; i += 2) bytes[i] = 0, bytes[i + 1] = 0x2c;  // 1 / 16
    for (int i = layout.scalesAt; i < layout.codesAt; i++) bytes[i] = i % 2 == 0 ? 255 : 128;
    for (int i = layout.codesAt; i < layout.recordBytes; i++) bytes[i] = i / 4 % 2 == 0 ? 255 : 0;
  }
  return layer;
}

}  // namespace

TEST("linear layers equal the reference on every instruction set, with quantized and with exact rows") {
  for (BlockFormat format : kBlockFormats) {
    const Layer layer(format, kOutputs, columnsOf(format), 1);
    std::mt19937 random(2);
    const std::vector<float> x = scene::randomRows(kMaxRows, layer.columns, random);
    for (Activations activations : {Activations::kInt8, Activations::kF32}) {
      std::vector<float> wanted = reference(layer, x, kMaxRows, activations);
      for (const Kernel& kernel : scene::linearKernels())
        for (int rows : kRowCounts) {
          wanted.resize(static_cast<size_t>(kMaxRows) * layer.rows);
          const std::vector<float> all = wanted;
          wanted.resize(static_cast<size_t>(rows) * layer.rows);
          checkClose(run(kernel, layer, x, rows, activations), wanted, layer, x, 5e-7, label(kernel, format, rows));
          wanted = all;
        }
    }
  }
}

TEST("rounding the rows of a linear layer costs less than one part in a hundred") {
  for (BlockFormat format : kBlockFormats) {
    const Layer layer(format, kOutputs, columnsOf(format), 3);
    std::mt19937 random(4);
    const std::vector<float> x = scene::randomRows(7, layer.columns, random);
    const std::vector<float> exact = reference(layer, x, 7, Activations::kF32, false);
    for (const Kernel& kernel : scene::linearKernels()) {
      const std::vector<float> got = run(kernel, layer, x, 7, Activations::kInt8, false);
      double error = 0, size = 0;
      for (size_t i = 0; i < got.size(); i++) {
        error += std::pow(double{got[i]} - exact[i], 2);
        size += std::pow(double{exact[i]}, 2);
      }
      if (!(std::sqrt(error / size) < 1e-2))
        check::fail(__FILE__, __LINE__,
                    label(kernel, format, 7) + ": off by " + std::to_string(std::sqrt(error / size)));
    }
  }
}

TEST("a row of a linear layer has the same bits among other rows, with other outputs and on more threads") {
  for (BlockFormat format : kBlockFormats) {
    const Layer layer(format, kOutputs, columnsOf(format), 6);
    const Layer other(layoutOf(format).groups == 1 ? BlockFormat::kQ5_1 : BlockFormat::kQ6_K, 50, layer.columns, 7);
    std::mt19937 random(8);
    const std::vector<float> x = scene::randomRows(kMaxRows, layer.columns, random);
    for (Activations activations : {Activations::kInt8, Activations::kF32})
      for (const Kernel& kernel : scene::linearKernels()) {
        const std::vector<float> all = run(kernel, layer, x, kMaxRows, activations);
        for (int rows : {1, 2, 3, 5, 8, 9, 12, 13, 33})
          if (!sameBits(run(kernel, layer, x, rows, activations, true, rows % 4 + 1), all.data(), rows * kOutputs))
            check::fail(__FILE__, __LINE__, label(kernel, format, rows) + ": other bits than among 64");
        const std::vector<float> last(x.end() - layer.columns, x.end());
        CHECK(sameBits(run(kernel, layer, last, 1, activations), &all[(kMaxRows - 1) * kOutputs], kOutputs));
        for (int rows : {2, 20}) {
          std::vector<float> out(rows * kOutputs), otherOut(rows * other.rows);
          const LinearOutput both[] = {{other.weight(), nullptr, otherOut.data()},
                                       {layer.weight(), layer.bias.data(), out.data()}};
          kernel.make(2)->run(x.data(), rows, both, 2, Combine::kNone, activations, scene::oneThread());
          CHECK(sameBits(out, all.data(), out.size()));
          CHECK(sameBits(run(kernel, other, x, rows, activations, false), otherOut.data(), otherOut.size()));
        }
      }
  }
}

TEST("a gate times its factor equals the reference and is one result") {
  for (BlockFormat format : {BlockFormat::kQ4_0, BlockFormat::kQ5_1, BlockFormat::kQ4_K, BlockFormat::kQ6_K}) {
    const Layer gate(format, 83, columnsOf(format), 9), factor(format, 83, columnsOf(format), 10);
    std::mt19937 random(11);
    std::vector<float> x = scene::randomRows(29, gate.columns, random);
    for (float& number : x) number *= 0.05f;  // gates of a few units
    for (Activations activations : {Activations::kInt8, Activations::kF32})
      for (bool bias : {true, false})
        for (int rows : {1, 4, 29}) {
          std::vector<float> out(rows * 83), wanted(rows * 83);
          LinearOutput outputs[] = {{gate.weight(), bias ? gate.bias.data() : nullptr, wanted.data()},
                                    {factor.weight(), bias ? factor.bias.data() : nullptr, nullptr}};
          referenceLinear(x.data(), rows, outputs, 2, Combine::kSwiGlu, activations);
          outputs[0].out = out.data();
          for (const Kernel& kernel : scene::linearKernels()) {
            std::fill(out.begin(), out.end(), NAN);
            kernel.make(2)->run(x.data(), rows, outputs, 2, Combine::kSwiGlu, activations, scene::oneThread());
            for (size_t i = 0; i < out.size(); i++)
              check::checkNear(out[i], wanted[i], 2e-5 * (1 + std::fabs(wanted[i])),
                               label(kernel, format, rows).c_str(), __FILE__, __LINE__);
          }
        }
  }
}

TEST("a gate far from zero is nothing or itself, and one that is no number stays among itself") {
  Layer gate(BlockFormat::kQ4_0, kOutputs, 32, 18), factor(BlockFormat::kQ4_0, kOutputs, 32, 19);
  const float gates[] = {0, -0.0f, 20, -20, 86.9f, -86.9f, 87.1f, -87.1f, 200, -200, 1e30f, -1e30f, INFINITY, NAN};
  constexpr int kGates = std::size(gates);
  for (int i = 0; i < kOutputs; i++) gate.bias[i] = gates[i % kGates], factor.bias[i] = 2;
  const std::vector<float> zeros(32);
  for (const Kernel& kernel : scene::linearKernels()) {
    std::vector<float> out(kOutputs);
    const LinearOutput outputs[] = {{gate.weight(), gate.bias.data(), out.data()},
                                    {factor.weight(), factor.bias.data(), nullptr}};
    kernel.make(1)->run(zeros.data(), 1, outputs, 2, Combine::kSwiGlu, Activations::kInt8, scene::oneThread());
    for (int i = 0; i < kOutputs; i++) {
      const double y = gate.bias[i];
      if (std::isnan(y)) CHECK(std::isnan(out[i]));
      else if (std::isinf(y)) CHECK(std::isinf(out[i]) && out[i] > 0);
      else
        check::checkNear(out[i], 2 * y / (1 + std::exp(-y)), 1e-6 * std::max(0.0, y) + 1e-7, kernel.name.c_str(),
                         __FILE__, __LINE__);
    }
  }
}

TEST("a row of a linear layer has the same bits among more rows than a piece takes") {
  constexpr int kMany = 530;
  for (BlockFormat format : {BlockFormat::kQ5_0, BlockFormat::kQ6_K}) {
    const Layer layer(format, kOutputs, columnsOf(format), 20);
    std::mt19937 random(21);
    const std::vector<float> x = scene::randomRows(kMany, layer.columns, random);
    for (const Kernel& kernel : scene::linearKernels()) {
      const std::vector<float> all = run(kernel, layer, x, kMany, Activations::kInt8);
      for (int first : {0, 250, kMany - 30}) {
        const std::vector<float> some(x.begin() + first * layer.columns, x.begin() + (first + 30) * layer.columns);
        CHECK(sameBits(run(kernel, layer, some, 30, Activations::kInt8), &all[first * kOutputs], 30 * kOutputs));
      }
    }
  }
}

TEST("the largest codes against the largest rows neither wrap nor saturate") {
  for (BlockFormat format : kBlockFormats) {
    const Layer layer = extremeLayer(format);
    std::vector<float> x(5 * layer.columns);
    for (int k = 0; k < layer.columns; k++) {
      x[k] = 1;
      x[layer.columns + k] = -1;
      x[2 * layer.columns + k] = k % 2 == 0 ? 1 : -1;
      x[3 * layer.columns + k] = k / 4 % 2 == 0 ? -1e30f : 1e30f;
      x[4 * layer.columns + k] = 0;
    }
    for (int i = 5 * layer.columns; i < 30 * layer.columns; i++) x.push_back(x[i - 5 * layer.columns]);
    for (Activations activations : {Activations::kInt8, Activations::kF32}) {
      const std::vector<float> wanted = reference(layer, x, 30, activations);
      for (const Kernel& kernel : scene::linearKernels())
        for (int rows : {3, 5, 30}) {
          const std::vector<float> got = run(kernel, layer, x, rows, activations);
          checkClose(got, std::vector<float>(wanted.begin(), wanted.begin() + rows * kOutputs), layer, x, 5e-7,
                     label(kernel, format, rows));
        }
    }
  }
}

TEST("rows with zeros, next to nothing and no number stay among themselves in a linear layer") {
  for (BlockFormat format : kBlockFormats) {
    Layer layer(format, kOutputs, columnsOf(format), 12);
    std::fill(layer.bytes.begin(), layer.bytes.begin() + 32, uint8_t{0});  // d of the first record
    std::mt19937 random(13);
    std::vector<float> x = scene::randomRows(5, layer.columns, random);
    std::fill(x.begin(), x.begin() + 32, 0.0f);
    std::fill(x.begin() + layer.columns, x.begin() + 2 * layer.columns, 1e-40f);
    x[2 * layer.columns + 40] = NAN;
    x[3 * layer.columns + 3] = INFINITY;
    for (int i = 5 * layer.columns; i < 30 * layer.columns; i++) x.push_back(x[i - 5 * layer.columns]);
    for (const Kernel& kernel : scene::linearKernels()) {
      const std::vector<float> got = run(kernel, layer, x, 30, Activations::kInt8, false);
      const std::vector<float> alone = run(kernel, layer, x, 2, Activations::kInt8, false);
      CHECK(sameBits(alone, got.data(), alone.size()));
      for (int i = 0; i < 30 * kOutputs; i++) {
        const int kind = i / kOutputs % 5;
        CHECK(kind == 2 || kind == 3 ? std::isnan(got[i]) : std::isfinite(got[i]));
        CHECK(kind != 1 || got[i] == 0);
      }
    }
  }
}

TEST("linear layers share their pieces among threads that really run") {
  const Layer layer(BlockFormat::kQ4_K, 500, 512, 14);
  std::mt19937 random(15);
  const std::vector<float> x = scene::randomRows(40, 512, random);
  const ParallelFor threads = [](int count, const std::function<void(int)>& body) {
    std::vector<std::thread> running;
    for (int i = 0; i < count; i++) running.emplace_back([&body, i] { body(i); });
    for (std::thread& thread : running) thread.join();
  };
  for (const Kernel& kernel : scene::linearKernels()) {
    const auto linear = kernel.make(3);
    for (Activations activations : {Activations::kInt8, Activations::kF32})
      for (int rows : {40, 1, 0}) {
        std::vector<float> out(static_cast<size_t>(rows) * 500);
        const LinearOutput output{layer.weight(), layer.bias.data(), out.data()};
        linear->run(x.data(), rows, &output, 1, Combine::kNone, activations, threads);
        CHECK(rows == 0 || sameBits(out, run(kernel, layer, x, rows, activations).data(), out.size()));
      }
  }
}

TEST("each body of few rows begins where it was said to, and all of them take each panel once") {
  // The kernel tells which panels it read, in this order.
  static std::vector<const uint8_t*> read;
  LinearKernel kernel = kLinearPortable;
  kernel.stream = [](BlockFormat format, const uint8_t* panel, int columns, const RowTile& tile, float* sums) {
    read.push_back(panel);
    kLinearPortable.stream(format, panel, columns, tile, sums);
  };
  std::mt19937 random(3);
  const std::vector<float> x = scene::randomRows(1, 256, random);
  for (int threads : {1, 2, 3, 5})
    for (int rows : {16, 40, 300, 900})
      for (bool gated : {false, true}) {
        const Layer layers[] = {{BlockFormat::kQ4_0, rows, 256, 5}, {BlockFormat::kQ4_K, gated ? rows : 33, 256, 6}};
        std::vector<float> y0(rows), y1(layers[1].rows);
        const LinearOutput outputs[] = {{layers[0].weight(), nullptr, y0.data()},
                                        {layers[1].weight(), nullptr, y1.data()}};
        const Combine combine = gated ? Combine::kSwiGlu : Combine::kNone;
        const auto linear = makeLinear(kernel, threads);
        std::vector<Linear::Start> starts;
        for (int t = 0; t < threads; t++) starts.push_back(linear->startOf(outputs, 2, combine, t));
        read.clear();
        int bodies = 0;
        linear->run(x.data(), 1, outputs, 2, combine, Activations::kInt8,
                    [&](int count, const std::function<void(int)>& body) {
                      bodies = count;
                      for (int i = count; i-- > 0;) {  // the last one finds all pieces but the others' first
                        const size_t before = read.size();
                        body(i);
                        CHECK(read.size() > before);
                        CHECK(read[before] == starts[i].first);
                        CHECK(!gated || read[before + 1] == starts[i].second);
                      }
                    });
        if (bodies == 0) CHECK(read[0] == starts[0].first);  // a single piece is not shared
        for (int t = std::max(1, bodies); t < threads; t++) CHECK_EQ(starts[t].bytes, size_t{0});
        for (const Linear::Start& start : starts) {
          const auto within = [&](const uint8_t* first, const Layer& layer) {
            const uint8_t* const end = layer.bytes.data() + layer.bytes.size();
            return first >= layer.bytes.data() && first <= end && start.bytes <= static_cast<size_t>(end - first);
          };
          if (start.bytes == 0) continue;
          CHECK(within(start.first, layers[0]) || (!gated && within(start.first, layers[1])));
          CHECK(gated ? within(start.second, layers[1]) : start.second == nullptr);
        }
        std::vector<const uint8_t*> wanted;
        for (const Layer& layer : layers)
          for (int64_t p = 0; p < panelsOf(layer.rows); p++)
            wanted.push_back(layer.bytes.data() + p * bytesOfPanel(layer.format, 256));
        std::sort(read.begin(), read.end());
        std::sort(wanted.begin(), wanted.end());
        CHECK(read == wanted);
      }
}

TEST("linear layers whose shapes do not fit are refused before anything is written") {
  const Layer layer(BlockFormat::kQ4_0, 20, 64, 16), wide(BlockFormat::kQ4_0, 20, 96, 17);
  const auto linear = makeLinear(Isa::kPortable, 1);
  std::vector<float> x(64), out(20, 7.0f);
  const ParallelFor one = scene::oneThread();
  const auto with = [&](std::vector<LinearOutput> outputs, Combine combine) {
    linear->run(x.data(), 1, outputs.data(), static_cast<int>(outputs.size()), combine, Activations::kInt8, one);
  };
  const LinearOutput good{layer.weight(), nullptr, out.data()};
  LinearWeight odd = layer.weight(), half = layer.weight();
  odd.columns = 48;
  half.format = BlockFormat::kQ4_K;
  CHECK_THROWS_CODE(with({}, Combine::kNone), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(with({good, {wide.weight(), nullptr, out.data()}}, Combine::kNone), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(with({{odd, nullptr, out.data()}}, Combine::kNone), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(with({{half, nullptr, out.data()}}, Combine::kNone), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(with({{layer.weight(), nullptr, nullptr}}, Combine::kNone), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(with({good}, Combine::kSwiGlu), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(makeLinear(Isa::kPortable, 0), "BAD_ARGUMENT");
  CHECK(std::all_of(out.begin(), out.end(), [](float y) { return y == 7.0f; }));
}
