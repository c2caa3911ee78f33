// Runs linear layers: checks shapes, quantizes the rows of x, splits the work into pieces of panels, and distributes
// them to threads. Selects the kernel for an instruction set. Does no arithmetic; that is linear/kernels/kernel.h.
//
// Few rows (decode, short prompts): each panel is streamed once per tile of rows. Many rows: a piece is a few panels
// and some hundred rows. Chunk by chunk along the columns, each panel is unpacked into memory that fits L1 and
// multiplied with all tiles of rows, whose chunk fits L2. Sums stay in scratch memory between chunks.
#include "linear/linear.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "error.h"
#include "linear/job.h"
#include "linear/scratch.h"

namespace pocket {
namespace {

constexpr int kStreamBytes = 192 * 1024;  // minimum bytes of weights in a streamed piece
constexpr int kStreamTiles = 3;  // most tiles of rows that stream a panel; with more, unpacking pays
constexpr int kBlockRows = 256;  // rows of x in a piece: with its sums about half of L2
constexpr int kPiecePanels = 8;
constexpr int kPiecesPerThread = 4;  // target, to balance threads of different speed
constexpr int kSerialFloats = 1 << 16;  // x up to this size is quantized by the calling thread

struct Tile {
  int first = 0;
  int rows = 0;
};

// Panels [first, end) of outputs[output] against tiles [firstTile, endTile).
struct Piece {
  int output = 0;
  int first = 0;
  int end = 0;
  int firstTile = 0;
  int endTile = 0;
};

// Throws BAD_ARGUMENT before any write if the shapes do not fit or an output is missing.
void checkShapes(const float* x, int rows, const LinearOutput* outputs, int count, Combine combine) {
  if (rows < 0 || count < 1 || outputs == nullptr || (rows > 0 && x == nullptr))
    throw error("BAD_ARGUMENT", "a linear layer of %d rows and %d outputs: give x, and one output or more", rows,
                count);
  const int columns = outputs[0].weight.columns;
  for (int i = 0; i < count; i++) {
    const LinearWeight& weight = outputs[i].weight;
    const int unit = layoutOf(weight.format).recordColumns();
    if (weight.rows < 1 || weight.columns < unit || weight.columns % unit != 0 || weight.columns != columns ||
        weight.panels == nullptr)
      throw error("BAD_ARGUMENT",
                  "output %d of a linear layer is a %s matrix of %d x %d next to one of %d columns: "
                  "columns come in %ds and are the same for all outputs",
                  i, name(weight.format), weight.rows, weight.columns, columns, unit);
    if (rows > 0 && outputs[i].out == nullptr && !(combine == Combine::kSwiGlu && i == 1))
      throw error("BAD_ARGUMENT", "output %d of a linear layer has nowhere to go", i);
  }
  if (combine == Combine::kSwiGlu && (count != 2 || outputs[0].weight.rows != outputs[1].weight.rows))
    throw error("BAD_ARGUMENT",
                "a gate and its factor are two outputs of equal shape; here are %d, the first of %d "
                "rows, the last of %d",
                count, outputs[0].weight.rows, outputs[count - 1].weight.rows);
}

class BlockLinear final : public Linear {
 public:
  BlockLinear(const LinearKernel& kernel, int threads) : kernel_(kernel), threads_(threads), scratch_(threads) {}

  const char* kernel() const override { return kernel_.name; }

  void run(const float* x, int rows, const LinearOutput* outputs, int count, Combine combine, Activations activations,
           const ParallelFor& parallelFor) const override {
    checkShapes(x, rows, outputs, count, combine);
    if (rows == 0) return;
    const bool few = activations == Activations::kInt8 && rows <= kernel_.streamRows * kStreamTiles;
    const bool floats = activations == Activations::kF32;
    const int tileRows = few ? kernel_.streamRows : floats ? kernel_.floatRows : kernel_.tileRows;
    cutRows(rows, tileRows);
    Job job{outputs, count, outputs[0].weight.columns, combine == Combine::kSwiGlu, few, tileRows, activations};
    prepare(x, rows, job, parallelFor);
    cutPieces(job);
    const int pieces = static_cast<int>(pieces_.size());
    const int bodies = std::min(threads_, pieces);
    std::atomic<int> next{bodies};
    // A thread's first piece is fixed, so that its weights can be prefetched (startOf).
    const auto drain = [&](int thread) {
      const TileScope scope(kernel_, !few && !floats);
      for (int i = thread; i < pieces; i = next++) compute(job, pieces_[i], scratch_[thread]);
    };
    forEach(bodies, parallelFor, drain);
  }

  Start startOf(const LinearOutput* outputs, int count, Combine combine, int thread) const override {
    const Job job{outputs, count, outputs[0].weight.columns, combine == Combine::kSwiGlu, true, 1, Activations::kInt8};
    cutPieces(job);
    if (static_cast<size_t>(thread) >= pieces_.size()) return {};
    const Piece& piece = pieces_[static_cast<size_t>(thread)];
    const LinearWeight& weight = outputs[piece.output].weight;
    const size_t panel = bytesOfPanel(weight.format, job.columns), panels = panelsOf(weight.rows) - piece.first;
    if (!job.paired) return {weight.panels + piece.first * panel, nullptr, panels * panel};
    const LinearWeight& factor = outputs[1].weight;
    const size_t other = bytesOfPanel(factor.format, job.columns);
    return {weight.panels + piece.first * panel, factor.panels + piece.first * other, panels * std::min(panel, other)};
  }

 private:
  struct Job {
    const LinearOutput* outputs;
    int count;
    int columns;
    bool paired;  // outputs 0 and 1 form one result (SwiGLU)
    bool few;
    int tileRows;  // at most
    Activations activations;
  };

  // --- rows of x ---

  void cutRows(int rows, int maxTileRows) const {
    const int count = (rows + maxTileRows - 1) / maxTileRows;
    tiles_.clear();
    for (int i = 0, first = 0; i < count; first += tiles_.back().rows, i++)
      tiles_.push_back({first, rows / count + (i < rows % count ? 1 : 0)});
  }

  // Fills the quantized rows, or for f32 the rows transposed within each tile.
  void prepare(const float* x, int rows, const Job& job, const ParallelFor& parallelFor) const {
    const int64_t numbers = static_cast<int64_t>(rows) * job.columns, groups = numbers / kGroupColumns;
    const bool floats = job.activations == Activations::kF32;
    if (floats) floats_.grow(numbers);
    else growQuantized(job, groups);
    const auto tile = [&](int i) {
      floats ? transpose(x, job.columns, tiles_[i]) : quantize(x, job.columns, tiles_[i]);
    };
    const int count = static_cast<int>(tiles_.size());
    if (numbers > kSerialFloats) return forEach(count, parallelFor, tile);
    for (int i = 0; i < count; i++) tile(i);
  }

  void growQuantized(const Job& job, int64_t groups) const {
    codes_.grow((groups + kMaxTileRows) * kGroupColumns);  // a kernel may read past the last row of a tile
    scales_.grow(groups);
    for (int e = 0; e < kExtras; e++) wanted_[e] = false;
    for (int i = 0; i < job.count; i++) wanted_[static_cast<int>(extraOf(job.outputs[i].weight.format))] = true;
    for (int e = 0; e < kExtras; e++)
      if (wanted_[e]) extras_[e].grow(groups * wordsOf(static_cast<Extra>(e)));
  }

  void transpose(const float* x, int columns, const Tile& tile) const {
    float* to = floats_.data() + static_cast<int64_t>(tile.first) * columns;
    for (int r = 0; r < tile.rows; r++) {
      const float* from = x + static_cast<int64_t>(tile.first + r) * columns;
      for (int k = 0; k < columns; k++) to[static_cast<int64_t>(k) * tile.rows + r] = from[k];
    }
  }

  void quantize(const float* x, int columns, const Tile& tile) const {
    const int64_t first = static_cast<int64_t>(tile.first) * columns, group = first / kGroupColumns;
    RowTileBuffers to{codes_.data() + first, scales_.data() + group, {}};
    for (int e = 0; e < kExtras; e++)
      if (wanted_[e]) to.extras[e] = extras_[e].data() + group * wordsOf(static_cast<Extra>(e));
    kernel_.quantize(x + first, columns, tile.rows, columns, to);
  }

  // The tile from `column` on, a multiple of 32.
  RowTile quantized(const Tile& tile, const Job& job, BlockFormat format, int column) const {
    const int64_t at = static_cast<int64_t>(tile.first) * job.columns + static_cast<int64_t>(column) * tile.rows;
    const Extra extra = extraOf(format);
    return {codes_.data() + at, scales_.data() + at / kGroupColumns,
            extras_[static_cast<int>(extra)].data() + at / kGroupColumns * wordsOf(extra), tile.rows};
  }

  // --- pieces ---

  void cutPieces(const Job& job) const {
    pieces_.clear();
    const int results = job.paired ? 1 : job.count, tileCount = static_cast<int>(tiles_.size());
    int64_t panels = 0;
    for (int o = 0; o < results; o++) panels += panelsOf(job.outputs[o].weight.rows);
    const int64_t wanted = static_cast<int64_t>(threads_) * kPiecesPerThread;
    const int maxStep = static_cast<int>(std::max<int64_t>(1, panels / wanted));
    if (job.few) return cutStream(job, results, panels, maxStep);
    int blocks = (tileCount * job.tileRows + kBlockRows - 1) / kBlockRows;
    if (threads_ > 1 && panels * blocks < wanted)
      blocks = static_cast<int>(std::min<int64_t>(tileCount, (wanted + panels - 1) / panels));
    for (int o = 0; o < results; o++) {
      const int end = static_cast<int>(panelsOf(job.outputs[o].weight.rows));
      const int step = std::min(maxStep, kPiecePanels / (job.paired ? 2 : 1));
      for (int p = 0; p < end; p += step)
        for (int b = 0; b < blocks; b++)
          pieces_.push_back({o, p, std::min(end, p + step), static_cast<int>(int64_t{tileCount} * b / blocks),
                             static_cast<int>(int64_t{tileCount} * (b + 1) / blocks)});
    }
  }

  // Large pieces first, because each start waits for memory; small pieces last, to balance the threads.
  void cutStream(const Job& job, int results, int64_t panels, int64_t maxStep) const {
    for (int o = 0; o < results; o++) {
      const LinearWeight& weight = job.outputs[o].weight;
      const int end = static_cast<int>(panelsOf(weight.rows));
      const int64_t minStep = kStreamBytes / (bytesOfPanel(weight.format, job.columns) * (job.paired ? 2 : 1));
      for (int p = 0; p < end; panels -= pieces_.back().end - p, p = pieces_.back().end) {
        const int64_t step = std::max({int64_t{1}, std::min(minStep, maxStep), panels / (2 * threads_)});
        const int pieceEnd = static_cast<int>(std::min<int64_t>(end, p + step));
        pieces_.push_back({o, p, pieceEnd, 0, static_cast<int>(tiles_.size())});
      }
    }
  }

  void compute(const Job& job, const Piece& piece, LinearScratch& scratch) const {
    if (job.few) return streamPiece(job, piece);
    const Tile& lastTile = tiles_[piece.endTile - 1];
    const int rows = lastTile.first + lastTile.rows - tiles_[piece.firstTile].first;
    const int sides = job.paired ? 2 : 1, panels = piece.end - piece.first;
    const int64_t side = static_cast<int64_t>(panels) * rows * kPanelRows;
    scratch.sums.grow(side * sides);
    std::memset(scratch.sums.data(), 0, sizeof(float) * side * sides);
    for (int s = 0; s < sides; s++)
      multiplyPiece(job, piece, job.outputs[piece.output + s].weight, rows, scratch, scratch.sums.data() + side * s);
    const float* sums = scratch.sums.data();
    finish(job, piece, tiles_[piece.firstTile].first, rows, sums, job.paired ? sums + side : nullptr);
  }

  // Adds the products of a piece to sums (panels, rows, 16).
  void multiplyPiece(const Job& job, const Piece& piece, const LinearWeight& weight, int rows, LinearScratch& scratch,
                     float* sums) const {
    const BlockLayout layout = layoutOf(weight.format);
    const size_t panelSize = bytesOfPanel(weight.format, job.columns);
    const bool floats = job.activations == Activations::kF32;
    const int chunk = floats ? LinearScratch::kFloatColumns : LinearScratch::kColumns;
    for (int k = 0; k < job.columns; k += chunk)
      for (int p = piece.first; p < piece.end; p++) {
        const int columns = std::min(chunk, job.columns - k);
        const uint8_t* record = weight.panels + p * panelSize + k / layout.recordColumns() * layout.recordBytes;
        if (floats) kernel_.dequantize(weight.format, record, columns, scratch.floats.data());
        else kernel_.unpack(weight.format, record, columns, scratch.panel());
        float* to = sums + static_cast<int64_t>(p - piece.first) * rows * kPanelRows;
        for (int t = piece.firstTile; t < piece.endTile; to += tiles_[t++].rows * kPanelRows) {
          const Tile& tile = tiles_[t];
          if (floats)
            kernel_.multiplyFloats(scratch.floats.data(),
                                   floats_.data() + int64_t{tile.first} * job.columns + int64_t{k} * tile.rows, columns,
                                   tile.rows, to);
          else kernel_.multiply(weight.format, scratch.panel(), columns, quantized(tile, job, weight.format, k), to);
        }
      }
  }

  void streamPiece(const Job& job, const Piece& piece) const {
    for (int p = piece.first; p < piece.end; p++)
      for (const Tile& tile : tiles_) streamPanel(job, piece.output, p, tile);
  }

  void streamPanel(const Job& job, int output, int p, const Tile& tile) const {
    alignas(64) float sums[2][kMaxTileRows * kPanelRows];
    for (int s = 0; s < (job.paired ? 2 : 1); s++) {
      const LinearWeight& weight = job.outputs[output + s].weight;
      std::memset(sums[s], 0, sizeof(float) * tile.rows * kPanelRows);
      kernel_.stream(weight.format, weight.panels + p * bytesOfPanel(weight.format, job.columns), job.columns,
                     quantized(tile, job, weight.format, 0), sums[s]);
    }
    finish(job, {output, p, p + 1, 0, 1}, tile.first, tile.rows, sums[0], job.paired ? sums[1] : nullptr);
  }

  void finish(const Job& job, const Piece& piece, int firstRow, int rows, const float* sums,
              const float* factor) const {
    const LinearOutput& output = job.outputs[piece.output];
    const int n = piece.first * kPanelRows;
    Finish to;
    to.sums = sums;
    to.factor = factor;
    to.bias = output.bias == nullptr ? nullptr : output.bias + n;
    if (factor != nullptr && job.outputs[1].bias != nullptr) to.factorBias = job.outputs[1].bias + n;
    to.stride = output.weight.rows;
    to.out = output.out + firstRow * to.stride + n;
    to.rows = rows;
    to.lanes = std::min(piece.end * kPanelRows, output.weight.rows) - n;
    kernel_.finish(to);
  }

  const LinearKernel& kernel_;
  int threads_;
  // State of the current run, kept to reuse its memory.
  mutable std::vector<Tile> tiles_;
  mutable std::vector<Piece> pieces_;
  mutable AlignedArray<int8_t> codes_;
  mutable AlignedArray<float> scales_;
  mutable AlignedArray<int32_t> extras_[kExtras];
  mutable bool wanted_[kExtras] = {};
  mutable AlignedArray<float> floats_;
  mutable std::vector<LinearScratch> scratch_;
};

}  // namespace

const LinearKernel& linearKernelFor(Isa isa) {
  switch (isa) {
#ifdef __x86_64__
#ifdef POCKET_AMX
    case Isa::kAmx: return linearKernelAmx();
#endif
    case Isa::kAvx512Bf16:
    case Isa::kAvx512:
      if (hasAvx512Vnni()) return kLinearAvx512Vnni;
      return kLinearAvx2;
    case Isa::kAvx2: return kLinearAvx2;
#endif
#ifdef __aarch64__
    case Isa::kNeon: return kLinearNeon;
#endif
    default: return kLinearPortable;
  }
}

std::unique_ptr<Linear> makeLinear(Isa isa, int threads) {
  requireSupported(isa);
  return makeLinear(linearKernelFor(isa), threads);
}

std::unique_ptr<Linear> makeLinear(const LinearKernel& kernel, int threads) {
  if (threads < 1) throw error("BAD_ARGUMENT", "linear layers on %d threads: give one or more", threads);
  return std::make_unique<BlockLinear>(kernel, threads);
}

}  // namespace pocket
