// The linear kernel in plain C++, for machines that have no kernel of their own.
#include "linear/kernels/portable.h"

namespace pocket {

const LinearKernel kLinearPortable = LinearTable<PortableMath>::named("portable");

}  // namespace pocket
