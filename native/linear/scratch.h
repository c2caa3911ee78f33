// Scratch memory of linear layers: arrays that grow and are aligned, the buffers of one thread, and the processor state
// that a kernel needs on a thread.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "linear/job.h"

namespace pocket {

// An array aligned to 64 bytes. Growing discards the contents.
template <class T>
class AlignedArray {
 public:
  void grow(int64_t count) {
    if (count <= count_) return;
    memory_.reset();
    count_ = 0;
    memory_.reset(static_cast<T*>(::operator new(sizeof(T) * count, std::align_val_t{64})));
    count_ = count;
  }
  T* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(T* memory) const { ::operator delete(memory, std::align_val_t{64}); }
  };
  std::unique_ptr<T, Free> memory_;
  int64_t count_ = 0;
};

struct LinearScratch {
  static constexpr int kColumns = 512;  // columns unpacked at once: 8 KiB of codes
  static constexpr int kFloatColumns = 256;  // columns dequantized at once: 16 KiB

  LinearScratch() {
    codes.grow(kColumns * kPanelRows);
    scales.grow(kColumns / 16 * kPanelRows);
    minima.grow(kColumns / kGroupColumns * kPanelRows);
    floats.grow(kFloatColumns * kPanelRows);
  }
  UnpackedPanel panel() const { return {codes.data(), scales.data(), minima.data()}; }

  AlignedArray<uint8_t> codes;
  AlignedArray<float> scales;
  AlignedArray<float> minima;
  AlignedArray<float> floats;
  AlignedArray<float> sums;
};

// While in scope, this thread may call the kernel's multiply (enables AMX tiles).
class TileScope {
 public:
  TileScope(const LinearKernel& kernel, bool multiplies) : leave_(multiplies ? kernel.leave : nullptr) {
    if (multiplies && kernel.enter != nullptr) kernel.enter();
  }
  ~TileScope() {
    if (leave_ != nullptr) leave_();
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  void (*leave_)();
};

}  // namespace pocket
