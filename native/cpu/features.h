// The instruction sets that kernels are compiled for, and which of them this processor has. The only place that asks
// the processor. Not for files with instruction-set flags of their own: they must not emit inline functions that the
// linker could use elsewhere (linear/job.h declares Isa for them).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pocket {

// Within an architecture each has what those before it have; kPortable runs everywhere. kNeon is ARMv8.2 with the dot
// product of bytes.
enum class Isa : uint8_t { kPortable, kNeon, kAvx2, kAvx512, kAvx512Bf16, kAmx };

const char* name(Isa isa);

// Whether this processor, this system and this build can run the kernels of `isa`. For kAmx the first call asks the
// system for tile registers, for the whole process and for good.
bool supports(Isa isa);
bool hasAvx512Vnni();

// Slowest first, kPortable always. Asks for AMX.
std::vector<Isa> supportedIsas();

// By name; "" and "auto" give the fastest. Throws BAD_ARGUMENT, with the names that this machine has, for any other.
// Asks for AMX only where the answer depends on it.
Isa isaNamed(const std::string& wanted);

// Throws BAD_ARGUMENT if this machine cannot run the kernels of `isa`.
void requireSupported(Isa isa);

}  // namespace pocket
