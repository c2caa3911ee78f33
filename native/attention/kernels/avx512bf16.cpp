// The attention kernel for x86-64 with AVX-512, its bf16 dot product and VNNI: products of 16-bit numbers, added in
// f32 or in 32-bit integers. Over f32 pages it is the AVX-512 kernel. Runs only after attention/attention.cpp has asked the
// processor.
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
