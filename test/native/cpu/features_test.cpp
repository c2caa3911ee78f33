// Names of instruction sets, and that one choice lowers every family of kernels.
#include "cpu/features.h"

#include <string>

#include "error.h"
#include "linear/linear.h"
#include "sampler/kernels/kernels.h"
#include "support/check.h"

using namespace pocket;

namespace {

TEST("every supported instruction set is found by its name, and auto is the fastest") {
  for (const Isa isa : supportedIsas()) CHECK(isaNamed(name(isa)) == isa);
  CHECK(supportedIsas().front() == Isa::kPortable);
  CHECK(isaNamed("auto") == supportedIsas().back());
  CHECK(isaNamed("") == supportedIsas().back());
}

TEST("a name that this machine lacks is refused with the names that it has") {
  CHECK_THROWS_CODE(isaNamed("sse9"), "BAD_ARGUMENT");
#ifdef __x86_64__
  const char* foreign = "neon";
#else
  const char* foreign = "avx2";
#endif
  CHECK_THROWS_CODE(isaNamed(foreign), "BAD_ARGUMENT");
  std::string message;
  try {
    isaNamed(foreign);
  } catch (const Error& failure) {
    message = failure.what();
  }
  for (const Isa isa : supportedIsas()) CHECK(message.find(name(isa)) != std::string::npos);
}

TEST("portable means portable kernels for linear layers and the sampler") {
  CHECK_EQ(std::string(makeLinear(isaNamed("portable"), 1)->kernel()), "portable");
  CHECK_EQ(std::string(rowLoopsFor(isaNamed("portable")).name), "portable");
}

TEST("linear layers and the sampler take the kernels of the instruction set that is asked for") {
  for (const Isa isa : supportedIsas()) {
    const std::string linear = makeLinear(isa, 1)->kernel();
    if (isa == Isa::kAvx2) CHECK_EQ(linear, "avx2");
    if (isa == Isa::kNeon) CHECK_EQ(linear, "neon");
    if (isa == Isa::kAvx512Bf16) CHECK_EQ(linear, "avx512vnni");
    if (isa == Isa::kAvx2) CHECK_EQ(std::string(rowLoopsFor(isa).name), "avx2");
    if (isa >= Isa::kAvx512) CHECK_EQ(std::string(rowLoopsFor(isa).name), "avx512");
  }
}

}  // namespace
