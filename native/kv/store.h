// The memory that keys and values lie in: one address per slot, for all layers. It knows bytes and layout,
// not who holds a slot (that is the pool) nor the position of a key (that is the sequence).
//
// Slots come in tiles of 16, the width of a vector of floats, because the kernels read a tile at a time:
//
//   keys    [layer][kvHead][tile][headDim / pair][16][pair]   one row of 16 keys per (pair of) dimension(s)
//   values  [layer][kvHead][tile][16 / pair][headDim][pair]   one row of headDim per (pair of) token(s)
//
// pair is 2 for bf16 and int8 (what the 16-bit dot products read) and 1 for the other types. int8 has one f32 scale per
// slot, kvHead and side:   scales [layer][kvHead][tile][16]. Its keys are divided by the pair scales first: one constant
// per layer, kvHead and rotary pair, so that the few pairs that are large in every key do not set the scale of all.
// Both dimensions of a pair share it, so stored keys can still be rotated; a kernel multiplies its queries by them.
// A slot is written once, whole, by the attention kernel; nothing here ever moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pocket {

inline constexpr int kTile = 16;

enum class KvType : uint8_t { kF32, kF16, kBf16, kInt8 };

struct KvShape {
  int layers = 0;
  int kvHeads = 0;
  int headDim = 0;  // even, a multiple of 16
  int64_t slots = 0;  // a multiple of kTile
  KvType type = KvType::kF16;

  int64_t tiles() const { return slots / kTile; }
  // Elements of one side (keys or values) of one tile of one head.
  int64_t tileElements() const { return static_cast<int64_t>(kTile) * headDim; }
};

// One layer's view; lifetime is the store's. Scales are null unless the type is int8.
struct KvLayer {
  void* keys = nullptr;
  void* values = nullptr;
  float* keyScales = nullptr;
  float* valueScales = nullptr;
  const float* pairScales = nullptr;  // (kvHeads, headDim): those of the first half, and the same again
};

size_t bytesPerElement(KvType type);
const char* name(KvType type);

// One slot of one kv head, headDim floats each way. Writing rounds to nearest, ties to even; int8 takes the largest
// magnitude of the side, of a key after the pair scales, as 127. The stored bits do not depend on the machine. Other
// slots are not touched.
void writeSlot(const KvShape& shape, const KvLayer& layer, int kvHead, int64_t slot, const float* key,
               const float* value);
// What the slot holds, as the kernels see it, a key with its pair scales multiplied in again. Meaningless for a slot that
// was never written.
void readSlot(const KvShape& shape, const KvLayer& layer, int kvHead, int64_t slot, float* key, float* value);

// The given slots of one layer as stored, apart from tiles: keys [kvHead][slot][headDim], values the same, and for
// int8 scales [side][kvHead][slot]. What unpackSlots has put into any slots, packSlots takes out unchanged.
void packSlots(const KvShape& shape, const KvLayer& layer, const int32_t* slots, int32_t count, uint8_t* to);
void unpackSlots(const KvShape& shape, const KvLayer& layer, const int32_t* slots, int32_t count, const uint8_t* from);

// Owns the memory. It is reserved at once and becomes resident as slots are written (anonymous mapping), so
// an unused pool costs address space only.
class KvStore {
 public:
  // Throws OUT_OF_MEMORY with the number of bytes when the mapping is refused.
  explicit KvStore(const KvShape& shape);
  ~KvStore();
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;

  const KvShape& shape() const { return shape_; }
  KvLayer layer(int index) const;
  // Sets a layer's pair scales, (kvHeads, headDim / 2), finite and above 0; without it they are 1. Other types than int8
  // do not look at them. Before the layer's first key is written. Throws BAD_ARGUMENT.
  void setPairScales(int layer, const std::vector<float>& scales);
  size_t bytes() const { return bytes_; }
  // Keys (or values) of the given slots in one layer, widened to f32: (slots.size(), kvHeads, headDim), for
  // inspection and tests. Slots that were never written read as whatever lies there.
  std::vector<float> read(int layer, const std::vector<int32_t>& slots, bool keys) const;

 private:
  KvShape shape_;
  size_t bytes_ = 0;
  uint8_t* memory_ = nullptr;
  std::vector<float> pairScales_;  // (layers, kvHeads, headDim); empty unless the type is int8
};

}  // namespace pocket
