// Whether AMX's tiles may be used here: the processor has them, the system saves them when it switches threads, and it
// has let this process have them.
#pragma once

namespace pocket {

// Asks the system for tiles on the first call, for the whole process and for good. False where this build has no kernel
// that would use them.
bool hasAmx();

}  // namespace pocket
