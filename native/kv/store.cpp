// The store's memory and the conversion of one slot to and from it. The layouts are drawn in kv/store.h.
#include "kv/store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/half.h"
#include "error.h"

namespace pocket {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// A huge page becomes resident whole, and a small pool has many sides of less than one.
constexpr size_t kHugeFrom = 16 * kHugePage;

// Offset of the elements of one slot and kv head, in elements from the layer's start of a side.
struct SlotLayout {
  int64_t tile;  // first element of the slot's tile
  int lane;
  int pair;
  int headDim;

  SlotLayout(const KvShape& shape, int kvHead, int64_t slot)
      : tile((kvHead * shape.tiles() + slot / kTile) * shape.tileElements()),
        lane(static_cast<int>(slot % kTile)),
        pair(shape.type == KvType::kBf16 || shape.type == KvType::kInt8 ? 2 : 1),
        headDim(shape.headDim) {}
  int64_t key(int d) const { return tile + (d / pair * kTile + lane) * pair + d % pair; }
  int64_t value(int d) const { return tile + (lane / pair * headDim + d) * pair + lane % pair; }
};

int64_t scaleAt(const KvShape& shape, int kvHead, int64_t slot) { return kvHead * shape.slots + slot; }

// Returns the step of a symmetric 8-bit grid that just reaches the largest of count magnitudes.
template <class At>
float stepOf(int count, At at) {
  float largest = 0;
  for (int i = 0; i < count; i++) largest = std::fabs(at(i)) > largest ? std::fabs(at(i)) : largest;
  return largest / 127.0f;
}

int8_t byteOf(float x, float inverse) {
  const float scaled = x * inverse;
  if (!(scaled > -127.0f)) return -127;  // not-a-number as well: a byte cannot hold it
  return static_cast<int8_t>(scaled < 127.0f ? std::nearbyintf(scaled) : 127.0f);
}

template <class Element, class Convert>
void scatter(const SlotLayout& at, const KvLayer& layer, const float* key, const float* value, Convert convert) {
  Element* keys = static_cast<Element*>(layer.keys);
  Element* values = static_cast<Element*>(layer.values);
  for (int d = 0; d < at.headDim; d++) keys[at.key(d)] = convert(key[d]);
  for (int d = 0; d < at.headDim; d++) values[at.value(d)] = convert(value[d]);
}

template <class Element, class Convert>
void gather(const SlotLayout& at, const KvLayer& layer, float* key, float* value, Convert convert) {
  const Element* keys = static_cast<const Element*>(layer.keys);
  const Element* values = static_cast<const Element*>(layer.values);
  for (int d = 0; d < at.headDim; d++) key[d] = convert(keys[at.key(d)]);
  for (int d = 0; d < at.headDim; d++) value[d] = convert(values[at.value(d)]);
}

void scatterBytes(const KvShape& shape, const KvLayer& layer, int kvHead, int64_t slot, const float* key,
                  const float* value) {
  const SlotLayout at(shape, kvHead, slot);
  const float* pairScales = layer.pairScales + int64_t{kvHead} * shape.headDim;
  const auto narrowed = [&](int d) { return key[d] / pairScales[d]; };
  const float keyStep = stepOf(shape.headDim, narrowed);
  const float valueStep = stepOf(shape.headDim, [&](int d) { return value[d]; });
  const float keyInverse = keyStep > 0 ? 1.0f / keyStep : 0.0f, valueInverse = valueStep > 0 ? 1.0f / valueStep : 0.0f;
  int8_t* keys = static_cast<int8_t*>(layer.keys);
  int8_t* values = static_cast<int8_t*>(layer.values);
  for (int d = 0; d < shape.headDim; d++) keys[at.key(d)] = byteOf(narrowed(d), keyInverse);
  for (int d = 0; d < shape.headDim; d++) values[at.value(d)] = byteOf(value[d], valueInverse);
  layer.keyScales[scaleAt(shape, kvHead, slot)] = keyStep;
  layer.valueScales[scaleAt(shape, kvHead, slot)] = valueStep;
}

// Calls visit(element in the store, element in the pack) for keys, then values, then the scales. Order as in kv/store.h.
template <class Element, class Visit, class VisitScale>
void visitPack(const KvShape& shape, const KvLayer& layer, const int32_t* slots, int32_t count, Visit visit,
               VisitScale visitScale) {
  Element* keys = static_cast<Element*>(layer.keys);
  Element* values = static_cast<Element*>(layer.values);
  const int64_t side = static_cast<int64_t>(shape.kvHeads) * count * shape.headDim;
  int64_t at = 0;
  for (int kvHead = 0; kvHead < shape.kvHeads; kvHead++) {
    for (int32_t i = 0; i < count; i++, at += shape.headDim) {
      const SlotLayout layout(shape, kvHead, slots[i]);
      for (int d = 0; d < shape.headDim; d++) visit(keys[layout.key(d)], at + d);
      for (int d = 0; d < shape.headDim; d++) visit(values[layout.value(d)], side + at + d);
    }
  }
  if (shape.type != KvType::kInt8) return;
  const int64_t scales = static_cast<int64_t>(shape.kvHeads) * count;
  for (int64_t i = 0; i < scales; i++) {
    const int64_t stored = scaleAt(shape, static_cast<int>(i / count), slots[i % count]);
    visitScale(layer.keyScales[stored], i);
    visitScale(layer.valueScales[stored], scales + i);
  }
}

// Calls use(element type) for the shape's width: packing moves bits and does not ask what they mean.
template <class Use>
void withElement(KvType type, Use use) {
  switch (bytesPerElement(type)) {
    case 4: return use(uint32_t{});
    case 2: return use(uint16_t{});
    default: return use(uint8_t{});
  }
}

// Where the scales of a pack begin, in bytes.
int64_t packedElements(const KvShape& shape, int32_t count) {
  return 2 * static_cast<int64_t>(shape.kvHeads) * count * shape.headDim;
}

}  // namespace

size_t bytesPerElement(KvType type) {
  switch (type) {
    case KvType::kF32: return 4;
    case KvType::kF16: return 2;
    case KvType::kBf16: return 2;
    case KvType::kInt8: return 1;
  }
  return 0;
}

const char* name(KvType type) {
  switch (type) {
    case KvType::kF32: return "f32";
    case KvType::kF16: return "f16";
    case KvType::kBf16: return "bf16";
    case KvType::kInt8: return "int8";
  }
  return "unknown";
}

void writeSlot(const KvShape& shape, const KvLayer& layer, int kvHead, int64_t slot, const float* key,
               const float* value) {
  const SlotLayout at(shape, kvHead, slot);
  switch (shape.type) {
    case KvType::kF32: return scatter<float>(at, layer, key, value, [](float x) { return x; });
    case KvType::kF16: return scatter<uint16_t>(at, layer, key, value, halfOf);
    case KvType::kBf16: return scatter<uint16_t>(at, layer, key, value, bf16Of);
    case KvType::kInt8: return scatterBytes(shape, layer, kvHead, slot, key, value);
  }
}

void packSlots(const KvShape& shape, const KvLayer& layer, const int32_t* slots, int32_t count, uint8_t* to) {
  withElement(shape.type, [&](auto element) {
    using Element = decltype(element);
    Element* elements = reinterpret_cast<Element*>(to);
    float* scales = reinterpret_cast<float*>(elements + packedElements(shape, count));
    visitPack<Element>(
        shape, layer, slots, count, [&](Element& stored, int64_t at) { elements[at] = stored; },
        [&](float& stored, int64_t at) { scales[at] = stored; });
  });
}

void unpackSlots(const KvShape& shape, const KvLayer& layer, const int32_t* slots, int32_t count, const uint8_t* from) {
  withElement(shape.type, [&](auto element) {
    using Element = decltype(element);
    const Element* elements = reinterpret_cast<const Element*>(from);
    const float* scales = reinterpret_cast<const float*>(elements + packedElements(shape, count));
    visitPack<Element>(
        shape, layer, slots, count, [&](Element& stored, int64_t at) { stored = elements[at]; },
        [&](float& stored, int64_t at) { stored = scales[at]; });
  });
}

void readSlot(const KvShape& shape, const KvLayer& layer, int kvHead, int64_t slot, float* key, float* value) {
  const SlotLayout at(shape, kvHead, slot);
  switch (shape.type) {
    case KvType::kF32: return gather<float>(at, layer, key, value, [](float x) { return x; });
    case KvType::kF16: return gather<uint16_t>(at, layer, key, value, ofHalf);
    case KvType::kBf16: return gather<uint16_t>(at, layer, key, value, ofBf16);
    case KvType::kInt8: break;
  }
  gather<int8_t>(at, layer, key, value, [](int8_t x) { return static_cast<float>(x); });
  const float* pairScales = layer.pairScales + int64_t{kvHead} * shape.headDim;
  for (int d = 0; d < shape.headDim; d++) {
    key[d] *= layer.keyScales[scaleAt(shape, kvHead, slot)] * pairScales[d];
    value[d] *= layer.valueScales[scaleAt(shape, kvHead, slot)];
  }
}

// The whole mapping: keys of all layers, values of all layers, then the scales of each.
KvStore::KvStore(const KvShape& shape) : shape_(shape) {
  if (shape.layers < 1 || shape.kvHeads < 1 || shape.headDim < 16 || shape.headDim % 16 != 0 || shape.slots < kTile ||
      shape.slots % kTile != 0)
    throw error("BAD_ARGUMENT", "a store of %d layers, %d kv heads of %d, %lld slots: heads and slots come in 16s",
                shape.layers, shape.kvHeads, shape.headDim, static_cast<long long>(shape.slots));
  size_t elements = 0, perSide = 0;
  const size_t lanes = static_cast<size_t>(shape.layers) * shape.kvHeads;
  if (__builtin_mul_overflow(lanes, static_cast<size_t>(shape.slots), &elements) ||
      __builtin_mul_overflow(elements, shape.headDim * bytesPerElement(shape.type) + sizeof(float), &perSide) ||
      __builtin_mul_overflow(perSide, size_t{2}, &bytes_))
    throw error("OUT_OF_MEMORY",
                "more bytes than there are addresses could not be had for %lld slots of keys and "
                "values.",
                static_cast<long long>(shape.slots));
  if (shape.type != KvType::kInt8) bytes_ -= 2 * elements * sizeof(float);
  // NORESERVE: the pool may be larger than what is ever used, and only written pages count.
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw error("OUT_OF_MEMORY", "%zu bytes could not be had for keys and values.", bytes_);
  memory_ = static_cast<uint8_t*>(memory);
#ifdef MADV_HUGEPAGE
  // Advice only: a kernel without huge pages serves small ones.
  const size_t side = static_cast<size_t>(shape.slots) * shape.headDim * bytesPerElement(shape.type);
  if (side >= kHugeFrom) madvise(memory_, bytes_, MADV_HUGEPAGE);
#endif
  if (shape.type == KvType::kInt8) pairScales_.assign(lanes * static_cast<size_t>(shape.headDim), 1.0f);
}

KvStore::~KvStore() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

KvLayer KvStore::layer(int index) const {
  const size_t layerElements = static_cast<size_t>(shape_.kvHeads) * shape_.slots * shape_.headDim;
  const size_t layerBytes = layerElements * bytesPerElement(shape_.type);
  const size_t sideBytes = layerBytes * shape_.layers;
  KvLayer layer;
  layer.keys = memory_ + index * layerBytes;
  layer.values = memory_ + sideBytes + index * layerBytes;
  if (shape_.type == KvType::kInt8) {
    const size_t layerScales = static_cast<size_t>(shape_.kvHeads) * shape_.slots;
    float* scales = reinterpret_cast<float*>(memory_ + 2 * sideBytes);
    layer.keyScales = scales + index * layerScales;
    layer.valueScales = scales + (shape_.layers + index) * layerScales;
    layer.pairScales = pairScales_.data() + static_cast<size_t>(index) * shape_.kvHeads * shape_.headDim;
  }
  return layer;
}

void KvStore::setPairScales(int layer, const std::vector<float>& scales) {
  const size_t half = static_cast<size_t>(shape_.headDim) / 2, count = half * shape_.kvHeads;
  if (layer < 0 || layer >= shape_.layers || scales.size() != count)
    throw error("BAD_ARGUMENT", "%zu pair scales for layer %d: each of %d layers has %zu", scales.size(), layer,
                shape_.layers, count);
  for (const float scale : scales)
    if (!(scale > 0) || !std::isfinite(scale))
      throw error("BAD_ARGUMENT", "a pair scale of layer %d is %g: they are finite and above 0", layer, double{scale});
  if (pairScales_.empty()) return;
  float* to = pairScales_.data() + 2 * count * layer;
  for (int kvHead = 0; kvHead < shape_.kvHeads; kvHead++)
    for (int side = 0; side < 2; side++, to += half) std::copy_n(scales.data() + kvHead * half, half, to);
}

std::vector<float> KvStore::read(int index, const std::vector<int32_t>& slots, bool keys) const {
  const KvLayer view = layer(index);
  const size_t headDim = static_cast<size_t>(shape_.headDim);
  std::vector<float> out(slots.size() * static_cast<size_t>(shape_.kvHeads) * headDim);
  std::vector<float> unwanted(headDim);
  float* to = out.data();
  for (const int32_t slot : slots) {
    for (int kvHead = 0; kvHead < shape_.kvHeads; kvHead++, to += headDim) {
      readSlot(shape_, view, kvHead, slot, keys ? to : unwanted.data(), keys ? unwanted.data() : to);
    }
  }
  return out;
}

}  // namespace pocket
