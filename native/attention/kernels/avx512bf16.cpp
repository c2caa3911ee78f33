// The attention kernel for x86-64 with AVX-512 BF16 and VNNI: 16-bit dot products. Over f32 pages it is the AVX-512
// kernel. Compiled with those flags; call only if cpu/features.h supports Isa::kAvx512Bf16.
#include "attention/kernels/dot2.h"

namespace pocket {

void attendAvx512Bf16(const AttendJob& job) {
  switch (job.type) {
    case KvType::kF32: return attendAvx512(job);
    case KvType::kF16: return AttendDot2<KvType::kF16>(job).run();
    case KvType::kBf16: return AttendDot2<KvType::kBf16>(job).run();
    case KvType::kInt8: return AttendDot2<KvType::kInt8>(job).run();
  }
}

}  // namespace pocket
