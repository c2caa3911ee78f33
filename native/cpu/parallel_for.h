// How a kernel spreads work over threads that it does not own.
#pragma once

#include <functional>

namespace pocket {

// Runs body(0) … body(count - 1), in any order and on any thread; returns when all are done.
using ParallelFor = std::function<void(int count, const std::function<void(int)>& body)>;

// Runs a single body on the calling thread. The body is passed by reference, because a std::function of a large
// lambda would allocate.
template <class Body>
void forEach(int count, const ParallelFor& parallelFor, const Body& body) {
  if (count == 1) body(0);
  if (count > 1) parallelFor(count, std::cref(body));
}

}  // namespace pocket
