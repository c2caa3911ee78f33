// Memory of a linear layer that grows and is kept: aligned arrays, and what each thread needs to multiply a piece:
// memory, and the state of the processor that a kernel asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "linear/job.h"

namespace pocket {

// Numbers at a multiple of 64 bytes. Growing forgets what was in them.
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
  static constexpr int kColumns = 512;       // of a panel opened at once: 8 KiB of codes
  static constexpr int kFloatColumns = 256;  // in f32: 16 KiB

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

// A thread that may call the kernel's multiply, from now to the end of this.
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
